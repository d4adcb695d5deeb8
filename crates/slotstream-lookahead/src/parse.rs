//! Forecasters by name, for command lines.

use std::fmt;
use std::sync::Arc;

use slotstream_core::{Forecaster, Geometry, NoForecast};

use crate::options::{KNOWN_KEYS, Key, LEARNT_KEYS, MIXTURE_KEYS, PROBE_KEYS, read, shown};
use crate::{
    AttentionTap, Boundary, CoOccurrence, Corrected, Correction, FileFault, ForecastOptions,
    LookaheadError, Markov, Mixture, Oracle, OracleRoutes, PreviousToken,
};

/// Opens what a name refers to. This crate reads no file.
pub trait ForecastFiles {
    /// The routes that were recorded in a trace.
    ///
    /// # Errors
    /// Why they cannot be had.
    fn routes(&self, path: &str) -> Result<OracleRoutes, FileFault>;

    /// The correction of forecasts in a file, or without a path the one that lies beside the
    /// model. It fits the model.
    ///
    /// # Errors
    /// Why it cannot be had; here always.
    fn correction(&self, path: Option<&str>) -> Result<Arc<Correction>, FileFault> {
        let _ = path;
        Err(no_files())
    }
}

fn no_files() -> FileFault {
    FileFault::new(slotstream_core::ErrorKind::User, "no files can be opened here")
}

/// There are no files.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing in it")]
pub struct NoFiles;

impl ForecastFiles for NoFiles {
    fn routes(&self, _path: &str) -> Result<OracleRoutes, FileFault> {
        Err(no_files())
    }
}

/// How one is made.
enum Make {
    Plain(fn(&Geometry, ForecastOptions) -> Box<dyn Forecaster>),
    /// From a correction, whose file may be named.
    Corrected,
    /// From recorded routes.
    Routes(fn(&Geometry, OracleRoutes, ForecastOptions) -> Box<dyn Forecaster>),
}

struct Known {
    name: &'static str,
    about: &'static str,
    keys: &'static [Key],
    defaults: ForecastOptions,
    make: Make,
}

/// The one list of names.
const KNOWN: &[Known] = &[
    Known {
        name: "none",
        about: "expects nothing",
        keys: &[],
        defaults: ForecastOptions::probe(),
        make: Make::Plain(|_, _| Box::new(NoForecast)),
    },
    Known {
        name: Boundary::NAMES[0],
        about: "the layer's own router on the streams before the layer",
        keys: PROBE_KEYS,
        defaults: ForecastOptions::probe(),
        make: Make::Plain(|geometry, options| Box::new(Boundary::new(geometry, 1, options))),
    },
    Known {
        name: Boundary::NAMES[1],
        about: "the layer's own router on the streams one layer earlier",
        keys: PROBE_KEYS,
        defaults: ForecastOptions::probe(),
        make: Make::Plain(|geometry, options| Box::new(Boundary::new(geometry, 2, options))),
    },
    Known {
        name: AttentionTap::NAME,
        about: "the next layer's router on the streams after this layer's attention",
        keys: PROBE_KEYS,
        defaults: ForecastOptions::probe(),
        make: Make::Plain(|geometry, options| Box::new(AttentionTap::new(geometry, options))),
    },
    Known {
        name: Corrected::NAME,
        about: "attention-tap, corrected as a sidecar says: corrected, or corrected:FILE",
        keys: PROBE_KEYS,
        defaults: ForecastOptions::probe(),
        make: Make::Corrected,
    },
    Known {
        name: PreviousToken::NAME,
        about: "what the layer used for the token before",
        keys: LEARNT_KEYS,
        defaults: PreviousToken::DEFAULTS,
        make: Make::Plain(|geometry, options| Box::new(PreviousToken::new(geometry, options))),
    },
    Known {
        name: Markov::NAME,
        about: "what the layer used after what it used for the token before",
        keys: LEARNT_KEYS,
        defaults: ForecastOptions::learnt(),
        make: Make::Plain(|geometry, options| Box::new(Markov::new(geometry, options))),
    },
    Known {
        name: CoOccurrence::NAME,
        about: "what the layer used with what the layer before it used",
        keys: LEARNT_KEYS,
        defaults: ForecastOptions::learnt(),
        make: Make::Plain(|geometry, options| Box::new(CoOccurrence::new(geometry, options))),
    },
    Known {
        name: Mixture::NAME,
        about: "several of these, each as far as it has been right about the layer",
        keys: MIXTURE_KEYS,
        defaults: ForecastOptions::learnt(),
        make: Make::Plain(|geometry, options| Box::new(Mixture::new(geometry, options))),
    },
    Known {
        name: Oracle::NAME,
        about: "a recording of the same run: oracle:TRACE, options before it",
        keys: KNOWN_KEYS,
        defaults: ForecastOptions::known(),
        make: Make::Routes(|geometry, routes, options| {
            Box::new(Oracle::new(geometry, routes, options))
        }),
    },
];

/// A forecaster as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForecasterInfo {
    /// Its name.
    pub name: &'static str,
    /// Whether the name goes on with a colon and a file.
    pub takes_file: bool,
    /// What it asks, in a line.
    pub about: &'static str,
    /// Its options: key, what it does, and the value where none is given, if there is one.
    pub options: Vec<(&'static str, &'static str, Option<String>)>,
}

impl fmt::Display for ForecasterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.takes_file { ":FILE" } else { "" };
        write!(f, "{}{file}: {}", self.name, self.about)?;
        for (key, about, default) in &self.options {
            let default = default.as_ref().map_or(String::new(), |default| format!("={default}"));
            write!(f, "\n    {key}{default}: {about}")?;
        }
        Ok(())
    }
}

/// All forecasters that have a name.
#[must_use]
pub fn forecasters() -> Vec<ForecasterInfo> {
    let info = |known: &Known| ForecasterInfo {
        name: known.name,
        takes_file: !matches!(known.make, Make::Plain(_)),
        about: known.about,
        options: known
            .keys
            .iter()
            .map(|key| (key.key, key.about, shown(key, &known.defaults)))
            .collect(),
    };
    KNOWN.iter().map(info).collect()
}

/// The forecaster that `text` names: `name`, or `name:key=value+key=value`.
///
/// # Errors
/// [`LookaheadError`]; for one that needs a file [`LookaheadError::File`].
pub fn parse_forecaster(
    text: &str,
    geometry: &Geometry,
) -> Result<Box<dyn Forecaster>, LookaheadError> {
    parse_forecaster_with(text, geometry, &NoFiles)
}

/// [`parse_forecaster`], where a name may refer to a file: `oracle:PATH`, or
/// `oracle:key=value:PATH`.
///
/// # Errors
/// [`LookaheadError`].
pub fn parse_forecaster_with(
    text: &str,
    geometry: &Geometry,
    files: &dyn ForecastFiles,
) -> Result<Box<dyn Forecaster>, LookaheadError> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let known = KNOWN.iter().map(|known| known.name).collect();
        return Err(LookaheadError::Unknown { name: name.into(), known });
    };
    let forecaster = known.name;
    match known.make {
        Make::Plain(make) => {
            Ok(make(geometry, read(forecaster, known.keys, known.defaults, rest)?))
        }
        Make::Corrected => {
            let (options, path) = split_path(known, rest.unwrap_or_default());
            let path = (!path.is_empty()).then_some(path);
            let options = read(forecaster, known.keys, known.defaults, options)?;
            let named = path.unwrap_or("beside the model");
            let correction = files.correction(path).map_err(unusable(forecaster, named))?;
            Ok(Box::new(Corrected::new(geometry, correction, options)))
        }
        Make::Routes(make) => {
            let (options, path) = split_path(known, rest.unwrap_or_default());
            if path.is_empty() {
                return Err(LookaheadError::NoFile { forecaster });
            }
            let options = read(forecaster, known.keys, known.defaults, options)?;
            let routes = files.routes(path).map_err(unusable(forecaster, path))?;
            Ok(make(geometry, routes, options))
        }
    }
}

/// The error of a forecaster whose file cannot be had.
fn unusable(forecaster: &'static str, path: &str) -> impl FnOnce(FileFault) -> LookaheadError {
    move |FileFault { kind, source }| LookaheadError::File {
        forecaster,
        path: path.into(),
        kind,
        source,
    }
}

/// Options before a path, if what comes before the first colon begins with one's key; or options
/// alone.
fn split_path<'t>(known: &Known, rest: &'t str) -> (Option<&'t str>, &'t str) {
    let begins = |options: &str| {
        let key = options.split_once('=').map(|(key, _)| key);
        known.keys.iter().any(|known| Some(known.key) == key)
    };
    match rest.split_once(':') {
        Some((options, path)) if begins(options) => (Some(options), path),
        None if begins(rest) => (Some(rest), ""),
        _ => (None, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(4, 16, 2).expect("legal")
    }

    #[test]
    fn names_and_options_come_back() {
        for info in forecasters().into_iter().filter(|info| !info.takes_file) {
            let made = |text: &str| parse_forecaster(text, &geometry()).expect(text).name();
            assert_eq!(made(info.name), info.name);
            for (key, _, default) in &info.options {
                if let Some(default) = default {
                    assert_eq!(made(&format!("{}:{key}={default}", info.name)), info.name);
                }
                let others = ["0", "1", "3", "0.25"].iter().filter(|value| {
                    let text = format!("{}:{key}={value}", info.name);
                    let made = parse_forecaster(&text, &geometry());
                    default.as_deref() != Some(value) && made.is_ok_and(|m| m.name() == text)
                });
                assert!(others.count() > 0, "{} takes no other {key}", info.name);
                assert!(info.to_string().contains(key));
            }
        }
        let name = |text| parse_forecaster(text, &geometry()).expect("legal").name();
        assert_eq!(name("boundary-1:top=10,threshold=0.1"), "boundary-1:top=10+threshold=0.1");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| parse_forecaster(text, &geometry()).expect_err(text);
        let told = |text: &str, words: &[&str]| {
            let told = error(text).to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
        };
        told("", &["boundary-1", "oracle"]);
        told("Boundary-1", &["Boundary-1"]);
        told("boundary-3", &["boundary-3"]);
        told("none:top=1", &["none", "top"]);
        told("markov:ple=1", &["markov", "ple", "threshold"]);
        told("markov:", &["markov", "key=value"]);
        told("markov:top", &["top", "key=value"]);
        told("markov:top=1+top=2", &["top", "once"]);
        told("markov:top=0", &["1 to 65535"]);
        told("markov:threshold=NaN", &["0 to 1", "NaN"]);
        told("boundary-1:ple=2", &["0 or 1"]);
        told("oracle", &["oracle:PATH"]);
        told("oracle:ahead=3:", &["oracle:PATH"]);
        assert!(matches!(error("oracle:a/b"), LookaheadError::File { .. }));
        assert!(matches!(error("corrected"), LookaheadError::File { .. }));
        told("corrected:top=0", &["1 to 65535"]);
    }

    #[test]
    fn a_path_may_hold_anything() {
        #[derive(Default)]
        struct Paths(std::cell::RefCell<Vec<String>>);
        impl ForecastFiles for Paths {
            fn routes(&self, path: &str) -> Result<OracleRoutes, FileFault> {
                self.0.borrow_mut().push(path.into());
                Ok(OracleRoutes::new())
            }
        }
        let paths = Paths::default();
        let made =
            |text: &str| parse_forecaster_with(text, &geometry(), &paths).expect(text).name();
        assert_eq!(made("oracle:a=1+b:c"), "oracle");
        assert_eq!(made("oracle:ahead=3:a:b"), "oracle:ahead=3");
        assert_eq!(*paths.0.borrow(), ["a=1+b:c", "a:b"]);
    }
}
