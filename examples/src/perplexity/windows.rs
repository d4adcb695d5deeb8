//! What a perplexity is computed of.

use std::path::{Path, PathBuf};

use slotstream::core::{CancelToken, SessionId};
use slotstream::{Engine, Error};
use slotstream_replay::{Recording, Requests};

use super::Arguments;
use crate::outputs::Input;
use crate::text_file::read_text;
use crate::{Failure, read_windows};

/// Held-out windows of the bundled model, seen from the repository's root.
const HELD_OUT: &str = "crates/slotstream-qwen/tests/fixtures/tiny-moe/golden.safetensors";
/// The most that is read of a text.
const TEXT_LIMIT: u64 = 256 << 20;
/// Tokens of a window when nothing else is asked for.
const WINDOW: usize = 2048;

/// A sequence and how many of its last tokens are predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) tokens: Vec<u32>,
    pub(super) predictions: usize,
}

/// A text before it is tokens of this model.
pub(super) enum Source {
    Ids {
        tensor: String,
        width: usize,
        ids: Vec<u32>,
    },
    Text {
        path: PathBuf,
        text: String,
        window: Option<usize>,
        stride: Option<usize>,
    },
    /// The tokens of each session of a trace.
    Sessions {
        path: PathBuf,
        sessions: Vec<Vec<u32>>,
    },
}

/// The files that are read for it.
pub(super) fn inputs(arguments: &Arguments) -> Vec<Input<'_>> {
    let Arguments { text, tokens_of, windows, .. } = arguments;
    let mut inputs = Vec::new();
    inputs.extend(text.as_ref().map(|path| Input::File("--text", path.into())));
    inputs.extend(tokens_of.as_ref().map(|path| Input::File("--tokens-of", path.into())));
    if let Some(what) = windows {
        // With the name of a tensor behind it, or without.
        let paths = [what.rsplit_once(':').map_or(what.as_str(), |(path, _)| path), what];
        inputs.extend(paths.map(|path| Input::File("--windows", Path::new(path).into())));
    }
    if inputs.is_empty() {
        inputs.push(Input::File("the held-out windows", held_out().into()));
    }
    inputs
}

impl Source {
    pub(super) fn read(arguments: &Arguments) -> Result<Self, Failure> {
        let at_least = |option, value: Option<usize>, least: usize| match value {
            Some(found) if found < least => {
                let (value, expected) = (found.to_string(), format!("at least {least}"));
                Err(Failure::Option { option, value, expected })
            }
            _ => Ok(()),
        };
        at_least("--window", arguments.window, 2)?;
        at_least("--stride", arguments.stride, 1)?;
        at_least("--first", arguments.first, 1)?;
        if let Some(path) = &arguments.text {
            let text = read_text(path, TEXT_LIMIT)?;
            let (window, stride) = (arguments.window, arguments.stride);
            return Ok(Self::Text { path: path.clone(), text, window, stride });
        }
        if let Some(path) = &arguments.tokens_of {
            let sessions = sessions(&Recording::open(path)?.requests()?);
            // Formats without tokens give 0 for each.
            if sessions.iter().flatten().all(|token| *token == 0) {
                let what = format!("{} names no tokens: it", path.display());
                return Err(Failure::NothingToScore { what, tokens: 0 });
            }
            return Ok(Self::Sessions { path: path.clone(), sessions });
        }
        let found = match &arguments.windows {
            Some(what) => read_windows(what)?,
            None => read_windows(&held_out().to_string_lossy())?,
        };
        if found.width < 2 {
            let what = format!("a window of tensor `{}`", found.tensor);
            return Err(Failure::NothingToScore { what, tokens: found.width });
        }
        Ok(Self::Ids { tensor: found.tensor, width: found.width, ids: found.ids })
    }

    /// Tokens of the longest window, where that is known before the model is loaded.
    pub(super) fn longest(&self) -> Option<usize> {
        match self {
            Self::Sessions { sessions, .. } => sessions.iter().map(Vec::len).max(),
            Self::Ids { width, .. } => Some(*width),
            Self::Text { window, .. } => *window,
        }
    }

    pub(super) fn windows(
        self,
        engine: &Engine,
        arguments: &Arguments,
        cancel: &CancelToken,
    ) -> Result<Vec<Window>, Failure> {
        let context = engine.context();
        let most = arguments.first.map_or(usize::MAX, |first| first.saturating_add(arguments.skip));
        let (name, tokens, window, stride) = match self {
            Self::Sessions { path, sessions } => {
                let length = sessions.iter().map(Vec::len).max().unwrap_or(0);
                legal("the longest session", length, context, "the context")?;
                let windows = sessions.into_iter().filter(|tokens| tokens.len() > 1);
                let windows =
                    windows.map(|tokens| Window { predictions: tokens.len() - 1, tokens });
                let windows = windows.take(most).collect();
                return some(windows, arguments.skip, path.display().to_string(), length);
            }
            Self::Ids { tensor, width, ids } => (tensor, ids, width, width),
            Self::Text { path, text, window, stride } => {
                let tokenizer = engine.tokenizer()?;
                let tokens = tokenizer.encode_cancellable(&text, true, cancel);
                let tokens = tokens.map_err(Error::from)?;
                let window = window.unwrap_or(WINDOW.min(context));
                (path.display().to_string(), tokens, window, stride.unwrap_or(window))
            }
        };
        legal("window", window, context, "the context")?;
        legal("--stride", stride, window, "the window")?;
        let windows = cut(&tokens, window, stride, most);
        some(windows, arguments.skip, name, tokens.len())
    }
}

fn legal(option: &'static str, value: usize, most: usize, what: &str) -> Result<(), Failure> {
    if value <= most {
        return Ok(());
    }
    let (value, expected) = (value.to_string(), format!("at most {what} ({most})"));
    Err(Failure::Option { option, value, expected })
}

/// The windows but the first `skip`. `what` has so many tokens, all windows together or the
/// longest.
fn some(
    mut windows: Vec<Window>,
    skip: usize,
    what: String,
    tokens: usize,
) -> Result<Vec<Window>, Failure> {
    match windows.len() {
        0 => Err(Failure::NothingToScore { what, tokens }),
        all => {
            legal("--skip", skip, all - 1, "one less than there are windows")?;
            Ok(windows.split_off(skip))
        }
    }
}

/// The tokens of each session, in the order in which the sessions began. A pass that ran again
/// from an earlier position replaces what was there.
fn sessions(requests: &Requests) -> Vec<Vec<u32>> {
    let mut known: Vec<SessionId> = Vec::new();
    let mut sessions: Vec<Vec<u32>> = Vec::new();
    for pass in requests.passes() {
        let step = pass.step();
        let at = known.iter().position(|id| *id == step.session).unwrap_or_else(|| {
            known.push(step.session);
            sessions.push(Vec::new());
            sessions.len() - 1
        });
        sessions[at].truncate(usize::try_from(step.position).unwrap_or(usize::MAX));
        sessions[at].extend_from_slice(step.tokens);
    }
    sessions
}

/// The held-out windows: of the repository that this was built from, else below the current
/// folder.
fn held_out() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(HELD_OUT);
    if built.is_file() { built } else { HELD_OUT.into() }
}

/// Cuts tokens into at most `most` windows of `width` that start every `stride` tokens; the last
/// may be shorter. A token is predicted by the first window that has it and tokens before it.
fn cut(tokens: &[u32], width: usize, stride: usize, most: usize) -> Vec<Window> {
    let (mut windows, mut seen) = (Vec::new(), 0);
    for start in (0..tokens.len()).step_by(stride).take(most) {
        let end = (start + width).min(tokens.len());
        let predictions = end - seen.max(start + 1).min(end);
        if predictions > 0 {
            windows.push(Window { tokens: tokens[start..end].to_vec(), predictions });
        }
        seen = end;
        if end == tokens.len() {
            break;
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(tokens: usize, width: usize, stride: usize) -> Vec<(u32, usize, usize)> {
        let tokens: Vec<u32> = (0..tokens as u32).collect();
        let windows = cut(&tokens, width, stride, usize::MAX);
        windows.iter().map(|w| (w.tokens[0], w.tokens.len(), w.predictions)).collect()
    }

    #[test]
    fn windows_side_by_side_predict_all_but_their_first_token() {
        assert_eq!(shape(8, 4, 4), [(0, 4, 3), (4, 4, 3)]);
        assert_eq!(shape(10, 4, 4), [(0, 4, 3), (4, 4, 3), (8, 2, 1)]);
        assert_eq!(shape(9, 4, 4), [(0, 4, 3), (4, 4, 3)], "one token predicts nothing");
        assert_eq!(shape(1, 4, 4), []);
        assert_eq!(shape(0, 4, 4), []);
    }

    #[test]
    fn overlapping_windows_predict_a_token_once() {
        assert_eq!(shape(8, 4, 2), [(0, 4, 3), (2, 4, 2), (4, 4, 2)]);
        assert_eq!(shape(7, 4, 1), [(0, 4, 3), (1, 4, 1), (2, 4, 1), (3, 4, 1)]);
        for (tokens, width, stride) in [(100, 16, 5), (33, 8, 8), (17, 16, 3), (64, 2, 1)] {
            let predicted: usize = shape(tokens, width, stride).iter().map(|w| w.2).sum();
            let lost = if width == stride { tokens.div_ceil(width) } else { 1 };
            assert_eq!(predicted, tokens - lost, "{tokens} {width} {stride}");
        }
    }

    #[test]
    fn only_the_first_windows() {
        let tokens: Vec<u32> = (0..100).collect();
        assert_eq!(cut(&tokens, 10, 10, 3).len(), 3);
    }
}
