//! What goes out comes back, in every format.

use std::io::Write;

use slotstream_core::{EventSink, Geometry, Outcome, Phase, Prediction, Routing, Step, Tap};
use slotstream_replay::{
    Event, Pass, Recording, Requests, StepEvent, Table, TableWriter, TraceError, TraceFormat,
    TraceOptions, TraceReader, TraceWriter, Visit, write_oracle_general, write_text,
};

use crate::engine::{CALM, WILD};
use crate::exact::{geometry, record};
use crate::places::bundled;

/// A pass and its visits: layer, experts, weights.
type Asked = (StepEvent, Vec<(u16, Vec<u16>, Vec<f32>)>);

/// What was asked.
fn asked(requests: &Requests) -> Vec<Asked> {
    let visit = |v: Visit<'_>| {
        let ids = v.ids().iter().map(|id| id.get()).collect();
        (v.layer().get(), ids, v.weights().to_vec())
    };
    let pass = |pass: Pass<'_>| ((&pass.step()).into(), pass.visits().map(visit).collect());
    requests.passes().map(pass).collect()
}

fn requests(bytes: Vec<u8>) -> Requests {
    Recording::from_bytes("memory", bytes).expect("legal").requests().expect("legal")
}

fn table(bytes: &[u8], table: Table) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = TableWriter::new(&mut out, table);
    TraceReader::new(bytes, "memory").expect("whole").play(&mut writer).expect("whole");
    assert!(writer.finish().expect("memory is enough") > 0);
    out
}

#[test]
fn events_come_back_as_they_were_told() {
    /// Keeps what it is told, with the logits that a trace keeps.
    #[derive(Debug, Default)]
    struct Told(Vec<Event>);
    impl EventSink for Told {
        fn on_step(&mut self, step: &Step<'_>) {
            self.0.push(Event::Step(step.into()));
        }
        fn on_routing(&mut self, routing: &Routing<'_>) {
            self.0.push(Event::Routing(routing.into()));
        }
        fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
            self.0.push(Event::Forecast { at, predictions: predictions.to_vec() });
        }
        fn on_outcome(&mut self, outcome: &Outcome) {
            self.0.push(Event::Outcome(*outcome));
        }
    }
    /// Tells two.
    #[derive(Debug)]
    struct Both<'a>(&'a mut Told, &'a mut dyn EventSink);
    impl EventSink for Both<'_> {
        fn on_attach(&mut self, pool: &slotstream_core::Attached<'_>) {
            self.1.on_attach(pool);
        }
        fn on_step(&mut self, step: &Step<'_>) {
            self.0.on_step(step);
            self.1.on_step(step);
        }
        fn on_routing(&mut self, routing: &Routing<'_>) {
            self.0.on_routing(routing);
            self.1.on_routing(routing);
        }
        fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
            self.0.on_forecast(at, predictions);
            self.1.on_forecast(at, predictions);
        }
        fn on_outcome(&mut self, outcome: &Outcome) {
            self.0.on_outcome(outcome);
            self.1.on_outcome(outcome);
        }
    }
    // 20 experts and top-2: 10 logits are kept.
    let geometry = Geometry::new(3, 20, 2).expect("legal");
    for detail in [false, true] {
        let (mut told, mut bytes) = (Told::default(), Vec::new());
        let options = TraceOptions::new().with_detail(detail).with_model("m").with_policy("my lru");
        let mut writer = TraceWriter::new(&mut bytes, "memory", options);
        let policy = slotstream_cache::parse_policy("lru").expect("known");
        let mut both = Both(&mut told, &mut writer);
        crate::engine::Engine::new(geometry, 9, policy, (4, WILD), &mut both).run(300);
        let totals = writer.finish(None).expect("memory is enough");
        drop(writer);
        let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
        let header = reader.header().clone();
        assert_eq!((header.policy.as_str(), header.model.as_str()), ("my lru", "m"));
        assert_eq!((header.slots, header.floor, header.record_bytes), (9, 4, 1000));
        assert_eq!((header.weights, header.logits), (detail, if detail { 10 } else { 0 }));
        let mut events = reader.events();
        let read: Vec<Event> = events.by_ref().map(|event| event.expect("whole")).collect();
        assert_eq!(totals.events(), read.len() as u64);
        assert_eq!(events.end().map(|end| (end.totals, end.pool)), Some((totals, None)));
        for event in &mut told.0 {
            if let Event::Routing(routing) = event {
                if !detail {
                    (routing.weights, routing.logits) = (Vec::new(), Vec::new());
                }
                for row in routing.logits.chunks_mut(20) {
                    let mut order = row.to_vec();
                    order.sort_by(|a, b| b.total_cmp(a));
                    for logit in row.iter_mut().filter(|logit| **logit < order[9]) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
        assert!(told.0 == read, "detail {detail}");
    }
}

#[test]
fn tables_come_back() {
    for (detail, habits) in [(true, CALM), (false, WILD)] {
        let (bytes, ..) = record("lru", 7, (5, habits), 60, detail);
        let native = Recording::from_bytes("memory", bytes.clone()).expect("whole");
        assert_eq!(native.format(), TraceFormat::Native);
        let want = asked(&native.requests().expect("whole"));
        for (kind, format) in [(Table::Csv, TraceFormat::Csv), (Table::Jsonl, TraceFormat::Jsonl)] {
            let text = table(&bytes, kind);
            let back = Recording::from_bytes("memory", text).expect("legal");
            assert_eq!((back.format(), back.header().geometry), (format, geometry()));
            assert_eq!(asked(&back.requests().expect("legal")), want, "{kind:?} {detail}");
        }
        let keys = requests(table(&bytes, Table::Keys));
        let lookups: usize = keys.passes().len();
        assert_eq!(lookups as u64, native.requests().expect("whole").lookups());
    }
}

#[test]
fn texts_and_packed_files_come_back() {
    let austen = Recording::open(bundled("prose-austen")).expect("there");
    let requests_there = austen.requests().expect("legal");
    let mut text = Vec::new();
    write_text(&requests_there, &austen.header().note, &mut text).expect("memory is enough");
    // The bundled file, to the byte.
    let packed = std::fs::read(bundled("prose-austen")).expect("there");
    let mut unpacked = Vec::new();
    let mut decoder = flate2::write::GzDecoder::new(&mut unpacked);
    decoder.write_all(&packed).and_then(|()| decoder.try_finish()).expect("gzip");
    drop(decoder);
    assert!(unpacked == text, "the exported text differs from the bundled one");
    // Any format may be packed.
    let (bytes, ..) = record("lru", 7, (5, WILD), 60, false);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&bytes).expect("memory is enough");
    let packed = encoder.finish().expect("memory is enough");
    assert_eq!(asked(&requests(packed)), asked(&requests(bytes)));
}

#[test]
fn oracle_general_says_when_a_record_comes_again() {
    let mut out = Vec::new();
    let keys = requests(b"a\nb\na\na\nc\nb\n".to_vec());
    assert_eq!(write_oracle_general(&keys, 1, &mut out).expect("memory is enough"), 6);
    let mut want = Vec::new();
    for (time, object, next) in
        [(0_u32, 0_u64, 3_i64), (1, 1, 6), (2, 0, 4), (3, 0, -1), (4, 2, -1), (5, 1, -1)]
    {
        want.extend(time.to_le_bytes());
        want.extend(object.to_le_bytes());
        want.extend(1_u32.to_le_bytes());
        want.extend(next.to_le_bytes());
    }
    assert_eq!(out, want);
    let back = Recording::from_bytes("memory", out.clone()).expect("legal");
    assert_eq!(back.format(), TraceFormat::OracleGeneral);
    assert_eq!(asked(&back.requests().expect("legal")), asked(&keys));
    // A request of size 0 is left out, as libCacheSim does.
    out[12..16].fill(0);
    assert_eq!(requests(out.clone()).passes().len(), 5);
    out.pop();
    let error =
        Recording::from_bytes_as("memory", out, TraceFormat::OracleGeneral).expect_err("cut");
    assert!(matches!(error, TraceError::Line { line: 6, .. }), "{error}");
}

#[test]
fn more_keys_than_a_layer_holds_make_layers() {
    let text: String = (0..70_000).map(|key| format!("key-{key}\n")).collect();
    let header = Recording::from_bytes("memory", text.into_bytes()).expect("legal");
    let geometry = header.header().geometry;
    assert_eq!((geometry.layers(), geometry.experts(), geometry.top_k()), (2, 65_535, 1));
}

#[test]
fn texts_that_cannot_be_are_named_by_line() {
    use TraceFormat::{Csv, Jsonl, Keys, Text};
    let head = "pass,layer,row,rank,expert\n";
    let cases: &[(TraceFormat, &str, u64, &str)] = &[
        (Csv, "pass,layer,row,rank\n", 1, "header"),
        (Csv, "pass,layer,row,rank,expert,expert\n", 1, "header"),
        (Csv, "pass,layer,row,rank,expert,mood\n", 1, "header"),
        (Csv, &format!("{head}0,0,0,0\n"), 2, "line"),
        (Csv, &format!("{head}0,0,0,0,1,2\n"), 2, "line"),
        (Csv, &format!("{head}0,0,0,0,x\n"), 2, "expert"),
        (Csv, &format!("{head}0,65535,0,0,1\n"), 2, "layer"),
        (Csv, &format!("{head}-1,0,0,0,1\n"), 2, "pass"),
        (Csv, &format!("{head}0,0,0,1,1\n"), 2, "row and rank"),
        (Csv, &format!("{head}0,0,0,0,1\n0,0,2,0,1\n"), 3, "row and rank"),
        (Csv, &format!("{head}0,0,0,0,1\n0,0,0,1,2\n0,0,1,0,1\n0,0,2,0,1\n"), 5, "rank"),
        (Csv, &format!("{head}0,0,0,0,1\n0,0,0,1,2\n0,0,1,0,1\n"), 4, "rows"),
        (Csv, &format!("{head}0,0,0,0,1\n1,0,0,0,1\n1,0,0,1,2\n"), 4, "experts"),
        (Csv, "pass,layer,row,rank,expert,phase\n0,0,0,0,1,sleep\n", 2, "phase"),
        (Csv, "pass,layer,row,rank,expert,weight\n0,0,0,0,1,much\n", 2, "weight"),
        (Csv, &format!("# layers 0 experts 1 top_k 1\n{head}0,0,0,0,0\n"), 1, "geometry"),
        (Csv, &format!("# layers 1 experts 1 top_k 1\n{head}0,0,0,0,1\n"), 0, "geometry"),
        (Jsonl, "{\"pass\":0}\n", 1, "object"),
        (Jsonl, "{\"pass\":0,\"layer\":0,\"experts\":[[1],[1,2]]}\n", 1, "experts"),
        (Jsonl, "{\"pass\":0,\"layer\":0,\"experts\":[[65535]]}\n", 1, "layer and experts"),
        (Jsonl, "{\"pass\":0,\"layer\":0,\"experts\":[[]]}\n", 1, "experts"),
        (Jsonl, "{\"pass\":0,\"layer\":0,\"experts\":[]}\n", 1, "experts"),
        (
            Jsonl,
            "{\"pass\":0,\"layer\":0,\"experts\":[[1]],\"weights\":[[1.0,2.0]]}\n",
            1,
            "weights",
        ),
        (Jsonl, "{\"pass\":0,\"layer\":0,\"experts\":[[1]],\"tokens\":[1,2]}\n", 1, "rows"),
        (Jsonl, "{\"pass\":0,\"layer\":0,\"experts\":[[1]],\"mood\":1}\n", 1, "object"),
        (Jsonl, "{\"geometry\":{\"layers\":1,\"experts\":1,\"top_k\":2}}\n", 1, "geometry"),
        (Jsonl, "{\n", 1, "object"),
        (Text, "0 0\n", 1, "experts"),
        (Text, "0 0 1 2\n0 1 1\n", 2, "experts"),
        (Text, "0 x 1\n", 1, "layer"),
        (Text, "# token_ids 1 -2\n0 0 1\n", 1, "token id"),
        (Keys, "a\nb c\n", 2, "key"),
    ];
    for (format, text, at, about) in cases {
        let read = Recording::from_bytes_as("memory", text.as_bytes(), *format);
        let error = read.expect_err(text);
        let TraceError::Line { line, ref field, .. } = error else { panic!("{text}: {error}") };
        assert_eq!((line, field.as_str()), (*at, *about), "{text}: {error}");
        assert_eq!(error.kind(), slotstream_core::ErrorKind::Corrupt);
    }
    for text in ["", "# only\n", "pass,layer,row,rank,expert\n"] {
        let error = Recording::from_bytes_as("memory", text.as_bytes(), Csv).expect_err(text);
        assert!(matches!(error, TraceError::Empty { .. }), "{text}: {error}");
    }
    let error = Recording::from_bytes("memory", &b"Dear diary, it rained.\n"[..]).expect_err("no");
    assert!(matches!(error, TraceError::UnknownFormat { .. }), "{error}");
    let error = Recording::open("/nonexistent/trace").expect_err("not there");
    assert_eq!(error.kind(), slotstream_core::ErrorKind::User);
}

#[test]
fn a_writer_never_fails_whoever_tells_it() {
    /// Takes 100 bytes.
    #[derive(Debug)]
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let len = bytes.len().min(self.0);
            self.0 -= len;
            if len == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(len) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let policy = || slotstream_cache::parse_policy("lru").expect("known");
    let mut writer = TraceWriter::new(Full(100), "full disk", TraceOptions::new());
    crate::engine::Engine::new(geometry(), 7, policy(), (1, WILD), &mut writer).run(1000);
    let error = writer.finish(None).expect_err("no space");
    assert!(matches!(error, TraceError::Io { offset: 61, .. }), "{error}");
    assert!(error.to_string().starts_with("full disk: writing failed"), "{error}");
    let again = writer.finish(None).expect_err("finished");
    assert!(matches!(again, TraceError::Finished { .. }), "{again}");
    // Told before it was attached, and never attached.
    let tokens = [1];
    let step = Step {
        pass: slotstream_core::PassId::new(0),
        phase: Phase::Decode,
        session: slotstream_core::SessionId::new(0),
        position: 0,
        tokens: &tokens,
    };
    for told in [true, false] {
        let mut writer = TraceWriter::new(Vec::new(), "memory", TraceOptions::new());
        if told {
            writer.on_step(&step);
        }
        let error = writer.finish(None).expect_err("never attached");
        assert!(matches!(error, TraceError::Unwritable { .. }), "{error}");
    }
}

#[test]
fn an_interrupted_recording_is_readable() {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, "memory", TraceOptions::new());
    let policy = slotstream_cache::parse_policy("lru").expect("known");
    crate::engine::Engine::new(geometry(), 7, policy, (1, WILD), &mut writer).run(100);
    // Dropped without an end.
    drop(writer);
    let recording = Recording::from_bytes("memory", bytes).expect("its header");
    let error = recording.requests().expect_err("no end mark");
    let TraceError::Truncated { passes: 99, .. } = error else { panic!("{error}") };
    let requests = recording.lenient(true).requests().expect("lenient");
    assert_eq!(requests.passes().len(), 100);
}
