//! Calls into the tokenizers library, which panics where a file is lawful JSON and asks for
//! nonsense: at loading, or only when a text reaches the part in question.

use std::any::Any;
use std::cell::Cell;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed.
pub(super) type Reason = Box<dyn Error + Send + Sync>;

thread_local! {
    static CAUGHT: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is inside a call whose panics become errors.
///
/// A panic runs the program's panic hook before it is caught, and the default hook prints it. A
/// program that wants no such lines asks here from a hook of its own; a library must not replace
/// the hook behind its program's back.
///
/// ```
/// let shown = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     if !slotstream::text::panics_are_caught() {
///         shown(panic);
///     }
/// }));
/// ```
#[must_use]
pub fn panics_are_caught() -> bool {
    CAUGHT.with(|depth| depth.get() > 0)
}

/// Counts a guarded call, also while it unwinds.
struct Inside;

impl Inside {
    fn new() -> Self {
        CAUGHT.with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        CAUGHT.with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

/// The result of a call, or what it panicked with.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, Reason>) -> Result<T, Reason> {
    let _inside = Inside::new();
    // Nothing of the library's is changed by these calls, so nothing is left half-changed.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let words = message(&*panic);
        Err(format!("the tokenizers library panicked, so the file is damaged: {words}").into())
    })
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "no reason given",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors_and_the_hook_can_tell() {
        assert!(!panics_are_caught());
        let inner = guarded(|| {
            assert!(panics_are_caught());
            guarded(|| Ok(1)).map(|one| one + i32::from(panics_are_caught()))
        });
        assert_eq!(inner.unwrap(), 2);
        for call in [|| panic!("one of {}", 2), || panic!("plain")] {
            let error = guarded::<()>(call).unwrap_err().to_string();
            assert!(error.contains("one of 2") || error.contains("plain"), "{error}");
            assert!(!panics_are_caught());
        }
    }
}
