//! `--trace`: the run into a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::Args;
use slotstream::{Engine, EngineBuilder};
use slotstream_replay::{PoolEnd, Shared, TraceOptions, TraceWriter};

use crate::{EngineArguments, Failure, ModelFolder};

/// Where the run is recorded.
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct TraceArguments {
    /// Record the routing and what befell the slots into FILE, in place of what is there
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub trace: Option<PathBuf>,
    /// Record the weights of the chosen experts and the highest router logits, too
    #[arg(long, requires = "trace", help_heading = "Output")]
    pub trace_detail: bool,
}

/// A recording that goes on; without [`finish`](Self::finish) it has no end mark.
#[derive(Debug)]
pub(crate) struct Recorder {
    writer: Option<Shared<TraceWriter<File>>>,
    aside: Option<Aside>,
}

/// A file that takes another's place once it is known that the run can begin, and goes otherwise.
#[derive(Debug)]
struct Aside {
    beside: PathBuf,
    path: PathBuf,
}

impl Drop for Aside {
    fn drop(&mut self) {
        // After the run has begun it is not there.
        let _ = fs::remove_file(&self.beside);
    }
}

impl Aside {
    /// `None` where there is no file to keep until then, such as a pipe.
    fn of(path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok().filter(|path| path.is_file())?;
        let mut name = path.file_name()?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        Some(Self { beside: path.with_file_name(name), path })
    }
}

impl TraceArguments {
    /// Has an engine recorded, if that is asked for. `what` says in the file what ran. A file that is
    /// there stays until [`Recorder::begun`].
    ///
    /// # Errors
    /// [`Failure::Trace`] when the file cannot be made.
    pub(crate) fn begin(
        &self,
        builder: EngineBuilder,
        engine: &EngineArguments,
        model: &ModelFolder,
        what: &str,
    ) -> Result<(EngineBuilder, Recorder), Failure> {
        let Some(path) = &self.trace else {
            return Ok((builder, Recorder { writer: None, aside: None }));
        };
        if is_within(path, &model.path) {
            return Err(Failure::Option {
                option: "--trace",
                value: path.display().to_string(),
                expected: "a file outside the model's folder".into(),
            });
        }
        let name = model.path.file_name().unwrap_or(model.path.as_os_str());
        let options = TraceOptions::new()
            .with_model(name.to_string_lossy())
            .with_note(format!("{what} {}", env!("CARGO_PKG_VERSION")))
            .with_policy(&engine.policy)
            .with_detail(self.trace_detail);
        let aside = Aside::of(path);
        let file = aside.as_ref().map_or(&**path, |aside| &*aside.beside);
        let writer = Shared::new(TraceWriter::create(file, options)?);
        let recorder = Recorder { writer: Some(writer.clone()), aside };
        Ok((builder.sink(Box::new(writer)), recorder))
    }
}

/// Whether `path` names a file of this folder, through links as well.
fn is_within(path: &Path, folder: &Path) -> bool {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok();
    let real = path.canonicalize().ok();
    folder.canonicalize().is_ok_and(|folder| {
        parent == Some(folder.clone()) || real.is_some_and(|real| real.starts_with(folder))
    })
}

impl Recorder {
    /// The run can begin: the recording takes the place of what was there.
    ///
    /// # Errors
    /// [`Failure::File`] when it cannot.
    pub(crate) fn begun(&mut self) -> Result<(), Failure> {
        let Some(aside) = self.aside.take() else { return Ok(()) };
        let failed = |source| Failure::File { path: aside.path.clone(), source };
        fs::rename(&aside.beside, &aside.path).map_err(failed)
    }

    /// Ends the recording with the pool as it is now.
    ///
    /// # Errors
    /// [`Failure::Trace`]: the first error of the recording.
    pub(crate) fn finish(&self, engine: &Engine) -> Result<(), Failure> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let end = engine.inspect(|experts| PoolEnd::of(experts.pool()));
        writer.with(|writer| writer.finish(Some(&end)))?;
        Ok(())
    }
}
