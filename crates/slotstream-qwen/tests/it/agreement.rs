//! How often forecasts from earlier streams are right, against the figures that the model's own
//! card has for the same documents.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use slotstream_core::{
    ExpertIdx, Forecaster, Geometry, Prediction, Probe, ProbeResults, Routing, Tap,
};
use slotstream_kernels::Cpu;
use slotstream_lookahead::{parse_forecaster, top_experts};
use slotstream_qwen::Logits;

use crate::rig::{Rig, fixture, tiny_model};
use crate::traces;

const LAYERS: usize = 12;
const TOP_K: usize = 6;
const NAMES: [&str; 5] =
    ["boundary-1:ple=0", "boundary-2:ple=0", "boundary-1", "boundary-2", "attention-tap"];

/// By forecaster and target layer: places that were right, and all of them.
type Counts = Arc<Mutex<HashMap<(usize, usize), (u64, u64)>>>;

/// Asks for the probes of several forecasters and compares, row by row, what they would choose.
#[derive(Debug)]
struct Judge {
    forecasters: Vec<Box<dyn Forecaster>>,
    counts: Counts,
    /// By forecaster and target layer: the choice of each row of the running pass.
    choices: HashMap<(usize, usize), Vec<Vec<ExpertIdx>>>,
}

impl Forecaster for Judge {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        self.forecasters.iter_mut().for_each(|forecaster| forecaster.probes(at, want));
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, _out: &mut Vec<Prediction>) {
        for (number, forecaster) in self.forecasters.iter_mut().enumerate() {
            let (mut want, mut said) = (Vec::new(), Vec::new());
            forecaster.probes(at, &mut want);
            forecaster.predict(at, results, &mut said);
            let Some(probe) = want.first() else {
                assert!(said.is_empty(), "nothing was asked");
                continue;
            };
            let result = results.results.iter().find(|result| result.probe == *probe);
            let rows = result.expect("an answer").logits.chunks_exact(56).map(|row| {
                let mut ranked = Vec::new();
                top_experts(row, TOP_K, &mut ranked);
                ranked
            });
            let rows: Vec<_> = rows.collect();
            let union: BTreeSet<_> = rows.iter().flatten().copied().collect();
            let said: BTreeSet<_> = said.iter().map(|prediction| prediction.key.expert()).collect();
            assert_eq!(union, said, "what it says is what the rows would choose");
            self.choices.insert((number, probe.target.index()), rows);
        }
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        let layer = routing.layer().index();
        let mut counts = self.counts.lock().expect("not poisoned");
        for number in 0..self.forecasters.len() {
            let Some(rows) = self.choices.remove(&(number, layer)) else { continue };
            let count = counts.entry((number, layer)).or_default();
            for (chosen, truth) in rows.iter().zip(routing.ids().chunks_exact(TOP_K)) {
                count.0 += truth.iter().filter(|expert| chosen.contains(expert)).count() as u64;
                count.1 += TOP_K as u64;
            }
        }
    }
}

/// By forecaster and layer; `None` where there is no forecast.
fn agreement(rig: &mut Rig, counts: &Counts, tokens: &[u32]) -> Vec<Vec<Option<f64>>> {
    counts.lock().expect("not poisoned").clear();
    let mut state = rig.state();
    for chunk in tokens.chunks(128) {
        rig.run(&mut state, chunk, Logits::None, None);
        rig.recorder.take();
    }
    let counts = counts.lock().expect("not poisoned");
    let share = |number, layer| {
        counts.get(&(number, layer)).map(|(right, all)| *right as f64 / *all as f64)
    };
    (0..NAMES.len()).map(|number| (0..LAYERS).map(|layer| share(number, layer)).collect()).collect()
}

#[test]
fn forecasts_agree_as_often_as_the_models_card_says() {
    let geometry = Geometry::new(LAYERS as u16, 56, TOP_K as u16).expect("legal");
    let forecasters =
        NAMES.iter().map(|name| parse_forecaster(name, &geometry).expect("listed")).collect();
    let counts = Counts::default();
    let judge = Judge { forecasters, counts: Arc::clone(&counts), choices: HashMap::new() };
    let kernels = Arc::new(Cpu::new(2).expect("two threads"));
    let mut rig = Rig::with_forecaster(&tiny_model(), kernels, 1.0, Box::new(judge));
    let card = std::fs::read(fixture("tiny-moe/agreement.json")).expect("a fixture");
    let card: Value = serde_json::from_slice(&card).expect("JSON");
    let card = card.as_object().expect("an object");
    assert_eq!(card.len(), 6, "documents with figures");
    for (document, figures) in card {
        let found = agreement(&mut rig, &counts, &traces::read(document).tokens);
        for (number, name) in ["boundary-1", "boundary-2"].iter().enumerate() {
            for layer in 0..LAYERS {
                let Some(want) = figures[name][layer].as_f64() else { continue };
                let found = found[number][layer].expect("forecast");
                assert!(
                    (found - want).abs() <= 0.01,
                    "{document}, {name}, layer {layer}: {found:.4}, the card says {want:.4}"
                );
            }
        }
        // What lies behind the n-gram layer is foreseen with its output added, and not without.
        let [plain_1, plain_2, aware_1, aware_2, tap] =
            [0, 1, 2, 3, 4].map(|number| found[number].clone());
        println!(
            "{document}: layer 1 {:?} -> {:?}, layer 2 {:?} -> {:?}, tap {:?}",
            plain_1[1], aware_1[1], plain_2[2], aware_2[2], tap
        );
        assert!(aware_1[1] > Some(0.9) && plain_1[1] < Some(0.55), "{document}");
        assert!(aware_2[2] > Some(0.78) && plain_2[2] < Some(0.58), "{document}");
        let unchanged = |layer: &usize| aware_1[*layer] == plain_1[*layer];
        assert!((2..LAYERS).all(|layer| unchanged(&layer)), "no other layer is touched");
        let mean = |shares: &[Option<f64>]| {
            let known: Vec<f64> = shares.iter().copied().flatten().collect();
            known.iter().sum::<f64>() / known.len() as f64
        };
        assert!(mean(&tap) > mean(&aware_2), "{document}: one attention less is missed");
        assert_eq!((tap[0], aware_2[0]), (None, None), "there is no tap before layer 0");
        assert!(aware_1[0] > Some(0.5), "from the embedding alone");
    }
}
