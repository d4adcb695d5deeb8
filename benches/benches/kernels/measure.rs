//! Rounds of cases in turn.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use slotstream_benches::processor_time;

/// How much of a processor a case uses in a round, at least.
const SLICE: Duration = Duration::from_millis(40);

/// How long a case runs in a round at most, if it does not get that.
const LIMIT: Duration = Duration::from_secs(2);

/// What a case does in one step, with the number of the step.
type Step = Box<dyn FnMut(usize)>;

struct Case {
    name: String,
    /// Work of one step: bytes or operations, in billions.
    work: f64,
    threads: usize,
    step: Step,
    steps: usize,
    /// By the processors' time, shared among the threads.
    processor: Vec<f64>,
    /// By the clock.
    clock: Vec<f64>,
}

/// The cases whose names contain a filter.
pub(crate) struct Cases {
    filter: String,
    cases: Vec<Case>,
    /// What is not a speed and needs no rounds.
    notes: Vec<(String, f64)>,
}

impl Cases {
    pub(crate) fn new(filter: String) -> Self {
        Self { filter, cases: Vec::new(), notes: Vec::new() }
    }

    /// Whether a case of that name would run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// Adds a case that does `work` in each step, on `threads` threads.
    pub(crate) fn add(
        &mut self,
        name: String,
        work: usize,
        threads: usize,
        step: impl FnMut(usize) + 'static,
    ) {
        if self.wants(&name) {
            let (work, step) = (work as f64 / 1e9, Box::new(step));
            let (processor, clock) = (Vec::new(), Vec::new());
            self.cases.push(Case { name, work, threads, step, steps: 0, processor, clock });
        }
    }

    /// Adds a figure that is no speed.
    pub(crate) fn note(&mut self, name: String, figure: impl FnOnce() -> f64) {
        if self.wants(&name) {
            self.notes.push((name, figure()));
        }
    }

    /// Runs all cases `rounds` times, and once before that.
    pub(crate) fn run(mut self, rounds: usize, json: Option<&str>) -> Result<(), Box<dyn Error>> {
        for round in 0..=rounds {
            for case in &mut self.cases {
                case.measure(round > 0);
            }
        }
        let mut text = String::new();
        for Case { name, threads, processor, clock, .. } in &mut self.cases {
            let mut line = |name: String, figures: &mut Vec<f64>| {
                let [low, median, high] = quartiles(figures);
                let separator = if text.is_empty() { "" } else { ",\n" };
                write!(text, "{separator}\"{name}\": [{low:.3}, {median:.3}, {high:.3}]")?;
                writeln!(std::io::stdout(), "{name:48} {median:8.2}   {low:.2} to {high:.2}")?;
                Ok::<_, Box<dyn Error>>(())
            };
            line(name.clone(), processor)?;
            if *threads > 1 {
                line(format!("{name} by the clock"), clock)?;
            }
        }
        for (name, figure) in &self.notes {
            write!(text, ",\n\"{name}\": [{figure:.2e}, {figure:.2e}, {figure:.2e}]")?;
            writeln!(std::io::stdout(), "{name:48} {figure:8.2e}")?;
        }
        if let Some(path) = json {
            std::fs::write(path, format!("{{\n{text}\n}}\n"))?;
        }
        Ok(())
    }
}

impl Case {
    /// Measures billions of work a second.
    fn measure(&mut self, keep: bool) {
        let (begun, used, first) = (Instant::now(), processor_time(), self.steps);
        while processor_time() - used < SLICE && begun.elapsed() < LIMIT {
            (self.step)(self.steps);
            self.steps += 1;
        }
        let (elapsed, used) = (begun.elapsed(), processor_time() - used);
        let work = (self.steps - first) as f64 * self.work;
        if keep {
            self.processor.push(work * self.threads as f64 / used.as_secs_f64());
            self.clock.push(work / elapsed.as_secs_f64());
        }
    }
}

/// The quartiles of some figures.
fn quartiles(figures: &mut [f64]) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [1, 2, 3].map(|i| figures.get((figures.len().max(1) - 1) * i / 4).copied().unwrap_or(f64::NAN))
}
