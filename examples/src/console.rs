//! Output, progress, Ctrl-C and the end of an example.

use std::env::ArgsOs;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::process::{self, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
#[cfg(feature = "engine")]
use slotstream::qwen::LoadProgress;
use slotstream_core::CancelToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::heap::keep_large_arrays_apart;
use crate::{Failure, describe, policies};

/// What a shell shows for a program that Ctrl-C ended; SIGTERM and SIGHUP are taken as it is.
const INTERRUPTED: u8 = 130;

/// How an example ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "it ran to its end or it did not")]
pub enum Ended {
    /// By itself.
    Done,
    /// By Ctrl-C, SIGTERM or SIGHUP; what there was to show was shown.
    Interrupted,
}

/// Where an example writes and what may stop it.
pub struct Console<'a> {
    /// Standard output, or what a test looks at.
    pub out: &'a mut dyn Write,
    /// Set by Ctrl-C, SIGTERM or SIGHUP.
    pub cancel: CancelToken,
    /// Whether progress may be drawn on standard error.
    pub progress: bool,
    /// What Ctrl-C ends.
    pub(crate) interrupt: Interrupt,
}

/// What Ctrl-C ends: the program, unless something smaller runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<Mutex<Ends>>);

#[derive(Clone, Debug, Default)]
enum Ends {
    /// The program, after it has shown what there is.
    #[default]
    Program,
    /// The program at once: it waits for input and has nothing to show.
    Now,
    /// This, and nothing else.
    #[cfg_attr(not(feature = "engine"), expect(dead_code, reason = "only an engine answers"))]
    Only(CancelToken),
}

impl Interrupt {
    /// Does what `signal` ends. `program` is the token of the program, which is set while nobody
    /// changes what is ended.
    fn take(&self, signal: i32, program: &CancelToken) {
        let mut ends = self.lock();
        match &*ends {
            Ends::Program if program.is_cancelled() => process::exit(INTERRUPTED.into()),
            Ends::Program => program.cancel(),
            Ends::Now => process::exit(INTERRUPTED.into()),
            Ends::Only(token) => {
                // Before the answer ends, so that whoever asks then is told.
                if signal != SIGINT {
                    program.cancel();
                }
                token.cancel();
                // The next one is not about an answer that has ended.
                *ends = Ends::Program;
            }
        }
    }

    /// From now on Ctrl-C ends this, unless it has ended the program already.
    fn set(&self, to: Ends, program: &CancelToken) -> bool {
        let mut ends = self.lock();
        let open = !program.is_cancelled();
        *ends = if open { to } else { Ends::Program };
        open
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl<'a> Console<'a> {
    /// Writes to `out`; nothing cancels it and no progress is drawn.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, cancel: CancelToken::new(), progress: false, interrupt: Interrupt::default() }
    }

    /// Opens or reads what may be a pipe that nobody ever writes to, before there is anything to show:
    /// Ctrl-C does not wake such a call, and ends the program at once meanwhile.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.interrupt.set(Ends::Now, &self.cancel);
        let waited = wait();
        self.interrupt.set(Ends::Program, &self.cancel);
        waited
    }

    /// The same for the next input; nothing where the program is to end already.
    #[cfg(feature = "engine")]
    pub(crate) fn next<T>(&self, wait: impl FnOnce() -> T) -> Option<T> {
        let open = self.interrupt.set(Ends::Now, &self.cancel);
        open.then(|| self.waiting(wait))
    }

    /// A token that Ctrl-C sets from now on, while the program goes on; set already where the program
    /// is to end.
    #[cfg(feature = "engine")]
    pub(crate) fn interruptible(&self) -> CancelToken {
        let token = CancelToken::new();
        if !self.interrupt.set(Ends::Only(token.clone()), &self.cancel) {
            token.cancel();
        }
        token
    }

    /// Writes a piece of text at once.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).map_err(Failure::output)
    }

    /// Writes a text and a line end.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.out, "{text}").and_then(|()| self.out.flush()).map_err(Failure::output)
    }

    /// A bar of `total` steps; invisible where progress is not drawn.
    pub(crate) fn bar(&self, total: u64, what: &'static str, bytes: bool) -> ProgressBar {
        let target =
            if self.progress { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what);
        let template = if bytes {
            "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}"
        } else {
            "{msg} [{bar:30}] {pos}/{len} {eta}"
        };
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            // The template is a constant; a bar in another style is no reason to fail.
            Err(_) => bar,
        }
    }

    /// What to give to the engine's builder: shows how far loading is.
    #[cfg(feature = "engine")]
    pub(crate) fn load_progress(&self) -> impl FnMut(LoadProgress) + 'static {
        let bar = self.bar(0, "loading", true);
        move |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            if progress.done >= progress.total {
                bar.finish_and_clear();
            }
        }
    }
}

/// The `main` of an example: catches Ctrl-C, SIGTERM and SIGHUP (the second one ends at once),
/// logs to standard error as `RUST_LOG` says, runs, shows an error with all its causes, and gives the exit code.
pub fn main(run: impl FnOnce(ArgsOs, &mut Console<'_>) -> Result<Ended, Failure>) -> ExitCode {
    keep_large_arrays_apart();
    let filter =
        EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // A span is one line, with its times, when it closes.
    let spans = FmtSpan::CLOSE;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_span_events(spans);
    log.with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).init();
    #[cfg(feature = "engine")]
    leave_out_caught_panics();
    let mut out = io::stdout().lock();
    let mut console = Console::new(&mut out);
    console.progress = io::stderr().is_terminal();
    let result = on_interrupt(&console.cancel, &console.interrupt)
        .and_then(|()| run(std::env::args_os(), &mut console));
    let code = match result {
        Ok(Ended::Done) => 0,
        Ok(Ended::Interrupted) => {
            // Where standard error cannot be written there is nobody to tell.
            drop(writeln!(io::stderr(), "interrupted"));
            INTERRUPTED
        }
        // Help that was asked for is output, and may fail to be written like any other.
        Err(Failure::Usage(usage)) if !usage.use_stderr() => match print(&usage) {
            Ok(()) => 0,
            Err(error) => {
                show(&error);
                error.exit_code()
            }
        },
        Err(error) => {
            show(&error);
            error.exit_code()
        }
    };
    ExitCode::from(code)
}

/// Panics of the tokenizers library on damaged files become errors, which are shown as such.
#[cfg(feature = "engine")]
fn leave_out_caught_panics() {
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !slotstream::text::panics_are_caught() {
            shown(panic);
        }
    }));
}

/// Sets the token at the first Ctrl-C, SIGTERM or SIGHUP and ends at the second.
fn on_interrupt(cancel: &CancelToken, interrupt: &Interrupt) -> Result<(), Failure> {
    let failed = |source| Failure::Interrupt { source };
    let mut caught = vec![SIGINT, SIGTERM];
    // Whoever starts a program by `nohup` wants it to go on.
    caught.extend((!is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut signals = Signals::new(caught).map_err(failed)?;
    // Caught, it leaves a write past `ulimit -f` to fail as any other write may, with a message.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let (cancel, interrupt) = (cancel.clone(), interrupt.clone());
    let wait = move || {
        for signal in signals.forever() {
            interrupt.take(signal, &cancel);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map(drop).map_err(failed)
}

/// Whether this process was started with a signal ignored. Where the system does not say, it is
/// taken to be so: nothing is changed then.
fn is_ignored(signal: i32) -> bool {
    let ignored = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    ignored.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
}

fn print(help: &clap::Error) -> Result<(), Failure> {
    help.print().and_then(|()| io::stdout().flush()).map_err(Failure::output)
}

fn show(error: &Failure) {
    let silent = error.exit_code() == 0;
    match error {
        // Where standard error cannot be written there is nobody to tell.
        Failure::Usage(usage) => drop(usage.print()),
        error if !silent => drop(writeln!(io::stderr(), "{}", describe(error))),
        _ => {}
    }
}

/// Parses a command line of an example, and ends it where `--policies` asks for a list.
pub(crate) fn parse<A: clap::Parser>(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<A, Failure> {
    let mut command = policies::offer(A::command());
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    policies::answer(&matches)?;
    Ok(A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_the_smallest_thing_that_runs() {
        let mut out = Vec::new();
        let console = Console::new(&mut out);
        let send = |signal| console.interrupt.take(signal, &console.cancel);
        let answer = console.interruptible();
        send(SIGINT);
        assert!(answer.is_cancelled() && !console.cancel.is_cancelled());
        let answer = console.interruptible();
        send(SIGTERM);
        assert!(answer.is_cancelled() && console.cancel.is_cancelled(), "both end");
        assert!(console.interruptible().is_cancelled(), "no answer begins any more");
    }

    #[test]
    fn an_interrupt_between_two_answers_ends_the_program() {
        let mut out = Vec::new();
        let console = Console::new(&mut out);
        assert_eq!(console.waiting(|| 3), 3);
        // A line has been read, and its answer has not begun.
        console.interrupt.take(SIGINT, &console.cancel);
        assert!(console.cancel.is_cancelled() && console.interruptible().is_cancelled());
        assert_eq!(console.next(|| 4), None, "nobody is asked any more");
    }
}
