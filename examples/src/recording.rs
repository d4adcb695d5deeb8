//! `--trace`: the run into a file.

use std::path::PathBuf;

use clap::Args;
use slotstream::{Engine, EngineBuilder};
use slotstream_replay::{PoolEnd, Shared, TraceOptions, TraceWriter, is_trace};

use crate::late_file::LateFile;
use crate::outputs::{Kind, OutputFile, Way};
use crate::{EngineArguments, Failure, ModelFolder};

const TRACE: Kind = Kind { what: "of a routing trace", is: is_trace, way: Way::Into };

/// Where the run is recorded.
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct TraceArguments {
    /// Record the routing and what befell the slots into FILE, in place of a trace that is there once
    /// the model is loaded
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub trace: Option<PathBuf>,
    /// Record the weights of the chosen experts and the highest router logits, too
    #[arg(long, requires = "trace", help_heading = "Output")]
    pub trace_detail: bool,
}

/// A recording that goes on: nothing is replaced before [`start`](Self::start), and without
/// [`finish`](Self::finish) it has no end mark.
#[derive(Debug)]
pub(crate) struct Recorder(Option<(Shared<TraceWriter<LateFile>>, LateFile)>);

impl TraceArguments {
    /// The file that is written.
    pub(crate) fn output(&self) -> Option<OutputFile<'_>> {
        let path = self.trace.as_deref()?;
        Some(OutputFile { option: "--trace", path, kind: TRACE })
    }

    /// Has an engine recorded, if that is asked for. `what` says in the file what ran.
    ///
    /// # Errors
    /// [`Failure::File`] when the file cannot be made.
    pub(crate) fn begin(
        &self,
        builder: EngineBuilder,
        engine: &EngineArguments,
        model: &ModelFolder,
        what: &str,
    ) -> Result<(EngineBuilder, Recorder), Failure> {
        let Some(path) = &self.trace else { return Ok((builder, Recorder(None))) };
        let name = model.path.file_name().unwrap_or(model.path.as_os_str());
        let options = TraceOptions::new()
            .with_model(name.to_string_lossy())
            .with_note(format!("{what} {}", env!("CARGO_PKG_VERSION")))
            .with_policy(&engine.policy)
            .with_detail(self.trace_detail);
        let failed = |source| Failure::File { path: path.clone(), source };
        let file = LateFile::open(path).map_err(failed)?;
        let writer = Shared::new(TraceWriter::new(file.clone(), path, options));
        Ok((builder.sink(Box::new(writer.clone())), Recorder(Some((writer, file)))))
    }
}

impl Recorder {
    /// The run begins: what was in the file is replaced.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub(crate) fn start(&self) -> Result<(), Failure> {
        let Some((writer, file)) = &self.0 else { return Ok(()) };
        let path = || writer.with(|writer| writer.path().to_owned());
        file.begin().map_err(|source| Failure::File { path: path(), source })
    }

    /// Ends the recording with the pool as it is now.
    ///
    /// # Errors
    /// [`Failure::Trace`]: the first error of the recording.
    pub(crate) fn finish(&self, engine: &Engine) -> Result<(), Failure> {
        let Some((writer, _)) = &self.0 else { return Ok(()) };
        let end = engine.inspect(|experts| PoolEnd::of(experts.pool()));
        writer.with(|writer| writer.finish(Some(&end)))?;
        Ok(())
    }
}
