//! Regular expressions in a `tokenizer.json`.
//!
//! The library unrolls counted repetitions when it compiles a pattern: `(?:(?=a){60000}){60000}`
//! would take all memory there is.

use std::path::Path;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::TextError;

/// The most that the counted repetitions of one pattern may multiply to. Those of published
/// tokenizers make 9.
const LIMIT: u64 = 10_000;

/// The longest pattern; that of Qwen3.8 has 200 bytes.
const LONGEST: usize = 64 << 10;

/// Refuses a tokenizer with a pattern that would be unrolled without bound. `bytes` are JSON.
pub(super) fn check(path: &Path, bytes: &[u8]) -> Result<(), TextError> {
    let mut worst = None;
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    // What is no JSON has been refused before; here it would only end the search.
    let _ = Search { worst: &mut worst, pattern: false }.deserialize(&mut parser);
    match worst {
        None => Ok(()),
        Some((pattern, repeats)) => {
            Err(TextError::Pattern { path: path.into(), pattern, repeats, limit: LIMIT })
        }
    }
}

/// The product of all counted repetitions `{n}`, `{n,}` and `{n,m}`, nested or not; a pattern
/// that is too long counts as repeating without bound.
fn repeats(pattern: &str) -> u64 {
    if pattern.len() > LONGEST {
        return u64::MAX;
    }
    let (mut product, mut rest) = (1_u64, pattern);
    while let Some(at) = rest.find(['\\', '{']) {
        let escape = rest[at..].starts_with('\\');
        rest = &rest[at + 1..];
        let braces = if escape {
            // `\p{L}`, `\x{41}` and the like: braces that count nothing.
            let mut letters = rest.chars();
            let named = letters.next().is_some_and(|letter| "pPxuUkgNob".contains(letter));
            rest = letters.as_str();
            if !named || !rest.starts_with('{') {
                continue;
            }
            &rest[1..]
        } else {
            rest
        };
        let end = braces.find('}').unwrap_or(braces.len());
        if !escape {
            let counts = braces[..end].split(',').filter_map(|count| number(count.trim()));
            product = product.saturating_mul(counts.max().unwrap_or(1).max(1));
        }
        rest = &braces[end..];
    }
    product
}

/// A count; one of more digits than 64 bits hold is the largest.
fn number(digits: &str) -> Option<u64> {
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Walks JSON for the first pattern that repeats too often.
struct Search<'a> {
    worst: &'a mut Option<(String, u64)>,
    /// Whether this value is a pattern.
    pattern: bool,
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.pattern && self.worst.is_none() {
            let repeats = repeats(text);
            if repeats > LIMIT {
                *self.worst = Some((text.chars().take(80).collect(), repeats));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value_seed(Search { worst: self.worst, pattern: key == "Regex" })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Search { worst: self.worst, pattern: false })?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_repetitions_multiply() {
        for (pattern, product) in [
            ("", 1),
            (r"\s+(?!\S)|\p{N}{1,3}|[^\s\p{N}]+", 3),
            (r"(a{2}){3,}b{4,5}", 30),
            (r"a\{9000}b", 1),
            (r"\x{10000}\u{1F600}\p{L}", 1),
            (r"a{0}", 1),
            (r"a{ 7 }", 7),
            (r"(?:(?=a){60000}){60000}", 3_600_000_000),
            (r"a{99999999999999999999}", u64::MAX),
            (r"a{5", 5),
            ("\\", 1),
            ("é{2}ü\\ö{3}", 6),
        ] {
            assert_eq!(repeats(pattern), product, "{pattern}");
        }
        assert_eq!(repeats(&"a".repeat(LONGEST + 1)), u64::MAX);
    }

    #[test]
    fn patterns_are_found_wherever_they_are() {
        let path = Path::new("tokenizer.json");
        let json =
            r#"{"a": [1, -1, 0.5, null, true, {"Regex": "b{3}"}], "x": {"Regex": "c{20000}"}}"#;
        let error = check(path, json.as_bytes()).unwrap_err();
        assert!(
            matches!(&error, TextError::Pattern { pattern, repeats: 20_000, .. } if pattern == "c{20000}"),
            "{error:?}"
        );
        assert!(check(path, br#"{"String": "c{20000}", "Regex": 5}"#).is_ok());
    }
}
