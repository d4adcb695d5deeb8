//! A running emulator.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use slotstream_kernels::metal::{BufferId, Direction, Dispatch, Memory, View};

use crate::signature::Kernel;
use crate::{EmulatorError, Order, headers, job};

/// A process that carries out one job after the other. Ends when dropped; an error ends it, too.
#[derive(Debug)]
pub struct Session {
    runner: PathBuf,
    kernels: Arc<BTreeMap<String, Kernel>>,
    child: Child,
    /// What the process says about itself, until it ends.
    messages: PathBuf,
}

impl Session {
    pub(crate) fn start(
        runner: &Path,
        folder: &Path,
        kernels: Arc<BTreeMap<String, Kernel>>,
    ) -> Result<Self, EmulatorError> {
        let messages = folder.join(format!("messages-{}", headers::unique()));
        let file = File::create(&messages).map_err(EmulatorError::io("create", &messages))?;
        let child = Command::new(runner)
            .env("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0")
            .env("UBSAN_OPTIONS", "print_stacktrace=1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .map_err(EmulatorError::io("run", runner))?;
        Ok(Self { runner: runner.to_owned(), kernels, child, messages })
    }

    /// Carries out the launches one after the other and returns the bytes of `results`.
    ///
    /// # Errors
    /// [`EmulatorError::Mismatch`] when a plan does not fit its kernel, [`EmulatorError::Run`]
    /// when a launch does what it must not, and for whatever comes after that.
    pub fn run(
        &mut self,
        memory: &Memory,
        launches: &[Dispatch<BufferId>],
        results: &[View<BufferId>],
        order: Order,
    ) -> Result<Vec<Vec<u8>>, EmulatorError> {
        for launch in launches {
            self.check(memory, launch)?;
        }
        let job = job::encode(memory, launches, results, order);
        self.exchange(&job, results).or_else(|source| self.ended(source))
    }

    /// Hands the job over and takes the results: they come when all of it has been read.
    fn exchange(&mut self, job: &[u8], results: &[View<BufferId>]) -> io::Result<Vec<Vec<u8>>> {
        let (Some(to), Some(from)) = (&mut self.child.stdin, &mut self.child.stdout) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        to.write_all(job)?;
        let mut take = |result: &View<BufferId>| {
            let mut bytes = vec![0; result.len];
            from.read_exact(&mut bytes).map(|()| bytes)
        };
        let results = results.iter().map(&mut take).collect::<io::Result<_>>()?;
        from.read_exact(&mut [0])?;
        Ok(results)
    }

    /// The process ended in the middle of a job: why.
    fn ended<T>(&mut self, source: io::Error) -> Result<T, EmulatorError> {
        drop(self.child.stdin.take());
        let status = self.child.wait().map_err(EmulatorError::io("run", &self.runner))?;
        if status.success() {
            return Err(EmulatorError::io("run", &self.runner)(source));
        }
        let messages = fs::read(&self.messages).unwrap_or_default();
        let messages = String::from_utf8_lossy(&messages).into_owned();
        Err(EmulatorError::Run { status: status.to_string(), messages })
    }

    /// Whether a plan binds what its kernel declares, within the buffers there are.
    fn check(&self, memory: &Memory, launch: &Dispatch<BufferId>) -> Result<(), EmulatorError> {
        let name = launch.kernel();
        let wrong = |what: String| Err(EmulatorError::Mismatch { kernel: name.to_owned(), what });
        let Some(kernel) = self.kernels.get(name) else {
            return wrong("no library has this kernel".to_owned());
        };
        let planned: Vec<bool> =
            launch.binds().iter().map(|bind| bind.direction != Direction::In).collect();
        let declared = kernel.buffers();
        if planned != declared {
            return wrong(format!("buffers written: planned {planned:?}, declared {declared:?}"));
        }
        if kernel.uses_memory() != (launch.threadgroup_memory() > 0) {
            return wrong(format!("{} bytes of threadgroup memory", launch.threadgroup_memory()));
        }
        for (i, bind) in launch.binds().iter().enumerate() {
            let View { buffer, offset, len } = bind.view;
            if offset.checked_add(len).is_none_or(|end| end > memory.len(buffer)) {
                return wrong(format!("buffer {i} is bound past its end"));
            }
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = (self.child.wait(), fs::remove_file(&self.messages));
    }
}
