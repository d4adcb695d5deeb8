//! What can be set, and how a name spells it.

use crate::LookaheadError;

/// What a forecaster can be told. Each one uses a part of it; [`forecasters`](crate::forecasters)
/// says which.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForecastOptions {
    /// Experts of a row and layer that are named, at most; `None`: as many as the router chooses.
    pub top: Option<usize>,
    /// What an expert must reach to be named. Of a probe: how far its logit must lie above the
    /// first one that the router would not choose; 0 is the router's choice, and below that are
    /// others, by their distance to the last one that it would. Of what learns: the confidence.
    pub threshold: f32,
    /// Whether a probe adds the output of an n-gram (PLE) layer in between.
    pub ple: bool,
    /// Layers from the one that was just observed to the furthest one that is named.
    pub ahead: usize,
}

/// The options of probes, and those of what learns.
impl ForecastOptions {
    /// The router's own choice, with PLE.
    #[must_use]
    pub const fn probe() -> Self {
        Self { top: None, threshold: 0.0, ple: true, ahead: 1 }
    }

    /// One layer ahead; what is likelier than not.
    #[must_use]
    pub const fn learnt() -> Self {
        Self { top: None, threshold: 0.5, ple: true, ahead: 1 }
    }

    /// Everything that is known, two layers ahead.
    #[must_use]
    pub const fn known() -> Self {
        Self { top: None, threshold: 0.0, ple: true, ahead: 2 }
    }

    /// Names at most this many experts a row and layer.
    #[must_use]
    pub const fn with_top(mut self, top: usize) -> Self {
        self.top = Some(top);
        self
    }

    /// Names what reaches this.
    #[must_use]
    pub const fn with_threshold(mut self, threshold: f32) -> Self {
        self.threshold = threshold;
        self
    }

    /// Adds the output of a PLE layer in between, or does not.
    #[must_use]
    pub const fn with_ple(mut self, ple: bool) -> Self {
        self.ple = ple;
        self
    }

    /// Names experts of so many layers.
    #[must_use]
    pub const fn with_ahead(mut self, ahead: usize) -> Self {
        self.ahead = ahead;
        self
    }
}

/// A key, what it sets, and how.
pub(crate) struct Key {
    pub(crate) key: &'static str,
    pub(crate) about: &'static str,
    expected: &'static str,
    get: fn(&ForecastOptions) -> Option<String>,
    /// `false` for what is no such value.
    set: fn(&mut ForecastOptions, &str) -> bool,
}

fn set<T: std::str::FromStr>(
    text: &str,
    is_legal: impl Fn(&T) -> bool,
    take: impl FnOnce(T),
) -> bool {
    match text.parse() {
        Ok(value) if is_legal(&value) => {
            take(value);
            true
        }
        _ => false,
    }
}

pub(crate) const TOP: Key = Key {
    key: "top",
    about: "experts of a row and layer, at most; without it as many as the router chooses",
    expected: "a whole number from 1 to 65535",
    get: |options| options.top.map(|top| top.to_string()),
    set: |options, text| set(text, |v| (1..=65_535).contains(v), |v| options.top = Some(v)),
};

pub(crate) const MARGIN: Key = Key {
    key: "threshold",
    about: "how far a logit must lie above the first one that the router would not choose",
    expected: "a number from -1000 to 1000",
    get: |options| Some(options.threshold.to_string()),
    set: |options, text| set(text, |v| (-1e3..=1e3).contains(v), |v| options.threshold = v),
};

pub(crate) const CONFIDENCE: Key = Key {
    key: "threshold",
    about: "the least confidence",
    expected: "a number from 0 to 1",
    get: |options| Some(options.threshold.to_string()),
    set: |options, text| set(text, |v| (0.0..=1.0).contains(v), |v| options.threshold = v),
};

pub(crate) const PLE: Key = Key {
    key: "ple",
    about: "add the output of an n-gram layer in between: 1 or 0",
    expected: "0 or 1",
    get: |options| Some(u8::from(options.ple).to_string()),
    set: |options, text| set(text, |v: &u8| *v <= 1, |v| options.ple = v == 1),
};

pub(crate) const AHEAD: Key = Key {
    key: "ahead",
    about: "layers from the observed one to the furthest that is named",
    expected: "a whole number from 1 to 64",
    get: |options| Some(options.ahead.to_string()),
    set: |options, text| set(text, |v| (1..=64).contains(v), |v| options.ahead = v),
};

/// Keys of probes, of what learns, and of what knows.
pub(crate) const PROBE_KEYS: &[Key] = &[TOP, MARGIN, PLE];
pub(crate) const LEARNT_KEYS: &[Key] = &[TOP, CONFIDENCE, AHEAD];
pub(crate) const KNOWN_KEYS: &[Key] = &[AHEAD];
pub(crate) const MIXTURE_KEYS: &[Key] = &[TOP, CONFIDENCE, PLE];

/// `defaults` with the options of `text` taken over. A comma joins them as well as a plus.
pub(crate) fn read(
    forecaster: &'static str,
    keys: &'static [Key],
    defaults: ForecastOptions,
    text: Option<&str>,
) -> Result<ForecastOptions, LookaheadError> {
    let mut options = defaults;
    let mut given: Vec<&str> = Vec::new();
    for part in text.into_iter().flat_map(|text| text.split(['+', ','])) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(LookaheadError::OptionSyntax { forecaster, text: part.into() });
        };
        let repeated = given.contains(&name);
        let found = keys.iter().find(|key| key.key == name).filter(|_| !repeated);
        let Some(key) = found else {
            let known = keys.iter().map(|key| key.key).collect();
            return Err(LookaheadError::OptionKey {
                forecaster,
                key: name.into(),
                repeated,
                known,
            });
        };
        if !(key.set)(&mut options, value) {
            let (key, expected) = (key.key, key.expected);
            return Err(LookaheadError::OptionValue {
                forecaster,
                key,
                value: value.into(),
                expected,
            });
        }
        given.push(name);
    }
    Ok(options)
}

/// The name with what is not at its default: what the parser reads back.
pub(crate) fn spelled(
    forecaster: &str,
    keys: &[Key],
    defaults: &ForecastOptions,
    options: &ForecastOptions,
) -> String {
    let mut text = forecaster.to_owned();
    let mut joint = ':';
    for key in keys {
        let value = (key.get)(options);
        if let Some(value) = value.filter(|value| Some(value) != (key.get)(defaults).as_ref()) {
            text.push(joint);
            text.push_str(key.key);
            text.push('=');
            text.push_str(&value);
            joint = '+';
        }
    }
    text
}

/// A key's value in `options`, for a list.
pub(crate) fn shown(key: &Key, options: &ForecastOptions) -> Option<String> {
    (key.get)(options)
}
