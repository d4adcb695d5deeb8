//! How short memory is on a Mac. Not yet run on one.

use std::process::Command;

use super::{Pressure, PressureSource};

/// macOS: what `sysctl` says of the kernel's pressure level, of the share of memory that is free, and
/// of its size. The level 2 (warning) counts as waiting for a quarter of the time, 4 (critical) as
/// waiting for all of it.
///
/// It starts the system's own program for each look, so choose an interval of some seconds. It has been
/// compiled and tested against written answers, and never run on a Mac.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MacPressure {}

/// What is asked for, in the order of the answers.
const NAMES: [&str; 3] =
    ["kern.memorystatus_vm_pressure_level", "kern.memorystatus_level", "hw.memsize"];

impl MacPressure {
    /// Asks this system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl PressureSource for MacPressure {
    fn sample(&mut self) -> Pressure {
        // One after another: an unknown name must not hide the others.
        let answer = |name: &str| {
            let output = Command::new("/usr/sbin/sysctl").args(["-n", name]).output().ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse::<u64>().ok()
        };
        pressure(NAMES.map(answer))
    }

    fn name(&self) -> String {
        "sysctl: memory status and free memory".to_owned()
    }
}

fn pressure([level, free_percent, total]: [Option<u64>; 3]) -> Pressure {
    let stall = level.map(|level| match level {
        0 | 1 => 0.0,
        2 | 3 => 0.25,
        _ => 1.0,
    });
    let available = free_percent.filter(|percent| *percent <= 100).zip(total);
    let available = available.map(|(percent, total)| total / 100 * percent);
    Pressure { stall, available, total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_shares() {
        let known = pressure([Some(2), Some(40), Some(1000)]);
        let expected = Pressure::new().with_stall(0.25).with_available(400).with_total(1000);
        assert_eq!(known, expected);
        assert_eq!(pressure([Some(1), None, None]), Pressure::new().with_stall(0.0));
        assert_eq!(pressure([Some(4), Some(101), Some(9)]).stall, Some(1.0));
        assert_eq!(pressure([None, Some(101), Some(9)]).available, None);
        assert!(pressure([None; 3]).is_silent());
    }
}
