use std::io;
use std::path::PathBuf;

/// Why nothing was compiled or run, or what a run did wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// There is no compiler that is new enough.
    #[error("no clang++ of version 19 or later: {tried}; set CLANGXX to its path")]
    #[non_exhaustive]
    NoCompiler {
        /// What was tried, and what came of it.
        tried: String,
    },
    /// A file or a process failed.
    #[error("cannot {what} {path}")]
    #[non_exhaustive]
    Io {
        /// What failed.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A library does not compile.
    #[error("{library}: {pass} failed:\n{messages}")]
    #[non_exhaustive]
    Compile {
        /// The library.
        library: String,
        /// Which pass.
        pass: &'static str,
        /// What the compiler said.
        messages: String,
    },
    /// A kernel's signature is none that a plan could fill.
    #[error("{kernel}: parameter `{parameter}` is not understood")]
    #[non_exhaustive]
    Signature {
        /// The kernel.
        kernel: String,
        /// The parameter.
        parameter: String,
    },
    /// A plan does not fit its kernel.
    #[error("{kernel}: {what}")]
    #[non_exhaustive]
    Mismatch {
        /// The kernel.
        kernel: String,
        /// What does not fit.
        what: String,
    },
    /// The run was ended: a sanitizer, a divergent barrier.
    #[error("the run ended with {status}:\n{messages}")]
    #[non_exhaustive]
    Run {
        /// How the process ended.
        status: String,
        /// What it wrote.
        messages: String,
    },
}

impl EmulatorError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
