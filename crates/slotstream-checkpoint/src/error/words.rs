//! How the messages put their words.

use std::fmt;

/// Shows at most eight names, then how many more there are.
pub(super) struct Names<'a>(pub(super) &'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.iter().take(8).enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        match self.0.len() {
            0..=8 => Ok(()),
            n => write!(f, " and {} more", n - 8),
        }
    }
}

/// A number of things: `1 tensor`, `2 tensors`.
pub(super) struct Count(pub(super) usize, pub(super) &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// The verb that goes with so many things.
pub(super) const fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// The pronoun that goes with so many things.
pub(super) const fn it(count: usize) -> &'static str {
    if count == 1 { "it" } else { "them" }
}

/// What ends where a tensor should start: the tensor before it, or the header.
pub(super) fn boundary(previous: &str) -> String {
    if previous.is_empty() { "the header".to_owned() } else { format!("`{previous}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_many() {
        let names: Vec<String> = (0..10).map(|i| format!("n{i}")).collect();
        assert_eq!(Names(&names[..2]).to_string(), "n0, n1");
        assert!(Names(&names).to_string().ends_with("n7 and 2 more"));
        assert_eq!(
            (Count(1, "tensor").to_string(), are(1), it(1)),
            ("1 tensor".into(), "is", "it")
        );
        assert_eq!(
            (Count(2, "shard").to_string(), are(2), it(0)),
            ("2 shards".into(), "are", "them")
        );
    }
}
