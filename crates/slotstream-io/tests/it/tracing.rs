//! What the queue tells a subscriber.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use slotstream_core::ReadClass::Demand;
use slotstream_core::ReadQueue;
use slotstream_io::LaneQueue;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::landings::{Landings, acting, extent, memory};

/// Writes down names, levels and fields of this crate's spans and events.
struct Notes(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("slotstream_io")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("{} {}", span.metadata().level(), span.metadata().name()));
        span.record(&mut line);
        self.0.lock().unwrap().push(line.0);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
        // A subscriber that fails must not cost a lane.
        assert!(*event.metadata().level() != Level::ERROR, "the subscriber panics");
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn reads_are_spans_and_landing_panics_are_errors() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    // For the whole program: lanes are threads of their own. No other test listens.
    tracing::subscriber::set_global_default(Notes(Arc::clone(&notes))).unwrap();
    let queue = LaneQueue::new(Arc::new(memory()), 1).unwrap();
    let landings = Landings::new();
    // No other test reads here.
    queue.submit(Demand, vec![acting(977, |_| panic!("odd")), landings.job(extent(54_321, 99))]);
    assert!(landings.next().right());
    let notes = notes.lock().unwrap();
    let has = |text: &str| notes.iter().any(|note| note == text);
    assert!(has("TRACE read file=0 offset=54321 bytes=99 class=Demand"), "{notes:?}");
    assert!(
        notes.iter().any(|note| {
            note.starts_with("ERROR") && note.contains("bytes=977") && note.contains("\"odd\"")
        }),
        "{notes:?}"
    );
}
