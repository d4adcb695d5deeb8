//! Those who are told what happens.

use slotstream_core::{Attached, EventSink, Outcome, Prediction, Routing, Step, Tap};

/// Several sinks that are told the same, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Sinks(Vec<Box<dyn EventSink>>);

impl Sinks {
    pub(crate) fn add(&mut self, sink: Box<dyn EventSink>) {
        self.0.push(sink);
    }
}

impl EventSink for Sinks {
    fn on_attach(&mut self, pool: &Attached<'_>) {
        self.0.iter_mut().for_each(|sink| sink.on_attach(pool));
    }
    fn on_step(&mut self, step: &Step<'_>) {
        self.0.iter_mut().for_each(|sink| sink.on_step(step));
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.0.iter_mut().for_each(|sink| sink.on_routing(routing));
    }
    fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
        self.0.iter_mut().for_each(|sink| sink.on_forecast(at, predictions));
    }
    fn on_outcome(&mut self, outcome: &Outcome) {
        self.0.iter_mut().for_each(|sink| sink.on_outcome(outcome));
    }
}
