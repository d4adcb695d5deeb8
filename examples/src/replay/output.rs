//! What is shown, in the form that was asked for.

use std::error::Error;

use serde_json::{Value, json};
use slotstream_replay::{Chart, Count, Figures, ReplayError, Report, Run};

use super::source::Source;
use super::{Arguments, Format};
use crate::{Console, Failure};

/// Everything that will be shown.
pub(super) struct Output<'a> {
    arguments: &'a Arguments,
    report: Report,
    /// The same without and with shuffled traces, to sum up.
    sums: [Report; 2],
    traces: Vec<Head>,
    sections: Vec<Section>,
    notes: Vec<String>,
    /// Why the first pool was refused that was.
    refusal: Option<ReplayError>,
}

/// A trace.
struct Head {
    label: String,
    about: String,
    ceiling: Option<f64>,
    /// Slots of a token's route; of keys there are none.
    route: Option<usize>,
}

/// A table beside the rows.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) trace: String,
    /// The policy and the slots that it is about.
    pub(super) pool: Option<(String, usize)>,
    pub(super) table: Figures,
}

impl<'a> Output<'a> {
    pub(super) const fn new(arguments: &'a Arguments) -> Self {
        Self {
            arguments,
            report: Report::new(),
            sums: [Report::new(), Report::new()],
            traces: Vec::new(),
            sections: Vec::new(),
            notes: Vec::new(),
            refusal: None,
        }
    }

    pub(super) fn row(
        &mut self,
        source: &Source,
        policy: &str,
        slots: usize,
        count: Count,
        exact: bool,
    ) {
        let sum = &mut self.sums[usize::from(source.recording.is_none())];
        let size = self.arguments.record_bytes.or(source.record_bytes);
        for report in [&mut self.report, sum] {
            report.set_record_bytes(size);
            report.push(&source.label, policy, slots, count, exact);
        }
    }

    /// All rows of a source were added; this is what a pool of all records would count.
    pub(super) fn ceiling(&mut self, source: &Source, run: &Run) {
        let geometry = source.requests.geometry();
        self.traces.push(Head {
            route: (!source.keys).then(|| geometry.layers() * geometry.top_k()),
            label: source.label.clone(),
            about: source.describe(),
            ceiling: run.count(self.arguments.phases()).hit_rate(),
        });
    }

    pub(super) fn section(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// An error that is none of the user's, with all its causes.
    pub(super) fn note(&mut self, what: &str, error: &dyn Error) {
        let mut note = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(why) = cause {
            note += &format!(": {why}");
            cause = why.source();
        }
        self.say(note);
    }

    /// Something that the user should know, said once.
    pub(super) fn say(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// A pool was refused by a policy that nobody named.
    pub(super) fn refused(&mut self, error: ReplayError) {
        self.note("left out", &error);
        self.refusal.get_or_insert(error);
    }

    /// Fails when there is nothing to show because every pool was refused.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let nothing = self.report.table().rows().is_empty();
        self.refusal.take_if(|_| nothing).map_or(Ok(()), |error| Err(error.into()))
    }

    /// The mean hit rates over the traces.
    pub(super) fn chart(&self, chart: Chart) -> Result<Chart, Failure> {
        let ceilings: Vec<f64> = self.traces.iter().filter_map(|head| head.ceiling).collect();
        let mean = ceilings.iter().sum::<f64>() / ceilings.len().max(1) as f64;
        let mut chart = chart
            .measure(self.arguments.measured())
            .logarithmic(self.arguments.log)
            .ceiling((!ceilings.is_empty()).then_some(mean));
        let mut routes = self.traces.iter().map(|head| head.route);
        if let Some(Some(route)) = routes.next()
            && routes.all(|other| other == Some(route))
        {
            chart = chart.routes_of(route);
        }
        let [plain, mixed] = &self.sums;
        for (report, ending) in [(plain, ""), (mixed, " shuffled")] {
            for (policy, points) in report.curves() {
                chart.push(&(policy + ending), &points);
            }
        }
        Ok(chart)
    }

    pub(super) fn finish(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        match self.arguments.format {
            Format::Table => console.write(&self.text()),
            Format::Csv => {
                let mut table = self.report.table();
                self.summaries().iter().for_each(|summary| table.append(summary));
                console.write(&table.csv())
            }
            Format::Json => console.line(&self.json().to_string()),
        }
    }

    /// One a kind of trace of which there are several.
    fn summaries(&self) -> Vec<Figures> {
        let several = if self.arguments.shuffle { 2 } else { 1 };
        if self.traces.len() <= several {
            return Vec::new();
        }
        let sums = self.sums.iter().map(|report| report.summary(self.arguments.seed));
        sums.filter(|table| !table.rows().is_empty()).collect()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for head in &self.traces {
            let ceiling =
                head.ceiling.map_or("none".into(), |rate| format!("{:.2}%", rate * 100.0));
            let table = people(&self.report.table_of(&head.label));
            text += &format!(
                "{}\nhit rate if first uses only miss: {ceiling}\n\n{table}\n",
                head.about
            );
        }
        for (summary, what) in self.summaries().iter().zip(["traces", "shuffled traces"]) {
            let table = people(summary);
            text += &format!(
                "mean over the {what}, with the bootstrap interval of the mean\n\n{table}\n"
            );
        }
        for Section { name, trace, pool, table } in &self.sections {
            let pool =
                pool.as_ref().map(|(policy, slots)| format!(", {policy} with {slots} slots"));
            text += &format!("{trace}{}: {name}\n\n{}\n", pool.unwrap_or_default(), table.text());
        }
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }

    fn json(&self) -> Value {
        let traces = self.traces.iter().map(
            |head| json!({ "trace": head.label, "about": head.about, "ceiling": head.ceiling }),
        );
        let sections = self.sections.iter().map(|Section { name, trace, pool, table }| {
            let (policy, slots) = pool.clone().unzip();
            json!({
                "name": name, "trace": trace, "policy": policy, "slots": slots, "rows": rows(table)
            })
        });
        json!({
            "traces": traces.collect::<Vec<_>>(),
            "rows": rows(&self.report.table()),
            "summary": self.summaries().iter().map(rows).collect::<Vec<_>>(),
            "sections": sections.collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// The rows of a table as JSON objects.
pub(super) fn rows(table: &Figures) -> Value {
    // The library writes it; it is JSON.
    serde_json::from_str(&table.json()).unwrap_or_default()
}

/// The rows of one trace as text, without what is said above them or can be divided out.
fn people(table: &Figures) -> String {
    let narrow = ["trace", "token_lookups", "token_hits"];
    let table = narrow.iter().fold(table.clone(), |table, column| table.without(column));
    table.without_empty_columns().text()
}
