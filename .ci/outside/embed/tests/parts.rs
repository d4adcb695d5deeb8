//! Parts that three other strangers wrote, in an engine: another speed, the same tokens.

use std::sync::Arc;

use outside_forecaster::PreviousToken;
use outside_policy::SampledLru;
use outside_reader::{Files, Retrying};
use slotstream::core::RecordReader;
use slotstream::{Engine, EngineBuilder, Error, PhaseMetrics, SessionOptions, Sizing};

/// A small pool, so that the policy has to choose.
fn builder() -> EngineBuilder {
    let folder = std::env::var_os("MODEL").expect("MODEL names the folder of a model");
    Engine::builder(folder).sizing(Sizing::Share(0.1)).context(256)
}

/// Twelve tokens, and what decoding them cost.
fn tokens(engine: &Engine) -> Result<(Vec<u32>, PhaseMetrics), Error> {
    let mut session = engine.session(SessionOptions::new())?;
    session.prefill_text("CHAPTER II\n\nMr. Darcy ")?;
    let tokens = session.generate_ids(12).collect::<Result<_, _>>()?;
    Ok((tokens, session.metrics().decode))
}

#[test]
fn the_parts_of_others_change_no_token() -> Result<(), Error> {
    let (expected, built_in) = tokens(&builder().build()?)?;
    assert_eq!(expected.len(), 12);

    let engine = builder().policy(Box::new(SampledLru::new(5, 1))).build()?;
    let (found, decode) = tokens(&engine)?;
    assert_eq!(found, expected);
    assert_eq!(engine.policy_name(), "sampled-lru:samples=5+seed=1");
    assert_ne!(decode.hits, built_in.hits, "another policy hits other records");

    let open_reader = |paths: &[std::path::PathBuf]| {
        Ok(Arc::new(Retrying::new(Files::open(paths)?, 3)) as Arc<dyn RecordReader>)
    };
    let engine = builder().open_reader(Box::new(open_reader)).build()?;
    assert_eq!(tokens(&engine)?.0, expected);
    assert!(engine.reader_mode().why.ends_with("up to 3 attempts a read"));

    let engine = builder().forecaster(Box::new(PreviousToken::new())).build()?;
    let (found, decode) = tokens(&engine)?;
    assert_eq!(found, expected);
    assert!(decode.predictions > 0, "the forecaster was not asked");
    Ok(())
}
