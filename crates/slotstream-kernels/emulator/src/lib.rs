//! Runs the plans of the Metal kernels on a machine without Metal.
//!
//! A [`Library`]'s MSL is compiled by clang as C++, against a header that declares the part of MSL
//! 3.1 that the kernels may use and nothing else, and launched from the very [`Dispatch`] that a
//! Mac encodes. A test tool: it shows that a kernel computes what it should from what the plan
//! gives it, and nothing about speed.
//!
//! What ends in an error:
//! - a kernel that mixes up address spaces (a second pass of the compiler, in which they are
//!   types), calls what MSL 3.1 does not have, or makes clang warn;
//! - a plan with other buffers, directions or sizes of constants than its kernel;
//! - an access past the end of a buffer or of threadgroup memory, and undefined behaviour;
//! - lanes of a simdgroup at different simdgroup operations, threads at different barriers, and
//!   an early return of less than a whole simdgroup before either.
//!
//! A missing barrier shows in the results: every threadgroup starts with memory full of NaN, and
//! an [`Order`] says in which order lanes, simdgroups and threadgroups run between barriers.
//!
//! What it cannot show: what only Apple's compiler refuses, register pressure, fast math, races
//! between threadgroups on device memory that no order happens to reveal, speed.
//!
//! # Example
//! ```no_run
//! use slotstream_emulator::{Emulator, Order};
//! use slotstream_kernels::metal::{Dispatch, Library, Memory, View};
//!
//! static DOUBLE: Library = Library::new("double", &["
//!     #include <metal_stdlib>
//!     [[kernel]] void double_all(device float* x [[buffer(0)]],
//!                                uint thread [[thread_index_in_threadgroup]]) {
//!       x[thread] *= 2.0f;
//!     }"]);
//!
//! let emulator = Emulator::new(&[&DOUBLE], "/tmp/emulator".as_ref())?;
//! let mut memory = Memory::new();
//! let x = View::new(memory.floats(&[1.0; 32]), 0, 128);
//! let launch = Dispatch::new(&DOUBLE, "double_all").update(x).launch([1, 1, 1], 32)?;
//! let results = emulator.run(&memory, &[launch], &[x], Order::Normal)?;
//! assert_eq!(results[0], 2.0_f32.to_le_bytes().repeat(32));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod compiler;
mod error;
mod headers;
mod job;
mod session;
mod signature;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub use error::EmulatorError;
pub use job::Order;
pub use session::Session;
use slotstream_kernels::metal::{BufferId, Dispatch, Library, Memory, View};

use crate::compiler::Compiler;
use crate::signature::Kernel;

/// Some libraries, compiled.
#[derive(Debug)]
pub struct Emulator {
    runner: PathBuf,
    folder: PathBuf,
    kernels: Arc<BTreeMap<String, Kernel>>,
}

impl Emulator {
    /// Compiles the libraries, two at a time or as many as there are processors. What was
    /// compiled into `folder` before is taken from there.
    ///
    /// # Errors
    /// [`EmulatorError`]: no clang, or a library that does not compile.
    pub fn new(libraries: &[&Library], folder: &Path) -> Result<Self, EmulatorError> {
        Self::compile(libraries, folder, true)
    }

    /// The same without sanitizers, several times as fast: for long runs of kernels whose own tests
    /// had them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn fast(libraries: &[&Library], folder: &Path) -> Result<Self, EmulatorError> {
        Self::compile(libraries, folder, false)
    }

    fn compile(
        libraries: &[&Library],
        folder: &Path,
        sanitized: bool,
    ) -> Result<Self, EmulatorError> {
        let compiler = Compiler::find(folder, sanitized)?;
        let queue = Mutex::new(libraries.iter());
        let next = || queue.lock().ok().and_then(|mut queue| queue.next());
        let worker = || {
            let mut made = Vec::new();
            while let Some(library) = next() {
                made.push((library.name().to_owned(), compiler.compile(library)));
            }
            made
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let mut made = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().flat_map(|w| w.join().unwrap_or_default()).collect::<Vec<_>>()
        });
        made.sort_by(|a, b| a.0.cmp(&b.0));
        let (mut names, mut objects, mut kernels) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (name, compiled) in made {
            let (of_library, object) = compiled?;
            kernels.extend(of_library.into_iter().map(|kernel| (kernel.name.clone(), kernel)));
            names.push(name);
            objects.push(object);
        }
        let runner = compiler.link(&names, &objects)?;
        Ok(Self { runner, folder: folder.to_owned(), kernels: Arc::new(kernels) })
    }

    /// The names of all kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// Carries out the launches one after the other and returns the bytes of `results`.
    ///
    /// # Errors
    /// [`EmulatorError::Mismatch`] when a plan does not fit its kernel, [`EmulatorError::Run`]
    /// when a launch does what it must not.
    pub fn run(
        &self,
        memory: &Memory,
        launches: &[Dispatch<BufferId>],
        results: &[View<BufferId>],
        order: Order,
    ) -> Result<Vec<Vec<u8>>, EmulatorError> {
        self.session()?.run(memory, launches, results, order)
    }

    /// A process that carries out one job after the other.
    ///
    /// # Errors
    /// [`EmulatorError::Io`] when it cannot be started.
    pub fn session(&self) -> Result<Session, EmulatorError> {
        Session::start(&self.runner, &self.folder, Arc::clone(&self.kernels))
    }
}
