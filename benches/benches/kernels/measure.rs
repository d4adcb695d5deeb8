//! Rounds of cases in turn.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use slotstream_benches::processor_time;

/// How long a case runs in a round, at least.
const SLICE: Duration = Duration::from_millis(60);

/// What a case does in one step, with the number of the step.
type Step = Box<dyn FnMut(usize)>;

struct Case {
    name: String,
    /// Work of one step: bytes or operations, in billions.
    work: f64,
    /// Measured by the clock, and not in processor time.
    clock: bool,
    step: Step,
    steps: usize,
    figures: Vec<f64>,
}

/// The cases whose names contain a filter.
pub(crate) struct Cases {
    filter: String,
    cases: Vec<Case>,
}

impl Cases {
    pub(crate) fn new(filter: String) -> Self {
        Self { filter, cases: Vec::new() }
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
            let (work, clock) = (work as f64 / 1e9, threads > 1);
            let step = Box::new(step);
            self.cases.push(Case { name, work, clock, step, steps: 0, figures: Vec::new() });
        }
    }

    /// Runs all cases `rounds` times, and once before that.
    pub(crate) fn run(mut self, rounds: usize, json: Option<&str>) -> Result<(), Box<dyn Error>> {
        for round in 0..=rounds {
            for case in &mut self.cases {
                let figure = case.measure();
                if round > 0 {
                    case.figures.push(figure);
                }
            }
        }
        let mut text = String::new();
        for case in &mut self.cases {
            case.figures.sort_by(f64::total_cmp);
            let [low, median, high] = quartiles(&case.figures);
            let name = &case.name;
            writeln!(std::io::stdout(), "{name:44} {median:8.2}   {low:.2} to {high:.2}")?;
            let separator = if text.is_empty() { "" } else { ",\n" };
            write!(text, "{separator}\"{name}\": [{low:.3}, {median:.3}, {high:.3}]")?;
        }
        if let Some(path) = json {
            std::fs::write(path, format!("{{\n{text}\n}}\n"))?;
        }
        Ok(())
    }
}

impl Case {
    /// Billions of work a second.
    fn measure(&mut self) -> f64 {
        let (begun, used) = (Instant::now(), processor_time());
        let first = self.steps;
        while begun.elapsed() < SLICE {
            (self.step)(self.steps);
            self.steps += 1;
        }
        let time = if self.clock { begun.elapsed() } else { processor_time() - used };
        (self.steps - first) as f64 * self.work / time.as_secs_f64()
    }
}

/// The quartiles of sorted figures.
fn quartiles(sorted: &[f64]) -> [f64; 3] {
    [1, 2, 3].map(|i| sorted.get((sorted.len().max(1) - 1) * i / 4).copied().unwrap_or(f64::NAN))
}
