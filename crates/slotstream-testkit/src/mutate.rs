//! Changes bytes at random, the same way for property tests and for fuzzers.
//!
//! An [`Edit`] is four numbers that anybody may draw: a seeded generator, or a property test's
//! strategy, which then shrinks them. What they mean is decided when the edit is applied, so any
//! numbers are lawful and the same numbers give the same bytes.
//!
//! ```
//! use slotstream_testkit::mutate::{Edit, JSON, Material};
//!
//! let material = Material { words: JSON, other: b"{\"b\": [1, 2]}" };
//! let mut bytes = b"{\"a\": 12}".to_vec();
//! for edit in [Edit([0, 3, 1, 0]), Edit([7, 0, 5, 0])] {
//!     edit.apply(&mut bytes, &material);
//! }
//! assert_ne!(bytes, b"{\"a\": 12}");
//! ```

/// No edit makes bytes longer than this.
const LONGEST: usize = 1 << 20;

/// What edits take pieces from.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a fuzzer of another crate fills it in")]
pub struct Material<'a> {
    /// Words of the format.
    pub words: &'a [&'a [u8]],
    /// Another input.
    pub other: &'a [u8],
}

/// One change: what to do, where, how much, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "any four numbers are an edit")]
pub struct Edit(pub [u32; 4]);

/// Numbers at which arithmetic breaks.
const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "2",
    "255",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1e400",
    "-0.0",
    "0.5",
];

/// Words of JSON.
pub const JSON: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"null",
    b"true",
    b"false",
    b"{}",
    b"[]",
    b"\"\"",
    b"0",
    b"-1",
    b"1e9",
    b"0.5",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\xc3\x28",
    b"\0",
    b"\xef\xbb\xbf",
    b" ",
    b"\n",
];

impl Edit {
    /// Applies it. Empty bytes stay empty or get something inserted.
    pub fn apply(self, bytes: &mut Vec<u8>, material: &Material<'_>) {
        let Self([what, place, amount, choice]) = self;
        let (amount, choice) = (amount as usize, choice as usize);
        let at = place as usize % (bytes.len() + 1);
        let span = at..(at + 1 + amount % 64).min(bytes.len());
        match what % 12 {
            0 => flip(bytes, at, amount),
            1 => set(bytes, at, choice as u8),
            2 => drop(bytes.drain(span)),
            // To the end, as a file that was cut off.
            3 if choice.is_multiple_of(4) => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + amount % 4096).min(bytes.len()))),
            4 => insert(bytes, at..at, pick(material.words, choice)),
            5 => insert(bytes, span, pick(material.words, choice)),
            6 => insert(bytes, at..at, NUMBERS[choice % NUMBERS.len()].as_bytes()),
            7 => replace_number(bytes, at, NUMBERS[choice % NUMBERS.len()].as_bytes()),
            8 => {
                let piece = bytes[span].to_vec();
                let to = choice % (bytes.len() + 1);
                insert(bytes, to..to, &piece);
            }
            9 => {
                // One word many times: what is nested or repeated.
                let piece = pick(material.words, choice).repeat(amount % 300);
                insert(bytes, at..at, &piece);
            }
            10 => insert(bytes, at..at, slice(material.other, choice, amount % 512)),
            // The head of this and the tail of the other.
            _ => {
                let tail = slice(material.other, choice, usize::MAX);
                insert(bytes, at..bytes.len(), tail);
            }
        }
    }
}

fn flip(bytes: &mut [u8], at: usize, bit: usize) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (bit % 8);
    }
}

fn set(bytes: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = value;
    }
}

fn pick<'a>(words: &[&'a [u8]], choice: usize) -> &'a [u8] {
    words.get(choice % words.len().max(1)).copied().unwrap_or_default()
}

fn slice(other: &[u8], start: usize, len: usize) -> &[u8] {
    let start = start % (other.len() + 1);
    &other[start..start.saturating_add(len).min(other.len())]
}

/// Puts a piece in place of a range, unless the bytes would become too long.
fn insert(bytes: &mut Vec<u8>, range: std::ops::Range<usize>, piece: &[u8]) {
    if bytes.len() + piece.len() <= LONGEST {
        bytes.splice(range, piece.iter().copied());
    }
}

/// Puts a number in place of the next one.
fn replace_number(bytes: &mut Vec<u8>, at: usize, number: &[u8]) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit) else { return };
    let start = at + start;
    let len = bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    insert(bytes, start..start + len, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATERIAL: Material<'_> = Material { words: JSON, other: b"{\"other\": [7]}" };

    fn edited(bytes: &[u8], edit: [u32; 4]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        Edit(edit).apply(&mut bytes, &MATERIAL);
        bytes
    }

    #[test]
    fn every_kind_changes_something() {
        let before = b"{\"a\": 12, \"b\": [1, 2, 3]}";
        for what in 0..12 {
            let changed = (0..40).any(|n| edited(before, [what, 3 * n, 5 + n, n + 1]) != before);
            assert!(changed, "{what}");
        }
        assert_eq!(edited(b"{\"a\": 12}", [7, 0, 0, 5]), b"{\"a\": 65535}");
    }

    #[test]
    fn any_numbers_are_lawful_on_any_bytes() {
        for what in 0..12 {
            for place in [0, 1, 7, u32::MAX] {
                for amount in [0, 1, 63, 299, u32::MAX] {
                    for choice in [0, 4, 1000, u32::MAX] {
                        for before in [&b""[..], b"1", b"{\"a\": [10]}"] {
                            let edit = [what, place, amount, choice];
                            assert_eq!(edited(before, edit), edited(before, edit));
                        }
                    }
                }
            }
        }
        let mut long = vec![b'['; LONGEST];
        Edit([4, 0, 0, 0]).apply(&mut long, &MATERIAL);
        assert_eq!(long.len(), LONGEST);
        let nothing = Material { words: &[], other: &[] };
        for what in 0..12 {
            Edit([what, 0, 3, 0]).apply(&mut Vec::new(), &nothing);
        }
    }
}
