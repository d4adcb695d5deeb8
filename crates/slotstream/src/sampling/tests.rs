use proptest::prelude::*;

use super::draw::exp;
use super::{GenerationDefaults, Sampler, SamplingError, SamplingParams};
use slotstream_core::{ErrorKind, Rng};

const SAMPLED: SamplingParams = SamplingParams { temperature: 1.0, ..SamplingParams::GREEDY };

fn sampler(params: SamplingParams) -> Sampler {
    Sampler::new(params).unwrap()
}

/// Penalties, filters and draw written out plainly, with a full sort and `f64::exp`: the ids that
/// can be drawn with their weights, in the order in which the draw walks over them.
fn oracle(params: &SamplingParams, logits: &[f32], generated: &[u32]) -> Vec<(u32, f64)> {
    let mut penalised = logits.to_vec();
    for (token, l) in penalised.iter_mut().enumerate() {
        let count = generated.iter().filter(|id| **id as usize == token).count();
        if count > 0 {
            *l = if *l > 0.0 {
                *l / params.repetition_penalty
            } else {
                *l * params.repetition_penalty
            };
            *l -= params.presence_penalty + params.frequency_penalty * count as f32;
        }
    }
    let mut kept: Vec<(u32, f32)> = (0..).zip(penalised).collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let max = f64::from(kept[0].1);
    let mut kept: Vec<(u32, f64)> = kept
        .iter()
        .map(|(id, l)| (*id, ((f64::from(*l) - max) / f64::from(params.temperature)).exp()))
        .collect();
    if params.top_k > 0 {
        kept.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let total: f64 = kept.iter().map(|(_, w)| w).sum();
        let mut sum = 0.0;
        let reaches = kept.iter().position(|(_, w)| {
            sum += w;
            sum >= f64::from(params.top_p) * total
        });
        kept.truncate(reaches.map_or(kept.len(), |at| at + 1));
    }
    kept.retain(|(_, w)| *w >= f64::from(params.min_p));
    let unordered =
        params.top_p == 1.0 && (params.top_k == 0 || params.top_k as usize >= logits.len());
    if unordered {
        kept.sort_by_key(|(id, _)| *id);
    }
    kept
}

fn oracle_draw(kept: &[(u32, f64)], uniform: f64) -> u32 {
    let total: f64 = kept.iter().map(|(_, w)| w).sum();
    let mut sum = 0.0;
    kept.iter()
        .find(|(_, w)| {
            sum += w;
            sum > uniform * total
        })
        .unwrap_or_else(|| kept.last().unwrap())
        .0
}

#[test]
fn the_exponential_equals_the_platform_one() {
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(f64::NEG_INFINITY), 0.0);
    assert_eq!(exp(-707.5), 0.0);
    for step in 0..=70_600 {
        let x = -f64::from(step) / 100.0;
        let relative = (exp(x) / x.exp() - 1.0).abs();
        assert!(relative < 1e-15, "e^{x} is off by {relative:e}");
    }
}

/// Drawn by an independent script from the same description; any change of the generator, the
/// order of the filters or the walk over the weights shows here.
#[test]
fn a_seed_means_the_same_tokens_for_ever() {
    let logits: Vec<f32> = (0..40).map(|i| ((i * 7919) % 97) as f32 / 16.0 - 3.0).collect();
    let cases = [
        ((1.0, 0, 1.0, 0.0), [31, 14, 39, 28, 31, 25, 4, 25, 9, 39, 25, 34, 26, 3, 17, 25]),
        ((0.75, 0, 0.875, 0.0), [6, 14, 34, 28, 6, 3, 25, 28, 14, 20, 3, 31, 28, 25, 39, 3]),
        ((1.5, 20, 0.9375, 0.0), [34, 3, 15, 20, 34, 6, 14, 6, 14, 1, 6, 23, 20, 25, 28, 17]),
        ((2.0, 0, 1.0, 0.125), [31, 14, 39, 28, 31, 25, 6, 25, 9, 39, 23, 34, 26, 3, 17, 23]),
        ((2.0, 10, 1.0, 0.25), [31, 39, 9, 6, 31, 28, 25, 17, 14, 9, 28, 31, 17, 25, 3, 28]),
    ];
    for ((temperature, top_k, top_p, min_p), expected) in cases {
        let params =
            SamplingParams { temperature, top_k, top_p, min_p, seed: 42, ..SamplingParams::GREEDY };
        let mut sampler = sampler(params);
        let got: Vec<u32> = (0..16).map(|_| sampler.sample(&logits, &[]).unwrap()).collect();
        assert_eq!(got, expected, "{params:?}");
    }
}

#[test]
fn greedy_takes_the_lowest_id_of_equal_logits() {
    let mut greedy = sampler(SamplingParams::default());
    assert_eq!(greedy.sample(&[1.0, 3.0, 3.0, -0.5], &[]).unwrap(), 1);
    assert_eq!(greedy.sample(&[f32::NEG_INFINITY, -2.0], &[]).unwrap(), 1);
    assert_eq!(greedy.sample(&[-0.0, 0.0], &[]).unwrap(), 0);
}

#[test]
fn damaged_logits_are_refused_with_their_token() {
    for params in [SamplingParams::GREEDY, SamplingParams::THINKING] {
        let mut sampler = sampler(params);
        for bad in [f32::NAN, f32::INFINITY] {
            let error = sampler.sample(&[0.0, 9.0, bad], &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            match &error {
                SamplingError::Logit { token, value } => {
                    assert_eq!((*token, value.to_bits()), (2, bad.to_bits()));
                }
                other => panic!("{other:?}"),
            }
            assert!(error.to_string().contains("token 2"), "{error}");
        }
        for none in [&[][..], &[f32::NEG_INFINITY; 3]] {
            let vocabulary = none.len();
            let expected = SamplingError::NoCandidate { vocabulary };
            assert_eq!(sampler.sample(none, &[]).unwrap_err(), expected);
        }
        // An error takes nothing from the stream and leaves the sampler usable.
        assert_eq!(sampler.sample(&[0.0, f32::NEG_INFINITY], &[]).unwrap(), 0);
    }
}

#[test]
fn a_failed_call_draws_nothing() {
    let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32).collect();
    let (mut a, mut b) = (sampler(SAMPLED), sampler(SAMPLED));
    let params = SamplingParams { presence_penalty: 1.0, ..SAMPLED };
    let mut c = sampler(params);
    for _ in 0..20 {
        a.sample(&[f32::NAN], &[]).unwrap_err();
        assert_eq!(a.sample(&logits, &[]), b.sample(&logits, &[]));
        let error = c.sample(&logits, &[1, 50]).unwrap_err();
        let expected = SamplingError::Generated { token: 50, position: 1, vocabulary: 50 };
        assert_eq!(error, expected);
    }
    // Counts of the failed calls did not stay behind.
    assert_eq!(c.sample(&logits, &[3]), sampler(params).sample(&logits, &[3]));
}

#[test]
fn penalties_follow_their_definitions() {
    let greedy = |change: SamplingParams, logits: &[f32], generated: &[u32]| {
        sampler(change).sample(logits, generated).unwrap()
    };
    let base = SamplingParams::GREEDY;
    let repetition = SamplingParams { repetition_penalty: 2.0, ..base };
    // 4 / 2 = 2 loses to 3; -1 * 2 = -2 loses to -1.5; once, however often it was generated.
    assert_eq!(greedy(repetition, &[4.0, 3.0], &[0]), 1);
    assert_eq!(greedy(repetition, &[-1.0, -1.5], &[0]), 1);
    assert_eq!(greedy(repetition, &[4.0, 1.5], &[0, 0, 0]), 0);
    let presence = SamplingParams { presence_penalty: 1.0, ..base };
    assert_eq!(greedy(presence, &[4.0, 3.5], &[0]), 1);
    assert_eq!(greedy(presence, &[4.0, 2.5], &[0, 0, 0]), 0);
    let frequency = SamplingParams { frequency_penalty: 1.0, ..base };
    assert_eq!(greedy(frequency, &[4.0, 2.5], &[0]), 0);
    assert_eq!(greedy(frequency, &[4.0, 2.5], &[0, 0]), 1);
    // Nothing was generated: nothing is penalised.
    assert_eq!(greedy(presence, &[4.0, 3.5], &[]), 0);
    // Penalties overflow to the largest finite number, and an impossible token stays impossible.
    let extreme = SamplingParams { repetition_penalty: 1e-38, ..base };
    assert_eq!(greedy(extreme, &[4.0, f32::MAX], &[0]), 0);
    let reward = SamplingParams { presence_penalty: -2.0, ..base };
    assert_eq!(greedy(reward, &[f32::NEG_INFINITY, -1e30], &[0]), 1);
}

#[test]
fn every_parameter_is_checked_against_its_range() {
    let base = SamplingParams::GREEDY;
    let nan = f32::NAN;
    let cases = [
        ("temperature", SamplingParams { temperature: -0.5, ..base }),
        ("temperature", SamplingParams { temperature: nan, ..base }),
        ("temperature", SamplingParams { temperature: f32::INFINITY, ..base }),
        ("top_p", SamplingParams { top_p: 0.0, ..base }),
        ("top_p", SamplingParams { top_p: 1.5, ..base }),
        ("top_p", SamplingParams { top_p: nan, ..base }),
        ("min_p", SamplingParams { min_p: -0.1, ..base }),
        ("min_p", SamplingParams { min_p: 1.1, ..base }),
        ("repetition_penalty", SamplingParams { repetition_penalty: 0.0, ..base }),
        ("repetition_penalty", SamplingParams { repetition_penalty: f32::INFINITY, ..base }),
        ("presence_penalty", SamplingParams { presence_penalty: 2.5, ..base }),
        ("frequency_penalty", SamplingParams { frequency_penalty: nan, ..base }),
    ];
    for (name, params) in cases {
        let error = Sampler::new(params).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User);
        match &error {
            SamplingError::Parameter { field, range, .. } => {
                assert_eq!(*field, name);
                assert!(error.to_string().contains(range), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    for params in [SamplingParams::THINKING, SamplingParams::NON_THINKING] {
        params.validate().unwrap();
    }
}

#[test]
fn generation_config_follows_do_sample() {
    let bundled = GenerationDefaults {
        do_sample: Some(true),
        temperature: Some(0.8),
        top_k: Some(40),
        top_p: Some(0.95),
        ..GenerationDefaults::default()
    };
    let expected =
        SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.95, ..SamplingParams::GREEDY };
    assert_eq!(SamplingParams::from_generation_config(&bundled), expected);
    let greedy = GenerationDefaults { do_sample: None, repetition_penalty: Some(1.1), ..bundled };
    let expected = SamplingParams { repetition_penalty: 1.1, ..SamplingParams::GREEDY };
    assert_eq!(SamplingParams::from_generation_config(&greedy), expected);
    let bare = GenerationDefaults { do_sample: Some(true), ..GenerationDefaults::default() };
    assert_eq!(SamplingParams::from_generation_config(&bare), SAMPLED);
}

#[test]
fn frequencies_approach_the_softmax() {
    let logits = [0.0, 1.0, 2.0, f32::NEG_INFINITY];
    let mut sampler = sampler(SamplingParams { seed: 11, ..SAMPLED });
    let mut counts = [0_u32; 4];
    for _ in 0..30_000 {
        counts[sampler.sample(&logits, &[]).unwrap() as usize] += 1;
    }
    let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    for (count, logit) in counts.iter().zip(logits) {
        let expected = f64::from(logit).exp() / total;
        // Four standard deviations of a binomial share are below 0.012 here.
        assert!((f64::from(*count) / 30_000.0 - expected).abs() < 0.012, "{counts:?}");
    }
    assert_eq!(counts[3], 0);
}

#[test]
fn buffers_are_allocated_once() {
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 / 20.0).collect();
    for params in [
        SamplingParams { presence_penalty: 0.5, ..SAMPLED },
        SamplingParams { top_p: 0.999, ..SAMPLED },
        SamplingParams { min_p: 0.1, ..SAMPLED },
        SamplingParams::NON_THINKING,
    ] {
        let mut sampler = sampler(params);
        let first = sampler.sample(&logits, &[1, 2]).unwrap();
        let before = sampler.capacities();
        for _ in 0..50 {
            sampler.sample(&logits, &[first, 2, 2]).unwrap();
        }
        assert_eq!(sampler.capacities(), before);
    }
}

fn params() -> impl Strategy<Value = SamplingParams> {
    (
        0.05_f32..4.0,
        0_u32..120,
        prop_oneof![Just(1.0_f32), 0.05_f32..1.0],
        prop_oneof![Just(0.0_f32), 0.0_f32..1.0],
        prop_oneof![Just(1.0_f32), 0.5_f32..2.0],
        -2.0_f32..2.0,
        any::<u64>(),
    )
        .prop_map(|(temperature, top_k, top_p, min_p, repetition_penalty, penalty, seed)| {
            SamplingParams {
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty,
                presence_penalty: penalty,
                frequency_penalty: -penalty / 2.0,
                seed,
            }
        })
}

proptest! {
    /// Logits are sixteenths, so that ties at every border are common.
    #[test]
    fn draws_equal_those_of_a_full_sort(
        params in params(),
        logits in prop::collection::vec(-64_i16..64, 1..200),
        generated in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let logits: Vec<f32> = logits.iter().map(|l| f32::from(*l) / 16.0).collect();
        let generated: Vec<u32> =
            generated.iter().map(|at| at.index(logits.len()) as u32).collect();
        let kept = oracle(&params, &logits, &generated);
        let mut rng = Rng::new(params.seed);
        let mut sampler = sampler(params);
        for _ in 0..8 {
            let expected = oracle_draw(&kept, rng.uniform());
            prop_assert_eq!(sampler.sample(&logits, &generated).unwrap(), expected);
        }
    }
}
