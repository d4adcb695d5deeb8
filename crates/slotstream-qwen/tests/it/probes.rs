//! Taps and probes: a forecaster sees what the contract says and changes nothing.

use std::sync::{Arc, Mutex};

use slotstream_core::{Forecaster, LayerIdx, Prediction, Probe, ProbeResults, Routing, Tap};
use slotstream_kernels::Cpu;
use slotstream_qwen::Logits;

use crate::rig::{Goldens, Rig, Watch, floats, random_model, tiny_model};

/// Asks at each tap for the layer itself and the one after it, with and without the n-gram
/// layer's output, and keeps what it got.
#[derive(Debug, Default)]
struct Nosy {
    seen: Arc<Mutex<Vec<Seen>>>,
    layers: u16,
}

#[derive(Debug)]
struct Seen {
    at: Tap,
    probe: Probe,
    logits: Vec<f32>,
    mixed: Option<Vec<f32>>,
}

impl Forecaster for Nosy {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        let layer = at.layer().get();
        for target in [layer, layer + 1] {
            for with_ple in [false, true] {
                // A target beyond the last layer has no router: it is left out.
                let target = LayerIdx::new(target);
                want.push(Probe { target, with_ple, keep_mixed: with_ple });
            }
        }
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let expected = if at.layer().get() + 1 == self.layers { 2 } else { 4 };
        assert_eq!(results.results.len(), expected, "{at:?}");
        for result in results.results {
            self.seen.lock().expect("not poisoned").push(Seen {
                at,
                probe: result.probe,
                logits: result.logits.to_vec(),
                mixed: result.mixed.map(<[f32]>::to_vec),
            });
        }
        out.clear();
    }

    fn observe(&mut self, _routing: &Routing<'_>) {}
}

#[test]
fn probes_see_routers_and_change_nothing() {
    let goldens = Goldens::open("random/golden.safetensors");
    let tokens = goldens.ids("p17.input_ids");
    let kernels = || Arc::new(Cpu::new(1).expect("one thread"));
    let expected = Rig::new(&random_model(), kernels(), 0.5).all_logits(&tokens, 5);

    let seen = Arc::new(Mutex::new(Vec::new()));
    let nosy = Nosy { seen: Arc::clone(&seen), layers: 8 };
    let mut rig = Rig::with_forecaster(&random_model(), kernels(), 0.5, Box::new(nosy));
    assert!(rig.all_logits(&tokens, 5) == expected, "a forecaster changed the output");

    rig.recorder.take();
    seen.lock().expect("not poisoned").clear();
    let mut state = rig.state();
    floats(&rig.run(&mut state, &tokens, Logits::Last, None).logits.expect("last"));
    let (routed, seen) = (rig.recorder.take(), seen.lock().expect("not poisoned"));
    for one in seen.iter() {
        assert_eq!(one.mixed.is_some(), one.probe.keep_mixed);
        assert_eq!(one.logits.len(), 17 * 16);
        if let Some(mixed) = &one.mixed {
            assert_eq!(mixed.len(), 17 * 128);
        }
        // After its own attention a layer's router has nothing left to wait for.
        if matches!(one.at, Tap::AfterAttention(layer) if layer == one.probe.target) {
            let truth = &routed[one.probe.target.index()].logits;
            assert!(one.logits == *truth, "{:?}", one.at);
        }
    }
    let logits = |at, target, with_ple| {
        let target = LayerIdx::new(target);
        let found = seen.iter().find(|one| {
            one.at == at && one.probe.target == target && one.probe.with_ple == with_ple
        });
        found.expect("asked for").logits.clone()
    };
    // The n-gram layer (1) lies between these taps and their targets ...
    for (at, target) in [
        (Tap::AfterAttention(LayerIdx::new(0)), 1),
        (Tap::BeforeLayer(LayerIdx::new(1)), 1),
        (Tap::BeforeLayer(LayerIdx::new(0)), 1),
        (Tap::BeforeLayer(LayerIdx::new(1)), 2),
    ] {
        assert!(logits(at, target, true) != logits(at, target, false), "{at:?} {target}");
    }
    // ... and not between these.
    for (at, target) in [
        (Tap::BeforeLayer(LayerIdx::new(0)), 0),
        (Tap::AfterAttention(LayerIdx::new(1)), 2),
        (Tap::BeforeLayer(LayerIdx::new(2)), 3),
    ] {
        assert!(logits(at, target, true) == logits(at, target, false), "{at:?} {target}");
    }
}

/// What a probe before the n-gram layer adds to its copy of the streams is what the layer then
/// adds, bit for bit; one that looks from further away adds something else.
#[test]
fn a_probe_adds_what_the_ngram_layer_adds() {
    let goldens = Goldens::open("random/golden.safetensors");
    let tokens = goldens.ids("p17.input_ids");
    for model in [random_model(), tiny_model()] {
        let kernels = Arc::new(Cpu::new(1).expect("one thread"));
        let layers = if model == random_model() { 8 } else { 12 };
        let nosy = Nosy { seen: Arc::default(), layers };
        let mut rig = Rig::with_forecaster(&model, kernels, 0.5, Box::new(nosy));
        let mut state = rig.state();
        // The second time the layer's convolution has a past.
        for chunk in tokens.chunks(6) {
            let watch = Watch::default();
            rig.run(&mut state, chunk, Logits::Last, Some(&watch));
            let injections = watch.injections.into_inner().expect("not poisoned");
            let of_pass = injections.iter().filter(|(_, at, _)| at.is_none());
            let of_pass: Vec<_> = of_pass.collect();
            assert_eq!(of_pass.len(), 1);
            let (layer, _, added) = of_pass[0];
            let before =
                injections.iter().filter(|(_, at, _)| *at == Some(Tap::BeforeLayer(*layer)));
            assert_eq!(before.clone().count(), 2, "for the layer and the one after it");
            assert!(before.clone().all(|(_, _, probed)| probed == added));
            let tap = Tap::AfterAttention(LayerIdx::new(layer.get() - 1));
            let mut earlier = injections.iter().filter(|(_, at, _)| *at == Some(tap));
            assert!(earlier.all(|(_, _, probed)| probed != added));
        }
    }
}
