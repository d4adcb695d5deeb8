//! Numbers in a `tokenizer.json` that the library trusts, and that would take all memory there is.
//!
//! It unrolls counted repetitions when it compiles a pattern such as `(?:(?=a){60000}){60000}`, and
//! it reserves as many bytes as a `precompiled_charsmap` says that its trie has.

use std::path::Path;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::TextError;

/// The most that the counted repetitions of one pattern may multiply to. Those of published
/// tokenizers make 9.
const LIMIT: u64 = 10_000;

/// The longest pattern; that of Qwen3.8 has 200 bytes.
const LONGEST: usize = 64 << 10;

/// Refuses a tokenizer that would take memory without bound. `bytes` are JSON.
pub(super) fn check(path: &Path, bytes: &[u8]) -> Result<(), TextError> {
    let mut found = None;
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    // What is no JSON has been refused before; here it would only end the search.
    let _ = Search { found: &mut found, field: Field::Other }.deserialize(&mut parser);
    match found {
        None => Ok(()),
        Some(Trap { what, found, limit }) => {
            Err(TextError::Unbounded { path: path.into(), what, found, limit })
        }
    }
}

/// A number that is too large.
struct Trap {
    what: String,
    found: u64,
    limit: u64,
}

/// What a text is for, by the name of its field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Pattern,
    Charsmap,
    Other,
}

impl Field {
    fn named(name: &str) -> Self {
        match name {
            "Regex" => Self::Pattern,
            "precompiled_charsmap" => Self::Charsmap,
            _ => Self::Other,
        }
    }

    fn trap(self, text: &str) -> Option<Trap> {
        let (what, found, limit) = match self {
            Self::Pattern => {
                let start: String = text.chars().take(80).collect();
                (format!("the repetitions of the pattern {start:?}"), repeats(text), LIMIT)
            }
            Self::Charsmap => {
                let what = "the bytes of the trie in precompiled_charsmap".to_owned();
                (what, trie_size(text)?, (text.len() as u64 / 4 * 3).saturating_sub(4))
            }
            Self::Other => return None,
        };
        (found > limit).then_some(Trap { what, found, limit })
    }
}

/// The length field of a charsmap: the first four bytes, little-endian, of base64. `None` for what
/// is too short or no base64, which the library refuses by itself.
fn trie_size(base64: &str) -> Option<u64> {
    let sextet = |c: &u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let head = base64.as_bytes().get(..6)?;
    let bits = head.iter().try_fold(0_u64, |bits, c| Some(bits << 6 | u64::from(sextet(c)?)))?;
    // Of 36 bits the first 32 are the four bytes.
    Some(u64::from(((bits >> 4) as u32).swap_bytes()))
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

/// Walks JSON for the first trap.
struct Search<'a> {
    found: &'a mut Option<Trap>,
    /// What this value is for.
    field: Field,
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
        if self.found.is_none() {
            *self.found = self.field.trap(text);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value_seed(Search { found: self.found, field: Field::named(&key) })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Search { found: self.found, field: Field::Other })?.is_some()
        {
        }
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
    fn the_length_of_a_trie() {
        assert_eq!(trie_size("AAAAAA=="), Some(0));
        assert_eq!(trie_size("BAAAAA=="), Some(4));
        assert_eq!(trie_size("/////w=="), Some(u64::from(u32::MAX)));
        assert_eq!(trie_size("eFY0Eg=="), Some(0x1234_5678));
        assert_eq!(
            (trie_size("AAAA="), trie_size("AA=AAA"), trie_size("éééé")),
            (None, None, None)
        );
    }

    #[test]
    fn traps_are_found_wherever_they_are() {
        let path = Path::new("tokenizer.json");
        let json =
            r#"{"a": [1, -1, 0.5, null, true, {"Regex": "b{3}"}], "x": {"Regex": "c{20000}"}}"#;
        let error = check(path, json.as_bytes()).unwrap_err();
        assert!(matches!(error, TextError::Unbounded { found: 20_000, limit: LIMIT, .. }));
        assert!(error.to_string().contains("c{20000}"), "{error}");
        let json = br#"[{"precompiled_charsmap": "DAAAAAAAAAA="}]"#;
        let error = check(path, json).unwrap_err();
        assert!(matches!(error, TextError::Unbounded { found: 12, limit: 5, .. }), "{error}");
        for good in [
            &br#"{"String": "c{20000}", "Regex": 5}"#[..],
            br#"{"precompiled_charsmap": "BAAAAAAAAAA="}"#,
            br#"{"precompiled_charsmap": "?"}"#,
        ] {
            assert!(check(path, good).is_ok(), "{}", String::from_utf8_lossy(good));
        }
    }
}
