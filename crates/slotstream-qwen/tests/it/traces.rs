//! The routes of six documents against the traces that transformers recorded.

use std::io::Read;
use std::sync::Arc;

use slotstream_kernels::Cpu;
use slotstream_qwen::Logits;

use crate::rig::{Rig, fixture, tiny_model};

/// A gap between router logits below which rounding decides: the graph and transformers differ
/// by about 2e-5 in the logits of the last layer.
const ROUNDING: f32 = 1e-4;

pub(crate) struct Trace {
    pub(crate) tokens: Vec<u32>,
    /// `[tokens, layers, top_k]` in descending weight.
    ids: Vec<u32>,
}

/// The trace of a document, or of one that has none its tokens alone.
pub(crate) fn read(name: &str) -> Trace {
    let file = std::fs::File::open(fixture(&format!("tiny-moe/traces/{name}.txt.gz")));
    let tokens = || std::fs::File::open(fixture(&format!("tiny-moe/tokens/{name}.txt.gz")));
    let file = file.or_else(|_| tokens());
    let mut text = String::new();
    flate2::read::GzDecoder::new(file.expect("a fixture")).read_to_string(&mut text).expect("gzip");
    let mut trace = Trace { tokens: Vec::new(), ids: Vec::new() };
    for line in text.lines() {
        if let Some(tokens) = line.strip_prefix("# token_ids ") {
            trace.tokens = tokens.split(' ').map(|t| t.parse().expect("an id")).collect();
        } else if !line.starts_with('#') {
            let mut numbers = line.split(' ').map(|n| n.parse::<u32>().expect("a number"));
            numbers.by_ref().take(2).for_each(drop);
            trace.ids.extend(numbers);
        }
    }
    trace
}

/// What of a document's routes is not the trace's.
#[derive(Debug, Default)]
struct Difference {
    routes: usize,
    sets: usize,
    largest_gap: f32,
}

fn compare(rig: &mut Rig, trace: &Trace) -> Difference {
    let config = rig.model.config().clone();
    let (layers, top_k) = (config.num_hidden_layers, config.num_experts_per_tok);
    let (mut state, mut row, mut found) = (rig.state(), 0, Difference::default());
    for chunk in trace.tokens.chunks(128) {
        rig.run(&mut state, chunk, Logits::None, None);
        for routed in rig.recorder.take() {
            for i in 0..chunk.len() {
                let own = &routed.ids[i * top_k..][..top_k];
                let logits = &routed.logits[i * config.num_experts..][..config.num_experts];
                let start = ((row + i) * layers + routed.layer) * top_k;
                let golden = &trace.ids[start..start + top_k];
                found.routes += 1;
                if !own.iter().all(|id| golden.contains(id)) {
                    found.sets += 1;
                }
                for (own, golden) in own.iter().zip(golden).filter(|(a, b)| a != b) {
                    let gap = (logits[*own as usize] - logits[*golden as usize]).abs();
                    found.largest_gap = found.largest_gap.max(gap);
                }
            }
        }
        row += chunk.len();
    }
    found
}

#[test]
fn routes_are_the_traces_up_to_rounding() {
    let mut rig = Rig::new(&tiny_model(), Arc::new(Cpu::new(2).expect("two threads")), 0.5);
    for name in [
        "api-docs-std-net",
        "book-nomicon",
        "code-rust-compiler",
        "generated-sampled",
        "mix-four-domains",
        "prose-austen",
    ] {
        let trace = read(name);
        let layers = rig.model.config().num_hidden_layers;
        assert_eq!(trace.ids.len(), trace.tokens.len() * layers * 6, "{name}");
        let found = compare(&mut rig, &trace);
        let share = 1.0 - found.sets as f64 / found.routes as f64;
        println!(
            "{name}: {} routes, {:.4}% identical sets, {} others, largest logit gap of a \
             different choice {:.1e}",
            found.routes,
            100.0 * share,
            found.sets,
            found.largest_gap
        );
        assert_eq!(found.routes, trace.tokens.len() * layers, "{name}");
        assert!(share > 0.999, "{name}: {share}");
        assert!(found.largest_gap < ROUNDING, "{name}: {}", found.largest_gap);
    }
}
