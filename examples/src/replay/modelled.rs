//! `--latency`: the recorded forecasts under other policies and sizes, with arrivals made up.

use slotstream_core::{
    CancelToken, EventSink, EvictionPolicy, Outcome, Prediction, Routing, Step, Tap,
};
use slotstream_replay::{Cell, Figures, Modelled, ReplayError, named_policy};

use super::output::{Output, Section};
use super::source::Source;
use super::{Arguments, Policies};
use crate::{Console, Failure};

/// Replays a trace under all policies at all sizes, in one reading of its file.
pub(super) fn add(
    source: &Source,
    policies: &Policies,
    (arguments, latency): (&Arguments, u64),
    console: &Console<'_>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    // Only a shuffled trace has none, and the two options exclude each other.
    let Some(recording) = &source.recording else { return Ok(()) };
    let mut models = Models { cancel: console.cancel.clone(), each: Vec::new() };
    for name in &policies.names {
        for slots in source.slots(arguments) {
            let policy = named_policy(name, &source.requests)?;
            match Modelled::new(recording.header(), slots, policy, latency) {
                Ok(model) => {
                    let model = model.warm_up(arguments.warmup as u64);
                    models.each.push((name.clone(), slots, model));
                }
                Err(error) if policies.named => return Err(error.into()),
                Err(error) => output.note(&format!("left out: {name} with {slots} slots"), &error),
            }
        }
    }
    let forecasts = console.waiting(|| recording.play(&mut models))?.totals.forecasts;
    if models.cancel.is_cancelled() {
        return Err(ReplayError::Cancelled.into());
    }
    if forecasts == 0 {
        output.say(format!("{}: no forecasts in it, so nothing arrives", source.label));
    }
    report(models, source, arguments, output)
}

fn report(
    models: Models<'_>,
    source: &Source,
    arguments: &Arguments,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let columns = ["policy", "slots", "reserved", "adopted", "late", "cancelled", "expired"];
    let mut table = Figures::new(columns);
    for (name, slots, model) in models.each {
        let replayed = model.finish()?;
        output.row(source, &name, slots, replayed.count(arguments.phases()), false);
        output.say(replayed.mode.to_string());
        let counts = replayed.forecasts;
        let cells =
            [counts.reserved, counts.adopted, counts.late, counts.cancelled, counts.expired];
        let pool = [Cell::from(name.as_str()), Cell::from(slots)];
        table.push(pool.into_iter().chain(cells.map(Cell::from)));
    }
    let (name, trace) = ("what became of forecast records", source.label.clone());
    output.section(Section { name, trace, pool: None, table });
    Ok(())
}

type Model<'a> = Modelled<Box<dyn EvictionPolicy + 'a>>;

/// Pools of all policies and sizes, driven together.
#[derive(Debug)]
struct Models<'a> {
    /// When it is cancelled, the rest of the file is read and not replayed.
    cancel: CancelToken,
    each: Vec<(String, usize, Model<'a>)>,
}

impl<'a> Models<'a> {
    fn tell(&mut self, event: impl Fn(&mut Model<'a>)) {
        if !self.cancel.is_cancelled() {
            self.each.iter_mut().for_each(|(.., model)| event(model));
        }
    }
}

impl EventSink for Models<'_> {
    fn on_step(&mut self, step: &Step<'_>) {
        self.tell(|model| model.on_step(step));
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.tell(|model| model.on_routing(routing));
    }

    fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
        self.tell(|model| model.on_forecast(at, predictions));
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        self.tell(|model| model.on_outcome(outcome));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::replay::recorded::{record, shown};

    #[test]
    fn a_model_says_so_in_every_form() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = record(folder.path(), Some(0));
        let line = ["--trace", &trace, "--policy", "lru,clock", "--slots", "4,8", "--latency", "1"];
        let (text, ended) = shown(&line);
        assert!(ended.is_ok(), "{ended:?}");
        assert!(text.contains("modelled: no read fails, and a forecast record arrives 1 layer"));
        assert!(text.contains("what became of forecast records"), "{text}");
        let (csv, _) = shown(&[&line[..], &["--format", "csv"]].concat());
        assert_eq!(csv.matches(",modelled,").count(), 4, "{csv}");
        let (json, _) = shown(&[&line[..], &["--format", "json"]].concat());
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let rows = json["rows"].as_array().expect("rows");
        assert!(rows.len() == 4 && rows.iter().all(|row| row["replay"] == "modelled"), "{json}");
        let notes = json["notes"].as_array().expect("notes");
        assert!(notes.iter().any(|note| note.as_str().is_some_and(|n| n.starts_with("modelled"))));
    }

    /// Both forecast records are wanted at the next visit.
    #[test]
    fn latency_decides_what_is_late() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = record(folder.path(), Some(0));
        for (latency, adopted, late) in [("0", 2, 0), ("1", 2, 0), ("2", 0, 2)] {
            let line = ["--trace", &trace, "--policy", "lru", "--format", "json"];
            let (json, _) = shown(&[&line[..], &["--latency", latency]].concat());
            let json: Value = serde_json::from_str(&json).expect("JSON");
            let row = &json["sections"][0]["rows"][0];
            assert_eq!((&row["reserved"], &row["adopted"]), (&2.into(), &adopted.into()), "{json}");
            assert_eq!(row["late"], late, "{json}");
            // As long as they arrive, the model is the run: of 14 lookups these were misses.
            assert_eq!(
                (&json["rows"][0]["lookups"], &json["rows"][0]["slots"]),
                (&14.into(), &4.into())
            );
        }
    }

    #[test]
    fn what_has_no_forecasts_has_no_arrivals() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = record(folder.path(), Some(0));
        let (text, _) = shown(&["--latency", "1", "--policy", "lru", "--slots", "100"]);
        assert!(text.contains("prose-austen: no forecasts in it"), "{text}");
        for (line, words) in [
            (&["--latency", "1", "--shuffle"][..], "cannot be used with"),
            (&["--latency", "1", "--events", "x.csv"], "cannot be used with"),
            (&["--latency", "1.8ms"], "layer visits"),
            (&["--latency", "1", "--policy", "opt", "--trace", &trace], "an engine can have"),
        ] {
            let (_, ended) = shown(line);
            let text = crate::describe(&ended.expect_err("refused"));
            assert!(text.contains(words), "{line:?}: {text}");
        }
        let (csv, _) =
            shown(&["--latency", "1", "--policy", "all", "--trace", &trace, "--format", "csv"]);
        assert!(csv.lines().count() > 10 && !csv.contains("\nopt,"), "{csv}");
    }
}
