//! The rules, as what breaks them.

use std::fmt;
use std::time::Duration;

use slotstream_core::{LayerIdx, Prediction, Probe, Tap};

/// A broken rule.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Broken {
    /// A probe of a layer that the model has not.
    TargetBeyond {
        /// Where it was asked for.
        at: Tap,
        /// The probe's target.
        target: LayerIdx,
        /// Layers of the model.
        layers: usize,
    },
    /// A probe of a layer before that of the tap.
    TargetPassed {
        /// Where it was asked for.
        at: Tap,
        /// The probe's target.
        target: LayerIdx,
    },
    /// The same probe twice at one tap.
    ProbeTwice {
        /// Where it was asked for.
        at: Tap,
        /// The probe.
        probe: Probe,
    },
    /// A prediction of a record that the model has not.
    RecordBeyond {
        /// Where it was made.
        at: Tap,
        /// The prediction.
        prediction: Prediction,
    },
    /// A confidence that is not a number from 0 to 1.
    Confidence {
        /// Where it was made.
        at: Tap,
        /// The prediction.
        prediction: Prediction,
    },
    /// A deadline of another layer than the record's.
    OtherLayer {
        /// Where it was made.
        at: Tap,
        /// The prediction.
        prediction: Prediction,
    },
    /// A deadline that had passed at the tap.
    Late {
        /// Where it was made.
        at: Tap,
        /// The prediction.
        prediction: Prediction,
    },
    /// The same record twice at one tap.
    RecordTwice {
        /// Where it was made.
        at: Tap,
        /// The second prediction.
        prediction: Prediction,
    },
    /// What a list held before the call was changed or removed.
    NotAppended {
        /// Where.
        at: Tap,
        /// `probes` or `predict`.
        call: &'static str,
    },
    /// A list was given far more memory than its entries can take.
    TooMuchMemory {
        /// Where.
        at: Tap,
        /// `probes` or `predict`.
        call: &'static str,
        /// Entries for which there is room.
        capacity: usize,
        /// More would be unlawful.
        limit: usize,
    },
    /// A second instance said something else after the same calls.
    NotDeterministic {
        /// What differs.
        difference: Difference,
    },
    /// An instance that was given this session's calls alone said something else.
    SessionsMix {
        /// What differs: with the other sessions first.
        difference: Difference,
    },
    /// A session that was reset is not like a new one.
    ResetKeepsState {
        /// What differs: the session that was reset first.
        difference: Difference,
    },
    /// The forecaster has no name, or one with white space.
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

/// The first entry in which two lists differ.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Where.
    pub at: Tap,
    /// The entry.
    pub index: usize,
    /// In one list; `None` when it is shorter.
    pub first: Option<Said>,
    /// In the other.
    pub second: Option<Said>,
}

/// An entry of a forecaster's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Said {
    /// It asked for this.
    Probe(Probe),
    /// It expects this.
    Prediction(Prediction),
}

impl From<Probe> for Said {
    fn from(probe: Probe) -> Self {
        Self::Probe(probe)
    }
}

impl From<Prediction> for Said {
    fn from(prediction: Prediction) -> Self {
        Self::Prediction(prediction)
    }
}

impl Difference {
    pub(super) fn find<T: Copy + PartialEq + Into<Said>>(
        at: Tap,
        first: &[T],
        second: &[T],
    ) -> Option<Self> {
        let index = (0..first.len().max(second.len())).find(|i| first.get(*i) != second.get(*i))?;
        let said = |list: &[T]| list.get(index).map(|entry| (*entry).into());
        Some(Self { at, index, first: said(first), second: said(second) })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |said: &Option<Said>| match said {
            None => "nothing".to_owned(),
            Some(Said::Probe(probe)) => format!("{probe:?}"),
            Some(Said::Prediction(prediction)) => format!("{prediction:?}"),
        };
        let (first, second) = (name(&self.first), name(&self.second));
        write!(f, "at {:?}, entry {}: {first} and {second}", self.at, self.index)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TargetBeyond { at, target, layers } => {
                write!(f, "at {at:?} a probe of {target}, of a model with {layers} layers")
            }
            Self::TargetPassed { at, target } => {
                write!(f, "at {at:?} a probe of {target}, which lies before it")
            }
            Self::ProbeTwice { at, probe } => write!(f, "at {at:?} twice the same: {probe:?}"),
            Self::RecordBeyond { at, prediction } => {
                write!(f, "at {at:?} a record that is not of the model: {prediction:?}")
            }
            Self::Confidence { at, prediction } => {
                write!(f, "at {at:?} a confidence that is not from 0 to 1: {prediction:?}")
            }
            Self::OtherLayer { at, prediction } => {
                write!(f, "at {at:?} a deadline of another layer than the record's: {prediction:?}")
            }
            Self::Late { at, prediction } => {
                write!(f, "at {at:?} a deadline that has passed: {prediction:?}")
            }
            Self::RecordTwice { at, prediction } => {
                write!(f, "at {at:?} a record for the second time: {prediction:?}")
            }
            Self::NotAppended { at, call } => {
                write!(f, "{call} at {at:?} changed what its list held before")
            }
            Self::TooMuchMemory { at, call, capacity, limit } => {
                write!(f, "{call} at {at:?} left a list with room for {capacity}, limit {limit}")
            }
            Self::NotDeterministic { difference } => {
                write!(f, "two instances differ after the same calls {difference}")
            }
            Self::SessionsMix { difference } => {
                write!(f, "a session is not the same with and without others {difference}")
            }
            Self::ResetKeepsState { difference } => {
                write!(f, "a session that was reset is not like a new one {difference}")
            }
            Self::Unnamed { name } => write!(f, "{name:?} is no name"),
            Self::Panicked { message } => write!(f, "a call panicked: {message}"),
            Self::Hangs { patience } => write!(f, "a pass did not end within {patience:?}"),
        }
    }
}
