//! Whether reading ahead pays: passes with it are compared with passes without.

use std::time::Duration;

/// Passes before the first comparison, and between two of them when the answer has changed.
const FIRST_HOLD: u32 = 64;
/// Passes between two comparisons, at most: a comparison then costs about one pass in a hundred.
const LONGEST_HOLD: u32 = 2048;
/// Passes of a block of a comparison. The first one is not counted: it still has, or still lacks,
/// what the block before it read.
const BLOCK: u32 = 4;
/// Blocks of a comparison, off and on in turn.
const BLOCKS: u32 = 12;
/// Slower by this much is slower; anything less leaves things as they are.
const MARGIN: f64 = 1.02;

/// Compares now and then, in short blocks that take turns, so that a change of the load on the
/// machine hits both sides.
#[derive(Debug)]
pub(crate) struct BackOff {
    /// The last answer.
    pays: bool,
    /// Passes until the next comparison.
    left: u32,
    hold: u32,
    /// Passes of the running comparison so far; none when none runs.
    trial: Option<u32>,
    /// Seconds of the passes without and with.
    times: [Vec<f64>; 2],
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) pays: bool,
    /// Whether the last answer was another one.
    pub(crate) changed: bool,
    /// Median seconds of a pass without and with.
    pub(crate) without: f64,
    pub(crate) with: f64,
}

impl BackOff {
    pub(crate) fn new() -> Self {
        let (left, times) = (FIRST_HOLD, [Vec::new(), Vec::new()]);
        Self { pays: true, left, hold: FIRST_HOLD, trial: None, times }
    }

    /// Whether the next pass reads ahead.
    pub(crate) const fn is_on(&self) -> bool {
        match self.trial {
            Some(passes) => (passes / BLOCK) % 2 == 1,
            None => self.pays,
        }
    }

    /// A pass took this long.
    pub(crate) fn passed(&mut self, took: Duration) -> Option<Verdict> {
        let Some(passes) = self.trial else {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                self.trial = Some(0);
            }
            return None;
        };
        if passes % BLOCK > 0 {
            self.times[usize::from(self.is_on())].push(took.as_secs_f64());
        }
        self.trial = Some(passes + 1);
        if passes + 1 < BLOCK * BLOCKS {
            return None;
        }
        let [without, with] = [0, 1].map(|side| median(&mut self.times[side]));
        let pays = if self.pays { with <= MARGIN * without } else { MARGIN * with <= without };
        let changed = pays != self.pays;
        self.hold = if changed { FIRST_HOLD } else { (2 * self.hold).min(LONGEST_HOLD) };
        (self.pays, self.left, self.trial) = (pays, self.hold, None);
        self.times.iter_mut().for_each(Vec::clear);
        Some(Verdict { pays, changed, without, with })
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Passes of so many milliseconds without and with, and what was found of them.
    fn run(passes: u32, mut time: impl FnMut(u32, bool) -> u64) -> (Vec<Verdict>, u32) {
        let (mut back_off, mut found, mut on) = (BackOff::new(), Vec::new(), 0);
        for pass in 0..passes {
            on += u32::from(back_off.is_on());
            let took = Duration::from_millis(time(pass, back_off.is_on()));
            found.extend(back_off.passed(took));
        }
        (found, on)
    }

    #[test]
    fn what_pays_stays_on_and_is_compared_less_and_less() {
        let (found, on) = run(10_000, |_, on| if on { 8 } else { 10 });
        assert!(found.iter().all(|verdict| verdict.pays && !verdict.changed));
        assert!((6..12).contains(&found.len()), "{}", found.len());
        assert!(on > 9_700, "{on}");
        assert_eq!((found[0].without, found[0].with), (0.010, 0.008));
    }

    #[test]
    fn what_does_not_pay_is_turned_off_and_tried_again() {
        let (found, on) = run(10_000, |_, on| if on { 12 } else { 10 });
        assert!(found[0].changed && !found[0].pays);
        assert!(found.len() > 5 && found[1..].iter().all(|v| !v.changed && !v.pays));
        assert!((FIRST_HOLD..500).contains(&on), "{on}");
    }

    #[test]
    fn it_comes_back_when_the_disk_slows_down() {
        let (found, _) = run(10_000, |pass, on| match (pass < 1000, on) {
            (true, true) => 12,
            (_, false) => 10,
            (false, true) => 7,
        });
        let changes: Vec<bool> = found.iter().filter(|v| v.changed).map(|v| v.pays).collect();
        assert_eq!(changes, [false, true]);
    }

    /// A little slower or faster is no reason for anything, and a few slow passes are not, either.
    #[test]
    fn noise_changes_nothing() {
        let slow = |pass: u32, on: bool| match (pass.is_multiple_of(7), on) {
            (true, _) => 5000,
            (false, true) => 1010,
            (false, false) => 1000,
        };
        assert!(run(5000, slow).0.iter().all(|verdict| verdict.pays));
    }
}
