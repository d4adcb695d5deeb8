//! The traces that come with the trained model.

use std::path::PathBuf;

use slotstream_replay::{Recording, TraceFormat};

use crate::places::bundled;

#[test]
fn every_bundled_trace_is_read() {
    let names = [
        ("api-docs-std-net", 1536),
        ("book-nomicon", 1536),
        ("code-rust-compiler", 1536),
        ("generated-sampled", 1540),
        ("mix-four-domains", 1536),
        ("prose-austen", 1536),
    ];
    let folder = bundled("").parent().map(PathBuf::from).expect("a folder");
    assert_eq!(std::fs::read_dir(folder).expect("there").count(), names.len());
    for (name, passes) in names {
        let recording = Recording::open(bundled(name)).expect(name);
        assert_eq!(recording.format(), TraceFormat::Text);
        let geometry = recording.header().geometry;
        assert_eq!((geometry.layers(), geometry.experts(), geometry.top_k()), (12, 56, 6));
        let requests = recording.requests().expect(name);
        assert_eq!((requests.passes().len(), requests.rejected()), (passes, 0), "{name}");
        assert_eq!(requests.lookups(), passes as u64 * 72, "{name}");
        let first = requests.pass(0).expect("a pass");
        assert_eq!(first.visits().len(), 12);
        assert!(first.step().tokens[0] > 0 && first.step().tokens.len() == 1, "{name}");
    }
    let austen = Recording::open(bundled("prose-austen")).expect("there");
    let note = "held-out document: Jane Austen novels (janeaustenr) / Persuasion/8";
    assert_eq!(austen.header().note, note);
    let requests = austen.requests().expect("read before");
    let first: Vec<u16> = requests
        .pass(0)
        .expect("a pass")
        .visits()
        .next()
        .expect("a visit")
        .ids()
        .iter()
        .map(|id| id.get())
        .collect();
    assert_eq!(first, [33, 4, 51, 5, 48, 30]);
    assert_eq!(requests.pass(1).expect("a pass").step().tokens, [3833]);
}
