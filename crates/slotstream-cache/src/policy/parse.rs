//! Policies by name, for command lines.

use slotstream_core::{ErrorKind, EvictionPolicy};

use super::{Clock, LayerLocal, Lru};

type Boxed = Box<dyn EvictionPolicy>;

/// What follows a name's colon.
#[derive(Clone, Copy)]
enum Make {
    /// Options; this policy takes none.
    Plain(fn() -> Boxed),
    /// Another policy.
    Around(fn(Boxed) -> Boxed),
}

/// The one list of names.
const KNOWN: [(&str, Make); 4] = [
    ("clock", Make::Plain(|| Box::new(Clock::new()))),
    ("clock-cold", Make::Plain(|| Box::new(Clock::cold()))),
    ("lru", Make::Plain(|| Box::new(Lru::new()))),
    ("layer-local", Make::Around(|inner| Box::new(LayerLocal::new(inner)))),
];

/// The names that [`parse_policy`] knows; a combinator's ends in a colon.
pub fn policy_names() -> impl Iterator<Item = String> {
    KNOWN.iter().map(|(name, make)| match make {
        Make::Plain(_) => (*name).to_owned(),
        Make::Around(_) => format!("{name}:"),
    })
}

fn known() -> String {
    policy_names()
        .map(|name| if name.ends_with(':') { name + "POLICY" } else { name })
        .collect::<Vec<_>>()
        .join(", ")
}

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyNameError {
    /// No policy of that name.
    #[error("no eviction policy is called {name:?}; known are {}", known())]
    #[non_exhaustive]
    Unknown {
        /// The name.
        name: String,
    },
    /// A combinator without the policy that it combines.
    #[error("{name} needs a policy inside: write {name}:POLICY with one of {}", known())]
    #[non_exhaustive]
    NothingInside {
        /// The combinator.
        name: String,
    },
    /// Something between the plus signs that is not `key=value`.
    #[error("option {text:?} of {policy}: expected key=value, joined by '+'")]
    #[non_exhaustive]
    OptionSyntax {
        /// The policy.
        policy: String,
        /// The option as given.
        text: String,
    },
    /// The policy has no such option.
    #[error("{policy} has no option {key:?}; it takes no options")]
    #[non_exhaustive]
    UnknownOption {
        /// The policy.
        policy: String,
        /// Name of the option.
        key: String,
    },
}

impl PolicyNameError {
    /// What the caller can do about it: write another name.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::User
    }
}

/// Deepest nesting of combinators; every one so far is useless inside itself.
const DEEPEST: usize = 8;

/// The policy that `text` names: `name`, `name:key=value+key=value` or `combinator:POLICY`,
/// where the combinator's colon takes the rest of the text.
///
/// ```
/// use slotstream_cache::parse_policy;
///
/// assert_eq!(parse_policy("layer-local:clock")?.name(), "layer-local:clock");
/// let error = parse_policy("clocks").unwrap_err();
/// assert!(error.to_string().contains("clock, clock-cold, lru, layer-local:POLICY"));
/// # Ok::<(), slotstream_cache::PolicyNameError>(())
/// ```
///
/// # Errors
/// A [`PolicyNameError`] that lists the known names.
pub fn parse_policy(text: &str) -> Result<Boxed, PolicyNameError> {
    let mut rest = text;
    let mut around = Vec::new();
    loop {
        let (name, after) = match rest.split_once(':') {
            Some((name, after)) => (name, Some(after)),
            None => (rest, None),
        };
        let make = KNOWN.iter().find(|(known, _)| *known == name).map(|(_, make)| *make);
        match make {
            Some(Make::Plain(make)) => {
                no_options(name, after)?;
                return Ok(around
                    .into_iter()
                    .rev()
                    .fold(make(), |inner, wrap: fn(Boxed) -> Boxed| wrap(inner)));
            }
            Some(Make::Around(wrap)) if around.len() < DEEPEST => {
                around.push(wrap);
                rest = after
                    .filter(|after| !after.is_empty())
                    .ok_or_else(|| PolicyNameError::NothingInside { name: name.into() })?;
            }
            _ => return Err(PolicyNameError::Unknown { name: rest.into() }),
        }
    }
}

/// Accepts a missing list of options only.
fn no_options(policy: &str, options: Option<&str>) -> Result<(), PolicyNameError> {
    let Some(first) = options.and_then(|options| options.split('+').next()) else {
        return Ok(());
    };
    Err(match first.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            PolicyNameError::UnknownOption { policy: policy.into(), key: key.into() }
        }
        _ => PolicyNameError::OptionSyntax { policy: policy.into(), text: first.into() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for text in
            ["clock", "clock-cold", "lru", "layer-local:lru", "layer-local:layer-local:clock"]
        {
            assert_eq!(parse_policy(text).expect(text).name(), text);
        }
        for name in policy_names() {
            let text = if name.ends_with(':') { name + "clock" } else { name };
            assert_eq!(parse_policy(&text).expect(&text).name(), text);
        }
    }

    #[test]
    fn wrong_texts_are_named() {
        let error = |text: &str| parse_policy(text).map(|policy| policy.name()).unwrap_err();
        let unknown = |name: &str| PolicyNameError::Unknown { name: name.into() };
        assert_eq!(error(""), unknown(""));
        assert_eq!(error("Clock"), unknown("Clock"));
        assert_eq!(error("layer-local:x:y"), unknown("x:y"));
        let deep = "layer-local:".repeat(100_000) + "clock";
        assert!(matches!(error(&deep), PolicyNameError::Unknown { .. }));
        let inside = PolicyNameError::NothingInside { name: "layer-local".into() };
        assert_eq!(error("layer-local"), inside);
        assert_eq!(error("layer-local:"), inside);
        let option =
            |text: &str| PolicyNameError::OptionSyntax { policy: "lru".into(), text: text.into() };
        assert_eq!(error("lru:"), option(""));
        assert_eq!(error("lru:a"), option("a"));
        assert_eq!(error("lru:=1"), option("=1"));
        let no = PolicyNameError::UnknownOption { policy: "clock".into(), key: "bits".into() };
        assert_eq!(error("layer-local:clock:bits=2+x=1"), no);
        assert_eq!(no.kind(), ErrorKind::User);
    }
}
