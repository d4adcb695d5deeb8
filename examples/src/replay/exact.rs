//! The recorded run once more: requests and outcomes under the recorded policy.

use serde_json::json;
use slotstream_cache::PoolCounters;
use slotstream_replay::{Cell, ExactReplay, Figures, PoolEnd, Recording, TraceError};

use super::output::rows;
use super::source::{Source, label};
use super::{Arguments, Format};
use crate::{Console, Ended, Failure};

/// The columns of a comparison; people are told the first four above the others.
const COLUMNS: [&str; 7] =
    ["trace", "policy", "slots", "replay", "counter", "recorded", "replayed"];

/// When this is the recorded pool: what the recorded run counted, by its outcomes.
pub(super) fn counters(
    source: &Source,
    policy: &str,
    slots: usize,
    arguments: &Arguments,
) -> Option<Result<PoolCounters, TraceError>> {
    let recording = source.recording.as_ref()?;
    let header = recording.header();
    // Outcomes are of the whole run.
    let same = header.slots > 0 && (header.slots, header.policy.as_str()) == (slots, policy);
    (same && arguments.warmup == 0).then(|| {
        let mut replay = ExactReplay::recorded(header)?;
        let played = recording.play(&mut replay)?;
        Ok(*replay.verify(&played)?.counters())
    })
}

/// `--exact`: compares every counter of every trace. What differs is shown like the rest, and
/// then is the error.
pub(super) fn run(arguments: &Arguments, console: &mut Console<'_>) -> Result<Ended, Failure> {
    let (mut text, mut table, mut differs) = (String::new(), Figures::new(COLUMNS), None);
    for path in &arguments.trace {
        let compared = console.waiting(|| Compared::of(Recording::open(path)?))?;
        if console.cancel.is_cancelled() {
            return Ok(Ended::Interrupted);
        }
        text += &compared.text();
        table.append(&compared.table());
        differs = differs.or(compared.differs);
    }
    match arguments.format {
        Format::Table => console.write(&text)?,
        Format::Csv => console.write(&table.csv())?,
        Format::Json => {
            let replay = word(differs.is_none());
            console.line(&json!({ "replay": replay, "counters": rows(&table) }).to_string())?;
        }
    }
    differs.map_or(Ok(Ended::Done), |error| Err(error.into()))
}

const fn word(exact: bool) -> &'static str {
    if exact { "exact" } else { "different" }
}

/// A recorded run and its replay.
struct Compared {
    recording: Recording,
    /// The recorded pool at the end, and that of the replay, as far as it came.
    ends: [PoolEnd; 2],
    events: u64,
    differs: Option<TraceError>,
}

impl Compared {
    fn of(recording: Recording) -> Result<Self, Failure> {
        let nothing = |expected: &str| Failure::Option {
            option: "--exact",
            value: recording.path().display().to_string(),
            expected: expected.into(),
        };
        if recording.header().slots == 0 {
            return Err(nothing("a recorded run: these are requests alone, of no pool"));
        }
        let mut replay = ExactReplay::recorded(recording.header())?;
        let played = recording.play(&mut replay)?;
        let live = played.end.and_then(|end| end.pool);
        let live =
            live.ok_or_else(|| nothing("a recording with its pool's counters at the end"))?;
        let ends = [live, PoolEnd::of(replay.pool())];
        let totals = played.totals;
        let events = totals.passes + totals.routings + totals.forecasts + totals.outcomes;
        let differs = replay.verify(&played).err();
        Ok(Self { recording, ends, events, differs })
    }

    fn table(&self) -> Figures {
        let (header, mut table) = (self.recording.header(), Figures::new(COLUMNS));
        let label = label(self.recording.path());
        let [live, here] = self.ends.map(PoolEnd::figures);
        for ((counter, recorded), (_, replayed)) in live.zip(here) {
            table.push([
                Cell::from(label.as_str()),
                Cell::from(header.policy.as_str()),
                Cell::from(header.slots),
                Cell::from(word(self.differs.is_none())),
                Cell::from(counter),
                Cell::from(recorded),
                Cell::from(replayed),
            ]);
        }
        table
    }

    fn text(&self) -> String {
        let header = self.recording.header();
        let table = COLUMNS[..4].iter().fold(self.table(), |table, name| table.without(name));
        format!(
            "{}: {}: {} with {} slots, {} events\n\n{}\n",
            label(self.recording.path()),
            word(self.differs.is_none()),
            header.policy,
            header.slots,
            self.events,
            table.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::replay::recorded::{record, shown};

    #[test]
    fn an_exact_replay_says_so_in_every_form() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = record(folder.path(), Some(0));
        let (text, ended) = shown(&["--exact", "--trace", &trace]);
        assert!(matches!(ended, Ok(Ended::Done)), "{ended:?}");
        assert!(text.starts_with("run: exact: lru with 4 slots, "), "{text}");
        let (csv, _) = shown(&["--exact", "--trace", &trace, "--format", "csv"]);
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((rows.len(), rows[0].as_slice()), (27, &COLUMNS[..]));
        assert!(rows[1..].iter().all(|row| row[3] == "exact" && row[5] == row[6]), "{csv}");
        assert!(csv.contains(",decode_adopted,2,2\n"), "forecasts were adopted: {csv}");
        let (json, _) = shown(&["--exact", "--trace", &trace, &trace, "--format", "json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            (&json["replay"], json["counters"].as_array().map(Vec::len)),
            (&"exact".into(), Some(52))
        );
    }

    #[test]
    fn a_difference_is_shown_and_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = record(folder.path(), Some(3));
        let (csv, ended) = shown(&["--exact", "--trace", &trace, "--format", "csv"]);
        let rows = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        let differ: Vec<Vec<&str>> = rows.filter(|row| row[5] != row[6]).collect();
        assert_eq!((differ.len(), differ[0][3], differ[0][4]), (1, "different", "evicted"));
        let error = ended.expect_err("they differ");
        assert_ne!(error.exit_code(), 0);
        assert!(crate::describe(&error).contains("expected evicted "), "{error}");
        let (text, _) = shown(&["--exact", "--trace", &trace]);
        assert!(text.starts_with("run: different: "), "{text}");
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let unfinished = record(folder.path(), None);
        let keys = folder.path().join("keys.csv");
        std::fs::write(&keys, "pass,layer,row,rank,expert\n0,0,0,0,1\n").expect("a folder");
        let keys = keys.to_str().expect("UTF-8");
        for (line, words) in [
            (&["--exact", "--trace", &unfinished][..], "its pool's counters at the end"),
            (&["--exact", "--trace", keys], "requests alone"),
            (&["--exact"], "--trace <FILE>..."),
            (&["--exact", "--trace", keys, "--policy", "lru"], "cannot be used with"),
            (&["--exact", "--trace", keys, "--latency", "1"], "cannot be used with"),
        ] {
            let (_, ended) = shown(line);
            let error = ended.expect_err("nothing to compare");
            let text = crate::describe(&error);
            assert!(text.contains(words) && error.exit_code() == 2, "{line:?}: {text}");
        }
    }
}
