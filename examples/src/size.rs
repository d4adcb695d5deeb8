//! Numbers of bytes as people write them.

use slotstream_core::ErrorKind;

/// Units, largest first within each family.
const UNITS: [(&str, u64); 13] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// A text that is no number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// No number before the unit.
    #[error("{text:?} does not start with a number: write for example 8GiB or 512MB")]
    #[non_exhaustive]
    Number {
        /// The text.
        text: String,
    },
    /// A unit that is not known.
    #[error("unknown unit {unit:?}: use B, KB, MB, GB, TB, PB, EB, KiB, MiB, GiB, TiB, PiB or EiB")]
    #[non_exhaustive]
    Unit {
        /// The unit.
        unit: String,
    },
    /// More than 64 bits can count.
    #[error("{text:?} is more bytes than any machine has")]
    #[non_exhaustive]
    TooLarge {
        /// The text.
        text: String,
    },
}

impl SizeError {
    /// What the caller can do about it: write another number.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::User
    }
}

/// Bytes of a text such as `8GiB`, `1.5 GB`, `512MB` or `1048576`. Units may be written in any
/// case; a fraction of a byte is dropped.
///
/// ```
/// use slotstream_examples::parse_size;
///
/// assert_eq!(parse_size("1.5KiB"), Ok(1536));
/// assert_eq!(parse_size("2 gb"), Ok(2_000_000_000));
/// assert!(parse_size("8Gib/s").is_err());
/// ```
///
/// # Errors
/// [`SizeError`] says which part is wrong.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    let factor = if unit.is_empty() {
        1
    } else {
        let found = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        found.map(|(_, factor)| *factor).ok_or_else(|| match number {
            "" => SizeError::Number { text: text.to_owned() },
            _ => SizeError::Unit { unit: unit.to_owned() },
        })?
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return Err(SizeError::Number { text: text.to_owned() });
    }
    let too_large = || SizeError::TooLarge { text: text.to_owned() };
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // Twelve digits after the point are more than any unit has bytes to tell apart.
    let kept = &fraction[..fraction.len().min(12)];
    let scale = 10_u128.pow(kept.len() as u32);
    let part = kept.parse::<u64>().map_or(0, |part| u128::from(part) * u128::from(factor) / scale);
    let bytes = u128::from(whole) * u128::from(factor) + part;
    u64::try_from(bytes).map_err(|_| too_large())
}

/// A number of bytes for people, in binary units.
///
/// ```
/// assert_eq!(slotstream_examples::show_size(5_242_880), "5.00 MiB");
/// ```
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let unit = UNITS[..6].iter().rev().take_while(|(_, factor)| bytes >= *factor).last();
    match unit {
        Some((name, factor)) => format!("{:.2} {name}", bytes as f64 / *factor as f64),
        None => format!("{bytes} B"),
    }
}

/// A throughput in GB/s for people: below 1 in the next smaller unit.
pub(crate) fn show_throughput(gb_s: f64) -> String {
    let (number, unit) = match gb_s {
        slow if slow < 1e-3 => (1e6 * slow, "kB/s"),
        slow if slow < 1.0 => (1e3 * slow, "MB/s"),
        fast => (fast, "GB/s"),
    };
    format!("{number:.2} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit() {
        for (name, factor) in UNITS {
            assert_eq!(parse_size(&format!("3{name}")), Ok(3 * factor));
            assert_eq!(parse_size(&format!(" 3 {} ", name.to_lowercase())), Ok(3 * factor));
        }
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("0.25GiB"), Ok(1 << 28));
    }

    #[test]
    fn wrong_texts_say_why() {
        let number = |text: &str| Err(SizeError::Number { text: text.to_owned() });
        for text in ["", "GiB", "x", ".5GB", "1.2.3GB", "-1GB"] {
            assert_eq!(parse_size(text), number(text), "{text}");
        }
        assert_eq!(parse_size("8Gb/s"), Err(SizeError::Unit { unit: "Gb/s".to_owned() }));
        for text in ["99999999999999999999", "18446744073709551615KB", "16EiB"] {
            assert!(matches!(parse_size(text), Err(SizeError::TooLarge { .. })), "{text}");
        }
        assert_eq!(SizeError::Number { text: String::new() }.kind(), ErrorKind::User);
    }

    #[test]
    fn slow_disks_have_a_throughput() {
        assert_eq!(
            [12.5, 1.0, 0.4, 0.005, 25e-6].map(show_throughput),
            ["12.50 GB/s", "1.00 GB/s", "400.00 MB/s", "5.00 MB/s", "25.00 kB/s"]
        );
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(
            [0, 1023, 1024, 3 << 30, 1 << 50].map(show_size),
            ["0 B", "1023 B", "1.00 KiB", "3.00 GiB", "1.00 PiB"]
        );
    }
}
