//! Conformance of eviction policies.
//!
//! [`check`] plays thousands of small requests to a policy, with a slot table of its own in the
//! role of the pool, and reports the first broken rule of each scenario:
//!
//! - every answer is an evictable slot: never blocked, free, out of range or, where the view
//!   shows one layer only, of another layer; `None` exactly when nothing is evictable;
//! - answers depend on nothing but the calls: a second instance gives the same ones, and so does
//!   one that was [reset](EvictionPolicy::reset) after other work;
//! - `bind` accepts every pool from the floor up. A smaller one may be refused as too small, and
//!   so may one that cannot hold a token's route in every layer (`layers * top_k` slots), by a
//!   policy that gives each layer room of its own; the scenario is then played in the smallest
//!   pool that the refusal names, and later resizes may still go below it;
//! - `import` takes what `export` gave, and survives what it did not give: whether it refuses
//!   such bytes or takes them, its later answers are lawful;
//! - no call panics or fails to return.
//!
//! The scenarios mix hits, misses, waves, sweeps, pools with everything or all but one slot
//! pinned, forecasts that are adopted or expire, failed reads, hot and warm admissions that arrive
//! late, resizes and clears, in the order of calls that [`EvictionPolicy`] states. Routing is told
//! with and without weights and logits, which may be no numbers, and sometimes not at all; token
//! ids may be any.
//!
//! ```
//! # use slotstream_core::*;
//! # #[derive(Debug)]
//! # struct Highest;
//! # impl EvictionPolicy for Highest {
//! #     fn on_insert(&mut self, _slot: SlotId, _key: ExpertKey, _origin: Origin) {}
//! #     fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
//! #     fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
//! #         (0..view.len() as u32).rev().map(SlotId::new).find(|slot| view.is_evictable(*slot))
//! #     }
//! #     fn reset(&mut self) {}
//! # }
//! slotstream_testkit::policy::assert_lawful(|| Box::new(Highest));
//! ```

mod drive;
mod scenario;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use slotstream_core::{BindError, ErrorKind, EvictionPolicy, SlotId};

use drive::{Subjects, drive};
use scenario::{SCENARIOS, Scenario};

use crate::watch::{Stopped, watch};

type Boxed = Box<dyn EvictionPolicy>;

/// Runs the suite on the policy that `make` makes.
///
/// # Errors
/// What was found, at most one entry a scenario.
pub fn check(make: impl Fn() -> Boxed) -> Result<(), Vec<Violation>> {
    Conformance::new().check(make)
}

/// [`check`] for a test.
///
/// # Panics
/// With the list of violations when there are any.
pub fn assert_lawful(make: impl Fn() -> Boxed) {
    if let Err(violations) = check(make) {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("the policy is unlawful:\n- {}", list.join("\n- "));
    }
}

/// The suite with its settings.
#[derive(Clone, Debug)]
pub struct Conformance {
    patience: Duration,
}

impl Conformance {
    /// The suite as [`check`] runs it.
    #[must_use]
    pub const fn new() -> Self {
        Self { patience: Duration::from_secs(20) }
    }

    /// How long a single step (a handful of calls) may take before the policy counts as hanging;
    /// 20 seconds unless told.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs the suite. Each scenario runs on a thread of its own; that of a policy that never
    /// returns is left behind.
    ///
    /// # Errors
    /// What was found, at most one entry a scenario.
    pub fn check(&self, make: impl Fn() -> Boxed) -> Result<(), Vec<Violation>> {
        let mut found = Vec::new();
        for scenario in SCENARIOS {
            let subjects = Subjects::new(&make);
            if let Err(violation) = self.watch(scenario, subjects) {
                let hangs = matches!(violation.what, Broken::Hangs { .. });
                found.push(violation);
                if hangs {
                    break;
                }
            }
        }
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    fn watch(&self, scenario: &'static Scenario, subjects: Subjects) -> Result<(), Violation> {
        let played = watch(self.patience, move |step| drive(scenario, subjects, step));
        played.map_err(|(step, how)| {
            let what = match how {
                Stopped::Broken(what) => what,
                Stopped::Panicked(message) => Broken::Panicked { message },
                Stopped::Hangs => Broken::Hangs { patience: self.patience },
            };
            Violation { scenario: scenario.name, step, what }
        })
    }
}

impl Default for Conformance {
    fn default() -> Self {
        Self::new()
    }
}

/// A broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scenario {scenario:?}, step {step}: {what}")]
#[non_exhaustive]
pub struct Violation {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Requests that were played before.
    pub step: usize,
    /// The rule.
    pub what: Broken,
}

impl Violation {
    /// Always a defect of the policy.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Bug
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// `bind` refused a lawful pool.
    Refused {
        /// Slots of the pool.
        slots: usize,
        /// The refusal.
        error: BindError,
    },
    /// The victim is out of range.
    OutOfRange {
        /// The victim.
        slot: SlotId,
    },
    /// The victim is a free slot.
    Free {
        /// The victim.
        slot: SlotId,
    },
    /// The victim is pinned or claimed.
    Blocked {
        /// The victim.
        slot: SlotId,
    },
    /// The view shows one layer only, and the victim is of another.
    OtherLayer {
        /// The victim.
        slot: SlotId,
    },
    /// No victim although slots are evictable.
    NoVictim {
        /// How many are.
        evictable: usize,
    },
    /// A second instance chose otherwise after the same calls.
    NotDeterministic {
        /// The first answer.
        first: Option<SlotId>,
        /// The second.
        second: Option<SlotId>,
    },
    /// An instance that was reset chose otherwise than a fresh one.
    ResetKeepsState {
        /// The fresh one's answer.
        fresh: Option<SlotId>,
        /// The other's.
        reset: Option<SlotId>,
    },
    /// Two instances, or a fresh one and one that was reset, disagree about an admission.
    AdmitDiffers,
    /// `import` refused what `export` gave.
    ImportRefused {
        /// The refusal.
        error: BindError,
    },
    /// The policy has no name, or one with white space.
    Unnamed {
        /// The name.
        name: String,
    },
    /// A call panicked.
    Panicked {
        /// With this text.
        message: String,
    },
    /// A call did not return.
    Hangs {
        /// How long the suite waited.
        patience: Duration,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |answer: &Option<SlotId>| {
            answer.map_or_else(|| "no victim".into(), |slot| slot.to_string())
        };
        match self {
            Self::Refused { slots, error } => write!(f, "bind refuses {slots} slots: {error}"),
            Self::OutOfRange { slot } => write!(f, "the victim, {slot}, is out of range"),
            Self::Free { slot } => write!(f, "the victim, {slot}, is free"),
            Self::Blocked { slot } => write!(f, "the victim, {slot}, is pinned or claimed"),
            Self::OtherLayer { slot } => {
                write!(f, "the victim, {slot}, is not of the only layer in view")
            }
            Self::NoVictim { evictable } => {
                write!(f, "no victim although {evictable} slots are evictable")
            }
            Self::NotDeterministic { first, second } => write!(
                f,
                "two instances differ after the same calls: {} and {}",
                name(first),
                name(second)
            ),
            Self::ResetKeepsState { fresh, reset } => write!(
                f,
                "reset is not like new: {} from a fresh instance, {} from one that was reset",
                name(fresh),
                name(reset)
            ),
            Self::AdmitDiffers => f.write_str("instances differ about an admission"),
            Self::ImportRefused { error } => {
                write!(f, "import refuses what export gave: {error}")
            }
            Self::Unnamed { name } => write!(f, "{name:?} is no name"),
            Self::Panicked { message } => write!(f, "a call panicked: {message}"),
            Self::Hangs { patience } => write!(f, "a call did not return within {patience:?}"),
        }
    }
}
