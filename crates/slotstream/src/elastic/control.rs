//! Decides by pressure and time. Knows no clock and no engine.

use std::time::Duration;

use super::{Cause, ElasticFigures, ElasticOptions, Pressure, PressureSource, Resized};

/// The kernel's averages lag: what was just given up does not show for so long.
const SETTLE: Duration = Duration::from_secs(5);
/// The calm time grows so many times at most.
const LONGEST_CALM: u32 = 32;
/// Where a machine does not say how much memory it has.
const RESERVE: u64 = 512 << 20;

/// The books of an elastic pool.
#[derive(Debug)]
pub(crate) struct Control {
    options: ElasticOptions,
    pub(crate) source: Box<dyn PressureSource>,
    planned: usize,
    least: usize,
    slot_bytes: u64,
    /// Since when memory has been plenty without a break.
    plenty: Option<Duration>,
    /// When tasks' waiting was last answered.
    answered: Option<Duration>,
    /// When the pool last grew.
    grown: Option<Duration>,
    /// How many calm times to wait.
    patience: u32,
    pub(crate) figures: ElasticFigures,
}

impl Control {
    /// Of a pool that is `planned` slots large, of `slot_bytes` each, and never has fewer than `floor`.
    pub(crate) fn new(
        options: ElasticOptions,
        source: Box<dyn PressureSource>,
        (planned, floor): (usize, usize),
        slot_bytes: u64,
    ) -> Self {
        let figures =
            ElasticFigures { source: source.name(), fewest: planned, ..ElasticFigures::default() };
        Self {
            least: options.least_slots.max(floor).min(planned),
            options,
            source,
            planned,
            slot_bytes: slot_bytes.max(1),
            plenty: None,
            answered: None,
            grown: None,
            patience: 1,
            figures,
        }
    }

    /// The source's answer, counted.
    pub(crate) fn look(&mut self) -> Pressure {
        let pressure = self.source.sample();
        self.figures.looks += 1;
        self.figures.silent += u64::from(pressure.is_silent());
        pressure
    }

    /// How many slots a pool of `slots` should have at `now`, where that is another number.
    pub(crate) fn decide(
        &mut self,
        now: Duration,
        pressure: &Pressure,
        slots: usize,
    ) -> Option<(usize, Cause)> {
        if pressure.is_silent() {
            // Nothing is known: neither short nor plenty.
            self.plenty = None;
            return None;
        }
        let reserve = self.reserve(pressure);
        let short = pressure.available.is_some_and(|bytes| bytes < reserve);
        let waiting = pressure.stall.unwrap_or(0.0);
        let stalled = waiting >= self.options.stall;
        if short || stalled {
            self.plenty = None;
            return self.give_up(now, pressure, slots, (reserve, short));
        }
        let room = pressure.available.map(|bytes| bytes.checked_sub(2 * reserve));
        let (Some(room), true) =
            (room.unwrap_or(Some(u64::MAX)), 2.0 * waiting < self.options.stall)
        else {
            self.plenty = None;
            return None;
        };
        self.take(now, room, slots)
    }

    fn reserve(&self, pressure: &Pressure) -> u64 {
        let usual = || pressure.total.map_or(RESERVE, |total| total / 20);
        // Twice of it is computed with.
        self.options.reserve.unwrap_or_else(usual).min(u64::MAX / 4)
    }

    fn give_up(
        &mut self,
        now: Duration,
        pressure: &Pressure,
        slots: usize,
        (reserve, short): (u64, bool),
    ) -> Option<(usize, Cause)> {
        let settled = self.answered.is_none_or(|at| now.saturating_sub(at) >= SETTLE);
        if !short && !settled {
            return None;
        }
        let wanted = if short {
            let missing = (reserve + reserve / 2).saturating_sub(pressure.available.unwrap_or(0));
            let slots = usize::try_from(missing.div_ceil(self.slot_bytes)).unwrap_or(usize::MAX);
            slots.max(self.planned / 16)
        } else {
            self.planned / 8
        };
        let to = slots.saturating_sub(wanted.max(1)).max(self.least);
        if to >= slots {
            return None;
        }
        self.answered = Some(now);
        let calm = self.calm();
        if self.grown.is_some_and(|at| now.saturating_sub(at) < 2 * calm) {
            self.patience = (2 * self.patience).min(LONGEST_CALM);
        }
        Some((to, if short { Cause::Available } else { Cause::Stalled }))
    }

    /// `room`: bytes that are available beyond twice the reserve.
    fn take(&mut self, now: Duration, room: u64, slots: usize) -> Option<(usize, Cause)> {
        let since = *self.plenty.get_or_insert(now);
        let (quiet, calm) = (now.saturating_sub(since), self.calm());
        if slots >= self.planned {
            if quiet >= 4 * calm {
                self.patience = 1;
            }
            return None;
        }
        if quiet < calm {
            return None;
        }
        let fit = usize::try_from(room / self.slot_bytes).unwrap_or(usize::MAX);
        let more = (self.planned / 8).max(1).min(fit);
        let to = slots.saturating_add(more).min(self.planned);
        if to <= slots {
            return None;
        }
        (self.plenty, self.grown) = (Some(now), Some(now));
        Some((to, Cause::Plenty))
    }

    fn calm(&self) -> Duration {
        self.options.calm.saturating_mul(self.patience)
    }

    /// Counts what the pool became.
    pub(crate) fn note(&mut self, resized: Resized) {
        let figures = &mut self.figures;
        match resized.cause {
            Cause::Plenty => figures.grows += 1,
            Cause::Available | Cause::Stalled => figures.shrinks += 1,
        }
        figures.fewest = figures.fewest.min(resized.to);
        figures.last = Some(resized);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Silent;

    impl PressureSource for Silent {
        fn sample(&mut self) -> Pressure {
            Pressure::default()
        }
        fn name(&self) -> String {
            "silent".into()
        }
    }

    const S: fn(u64) -> Duration = Duration::from_secs;

    /// 160 slots of 10 bytes, at least 20; a reserve of 100 bytes.
    fn control() -> Control {
        let options = ElasticOptions::new().with_reserve(100);
        Control::new(options, Box::new(Silent), (160, 20), 10)
    }

    fn available(bytes: u64) -> Pressure {
        Pressure::new().with_available(bytes)
    }

    #[test]
    fn what_is_missing_is_given_up_at_once() {
        let mut control = control();
        // 150 are wanted, 30 are there: 12 slots.
        assert_eq!(control.decide(S(0), &available(30), 160), Some((148, Cause::Available)));
        // A sixteenth at least.
        assert_eq!(control.decide(S(1), &available(99), 148), Some((138, Cause::Available)));
        assert_eq!(control.decide(S(2), &available(0), 22), Some((20, Cause::Available)));
        assert_eq!(control.decide(S(3), &available(0), 20), None, "the floor");
    }

    #[test]
    fn waiting_is_answered_once_in_five_seconds() {
        let mut control = control();
        let waiting = available(1000).with_stall(0.1);
        assert_eq!(control.decide(S(0), &waiting, 160), Some((140, Cause::Stalled)));
        assert_eq!(control.decide(S(4), &waiting, 140), None);
        assert_eq!(control.decide(S(5), &waiting, 140), Some((120, Cause::Stalled)));
        let alone = Pressure::new().with_stall(0.9);
        assert_eq!(control.decide(S(10), &alone, 120), Some((100, Cause::Stalled)));
    }

    #[test]
    fn it_grows_back_in_steps_after_calm_and_not_beyond_the_plan() {
        let mut control = control();
        assert_eq!(control.decide(S(0), &available(10_000), 130), None);
        assert_eq!(control.decide(S(29), &available(10_000), 130), None);
        assert_eq!(control.decide(S(30), &available(10_000), 130), Some((150, Cause::Plenty)));
        assert_eq!(control.decide(S(31), &available(10_000), 150), None, "a calm time each");
        assert_eq!(control.decide(S(60), &available(10_000), 150), Some((160, Cause::Plenty)));
        assert_eq!(control.decide(S(900), &available(10_000), 160), None);
    }

    #[test]
    fn between_short_and_plenty_nothing_happens_and_calm_begins_anew() {
        let mut control = control();
        for (second, pressure) in [
            (0, available(10_000)),
            (29, available(199)),
            (31, available(10_000)),
            (60, available(10_000).with_stall(0.05)),
            (62, available(10_000)),
            (91, available(10_000)),
        ] {
            assert_eq!(control.decide(S(second), &pressure, 130), None, "at {second}");
        }
        assert_eq!(control.decide(S(92), &available(10_000), 130), Some((150, Cause::Plenty)));
        // Only what leaves twice the reserve: here three slots.
        assert_eq!(control.decide(S(122), &available(235), 150), Some((153, Cause::Plenty)));
        assert_eq!(control.decide(S(152), &available(205), 153), None);
    }

    #[test]
    fn nothing_known_is_no_calm() {
        let mut control = control();
        assert_eq!(control.decide(S(0), &available(10_000), 130), None);
        assert_eq!(control.decide(S(20), &Pressure::new(), 130), None);
        assert_eq!(control.decide(S(40), &available(10_000), 130), None);
        assert_eq!(control.decide(S(70), &available(10_000), 130), Some((150, Cause::Plenty)));
    }

    #[test]
    fn growing_that_was_wrong_makes_it_patient() {
        let mut control = control();
        let (plenty, short) = (available(10_000), available(99));
        assert_eq!(control.decide(S(0), &plenty, 140), None);
        assert_eq!(control.decide(S(30), &plenty, 140), Some((160, Cause::Plenty)));
        assert_eq!(control.decide(S(40), &short, 160), Some((150, Cause::Available)));
        assert_eq!(control.decide(S(50), &plenty, 150), None);
        assert_eq!(control.decide(S(80), &plenty, 150), None, "one calm time is not enough now");
        assert_eq!(control.decide(S(110), &plenty, 150), Some((160, Cause::Plenty)));
        assert_eq!(control.decide(S(300), &plenty, 160), None);
        // Whole and quiet for long enough: as impatient as at first.
        assert_eq!(control.decide(S(351), &plenty, 160), None);
        assert_eq!(control.decide(S(360), &short, 160), Some((150, Cause::Available)));
        assert_eq!(control.decide(S(370), &plenty, 150), None);
        assert_eq!(control.decide(S(400), &plenty, 150), Some((160, Cause::Plenty)));
    }

    #[test]
    fn without_a_number_the_reserve_follows_the_memory() {
        let options = ElasticOptions::new();
        let mut control = Control::new(options, Box::new(Silent), (160, 20), 1 << 20);
        let of = |total: u64| Pressure::new().with_total(total).with_available(300 << 20);
        assert_eq!(control.decide(S(0), &of(4 << 30), 160), None, "205 MiB are a twentieth");
        assert!(control.decide(S(1), &of(8 << 30), 160).is_some());
        assert!(control.decide(S(2), &available(500 << 20), 100).is_some());
    }

    /// Whatever the source says, the pool stays between its bounds and is left alone half-way.
    #[test]
    fn any_pressure_keeps_the_bounds() {
        let mut rng = slotstream_core::Rng::new(7);
        for _ in 0..200 {
            let mut control = control();
            let mut slots = 160;
            for second in 0..400 {
                let available = (rng.below(3) > 0).then(|| rng.below(500));
                let stall = (rng.below(3) > 0).then(|| rng.below(30) as f64 / 100.0);
                let pressure = Pressure { available, stall, total: None };
                let before = slots;
                if let Some((to, cause)) = control.decide(S(second), &pressure, slots) {
                    slots = to;
                    assert!((20..=160).contains(&slots) && slots != before);
                    assert_eq!(slots > before, cause == Cause::Plenty, "{pressure:?}");
                }
            }
        }
    }
}
