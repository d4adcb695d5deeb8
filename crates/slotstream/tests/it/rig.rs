//! The bundled model and its goldens.

use std::path::PathBuf;

use safetensors::SafeTensors;
use slotstream::{Engine, EngineBuilder, Session, SessionOptions, Sizing};

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

/// Token ids computed by transformers: `p1.input_ids`, `p1.greedy_ids`, ...
pub(crate) fn golden(name: &str) -> Vec<u32> {
    let path = root().join("crates/slotstream-qwen/tests/fixtures/tiny-moe/golden.safetensors");
    let bytes = std::fs::read(path).expect("a fixture");
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
