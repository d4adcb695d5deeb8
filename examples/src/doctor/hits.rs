//! How often a record is resident: an assumption, with where it comes from.

use std::path::Path;

use serde::Serialize;
use slotstream::cache::parse_policy;
use slotstream::core::Geometry;
use slotstream_replay::{Opt, Phases, Recording, Requests, Simulation, Synthetic};

use super::Arguments;
use super::subject::Subject;
use crate::Failure;

/// The recipe whose routes are like those that the article published of the original
/// (`docs/reproducing.md`).
const ARTICLE: (f64, f64, f64) = (0.75, 2.45, 620.0);
/// Passes that are drawn, and those that fill the pool before anything is counted.
const PASSES: usize = 900;
const WARM_UP: usize = 300;
/// A recorded route of the bundled model, whose router was trained to be balanced: about the least
/// that a cache can hope for.
const RECORDED: &str = "book-nomicon.txt.gz";

/// Share of the lookups that find their record.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Hits {
    pub(super) rate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Where they come from.
    pub(super) assumption: String,
}

/// Routes that are replayed at the size of a pool.
pub(super) struct Curves {
    policy: String,
    source: Source,
}

enum Source {
    Stated(f64),
    /// Routes of this very model.
    Recorded {
        requests: Box<Requests>,
        phases: Phases,
        what: String,
    },
    /// `balanced`: of the bundled model; `None` where its files are not there.
    Between {
        like_the_original: Box<Requests>,
        balanced: Option<Box<Requests>>,
    },
}

/// A pool of so many slots; all records of a model that has fewer, and no fewer than it must have.
fn of(requests: &Requests, slots: usize) -> Simulation {
    let geometry = requests.geometry();
    Simulation::new(slots.clamp(geometry.floor_slots(), geometry.records()))
}

impl Curves {
    pub(super) fn new(
        arguments: &Arguments,
        subject: &Subject,
        geometry: &Geometry,
    ) -> Result<Self, Failure> {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny-moe/traces");
        let recorded = traces.join(RECORDED);
        let balanced = recorded.is_file().then(|| requests(&recorded)).transpose()?;
        let source = match (arguments.hit_rate, &arguments.trace, balanced) {
            (Some(rate), _, _) => Source::Stated(rate),
            (None, Some(path), _) => {
                let requests = requests(path)?;
                if requests.geometry() != geometry {
                    return Err(Failure::Option {
                        option: "--trace",
                        value: path.display().to_string(),
                        expected: "a trace of a model with as many layers and experts".into(),
                    });
                }
                let what = format!("the trace {}", path.display());
                Source::Recorded { requests: Box::new(requests), phases: Phases::Decode, what }
            }
            (None, None, Some(requests)) if subject.folder.bundled => {
                let what = format!("recorded routes of this model ({RECORDED})");
                Source::Recorded { requests: Box::new(requests), phases: Phases::All, what }
            }
            (None, None, balanced) => {
                let (skew, drift, half_life) = ARTICLE;
                let recipe = Synthetic::new(skew, drift, half_life)?.passes(PASSES);
                let like_the_original = Box::new(recipe.requests(*geometry));
                Source::Between { like_the_original, balanced: balanced.map(Box::new) }
            }
        };
        Ok(Self { policy: arguments.engine.policy.clone(), source })
    }

    /// Hit rates with so many slots, and where they come from.
    pub(super) fn at(&self, slots: usize) -> Result<Hits, Failure> {
        match &self.source {
            Source::Stated(rate) => {
                let assumption = "as stated by --hit-rate".to_owned();
                Ok(Hits { rate: *rate, low: *rate, high: *rate, assumption })
            }
            // Recorded: what remains to be known is how much better a policy could be.
            Source::Recorded { requests, phases, what } => {
                let simulation = of(requests, slots);
                let rate = self.rate(&simulation, requests, *phases)?;
                let best = simulation.run(requests, Opt::new(requests))?;
                let high = best.count(*phases).hit_rate().unwrap_or(rate).max(rate);
                let assumption = format!("{} on {what}; high: the optimal policy", self.policy);
                Ok(Hits { rate, low: rate, high, assumption })
            }
            Source::Between { like_the_original, balanced } => {
                self.between(like_the_original, balanced.as_deref(), slots)
            }
        }
    }

    fn between(
        &self,
        like_the_original: &Requests,
        balanced: Option<&Requests>,
        slots: usize,
    ) -> Result<Hits, Failure> {
        let simulation = of(like_the_original, slots).warm_up(WARM_UP);
        let high = self.rate(&simulation, like_the_original, Phases::All)?;
        let low = match balanced {
            None => high,
            Some(balanced) => {
                let records = like_the_original.geometry().records();
                let share = slots as f64 / records.max(1) as f64;
                let slots = (share * balanced.geometry().records() as f64).round();
                let simulation = of(balanced, slots as usize);
                self.rate(&simulation, balanced, Phases::All)?.min(high)
            }
        };
        // Misses, not hits, are what time is made of.
        let rate = 1.0 - ((1.0 - low) * (1.0 - high)).sqrt();
        let assumption = format!(
            "{} between recorded routes of the bundled model at the same share of the records, which \
             are balanced (low), and simulated ones with the figures that were published of the \
             original (high): the geometric mean of the misses",
            self.policy
        );
        Ok(Hits { rate, low, high, assumption })
    }

    fn rate(
        &self,
        simulation: &Simulation,
        requests: &Requests,
        phases: Phases,
    ) -> Result<f64, Failure> {
        let policy = parse_policy(&self.policy).map_err(slotstream::Error::from)?;
        Ok(simulation.run(requests, policy)?.count(phases).hit_rate().unwrap_or(0.0))
    }
}

fn requests(path: &Path) -> Result<Requests, Failure> {
    Ok(Recording::open(path)?.requests()?)
}
