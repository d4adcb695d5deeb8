//! `--warm-start`: which experts were resident, from one run to the next.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use slotstream::core::{CancelToken, ErrorKind};
use slotstream::warm::{WarmError, WarmSet, WarmStarted, is_warm_start};
use slotstream::{Engine, Error};

use crate::failure::ErrorFigure;
use crate::outputs::{Kind, OutputFile, Way};
use crate::{Failure, show_size};

const WARM_START: Kind = Kind { what: "of a warm start", is: is_warm_start, way: Way::Whole };

/// What the engine begins with.
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct WarmArguments {
    /// Begin with the experts that FILE names, and write the resident ones to it at the end; a FILE that
    /// is not there yet is written only
    #[arg(long, value_name = "FILE", conflicts_with = "trace", help_heading = "Engine")]
    pub warm_start: Option<PathBuf>,
    /// Begin with an empty pool where FILE is damaged or of another model, and write it anew
    #[arg(long, requires = "warm_start", help_heading = "Engine")]
    pub warm_start_or_cold: bool,
}

/// What became of it, as JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WarmFigures {
    pub(crate) file: String,
    /// Why the pool was empty at first; null where it was not.
    cold: Option<String>,
    /// Records that were read back, that the policy did not want, and that found no slot.
    records: usize,
    refused: usize,
    left_out: usize,
    reads: u64,
    bytes: u64,
    policy_state: bool,
    seconds: f64,
    /// Records that were written at the end; null where that failed.
    saved: Option<usize>,
}

/// A run that began with a file, or will leave one.
#[derive(Debug)]
pub(crate) struct Warm {
    path: PathBuf,
    figures: WarmFigures,
}

impl WarmArguments {
    /// The file that is written.
    pub(crate) fn output(&self) -> Option<OutputFile<'_>> {
        let path = self.warm_start.as_deref()?;
        Some(OutputFile { option: "--warm-start", path, kind: WARM_START })
    }

    /// Begins with the file, if one is named.
    ///
    /// # Errors
    /// [`Failure::WarmStart`]: the file's name and what is wrong with it, unless a cold start will do;
    /// [`Failure::Engine`]: a read that failed; Ctrl-C.
    pub(crate) fn begin(
        &self,
        engine: &Engine,
        cancel: &CancelToken,
    ) -> Result<Option<Warm>, Failure> {
        let Some(path) = &self.warm_start else { return Ok(None) };
        let set = WarmSet::read(path);
        let missing = set.as_ref().is_err_and(WarmError::is_missing);
        let begun = set.map_err(Error::from).and_then(|set| engine.warm_start(&set, cancel));
        let figures = match begun {
            Ok(begun) => WarmFigures::begun(path, &begun),
            Err(_) if missing => WarmFigures::cold(path, "there was no such file yet".to_owned()),
            Err(Error::WarmStart(error)) if error.kind() != ErrorKind::Transient => {
                let source = inner(*error);
                if !self.warm_start_or_cold {
                    return Err(Failure::WarmStart { path: path.clone(), source });
                }
                WarmFigures::cold(path, ErrorFigure::new(&*source, source.kind()).text())
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Warm { path: path.clone(), figures }))
    }
}

/// What is wrong with a file, without its name.
fn inner(error: WarmError) -> Box<WarmError> {
    match error {
        WarmError::File { source, .. } => source,
        other => Box::new(other),
    }
}

impl Warm {
    /// Writes the file.
    ///
    /// # Errors
    /// [`Failure::Engine`] with the file's name.
    pub(crate) fn save(&mut self, engine: &Engine) -> Result<(), Failure> {
        let set = engine.warm_set()?;
        set.write(&self.path).map_err(Error::from)?;
        self.figures.saved = Some(set.records.len());
        Ok(())
    }

    pub(crate) fn figures(&self) -> WarmFigures {
        self.figures.clone()
    }
}

impl WarmFigures {
    fn cold(path: &std::path::Path, why: String) -> Self {
        Self {
            file: path.display().to_string(),
            cold: Some(why),
            records: 0,
            refused: 0,
            left_out: 0,
            reads: 0,
            bytes: 0,
            policy_state: false,
            seconds: 0.0,
            saved: None,
        }
    }

    fn begun(path: &std::path::Path, begun: &WarmStarted) -> Self {
        let records = &begun.records;
        Self {
            cold: None,
            records: records.admitted,
            refused: records.refused,
            left_out: records.left_out,
            reads: records.reads,
            bytes: records.bytes,
            policy_state: begun.policy_state,
            seconds: begun.time.as_secs_f64(),
            ..Self::cold(path, String::new())
        }
    }

    /// For people.
    pub(crate) fn row(&self) -> (&'static str, String) {
        let began = match &self.cold {
            Some(why) => format!("empty: {}", why.replace('\n', " ")),
            None => format!(
                "{} records, {} in {} reads, {:.2} s",
                self.records,
                show_size(self.bytes),
                self.reads,
                self.seconds
            ),
        };
        let saved = match self.saved {
            Some(records) => format!("{records} saved"),
            None => "not saved".to_owned(),
        };
        ("warm start", format!("{began}; {saved}"))
    }
}
