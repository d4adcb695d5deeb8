//! What a decode step hands to a device.

use std::collections::{BTreeMap, HashMap};

use slotstream_candle::PlannedOps;
use slotstream_core::{
    Forecaster, LayerIdx, NoForecast, Prediction, Probe, ProbeResults, Routing, SlotId, Tap,
};
use slotstream_qwen::Logits;

use crate::encoder::Emulated;
use crate::probed;
use crate::recorder::{Event, Recorder, Touch};
use crate::rig::{Goldens, argmax, floats};

/// Layers of the bundled model.
const LAYERS: usize = 12;
/// Decode steps that are looked at.
const STEPS: usize = 3;

/// What a prompt and each of some decode steps hand over, with the smallest pool there may be.
fn record(forecaster: Box<dyn Forecaster>) -> Vec<Vec<Event>> {
    let (encoder, log) = Recorder::new(Emulated::new());
    let mut rig = probed(PlannedOps::new(encoder), 0.0, forecaster);
    let prompt = &Goldens::open("tiny-moe/golden.safetensors").ids("p1.input_ids")[..8];
    let mut state = rig.state();
    let mut steps = Vec::new();
    let mut tokens = prompt.to_vec();
    for _ in 0..=STEPS {
        let logits = rig.run(&mut state, &tokens, Logits::Last, None).logits.expect("last");
        tokens = vec![argmax(&floats(&logits))];
        steps.push(log.take());
    }
    steps
}

#[test]
#[ignore = "needs clang >= 19"]
fn a_step_is_lawful() {
    let steps = record(Box::new(NoForecast));
    slots_are_written_when_nothing_reads_them(&steps.concat());
    barriers_keep_launches_apart(&steps.concat());
    steps[1..].iter().for_each(|step| assert!(waits(step) <= LAYERS, "{}", waits(step)));
    let (kernels, figures) = figures(&steps[1]);
    println!("{kernels:#?}\n{figures}");
}

fn waits(step: &[Event]) -> usize {
    step.iter().filter(|event| matches!(event, Event::Wait)).count()
}

fn launches(step: &[Event], kernel: &str) -> usize {
    let of = |event: &&Event| matches!(event, Event::Launch { kernel: of, .. } if *of == kernel);
    step.iter().filter(of).count()
}

/// Asks for the next layer's router at every tap.
#[derive(Debug)]
struct Probing;

impl Forecaster for Probing {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        let target = LayerIdx::new(at.layer().get() + 1);
        want.push(Probe { target, with_ple: false, keep_mixed: true });
    }

    fn predict(&mut self, _: Tap, _: &ProbeResults<'_>, _: &mut Vec<Prediction>) {}

    fn observe(&mut self, _: &Routing<'_>) {}
}

#[test]
#[ignore = "needs clang >= 19"]
fn probes_are_in_the_submission_of_their_layer() {
    let (without, with) = (record(Box::new(NoForecast)), record(Box::new(Probing)));
    for (without, with) in without[1..].iter().zip(&with[1..]) {
        assert_eq!(waits(with), waits(without), "a probe has no wait of its own");
        // Two taps a layer, but none looks beyond the last one: the products of a mixer and of a
        // router each.
        let more = |kernel| launches(with, kernel) - launches(without, kernel);
        let probes = 2 * (LAYERS - 1);
        assert_eq!([more("hc_mean"), more("bf16_mv_f32")], [probes, 2 * probes]);
    }
}

/// Between a launch that reads a slot and the host that writes it lies a wait.
fn slots_are_written_when_nothing_reads_them(events: &[Event]) {
    let mut reading: HashMap<SlotId, &str> = HashMap::new();
    let (mut reads, mut writes) = (0, 0);
    for event in events {
        match event {
            Event::Launch { kernel, slots, .. } => {
                reads += slots.len();
                reading.extend(slots.iter().map(|slot| (*slot, *kernel)));
            }
            Event::Wait => reading.clear(),
            Event::Write(slot) => {
                writes += 1;
                assert_eq!(reading.get(slot), None, "{slot} is written while it is read");
            }
            Event::Upload { .. } => {}
        }
    }
    assert!(reads > 100 && writes > 100, "{reads} reads, {writes} writes");
}

/// Of two launches without a barrier between them, none writes what the other touches.
fn barriers_keep_launches_apart(events: &[Event]) {
    let mut running: Vec<(&str, &Touch)> = Vec::new();
    let mut barriers = 0;
    for event in events {
        match event {
            Event::Launch { kernel, touches, barrier, .. } => {
                if *barrier {
                    running.clear();
                    barriers += 1;
                }
                for touch in touches {
                    let other = running.iter().find(|(_, other)| touch.conflicts(other));
                    assert!(other.is_none(), "{kernel} touches {touch:?}, as does {other:?}");
                }
                running.extend(touches.iter().map(|touch| (*kernel, touch)));
            }
            Event::Wait => running.clear(),
            Event::Upload { .. } | Event::Write(_) => {}
        }
    }
    assert!(barriers > 100, "{barriers} barriers");
}

/// Launches of a step by kernel, and all its figures in words.
fn figures(step: &[Event]) -> (BTreeMap<&str, usize>, String) {
    let mut kernels: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut barriers, mut uploads, mut uploaded, mut waits) = (0, 0, 0, 0);
    for event in step {
        match event {
            Event::Launch { kernel, barrier, .. } => {
                *kernels.entry(kernel).or_default() += 1;
                barriers += usize::from(*barrier);
            }
            Event::Upload { bytes } => {
                uploads += 1;
                uploaded += bytes;
            }
            Event::Wait => waits += 1,
            Event::Write(_) => {}
        }
    }
    let launches: usize = kernels.values().sum();
    let figures = format!(
        "{launches} launches with {barriers} barriers, {waits} waits, and {uploads} small arrays \
         of the host, {uploaded} bytes"
    );
    (kernels, figures)
}
