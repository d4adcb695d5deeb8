//! Corrections: their file, what they do to forecasts, and how they are trained.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use safetensors::tensor::{Dtype, TensorView};
use slotstream_core::{
    ExpertIdx, Forecaster, Geometry, LayerIdx, PassId, Phase, Prediction, ProbeResult,
    ProbeResults, Routing, SessionId, Step, Tap,
};
use slotstream_lookahead::{
    AttentionTap, Corrected, Correction, CorrectionError, CorrectionShape, ForecastOptions,
    MemorySamples, ORIGINAL_SCHEMA, Recorder, TargetCorrection,
};

const SHAPE: CorrectionShape = CorrectionShape::new(3, 4, 2);

fn target(seed: f32) -> TargetCorrection {
    let ramp = |n: u8| (0..n).map(|i| seed + 0.25 * f32::from(i)).collect::<Vec<f32>>();
    TargetCorrection::new(SHAPE, ramp(6), ramp(8), ramp(3), ramp(4)).expect("legal")
}

fn correction() -> Correction {
    let mut correction = Correction::new(SHAPE, "routers abc");
    correction.insert(LayerIdx::new(3), target(-1.0)).expect("legal");
    correction.insert(LayerIdx::new(1), target(0.5)).expect("legal");
    correction
}

fn layers(correction: &Correction) -> Vec<u16> {
    correction.targets().map(LayerIdx::get).collect()
}

#[test]
fn comes_back_from_its_file() {
    let written = correction();
    let bytes = written.to_bytes().expect("finite");
    let read = Correction::from_bytes(&bytes).expect("whole");
    assert_eq!(read, written);
    assert_eq!(layers(&read), [1, 3]);
    assert_eq!(read.identity(), "routers abc");
    assert_eq!(read.bytes(), 2 * 4 * (6 + 8 + 3 + 4));
    let none = Correction::new(SHAPE, "x");
    assert_eq!(Correction::from_bytes(&none.to_bytes().expect("finite")).expect("whole"), none);
}

#[test]
fn adds_what_the_formula_says() {
    let one = TargetCorrection::new(
        SHAPE,
        vec![1.0, 0.0, 0.0, 1.0, 2.0, -1.0],
        vec![1.0, 2.0, 3.0, 4.0, 0.5, 0.0, -0.5, 1.0],
        vec![1.0, 1.0, 1.0],
        vec![10.0, 20.0, 30.0, 40.0],
    );
    let one = one.expect("legal");
    let mut logits = [0.0, 1.0, 0.0, 0.0];
    // mixed - mu = [1, -2, 3]; times A = [7, -5].
    one.apply(&[2.0, -1.0, 4.0], &mut logits, &mut Vec::new());
    assert_eq!(logits, [14.5, 35.0, 53.5, 63.0]);
    let before = logits;
    one.apply(&[1.0], &mut logits, &mut Vec::new());
    one.apply(&[1.0; 3], &mut [], &mut Vec::new());
    assert_eq!(logits, before, "another width is left alone");
}

/// A sidecar as the Swift program's: all parts can be spoilt.
struct File {
    metadata: HashMap<String, String>,
    tensors: Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>,
}

impl File {
    fn new() -> Self {
        let metadata = [("schema", ORIGINAL_SCHEMA), ("tap", "attention"), ("first_target", "1")];
        let metadata = metadata.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let floats = |n: usize| vec![0x3f; 4 * n];
        let ids = [1_i32, 2].iter().flat_map(|id| id.to_le_bytes()).collect();
        let tensors = vec![
            ("a", Dtype::F16, vec![2, 3, 2], vec![0x3c; 24]),
            ("b", Dtype::F16, vec![2, 2, 4], vec![0x3c; 32]),
            ("mu", Dtype::F32, vec![2, 3], floats(6)),
            ("delta", Dtype::F32, vec![2, 4], floats(8)),
            ("targets", Dtype::I32, vec![2], ids),
        ];
        Self { metadata, tensors }
    }

    fn tensor(mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        let one = self.tensors.iter_mut().find(|one| one.0 == name).expect("known");
        (one.1, one.2, one.3) = (dtype, shape.to_vec(), bytes);
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|one| one.0 != name);
        self.metadata.remove(name);
        self
    }

    fn saying(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, dtype, shape, bytes)| {
            (*name, TensorView::new(*dtype, shape.clone(), bytes).expect("sizes fit"))
        });
        safetensors::serialize(views, Some(self.metadata.clone())).expect("written")
    }

    fn refused(&self) -> String {
        Correction::from_bytes(&self.bytes()).expect_err("spoilt").to_string()
    }
}

#[test]
fn the_swift_programs_file_is_read() {
    let read = Correction::from_bytes(&File::new().bytes()).expect("whole");
    assert_eq!((layers(&read), read.identity()), (vec![1, 2], ""));
    assert_eq!(read.shape(), SHAPE);
    let geometry = Geometry::new(3, 4, 2).expect("legal");
    read.check(&geometry, 3, "whatever").expect("it does not say whose it is");
}

/// Every way in which a tensor can be another one than expected, for every tensor.
#[test]
fn a_tensor_of_another_shape_or_with_a_number_that_is_none_is_named() {
    let good = File::new();
    let refused = |name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>| {
        let file = File::new().tensor(name, dtype, shape, bytes);
        let error = Correction::from_bytes(&file.bytes()).expect_err(name);
        assert_eq!(error.kind(), slotstream_core::ErrorKind::Corrupt, "{name}");
        assert!(error.to_string().contains(&format!("{name:?}")), "{name} {shape:?}: {error}");
    };
    for (name, dtype, shape, bytes) in &good.tensors {
        let wide = if *dtype == Dtype::F16 { 2 } else { 4 };
        // One more in each dimension, one dimension more, one fewer, and none of anything.
        for at in 0..shape.len() {
            let mut other = shape.clone();
            other[at] += 1;
            let len = wide * other.iter().product::<usize>();
            // The first dimensions of `a` and `targets`, which come first, are compared by others.
            let free = matches!((*name, at), ("targets", _) | ("a", 1 | 2) | ("b", 2));
            if !free {
                refused(name, *dtype, &other, vec![0; len]);
            }
        }
        refused(name, *dtype, &[&shape[..], &[1]].concat(), bytes.clone());
        refused(name, *dtype, &[], vec![0; wide]);
        for other in [Dtype::U8, Dtype::I64, Dtype::F64, Dtype::BF16, Dtype::BOOL] {
            let len = other.bitsize() / 8 * shape.iter().product::<usize>();
            refused(name, other, shape, vec![0; len]);
        }
        if *dtype == Dtype::I32 {
            continue;
        }
        // No number, or no end, at the first and the last place.
        for bad in [[0x00, 0x7e, 0xc0, 0x7f], [0x00, 0x7c, 0x80, 0x7f], [0x00, 0xfc, 0x80, 0xff]] {
            let bad = if wide == 2 { &bad[..2] } else { &[0, 0, bad[2], bad[3]] };
            for at in [0, bytes.len() - wide] {
                let mut spoilt = bytes.clone();
                spoilt[at..at + wide].copy_from_slice(bad);
                refused(name, *dtype, shape, spoilt);
            }
        }
    }
}

/// A file that ends early or goes on is no correction, wherever that is.
#[test]
fn every_cut_and_every_longer_file_is_refused() {
    let bytes = correction().to_bytes().expect("finite");
    for len in 0..bytes.len() {
        let error = Correction::from_bytes(&bytes[..len]).expect_err("cut");
        assert_eq!(error.kind(), slotstream_core::ErrorKind::Corrupt, "{len}");
    }
    for more in [1, 8, 4096] {
        let longer = [&bytes[..], &vec![0; more]].concat();
        Correction::from_bytes(&longer).expect_err("longer");
    }
    let mut long = bytes.clone();
    for length in [0, 1, bytes.len() as u64, u64::MAX >> 1, u64::MAX] {
        long[..8].copy_from_slice(&length.to_le_bytes());
        Correction::from_bytes(&long).expect_err("another length of the header");
    }
}

#[test]
fn a_shape_without_targets_is_a_claim_and_takes_no_memory() {
    let vast = File::new()
        .tensor("a", Dtype::F16, &[0, 1 << 40, 1 << 20], Vec::new())
        .tensor("b", Dtype::F16, &[0, 1 << 20, 1 << 40], Vec::new())
        .tensor("mu", Dtype::F32, &[0, 1 << 40], Vec::new())
        .tensor("delta", Dtype::F32, &[0, 1 << 40], Vec::new())
        .tensor("targets", Dtype::I32, &[0], Vec::new());
    let vast = Correction::from_bytes(&vast.bytes()).expect("it is whole");
    assert_eq!((vast.bytes(), vast.targets().count()), (0, 0));
    let geometry = Geometry::new(3, 4, 2).expect("legal");
    let error = vast.check(&geometry, 3, "whatever").expect_err("of another model");
    assert_eq!(error.kind(), slotstream_core::ErrorKind::User);
}

#[test]
fn what_is_spoilt_is_named() {
    let told = |file: File, words: &[&str]| {
        let told = file.refused();
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
    };
    told(File::new().saying("schema", "v9"), &["schema", "v9", "slotstream-correction-v1"]);
    told(File::new().without("schema"), &["schema", "None"]);
    told(File::new().saying("tap", "boundary"), &["tap", "boundary"]);
    told(File::new().saying("schema", "slotstream-correction-v1"), &["identity"]);
    for name in ["a", "b", "mu", "delta", "targets"] {
        told(File::new().without(name), &[name, "missing"]);
        told(File::new().tensor(name, Dtype::U8, &[2], vec![0; 2]), &[name, "U8", "expected"]);
    }
    told(File::new().tensor("b", Dtype::F16, &[2, 3, 4], vec![0; 48]), &["\"b\"", "[2, 3, 4]"]);
    told(File::new().tensor("mu", Dtype::F32, &[2, 4], vec![0; 32]), &["mu", "[2, 4]"]);
    let ids = |ids: [i32; 2]| ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    for (list, at) in [([1, 1], "entry 1"), ([-1, 1], "entry 0"), ([70_000, 1], "entry 0")] {
        told(File::new().tensor("targets", Dtype::I32, &[2], ids(list)), &[at]);
    }
    let nan = vec![0xff; 24];
    told(File::new().tensor("a", Dtype::F16, &[2, 3, 2], nan), &["\"a\"", "not finite"]);
}

#[test]
fn no_bytes_make_it_panic() {
    let whole = correction().to_bytes().expect("finite");
    for length in 0..whole.len() {
        assert!(Correction::from_bytes(&whole[..length]).is_err(), "{length}");
    }
    for at in 0..whole.len() {
        for bit in [0, 3, 7] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            if let Ok(read) = Correction::from_bytes(&bytes) {
                assert!(read.targets().count() <= 2);
            }
        }
    }
    let mut large = Correction::new(SHAPE, "");
    let delta = vec![0.0; 4];
    let one = TargetCorrection::new(SHAPE, vec![1e9; 6], vec![0.0; 8], vec![0.0; 3], delta);
    large.insert(LayerIdx::new(0), one.expect("finite in f32")).expect("legal");
    assert!(matches!(large.to_bytes(), Err(CorrectionError::NotFinite { tensor: "a", at: 0, .. })));
}

#[test]
fn another_model_is_refused_by_name() {
    let correction = correction();
    let check = |layers, experts, hidden, identity: &str| {
        let geometry = Geometry::new(layers, experts, 2).expect("legal");
        correction.check(&geometry, hidden, identity).map_err(|error| error.to_string())
    };
    assert_eq!(check(4, 4, 3, "routers abc"), Ok(()));
    let other = check(4, 4, 3, "routers xyz").expect_err("another");
    assert!(other.contains("routers abc") && other.contains("routers xyz"), "{other}");
    for (layers, experts, hidden) in [(3, 4, 3), (4, 5, 3), (4, 4, 8)] {
        let shape = check(layers, experts, hidden, "routers abc").expect_err("another");
        assert!(shape.contains("(4, 4, 3)"), "{shape}");
    }
}

fn said(forecaster: &mut dyn Forecaster, at: Tap, logits: &[f32], mixed: &[f32]) -> Vec<u16> {
    let (mut want, mut out) = (Vec::new(), Vec::<Prediction>::new());
    forecaster.probes(at, &mut want);
    let results: Vec<_> = want
        .iter()
        .map(|probe| ProbeResult {
            probe: *probe,
            logits,
            mixed: probe.keep_mixed.then_some(mixed),
        })
        .collect();
    forecaster.predict(at, &ProbeResults { rows: 1, results: &results }, &mut out);
    out.iter().map(|prediction| prediction.key.expert().get()).collect()
}

#[test]
fn a_forecast_is_corrected_where_there_is_a_correction() {
    let geometry = Geometry::new(3, 4, 1).expect("legal");
    let options = ForecastOptions::probe();
    let mut correction = Correction::new(SHAPE, "");
    let zeros = |n| vec![0.0; n];
    let one = TargetCorrection::new(SHAPE, zeros(6), zeros(8), zeros(3), vec![0.0, 0.0, 9.0, 0.0]);
    correction.insert(LayerIdx::new(1), one.expect("legal")).expect("legal");
    let mut plain = AttentionTap::new(&geometry, options);
    let mut corrected = Corrected::new(&geometry, Arc::new(correction), options);
    let (logits, mixed) = ([0.0, 5.0, 1.0, 0.0], [0.0; 3]);
    let at = |layer| Tap::AfterAttention(LayerIdx::new(layer));
    assert_eq!(said(&mut plain, at(0), &logits, &mixed), [1]);
    assert_eq!(said(&mut corrected, at(0), &logits, &mixed), [2]);
    assert_eq!(said(&mut corrected, at(1), &logits, &mixed), [1], "no correction of layer 2");
    assert_eq!(said(&mut corrected, at(0), &logits, &[0.0; 2]), [1], "another width");
    assert!(said(&mut corrected, at(2), &logits, &mixed).is_empty(), "there is no layer 3");
}

/// One layer of a pass through the recorder.
fn record(
    recorder: &mut Recorder<MemorySamples>,
    session: u64,
    rows: usize,
    truth: Option<&[f32]>,
) {
    let tokens = vec![0; rows];
    let (pass, session) = (PassId::new(1), SessionId::new(session));
    let step = Step { pass, phase: Phase::Prefill, session, position: 0, tokens: &tokens };
    let (mixed, logits) = (vec![1.0; 3 * rows], vec![2.0; 4 * rows]);
    for layer in 0..2 {
        let layer = LayerIdx::new(layer);
        let (mut want, mut out) = (Vec::new(), Vec::new());
        recorder.probes(Tap::BeforeLayer(layer), &mut want);
        recorder.probes(Tap::AfterAttention(layer), &mut want);
        let ids = vec![ExpertIdx::new(0); rows];
        let routing = Routing::new(&step, layer, 1, &ids, &[]);
        let routing = truth.map_or(routing, |truth| routing.with_logits(truth));
        recorder.observe(&routing);
        let results: Vec<_> = want
            .iter()
            .map(|probe| ProbeResult { probe: *probe, logits: &logits, mixed: Some(&mixed) })
            .collect();
        let results = ProbeResults { rows, results: &results };
        recorder.predict(Tap::AfterAttention(layer), &results, &mut out);
        assert!(out.is_empty());
    }
}

#[test]
fn a_recorder_keeps_what_belongs_together() {
    let geometry = Geometry::new(2, 4, 1).expect("legal");
    let sink = Arc::new(Mutex::new(MemorySamples::new(3)));
    let mut recorder = Recorder::new(&geometry, Arc::clone(&sink));
    let kept = || sink.lock().expect("alive").rows(LayerIdx::new(1));
    record(&mut recorder, 1, 2, None);
    assert_eq!(kept(), 0, "no logits, no truth");
    record(&mut recorder, 1, 2, Some(&[3.0; 8]));
    assert_eq!(kept(), 2);
    record(&mut recorder, 2, 2, Some(&[3.0; 8]));
    assert_eq!(kept(), 3, "bounded");
    assert_eq!(sink.lock().expect("alive").rows(LayerIdx::new(0)), 0, "nothing asks about it");
}

#[cfg(feature = "train")]
mod training {
    use slotstream_lookahead::{Sample, SampleSink, TrainError, TrainOptions, agreement, fit};

    use super::*;

    const WIDE: CorrectionShape = CorrectionShape::new(12, 16, 3);

    /// A linear congruential generator: numbers of mean 0.
    struct Draw(u64);

    impl Draw {
        fn next(&mut self) -> f32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            f32::from(u16::try_from(self.0 >> 48).expect("16 bits")) / 32_768.0 - 1.0
        }

        fn row(&mut self, n: usize) -> Vec<f32> {
            (0..n).map(|_| self.next()).collect()
        }
    }

    /// Documents in which truth less tap is linear in the input, of rank 3, and some noise.
    fn documents(count: u64, rows: usize, noise: f32) -> MemorySamples {
        let mut draw = Draw(7);
        let (a, b) = (draw.row(12 * 3), draw.row(3 * 16));
        let mut samples = MemorySamples::new(usize::MAX);
        for document in 0..count {
            for _ in 0..rows {
                let (mixed, tap) = (draw.row(12), draw.row(16));
                let mut truth = tap.clone();
                for (expert, truth) in truth.iter_mut().enumerate() {
                    for k in 0..3 {
                        let low: f32 = (0..12).map(|i| mixed[i] * a[3 * i + k]).sum();
                        *truth += low * b[16 * k + expert];
                    }
                    *truth += 0.3 + noise * draw.next();
                }
                let (session, target) = (SessionId::new(document), LayerIdx::new(1));
                samples.push(&Sample::new(session, target, &mixed, &tap, &truth));
            }
        }
        samples
    }

    fn sessions(from: u64, to: u64) -> Vec<SessionId> {
        (from..to).map(SessionId::new).collect()
    }

    #[test]
    fn what_is_linear_is_found() {
        let samples = documents(6, 300, 0.05);
        let target = LayerIdx::new(1);
        let train = sessions(0, 4);
        let found = fit(&samples, target, &train, WIDE, &TrainOptions::default()).expect("fits");
        assert_eq!(found.rows, 1200);
        assert!(found.left < 0.01, "{}", found.left);
        assert!(found.kept > 0.99, "{}", found.kept);
        assert!(found.penalty <= 0.1, "{}", found.penalty);
        let (before, after, rows) =
            agreement(&samples, target, &sessions(4, 6), &found.correction, 4).expect("in memory");
        assert_eq!(rows, 600);
        assert!(before < 0.7 && after > 0.95, "{before} {after}");
    }

    #[test]
    fn a_rank_too_small_keeps_the_largest_part() {
        let samples = documents(4, 300, 0.0);
        let one = CorrectionShape::new(12, 16, 1);
        let target = LayerIdx::new(1);
        let fit = |shape| {
            fit(&samples, target, &sessions(0, 4), shape, &TrainOptions::default()).expect("fits")
        };
        let (one, three) = (fit(one), fit(WIDE));
        assert!(one.kept > 0.33 && one.kept < three.kept, "{} {}", one.kept, three.kept);
        assert!(fit(CorrectionShape::new(12, 16, 40)).kept > 0.999, "more than there are");
    }

    #[test]
    fn noise_is_not_learnt() {
        let mut draw = Draw(3);
        let mut samples = MemorySamples::new(usize::MAX);
        for document in 0..5 {
            for _ in 0..20 {
                let (mixed, tap, truth) = (draw.row(12), draw.row(16), draw.row(16));
                let (session, target) = (SessionId::new(document), LayerIdx::new(1));
                samples.push(&Sample::new(session, target, &mixed, &tap, &truth));
            }
        }
        let options = TrainOptions::default();
        let found = fit(&samples, LayerIdx::new(1), &sessions(0, 5), WIDE, &options).expect("fits");
        assert!(found.penalty >= 10.0, "{}", found.penalty);
    }

    #[test]
    fn too_little_and_too_odd_samples() {
        let target = LayerIdx::new(1);
        let mut samples = documents(1, 10, 0.0);
        let mut bad = vec![0.5; 12];
        for (document, value) in [(1, f32::NAN), (2, f32::INFINITY)] {
            bad[3] = value;
            let session = SessionId::new(document);
            samples.push(&Sample::new(session, target, &bad, &[0.0; 16], &[0.0; 16]));
        }
        samples.push(&Sample::new(SessionId::new(3), target, &[1.0], &[0.0; 16], &[0.0; 16]));
        let options = TrainOptions::default();
        let error = fit(&samples, target, &sessions(0, 5), WIDE, &options).expect_err("one only");
        assert!(matches!(error, TrainError::TooFewDocuments { documents: 1, .. }), "{error}");
        // All rows the same: nothing to be learnt but the mean.
        let mut same = MemorySamples::new(usize::MAX);
        for document in 0..3 {
            let (mixed, tap, truth) = ([0.25; 12], [0.0; 16], [1.5; 16]);
            let session = SessionId::new(document);
            same.push(&Sample::new(session, target, &mixed, &tap, &truth));
        }
        let found = fit(&same, target, &sessions(0, 3), WIDE, &options).expect("fits");
        let mut logits = [0.0; 16];
        found.correction.apply(&[0.25; 12], &mut logits, &mut Vec::new());
        assert!(logits.iter().all(|logit| (logit - 1.5).abs() < 1e-5), "{logits:?}");
    }
}
