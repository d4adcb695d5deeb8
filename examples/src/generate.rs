//! The `generate` example: text in, text out, with figures.
//!
//! `bytes_read`, `bytes_issued`, `io_wait_s` and `read_gb_s` are of the whole run, prompt
//! included; `hit_rate`, `token_hit_rate`, `decode_tok_s`, `bytes_per_token` and `io_wait_share`
//! are of decoding alone. The JSON object has both phases in full as well.

mod arguments;
mod report;

use std::ffi::OsString;

use slotstream::core::ErrorKind;
use slotstream::sampling::SamplingParams;
use slotstream::{Engine, Error, FinishReason, Session, SessionOptions, TextOptions};

use crate::console::parse;
use crate::prompt::{Prompt, Room};
use crate::warm::Warm;
use crate::{Console, Ended, Failure};

pub use arguments::{Arguments, Stats};
use report::{Generated, Report};

/// What is continued when no prompt is given.
const BUILT_IN_PROMPT: &str = "CHAPTER II\n\nMr. Darcy ";

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is; after the model was loaded, figures so far are shown
/// before an error of a pass is returned.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    arguments.check()?;
    console.progress &= !arguments.json();
    let sampling = arguments.sampling();
    sampling.validate().map_err(Error::from)?;
    let built_in = || Prompt::Text { text: BUILT_IN_PROMPT.to_owned(), chat: false };
    let prompt = match console.waiting(|| arguments.prompt.read())? {
        None if arguments.load_session.is_none() => Some(built_in()),
        given => given,
    };
    let model = arguments.engine.find_model()?;
    arguments.check_files(&model.path)?;
    let builder = arguments.engine.builder(&model, &console.cancel)?;
    let builder = builder.progress(console.load_progress());
    let (builder, recorder) = console
        .waiting(|| arguments.trace.begin(builder, &arguments.engine, &model, "generate"))?;
    let (builder, watchers) = arguments.shadow.begin(builder)?;
    let engine = builder.build()?;
    watchers.check()?;
    let mut session = begin(&engine, &arguments, sampling)?;
    session.set_cancel(console.cancel.clone());
    let goes_on = prompt.is_none();
    let tokens = match prompt {
        Some(prompt) => prompt.tokens(engine.text(), &console.cancel)?,
        None => session.tokens().to_vec(),
    };
    Room::new(engine.checkpoint(), engine.context()).check(&tokens)?;
    recorder.start()?;
    let mut warm = arguments.warm.begin(&engine, &console.cancel)?;
    if arguments.prints_prompt() {
        console.write(BUILT_IN_PROMPT)?;
    }
    let generated = generate(&mut session, (&tokens, goes_on), &arguments, console);
    // Whatever has ended the generation, Ctrl-C as well: the recording is whole up to there.
    let recorded = recorder.finish(&engine);
    let saved = warm.as_mut().map_or(Ok(()), |warm| warm.save(&engine));
    let generated = generated?;
    if let (Some(path), None) = (&arguments.save_session, &generated.error) {
        session.save(path)?;
    }
    let shadows = watchers.figures()?;
    let mut report = Report::new(&session, tokens.len(), &generated, &arguments.engine, shadows);
    report.warm_start = warm.as_ref().map(Warm::figures);
    if arguments.json() {
        console.line(&report.json()?)?;
    } else {
        console.line(&format!("\n{}", report.text()))?;
    }
    recorded?;
    saved?;
    match generated.error {
        None => Ok(Ended::Done),
        Some(error) if error.kind() == ErrorKind::Cancelled => Ok(Ended::Interrupted),
        Some(error) => Err(error.into()),
    }
}

/// A new session, or the one that was kept.
fn begin(
    engine: &Engine,
    arguments: &Arguments,
    sampling: SamplingParams,
) -> Result<Session, Error> {
    let Some(path) = &arguments.load_session else {
        return engine.session(SessionOptions::new().with_sampling(sampling));
    };
    let mut session = engine.load_session(path)?;
    if sampling != SamplingParams::GREEDY {
        session.set_sampling(sampling)?;
    }
    Ok(session)
}

/// Runs the prompt and generates, writing each piece at once. An error of a pass is part of the
/// result: the figures so far are still worth showing.
fn generate(
    session: &mut Session,
    (prompt, goes_on): (&[u32], bool),
    arguments: &Arguments,
    console: &mut Console<'_>,
) -> Result<Generated, Failure> {
    let bar = console.bar(prompt.len() as u64, "prompt", false);
    // A session that goes on by itself keeps what of it was generated: penalties are on that.
    let result = if goes_on {
        Ok(0)
    } else {
        session.prompt_with(prompt, |done, _| bar.set_position(done as u64))
    };
    bar.finish_and_clear();
    if let Err(error) = result {
        return match error.kind() {
            // Nothing has run: the request itself is wrong.
            ErrorKind::User => Err(error.into()),
            _ => {
                let finish = FinishReason::of(&error);
                Ok(Generated { text: None, finish, error: Some(error) })
            }
        };
    }
    let silent = arguments.quiet;
    let mut sink = |text: &str| if silent { Ok(()) } else { console.write(text) };
    let generated = match session.engine().tokenizer() {
        Ok(_) => pieces(session, arguments, &mut sink)?,
        // A model without a tokenizer speaks ids, but stop strings need text.
        Err(_) if arguments.stop.is_empty() => ids(session, arguments, &mut sink)?,
        Err(error) => return Err(error.into()),
    };
    if !silent {
        console.write("\n")?;
    }
    Ok(generated)
}

fn pieces(
    session: &mut Session,
    arguments: &Arguments,
    sink: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<Generated, Failure> {
    let mut options = TextOptions::new(arguments.max_tokens).ignoring_eos(arguments.ignore_eos);
    for stop in &arguments.stop {
        options = options.with_stop(stop);
    }
    let mut pieces = session.generate(&options)?;
    let (mut text, mut error) = (String::new(), None);
    // After an error the iterator still gives the text that it held back.
    for piece in &mut pieces {
        match piece {
            Ok(piece) => {
                sink(&piece.text)?;
                text.push_str(&piece.text);
            }
            Err(failed) => error = Some(failed),
        }
    }
    let finish = pieces.finish_reason().cloned().unwrap_or(FinishReason::Length);
    Ok(Generated { text: Some(text), finish, error })
}

fn ids(
    session: &mut Session,
    arguments: &Arguments,
    sink: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<Generated, Failure> {
    let mut tokens = session.generate_ids(arguments.max_tokens).ignoring_eos(arguments.ignore_eos);
    let mut error = None;
    for token in &mut tokens {
        match token {
            Ok(token) => sink(&format!("{token} "))?,
            Err(failed) => error = Some(failed),
        }
    }
    let finish = tokens.finish_reason().cloned().unwrap_or(FinishReason::Length);
    Ok(Generated { text: None, finish, error })
}
