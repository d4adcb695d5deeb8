//! Conformance of forecasters.
//!
//! [`check`] plays hundreds of small passes to a forecaster, in the role of graph and provider,
//! and reports the first broken rule of each scenario:
//!
//! - probes are asked for layers of the model from the tap's own on, each once;
//! - predictions are records of the model, each once, with a finite confidence from 0 to 1 and
//!   the deadline of their own layer, which is not behind the tap;
//! - what `want` and `out` held before is still there, and their memory stays in proportion;
//! - answers depend on nothing but the calls: a second instance gives the same ones;
//! - sessions do not mix: an instance that is given the calls of one session alone gives the
//!   same ones, also after another session was [reset](Forecaster::reset);
//! - a session that was reset is like a new one;
//! - no call panics or fails to return.
//!
//! The scenarios mix prompts of many rows and single tokens, answers that are missing or not
//! finite, weights that are zero or unknown, passes that end early and are run again, both orders
//! of calls that [`Forecaster`] states, graphs without taps, and shapes down to one layer and to
//! a layer that uses all its experts. What a forecaster keeps for itself is not measured, nor
//! whether it guesses well.
//!
//! ```
//! use slotstream_core::NoForecast;
//!
//! slotstream_testkit::forecaster::assert_lawful(|_geometry| Box::new(NoForecast));
//! ```

mod broken;
mod drive;
mod scenario;
mod subjects;
#[cfg(test)]
mod tests;

use std::time::Duration;

use slotstream_core::{ErrorKind, Forecaster, Geometry};

pub use broken::{Broken, Difference, Said};

use drive::drive;
use scenario::{SCENARIOS, Scenario};
use subjects::Subjects;

use crate::watch::{Stopped, watch};

type Boxed = Box<dyn Forecaster>;

/// Runs the suite on the forecaster that `make` makes for a model of the given shape.
///
/// # Errors
/// What was found, at most one entry a scenario.
pub fn check(make: impl Fn(&Geometry) -> Boxed) -> Result<(), Vec<Violation>> {
    Conformance::new().check(make)
}

/// [`check`] for a test.
///
/// # Panics
/// With the list of violations when there are any.
pub fn assert_lawful(make: impl Fn(&Geometry) -> Boxed) {
    Conformance::new().assert(make);
}

/// The suite with its settings.
#[derive(Clone, Debug)]
pub struct Conformance {
    patience: Duration,
    geometry: Option<Geometry>,
    hidden: usize,
}

impl Conformance {
    /// The suite as [`check`] runs it.
    #[must_use]
    pub const fn new() -> Self {
        Self { patience: Duration::from_secs(20), geometry: None, hidden: 24 }
    }

    /// How long a single pass may take before the forecaster counts as hanging; 20 seconds
    /// unless told.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Plays every scenario with a model of this shape: for a forecaster that was made, or
    /// trained, for one model.
    #[must_use]
    pub const fn geometry(mut self, geometry: Geometry) -> Self {
        self.geometry = Some(geometry);
        self
    }

    /// Width of the mixed router inputs, `hidden_size`; 24 unless told.
    #[must_use]
    pub const fn hidden(mut self, hidden: usize) -> Self {
        self.hidden = hidden;
        self
    }

    /// Runs the suite. Each scenario runs on a thread of its own; that of a forecaster that never
    /// returns is left behind.
    ///
    /// # Errors
    /// What was found, at most one entry a scenario.
    pub fn check(&self, make: impl Fn(&Geometry) -> Boxed) -> Result<(), Vec<Violation>> {
        let mut found = Vec::new();
        for scenario in SCENARIOS {
            let geometry = self.geometry.unwrap_or_else(|| scenario.geometry());
            let subjects = Subjects::new(scenario, || make(&geometry));
            if let Err(violation) = self.watch(scenario, geometry, subjects) {
                let hangs = matches!(violation.what, Broken::Hangs { .. });
                found.push(violation);
                if hangs {
                    break;
                }
            }
        }
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// [`Self::check`] for a test.
    ///
    /// # Panics
    /// With the list of violations when there are any.
    pub fn assert(&self, make: impl Fn(&Geometry) -> Boxed) {
        if let Err(violations) = self.check(make) {
            let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
            panic!("the forecaster is unlawful:\n- {}", list.join("\n- "));
        }
    }

    fn watch(
        &self,
        scenario: &'static Scenario,
        geometry: Geometry,
        subjects: Subjects,
    ) -> Result<(), Violation> {
        let hidden = self.hidden;
        let played =
            watch(self.patience, move |pass| drive(scenario, geometry, hidden, subjects, pass));
        played.map_err(|(pass, how)| {
            let what = match how {
                Stopped::Broken(what) => what,
                Stopped::Panicked(message) => Broken::Panicked { message },
                Stopped::Hangs => Broken::Hangs { patience: self.patience },
            };
            Violation { scenario: scenario.name, pass, what }
        })
    }
}

impl Default for Conformance {
    fn default() -> Self {
        Self::new()
    }
}

/// A broken rule, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("scenario {scenario:?}, pass {pass}: {what}")]
#[non_exhaustive]
pub struct Violation {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Passes that were played before.
    pub pass: usize,
    /// The rule.
    pub what: Broken,
}

impl Violation {
    /// Always a defect of the forecaster.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Bug
    }
}
