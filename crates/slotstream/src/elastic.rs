//! A pool that follows the memory of the machine.

mod control;
mod mac;
mod pressure;
mod watch;

use std::time::Duration;

pub use mac::MacPressure;
pub use pressure::{LinuxPressure, Pressure, PressureSource, system_pressure};

pub(crate) use control::Control;
pub(crate) use watch::Watch;

use crate::Error;

/// When a pool shrinks and grows: see [`EngineBuilder::elastic`](crate::EngineBuilder::elastic).
///
/// Memory is *short* when less than [`reserve`](Self::reserve) is available, or when tasks waited for
/// memory for at least [`stall`](Self::stall) of the last seconds. Then the pool gives up slots: as many
/// as bring what is available to one and a half times the reserve, and no fewer than a sixteenth of the
/// planned ones (an eighth where tasks wait); because waiting is an average over ten seconds, it is
/// answered once in five.
///
/// Memory is *plenty* when at least twice the reserve is available and tasks waited for less than half
/// of that share. After it was plenty for [`calm`](Self::calm) without a break the pool takes an eighth
/// of the planned slots, but no more than leave twice the reserve, and so on until the plan is reached;
/// it never grows beyond that. Between short and plenty nothing happens. A shrink that follows a growth
/// within two calm times doubles the calm time, up to 32 times; once the pool has been whole for four
/// calm times it is what it was.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ElasticOptions {
    /// How often memory is looked at by a thread of the engine; `None`: only in
    /// [`Engine::adapt`](crate::Engine::adapt).
    pub interval: Option<Duration>,
    /// Fewest slots to shrink to; never fewer than the pool's floor.
    pub least_slots: usize,
    /// Bytes that should be available to others; `None`: a twentieth of the memory, or 512 MiB where
    /// its size is not known.
    pub reserve: Option<u64>,
    /// Share of the time, 0 to 1, for which tasks may wait for memory.
    pub stall: f64,
    /// For how long memory has to be plenty before the pool grows.
    pub calm: Duration,
}

impl Default for ElasticOptions {
    /// Every second; down to the floor; a twentieth of the memory; a tenth of the time; 30 seconds.
    fn default() -> Self {
        Self {
            interval: Some(Duration::from_secs(1)),
            least_slots: 0,
            reserve: None,
            stall: 0.1,
            calm: Duration::from_secs(30),
        }
    }
}

impl ElasticOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`interval`](Self::interval).
    #[must_use]
    pub const fn with_interval(mut self, interval: Option<Duration>) -> Self {
        self.interval = interval;
        self
    }

    /// Sets [`least_slots`](Self::least_slots).
    #[must_use]
    pub const fn with_least_slots(mut self, slots: usize) -> Self {
        self.least_slots = slots;
        self
    }

    /// Sets [`reserve`](Self::reserve).
    #[must_use]
    pub const fn with_reserve(mut self, bytes: u64) -> Self {
        self.reserve = Some(bytes);
        self
    }

    /// Sets [`stall`](Self::stall).
    #[must_use]
    pub const fn with_stall(mut self, share: f64) -> Self {
        self.stall = share;
        self
    }

    /// Sets [`calm`](Self::calm).
    #[must_use]
    pub const fn with_calm(mut self, calm: Duration) -> Self {
        self.calm = calm;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(self.stall > 0.0 && self.stall <= 1.0) {
            let (option, value) = ("elastic stall", self.stall.to_string());
            return Err(Error::Option { option, value, expected: "a share above 0, at most 1" });
        }
        if self.interval.is_some_and(|interval| interval < Duration::from_millis(10)) {
            let (option, value) = ("elastic interval", format!("{:?}", self.interval));
            return Err(Error::Option { option, value, expected: "at least 10 ms" });
        }
        Ok(())
    }
}

/// What made a pool change its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Less was available than the reserve.
    Available,
    /// Tasks waited for memory.
    Stalled,
    /// Memory was plenty.
    Plenty,
}

impl Cause {
    /// In words.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::Available => "less memory was available than the reserve",
            Self::Stalled => "tasks waited for memory",
            Self::Plenty => "memory was plenty",
        }
    }
}

/// A pool that changed its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resized {
    /// Slots before.
    pub from: usize,
    /// Slots now.
    pub to: usize,
    /// Why.
    pub cause: Cause,
}

/// What an elastic pool did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElasticFigures {
    /// What says how short memory is.
    pub source: String,
    /// How often it was asked.
    pub looks: u64,
    /// How often it said nothing at all.
    pub silent: u64,
    /// How often slots were given up.
    pub shrinks: u64,
    /// How often slots were taken.
    pub grows: u64,
    /// How often the system refused memory for more slots.
    pub refused: u64,
    /// Fewest slots so far.
    pub fewest: usize,
    /// The last change.
    pub last: Option<Resized>,
}
