//! Pool sizes as people think of them.

use std::fmt;
use std::str::FromStr;

use slotstream_core::{ErrorKind, Geometry};

/// The size of a pool. Written `200` (slots), `30%` (of all records), `16.7/layer` (experts a
/// layer) or `3routes` (what three tokens need: slots are routes x layers x top-k).
///
/// ```
/// use slotstream_core::Geometry;
/// use slotstream_replay::PoolSize;
///
/// let model = Geometry::new(48, 512, 10)?;
/// for (text, slots) in [("7488", 7488), ("25%", 6144), ("156/layer", 7488), ("15.6routes", 7488)] {
///     let size: PoolSize = text.parse()?;
///     assert_eq!((size.slots(&model), size.to_string().as_str()), (slots, text));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PoolSize {
    /// Slots.
    Slots(usize),
    /// A share of all records, 0 to 1, rounded down as an engine does.
    Fraction(f64),
    /// Experts a layer.
    PerLayer(f64),
    /// What so many tokens need, if no two of them need the same.
    Routes(f64),
}

impl PoolSize {
    /// Slots of a pool for a model of this geometry: at least one.
    #[must_use]
    pub fn slots(&self, geometry: &Geometry) -> usize {
        let layers = geometry.layers() as f64;
        let slots = match *self {
            Self::Slots(slots) => return slots.max(1),
            // 0.29 x 100 is 28.999999999999996.
            Self::Fraction(share) => (share * geometry.records() as f64 + 1e-9).floor(),
            Self::PerLayer(experts) => (experts * layers).round(),
            Self::Routes(routes) => (routes * layers * geometry.top_k() as f64).round(),
        };
        (slots as usize).max(1)
    }
}

impl fmt::Display for PoolSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slots(slots) => write!(f, "{slots}"),
            // Digits beyond these come from the factor, not from the user.
            Self::Fraction(share) => write!(f, "{}%", (share * 100.0 * 1e9).round() / 1e9),
            Self::PerLayer(experts) => write!(f, "{experts}/layer"),
            Self::Routes(routes) => write!(f, "{routes}routes"),
        }
    }
}

/// A text that is no size of a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no size of a pool: write slots (200), a share of the records (30%), experts a \
     layer (16.5/layer) or token routes (3routes), each more than nothing"
)]
#[non_exhaustive]
pub struct PoolSizeError {
    /// The text.
    pub text: String,
}

impl PoolSizeError {
    /// What the caller can do about it: write another size.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::User
    }
}

impl FromStr for PoolSize {
    type Err = PoolSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            let number: f64 = text.trim_end().parse().ok()?;
            (number.is_finite() && number > 0.0).then_some(number)
        };
        let size = if let Some(share) = text.strip_suffix('%') {
            number(share).filter(|share| *share <= 100.0).map(|share| Self::Fraction(share / 100.0))
        } else if let Some(experts) = text.strip_suffix("/layer") {
            number(experts).map(Self::PerLayer)
        } else if let Some(routes) = text.strip_suffix("routes") {
            number(routes).map(Self::Routes)
        } else {
            text.parse().ok().filter(|slots| *slots > 0).map(Self::Slots)
        };
        size.ok_or_else(|| PoolSizeError { text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_back() {
        let tiny = Geometry::new(12, 56, 6).expect("legal");
        for (text, slots) in [
            ("1", 1),
            ("202", 202),
            ("30%", 201),
            ("0.01%", 1),
            ("29%", 194),
            ("3routes", 216),
            ("16.7/layer", 200),
        ] {
            let size: PoolSize = text.parse().expect(text);
            assert_eq!(size.slots(&tiny), slots, "{text}");
            assert_eq!(size.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "0", "-1", "1.5", "0%", "101%", "nan/layer", "infroutes", "x", "3 slots", "%"]
        {
            let error = text.parse::<PoolSize>().expect_err(text);
            assert!(error.to_string().contains("3routes"), "{error}");
            assert_eq!(error.kind(), ErrorKind::User);
        }
    }
}
