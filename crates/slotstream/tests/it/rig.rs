//! The bundled model and its goldens.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use safetensors::SafeTensors;
use slotstream::core::{CancelToken, EventSink, LayerIdx, RecordReader, Routing, Step};
use slotstream::io::{ReaderKind, open_reader};
use slotstream::{Engine, EngineBuilder, Session, SessionOptions, Sizing};
use slotstream_testkit::reader::{CountingReader, FaultyReader, Schedule};

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn tiny_model() -> PathBuf {
    root().join("examples/models/tiny-moe")
}

pub(crate) fn random_model() -> PathBuf {
    root().join("crates/slotstream-qwen/tests/fixtures/random/checkpoint")
}

/// An engine for the bundled model with room for the goldens.
pub(crate) fn builder() -> EngineBuilder {
    Engine::builder(tiny_model()).sizing(Sizing::Share(0.3)).threads(1).context(1024)
}

pub(crate) fn session(engine: &Engine) -> Session {
    engine.session(SessionOptions::new()).expect("greedy is legal")
}

/// An engine for the random checkpoint; its prompts are short and its pool is small.
pub(crate) fn random_builder() -> EngineBuilder {
    Engine::builder(random_model()).sizing(Sizing::Slots(8)).threads(1).context(256)
}

/// Token ids of the bundled model computed by transformers: `p1.input_ids`, `p1.greedy_ids`, ...
pub(crate) fn golden(name: &str) -> Vec<u32> {
    golden_of("tiny-moe", name)
}

/// Token ids of the random checkpoint: `p1.input_ids`, `p1.greedy.ids`, ...
pub(crate) fn random_golden(name: &str) -> Vec<u32> {
    golden_of("random", name)
}

fn golden_of(model: &str, name: &str) -> Vec<u32> {
    let fixtures = root().join("crates/slotstream-qwen/tests/fixtures").join(model);
    let bytes = std::fs::read(fixtures.join("golden.safetensors")).expect("a fixture");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let view = file.tensor(name).expect("a golden");
    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("4 bytes"));
    view.data().chunks_exact(4).map(word).collect()
}

/// Generates `count` tokens after the prompt.
pub(crate) fn greedy(session: &mut Session, prompt: &[u32], count: usize) -> Vec<u32> {
    session.prefill(prompt).expect("runs");
    let ids = session.generate_ids(count).ignoring_eos(true);
    ids.collect::<Result<_, _>>().expect("runs")
}

/// The error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// An engine that reads by what `wrap` makes of a buffered reader, and that reader.
pub(crate) fn reading_by<R: RecordReader + 'static>(
    builder: EngineBuilder,
    wrap: impl FnOnce(Arc<dyn RecordReader>) -> R + 'static,
) -> (Engine, Arc<R>) {
    let (tell, hear) = std::sync::mpsc::channel();
    let open = move |paths: &[PathBuf]| {
        let reader = Arc::new(wrap(open_reader(ReaderKind::Buffered, paths)?));
        tell.send(Arc::clone(&reader))?;
        Ok(reader as Arc<dyn RecordReader>)
    };
    let engine = builder.open_reader(Box::new(open)).build().expect("builds");
    (engine, hear.recv().expect("opened"))
}

type Counting = Arc<CountingReader<Arc<dyn RecordReader>>>;

/// An engine, and a log of what it reads.
pub(crate) fn counted(builder: EngineBuilder) -> (Engine, Counting) {
    reading_by(builder, CountingReader::new)
}

pub(crate) type Faulty = Arc<FaultyReader<Arc<dyn RecordReader>>>;

/// An engine, and its reader, which fails as this when it is armed.
pub(crate) fn faulty(builder: EngineBuilder, fault: std::io::ErrorKind) -> (Engine, Faulty) {
    reading_by(builder, move |inner| FaultyReader::new(inner, Schedule::Never, fault))
}

/// Cancels a token when the router of a layer has decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trip(Arc<Mutex<Option<(LayerIdx, CancelToken)>>>);

impl EventSink for Trip {
    fn on_step(&mut self, _step: &Step<'_>) {}
    fn on_routing(&mut self, routing: &Routing<'_>) {
        if let Some((layer, token)) = &*self.0.lock().expect("not poisoned")
            && routing.layer() == *layer
        {
            token.cancel();
        }
    }
}

impl Trip {
    /// From now on: which layer, and which token.
    pub(crate) fn set(&self, at: Option<(LayerIdx, CancelToken)>) {
        *self.0.lock().expect("not poisoned") = at;
    }
}
