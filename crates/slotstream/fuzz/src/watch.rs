//! Runs a target on one input and watches what it does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use allocation_counter::measure;

use crate::{Target, target};

/// An input that takes longer than this is a finding; many times what any takes on a busy
/// machine.
pub const MOST_TIME: Duration = Duration::from_secs(10);

/// What an input did that no input may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// The target panicked.
    #[error("{target} panicked: {words}")]
    #[non_exhaustive]
    Panic {
        /// The target.
        target: &'static str,
        /// What the panic says.
        words: String,
    },
    /// The target took too long.
    #[error("{target} took {took:?}, expected at most {limit:?}")]
    #[non_exhaustive]
    Slow {
        /// The target.
        target: &'static str,
        /// How long it took, or has taken until now.
        took: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The target held too much memory.
    #[error("{target} held {bytes} bytes, expected at most {limit}")]
    #[non_exhaustive]
    Large {
        /// The target.
        target: &'static str,
        /// The most bytes that it held.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// Runs a target on one input: how that ended, in words.
///
/// # Errors
/// [`Finding`].
pub fn run_one(target: &Target, input: &[u8]) -> Result<String, Finding> {
    let name = target.name;
    let mut result = Ok(String::new());
    let begun = Instant::now();
    let memory = measure(|| {
        result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    });
    let took = begun.elapsed();
    let outcome = result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Finding::Panic { target: name, words: text.unwrap_or_else(|| "no reason given".into()) }
    })?;
    if memory.bytes_max > target.most_bytes {
        let (bytes, limit) = (memory.bytes_max, target.most_bytes);
        return Err(Finding::Large { target: name, bytes, limit });
    }
    if took > MOST_TIME {
        return Err(Finding::Slow { target: name, took, limit: MOST_TIME });
    }
    Ok(outcome)
}

/// What a `cargo-fuzz` target does: a finding is a panic.
///
/// # Panics
/// For a [`Finding`], and if there is no target of that name.
pub fn expect_clean(name: &str, input: &[u8]) {
    quiet_caught_panics();
    let target = target(name).expect("a target of that name");
    if let Err(finding) = run_one(target, input) {
        panic!("{finding}");
    }
}

/// Leaves panics of the tokenizers library, which become errors, to themselves: they are neither
/// printed nor, under libFuzzer, the end of the process.
pub fn quiet_caught_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !slotstream::text::panics_are_caught() {
                hook(panic);
            }
        }));
    });
}
