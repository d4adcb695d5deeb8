//! Policies by name, for command lines.

use std::fmt;

use slotstream_core::{ErrorKind, EvictionPolicy};

use super::options::{Given, Options, PolicyOption, described};
use super::per_layer::Schedule;
use super::{
    Analogue, Arc, Clock, Cyclic, Fifo, HotPin, LayerLocal, LeastStale, Lfu, Lirs, Lru, PerLayer,
    PerLayerCounts, Random, S3Fifo, Sieve, Slru, TwoQ, WTinyLfu,
};

type Boxed = Box<dyn EvictionPolicy>;
type Made = Result<Boxed, PolicyNameError>;

/// How a policy is made from the options in its name.
#[derive(Clone, Copy)]
enum Make {
    Plain(fn(&Given<'_>) -> Made),
    /// Around another policy.
    Around(fn(&Given<'_>, Boxed) -> Made),
}

use Make::{Around, Plain};

/// A name.
struct Known {
    name: &'static str,
    /// What it does, in a line.
    about: &'static str,
    make: Make,
    options: fn() -> Vec<PolicyOption>,
}

/// The one list of names. A policy with parameters implements [`Options`]; its `name` is
/// [`spelled`](super::options::spelled), its `bind` begins with
/// [`check`](super::options::check).
const KNOWN: &[Known] = &[
    Known {
        name: "clock",
        about: "a hand and a reference bit a slot; a new record starts referenced",
        make: Plain(|given| own(given, Clock::new())),
        options: described::<Clock>,
    },
    Known {
        name: "clock-cold",
        about: "clock, but a new record starts unreferenced",
        make: Plain(|given| own(given, Clock::cold())),
        options: described::<Clock>,
    },
    Known {
        name: "lru",
        about: "the record whose last use is longest ago",
        make: Plain(|given| own(given, Lru::new())),
        options: described::<Lru>,
    },
    Known {
        name: "fifo",
        about: "the record that came first",
        make: Plain(|given| own(given, Fifo::new())),
        options: described::<Fifo>,
    },
    Known {
        name: "slru",
        about: "lru in two segments: a record is protected once it was used again",
        make: Plain(|given| own(given, Slru::new())),
        options: described::<Slru>,
    },
    Known {
        name: "2q",
        about: "a short queue, and lru for records that came back after it",
        make: Plain(|given| own(given, TwoQ::new())),
        options: described::<TwoQ>,
    },
    Known {
        name: "lirs",
        about: "the record whose last two uses lie furthest apart",
        make: Plain(|given| own(given, Lirs::new())),
        options: described::<Lirs>,
    },
    Known {
        name: "arc",
        about: "two lists, once used and used again, whose balance adapts by what it regrets",
        make: Plain(|given| own(given, Arc::new())),
        options: described::<Arc>,
    },
    Known {
        name: "s3fifo",
        about: "a small queue for what is used once, a large one that gives second chances",
        make: Plain(|given| own(given, S3Fifo::new())),
        options: described::<S3Fifo>,
    },
    Known {
        name: "sieve",
        about: "a queue and a hand that takes the first record not used since it passed",
        make: Plain(|given| own(given, Sieve::new())),
        options: described::<Sieve>,
    },
    Known {
        name: "wtinylfu",
        about: "a small lru window; beyond it the less frequently used record goes",
        make: Plain(|given| own(given, WTinyLfu::new())),
        options: described::<WTinyLfu>,
    },
    Known {
        name: "lfu",
        about: "the record that its layer's tokens have used least of late",
        make: Plain(|given| own(given, Lfu::new())),
        options: described::<Lfu>,
    },
    Known {
        name: "analogue",
        about: "the record that tokens like this one, and what followed them, used least",
        make: Plain(|given| own(given, Analogue::new())),
        options: described::<Analogue>,
    },
    Known {
        name: "least-stale",
        about: "the record that most visits of its layer passed over (SpecMD, reconstructed)",
        make: Plain(|given| own(given, LeastStale::new())),
        options: described::<LeastStale>,
    },
    Known {
        name: "cyclic",
        about: "a record of the layer that is visited furthest ahead",
        make: Plain(|given| own(given, Cyclic::new())),
        options: described::<Cyclic>,
    },
    Known {
        name: "hot-pin",
        about: "lru that spares the records used most so far",
        make: Plain(|given| own(given, HotPin::new())),
        options: described::<HotPin>,
    },
    Known {
        name: "random",
        about: "a victim drawn by lot",
        make: Plain(|given| own(given, Random::new())),
        options: described::<Random>,
    },
    Known {
        name: "layer-local",
        about: "in a pool at its floor, a demand takes a slot of its own layer",
        make: Around(|given, inner| given.set(()).map(|()| boxed(LayerLocal::new(inner)))),
        options: described::<()>,
    },
    Known {
        name: "per-layer",
        about: "equal shares of the slots, a layer each",
        make: Around(|given, inner| given.set(()).map(|()| boxed(PerLayer::new(inner)))),
        options: described::<()>,
    },
    Known {
        name: "per-layer-counts",
        about: "shares of the slots from routing counts, a layer each",
        make: Around(|given, inner| {
            given
                .set(Schedule::default())
                .map(|schedule| boxed(PerLayerCounts::scheduled(inner, schedule)))
        }),
        options: described::<Schedule>,
    },
];

/// The policy of a pool for which none is chosen: the one that closes most of the gap to the
/// optimum on the recorded routes (`docs/policies.md` has the evidence and its limits).
pub const DEFAULT_POLICY: &str = "analogue";

/// A new policy of the name [`DEFAULT_POLICY`].
#[must_use]
pub fn default_policy() -> Box<dyn EvictionPolicy> {
    Box::new(Analogue::new())
}

/// What takes no options.
impl Options for () {}

fn own<P: EvictionPolicy + Options>(given: &Given<'_>, policy: P) -> Made {
    given.set(policy).map(boxed)
}

fn boxed(policy: impl EvictionPolicy + 'static) -> Boxed {
    Box::new(policy)
}

/// A policy as a list of them shows it: its name, a line about it, its options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// Whether the name goes on with a colon and another policy.
    pub combines: bool,
    /// What it does, in a line.
    pub about: &'static str,
    /// Its options.
    pub options: Vec<PolicyOption>,
}

impl fmt::Display for PolicyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = if self.combines { ":POLICY" } else { "" };
        write!(f, "{}{inside}: {}", self.name, self.about)?;
        for option in &self.options {
            let PolicyOption { key, about, expected, default } = option;
            write!(f, "\n    {key}={default}: {about}; {expected}")?;
        }
        Ok(())
    }
}

/// Every policy that [`parse_policy`] knows, for a `--help`.
///
/// ```
/// let list: Vec<String> =
///     slotstream_cache::policies().map(|policy| policy.to_string()).collect();
/// assert!(list.iter().any(|text| text.starts_with("layer-local:POLICY: in a pool at its floor")));
/// ```
pub fn policies() -> impl Iterator<Item = PolicyInfo> {
    KNOWN.iter().map(|known| PolicyInfo {
        name: known.name,
        combines: matches!(known.make, Around(_)),
        about: known.about,
        options: (known.options)(),
    })
}

/// The names that [`parse_policy`] knows; a combinator's ends in a colon.
pub fn policy_names() -> impl Iterator<Item = String> {
    KNOWN.iter().map(|known| match known.make {
        Plain(_) => known.name.to_owned(),
        Around(_) => format!("{}:", known.name),
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
    #[error("{policy} has no option {key:?}; {}", options(known))]
    #[non_exhaustive]
    UnknownOption {
        /// The policy.
        policy: String,
        /// Name of the option.
        key: String,
        /// The options it has.
        known: Vec<&'static str>,
    },
    /// An option is given twice.
    #[error("option {key:?} of {policy} is given twice")]
    #[non_exhaustive]
    RepeatedOption {
        /// The policy.
        policy: String,
        /// Name of the option.
        key: String,
    },
    /// The value of an option is not legal.
    #[error("option {key}={value} of {policy}: expected {expected}; {}", options(known))]
    #[non_exhaustive]
    OptionValue {
        /// The policy.
        policy: String,
        /// Name of the option.
        key: String,
        /// The value as given.
        value: String,
        /// What would be legal.
        expected: &'static str,
        /// The options of the policy.
        known: Vec<&'static str>,
    },
}

fn options(known: &[&str]) -> String {
    if known.is_empty() {
        "it takes no options".to_owned()
    } else {
        format!("its options are {}", known.join(", "))
    }
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

/// The policy that `text` names: `name`, `name:key=value+key=value`, `combinator:POLICY` or
/// `combinator:key=value+key=value:POLICY`, where POLICY is the rest of the text. See
/// [`policies`] for the names and their options. The policy's own
/// [`name`](EvictionPolicy::name) gives the text back, without the options that only repeat a
/// default.
///
/// ```
/// use slotstream_cache::parse_policy;
///
/// assert_eq!(parse_policy("layer-local:clock")?.name(), "layer-local:clock");
/// let error = parse_policy("clocks").unwrap_err();
/// assert!(error.to_string().contains("known are clock, clock-cold, "));
/// # Ok::<(), slotstream_cache::PolicyNameError>(())
/// ```
///
/// # Errors
/// A [`PolicyNameError`] that lists the known names or options.
pub fn parse_policy(text: &str) -> Result<Boxed, PolicyNameError> {
    let mut rest = text;
    let mut around = Vec::new();
    loop {
        let (name, after) = match rest.split_once(':') {
            Some((name, after)) => (name, Some(after)),
            None => (rest, None),
        };
        let unknown = || PolicyNameError::Unknown { name: rest.into() };
        let known = KNOWN.iter().find(|known| known.name == name).ok_or_else(unknown)?;
        match known.make {
            Plain(make) => {
                let plain = make(&Given::read(known.name, after)?);
                return around.into_iter().rev().fold(plain, |made, (wrap, given)| {
                    let wrap: fn(&Given<'_>, Boxed) -> Made = wrap;
                    wrap(&given, made?)
                });
            }
            Around(_) if around.len() >= DEEPEST => return Err(unknown()),
            Around(wrap) => {
                let (options, inside) = split_inside(after.unwrap_or_default());
                if inside.is_empty() {
                    return Err(PolicyNameError::NothingInside { name: name.into() });
                }
                around.push((wrap, Given::read(known.name, options)?));
                rest = inside;
            }
        }
    }
}

/// A combinator's own options, if any, and the policy inside it.
fn split_inside(after: &str) -> (Option<&str>, &str) {
    match after.split_once(':').unwrap_or((after, "")) {
        (options, inside) if options.contains('=') => (Some(options), inside),
        _ => (None, after),
    }
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
    }

    #[test]
    fn the_default_is_the_one_of_its_name() {
        assert_eq!(default_policy().name(), DEFAULT_POLICY);
        assert_eq!(parse_policy(DEFAULT_POLICY).expect("known").name(), DEFAULT_POLICY);
    }

    /// Every name, and every option of it at other values than the default.
    #[test]
    fn every_option_comes_back() {
        for policy in policies() {
            let inside = if policy.combines { ":clock" } else { "" };
            let bare = format!("{}{inside}", policy.name);
            assert_eq!(parse_policy(&bare).expect(&bare).name(), bare);
            for PolicyOption { key, default, .. } in &policy.options {
                let same = format!("{}:{key}={default}{inside}", policy.name);
                assert_eq!(parse_policy(&same).expect(&same).name(), bare);
                let others = ["0.5", "0.25", "1", "2", "7", "100"].iter().filter(|value| {
                    let text = format!("{}:{key}={value}{inside}", policy.name);
                    let made = *value != default && parse_policy(&text).is_ok();
                    made && {
                        let name = parse_policy(&text).expect(&text).name();
                        assert_eq!(name, text);
                        true
                    }
                });
                assert!(others.count() > 0, "{bare} takes no other {key}");
                let wrong = format!("{}:{key}=-1{inside}", policy.name);
                let error = parse_policy(&wrong).map(|policy| policy.name()).unwrap_err();
                assert!(matches!(error, PolicyNameError::OptionValue { .. }), "{error}");
                assert!(policy.to_string().contains(&format!("{key}={default}: ")));
            }
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
        for text in ["layer-local", "layer-local:", "layer-local:a=1", "layer-local:a=1:"] {
            assert_eq!(error(text), inside);
        }
        let option =
            |text: &str| PolicyNameError::OptionSyntax { policy: "lru".into(), text: text.into() };
        assert_eq!(error("lru:"), option(""));
        assert_eq!(error("lru:a"), option("a"));
        assert_eq!(error("lru:=1"), option("=1"));
        let no = |policy: &str, key: &str| {
            let (policy, key, known) = (policy.into(), key.into(), Vec::new());
            PolicyNameError::UnknownOption { policy, key, known }
        };
        assert_eq!(error("layer-local:clock:bits=2+x=1"), no("clock", "bits"));
        assert_eq!(error("layer-local:a=1:clock"), no("layer-local", "a"));
        assert!(error("lru:a=1").to_string().ends_with("; it takes no options"));
        assert_eq!(error("lru:a=1").kind(), ErrorKind::User);
    }
}
