//! What a decode step hands to a device.

use std::collections::{BTreeMap, HashMap};

use slotstream_candle::PlannedOps;
use slotstream_core::SlotId;
use slotstream_qwen::Logits;

use crate::encoder::Emulated;
use crate::planned;
use crate::recorder::{Event, Recorder, Touch};
use crate::rig::{Goldens, argmax, floats};

/// Layers of the bundled model.
const LAYERS: usize = 12;
/// Decode steps that are looked at.
const STEPS: usize = 3;

/// What a prompt and each of some decode steps hand over, with the smallest pool there may be.
fn record() -> Vec<Vec<Event>> {
    let (encoder, log) = Recorder::new(Emulated::new());
    let mut rig = planned(PlannedOps::new(encoder), 0.0);
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
    let steps = record();
    slots_are_written_when_nothing_reads_them(&steps.concat());
    barriers_keep_launches_apart(&steps.concat());
    for step in &steps[1..] {
        let waits = step.iter().filter(|event| matches!(event, Event::Wait)).count();
        assert!(waits <= LAYERS, "{waits} waits in {LAYERS} layers");
    }
    let (kernels, figures) = figures(&steps[1]);
    println!("{kernels:#?}\n{figures}");
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
