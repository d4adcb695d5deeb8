//! Parameters of policies as text: `key=value+key=value`.

use slotstream_core::BindError;

use super::parse::PolicyNameError;

/// What has parameters: a policy, or the part of a combinator that holds its own.
pub(super) trait Options: Default + 'static {
    /// The parameters, in the order in which a name lists them.
    const SETTINGS: &'static [Setting<Self>] = &[];
}

/// One parameter of an `O`.
pub(super) struct Setting<O> {
    key: &'static str,
    about: &'static str,
    expected: &'static str,
    access: Access<O>,
}

enum Access<O> {
    Count { range: (u64, u64), get: fn(&O) -> u64, set: fn(&mut O, u64) },
    Real { range: (f64, f64), get: fn(&O) -> f64, set: fn(&mut O, f64) },
}

/// The seed of what draws.
pub(super) const SEED: (u64, u64) = (0, u64::MAX);
pub(super) const EXPECTED_SEED: &str = "a whole number";

/// A share of the slots, and one that may be more than all of them.
pub(super) const SHARE: ((f64, f64), &str) = ((0.0, 1.0), "a number from 0 to 1");
pub(super) const SHARES: ((f64, f64), &str) = ((0.0, 64.0), "a number from 0 to 64");

/// This `share` of the slots, rounded down.
#[inline]
pub(super) fn part(slots: usize, share: f64) -> usize {
    (slots as f64 * share) as usize
}

impl<O> Setting<O> {
    /// A whole number within `range`, ends included; `expected` says so in words.
    pub(super) const fn count(
        (key, about): (&'static str, &'static str),
        (range, expected): ((u64, u64), &'static str),
        get: fn(&O) -> u64,
        set: fn(&mut O, u64),
    ) -> Self {
        Self { key, about, expected, access: Access::Count { range, get, set } }
    }

    /// A number within `range`, ends included; `expected` says so in words.
    pub(super) const fn real(
        (key, about): (&'static str, &'static str),
        (range, expected): ((f64, f64), &'static str),
        get: fn(&O) -> f64,
        set: fn(&mut O, f64),
    ) -> Self {
        Self { key, about, expected, access: Access::Real { range, get, set } }
    }

    /// The value as a name spells it.
    fn text(&self, options: &O) -> String {
        match self.access {
            Access::Count { get, .. } => get(options).to_string(),
            Access::Real { get, .. } => get(options).to_string(),
        }
    }

    fn is_legal(&self, options: &O) -> bool {
        match self.access {
            Access::Count { range: (from, to), get, .. } => (from..=to).contains(&get(options)),
            Access::Real { range: (from, to), get, .. } => (from..=to).contains(&get(options)),
        }
    }

    /// Takes `text` over; `false` when it is no number or out of range.
    fn take(&self, options: &mut O, text: &str) -> bool {
        let is_number = match self.access {
            Access::Count { set, .. } => text.parse().map(|value| set(options, value)).is_ok(),
            Access::Real { set, .. } => text.parse().map(|value| set(options, value)).is_ok(),
        };
        is_number && self.is_legal(options)
    }
}

/// `name` with the options that are not at their defaults: what the parser reads back.
pub(super) fn spelled<O: Options>(name: &str, options: &O) -> String {
    let default = O::default();
    let mut text = name.to_owned();
    let mut joint = ':';
    for setting in O::SETTINGS {
        let value = setting.text(options);
        if value != setting.text(&default) {
            text.extend([joint]);
            text.extend([setting.key, "=", &value]);
            joint = '+';
        }
    }
    text
}

/// What `bind` does first: values that were set by a program are as legal as those of a name.
pub(super) fn check<O: Options>(options: &O) -> Result<(), BindError> {
    match O::SETTINGS.iter().find(|setting| !setting.is_legal(options)) {
        Some(setting) => {
            Err(BindError::parameter(setting.key, setting.text(options), setting.expected))
        }
        None => Ok(()),
    }
}

/// A parameter of a policy, for a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyOption {
    /// Its key.
    pub key: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Which values are legal.
    pub expected: &'static str,
    /// The value of a policy that is named without it.
    pub default: String,
}

/// The parameters of `O`.
pub(super) fn described<O: Options>() -> Vec<PolicyOption> {
    let default = O::default();
    let describe = |setting: &Setting<O>| PolicyOption {
        key: setting.key,
        about: setting.about,
        expected: setting.expected,
        default: setting.text(&default),
    };
    O::SETTINGS.iter().map(describe).collect()
}

/// The options in a name.
pub(super) struct Given<'t> {
    policy: &'static str,
    pairs: Vec<(&'t str, &'t str)>,
}

impl<'t> Given<'t> {
    /// Takes `text` apart, if there is any.
    pub(super) fn read(
        policy: &'static str,
        text: Option<&'t str>,
    ) -> Result<Self, PolicyNameError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for option in text.into_iter().flat_map(|text| text.split('+')) {
            let pair =
                option.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
            let Some((key, value)) = pair else {
                return Err(PolicyNameError::OptionSyntax {
                    policy: policy.into(),
                    text: option.into(),
                });
            };
            if pairs.iter().any(|(earlier, _)| *earlier == key) {
                return Err(PolicyNameError::RepeatedOption {
                    policy: policy.into(),
                    key: key.into(),
                });
            }
            pairs.push((key, value));
        }
        Ok(Self { policy, pairs })
    }

    /// `options` with the given ones taken over.
    pub(super) fn set<O: Options>(&self, mut options: O) -> Result<O, PolicyNameError> {
        for (key, value) in &self.pairs {
            let (policy, key, known) = (self.policy.to_owned(), (*key).to_owned(), keys::<O>());
            let Some(setting) = O::SETTINGS.iter().find(|setting| setting.key == key) else {
                return Err(PolicyNameError::UnknownOption { policy, key, known });
            };
            if !setting.take(&mut options, value) {
                let (value, expected) = ((*value).to_owned(), setting.expected);
                return Err(PolicyNameError::OptionValue { policy, key, value, expected, known });
            }
        }
        Ok(options)
    }
}

fn keys<O: Options>() -> Vec<&'static str> {
    O::SETTINGS.iter().map(|setting| setting.key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Two {
        steps: u64,
        share: f64,
    }

    impl Options for Two {
        const SETTINGS: &'static [Setting<Self>] = &[
            Setting::count(
                ("steps", "how many"),
                ((0, 9), "a whole number from 0 to 9"),
                |two| two.steps,
                |two, steps| two.steps = steps,
            ),
            Setting::real(
                ("share", "of all"),
                ((0.0, 0.5), "a number from 0 to 0.5"),
                |two| two.share,
                |two, share| two.share = share,
            ),
        ];
    }

    fn two(text: &str) -> Result<Two, PolicyNameError> {
        Given::read("two", Some(text))?.set(Two::default())
    }

    #[test]
    fn options_are_read_and_spelled() {
        for (text, steps, share, spelling) in [
            ("steps=9", 9, 0.0, "two:steps=9"),
            ("share=.5+steps=03", 3, 0.5, "two:steps=3+share=0.5"),
            ("share=1e-1", 0, 0.1, "two:share=0.1"),
            ("steps=0+share=0", 0, 0.0, "two"),
        ] {
            let read = two(text).expect(text);
            assert_eq!(read, Two { steps, share });
            assert_eq!(spelled("two", &read), spelling);
        }
        let default = |option: &PolicyOption| (option.key, option.default.clone());
        let listed: Vec<_> = described::<Two>().iter().map(default).collect();
        assert_eq!(listed, [("steps", "0".into()), ("share", "0".into())]);
    }

    #[test]
    fn what_is_wrong_with_an_option_is_said() {
        let known = vec!["steps", "share"];
        let (policy, expected) = (|| "two".to_owned(), "a whole number from 0 to 9");
        for value in ["10", "-1", "1.5", "x", "99999999999999999999"] {
            let (key, value) = ("steps".to_owned(), value.to_owned());
            let known = known.clone();
            let error = two(&format!("share=0.1+steps={value}")).unwrap_err();
            let text = error.to_string();
            for part in ["two", "steps", &value, expected, "share"] {
                assert!(text.contains(part), "{text}: {part}");
            }
            let policy = policy();
            assert_eq!(error, PolicyNameError::OptionValue { policy, key, value, expected, known });
        }
        for value in ["nan", "inf", "-inf", "0.51", "-0.1"] {
            let error = two(&format!("share={value}")).unwrap_err();
            assert!(matches!(error, PolicyNameError::OptionValue { .. }), "{value}: {error}");
        }
        let key = || "step".to_owned();
        let unknown = PolicyNameError::UnknownOption { policy: policy(), key: key(), known };
        assert_eq!(two("step=1").unwrap_err(), unknown);
        assert!(unknown.to_string().contains("steps, share"), "{unknown}");
        let repeated = PolicyNameError::RepeatedOption { policy: policy(), key: "steps".into() };
        assert_eq!(two("steps=1+share=0+steps=1").unwrap_err(), repeated);
        for text in ["", "steps", "=1", "steps=", "steps=1+", "+"] {
            let error = two(text).unwrap_err();
            assert!(matches!(error, PolicyNameError::OptionSyntax { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn values_set_by_a_program_are_checked() {
        assert_eq!(check(&Two { steps: 9, share: 0.5 }), Ok(()));
        let expected = "a number from 0 to 0.5";
        let error = BindError::parameter("share", f64::NAN, expected);
        assert_eq!(check(&Two { steps: 0, share: f64::NAN }), Err(error));
    }
}
