//! Models of disks, as command lines spell them.

use std::time::Duration;

use slotstream_io::Throttle;

/// Why a text is no model of a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected apple, or latency=TIME,gbs=N,deep=N with TIME in ns, us or ms, 10000ms at most, and N \
     from 0.001 to 1000"
)]
pub(crate) struct NotAModel;

/// `apple`, or `latency=53us,gbs=11.57,deep=17.3` in any order; without `deep` reads together are
/// no faster than one.
pub(crate) fn parse_throttle(text: &str) -> Result<Throttle, NotAModel> {
    if text == "apple" {
        return Ok(Throttle::APPLE_SSD);
    }
    let (mut latency, mut alone, mut deep) = (None, None, None);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or(NotAModel)?;
        let known = match key {
            "latency" => latency.replace(time(value)?).is_some(),
            "gbs" => alone.replace(rate(value)?).is_some(),
            "deep" => deep.replace(rate(value)?).is_some(),
            _ => true,
        };
        if known {
            return Err(NotAModel);
        }
    }
    let (latency, alone) = latency.zip(alone).ok_or(NotAModel)?;
    let gain = deep.map_or(1.0, |deep| deep / alone);
    Ok(Throttle::new(latency, alone * 1e9).with_queue_gain(gain))
}

fn rate(text: &str) -> Result<f64, NotAModel> {
    text.parse().ok().filter(|n: &f64| (0.001..=1000.0).contains(n)).ok_or(NotAModel)
}

fn time(text: &str) -> Result<Duration, NotAModel> {
    const UNITS: [(&str, f64); 3] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)];
    let found = UNITS.iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, *s)));
    let (number, unit) = found.ok_or(NotAModel)?;
    let number: f64 = number.parse().map_err(|_| NotAModel)?;
    // A model that waits for minutes is a mistake.
    let seconds = number * unit;
    (0.0..=10.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds)).ok_or(NotAModel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_disks_by_name_and_by_number() {
        assert_eq!(parse_throttle("apple"), Ok(Throttle::APPLE_SSD));
        let slow = Throttle::new(Duration::from_millis(2), 0.5e9);
        assert_eq!(parse_throttle("gbs=0.5,latency=2ms"), Ok(slow));
        let spelt = parse_throttle("latency=53.5us,gbs=11.5,deep=17.25");
        let fast = Throttle::new(Duration::from_nanos(53_500), 11.5e9);
        assert_eq!(spelt, Ok(fast.with_queue_gain(1.5)));
        for wrong in [
            "",
            "fast",
            "latency=1us",
            "gbs=1",
            "latency=1,gbs=1",
            "latency=-1us,gbs=1",
            "latency=NaNus,gbs=1",
            "latency=1us,gbs=0",
            "latency=1us,gbs=1e-300,deep=1e-300",
            "latency=1us,gbs=1e308",
            "latency=1us,gbs=1,deep=1001",
            "latency=10001ms,gbs=1",
            "latency=1us,gbs=inf",
            "latency=1us,gbs=1,gbs=2",
            "latency=1us,gbs=1,wide=2",
            "latency=1us,gbs=1,",
        ] {
            assert_eq!(parse_throttle(wrong), Err(NotAModel), "{wrong}");
        }
    }
}
