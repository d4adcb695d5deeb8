//! The policies of this job against naive models: whole histories, sweeps over everything.

mod analogue;
mod naive;

use proptest::prelude::*;
use slotstream_cache::{
    Analogue, Cyclic, Ensured, HotPin, LayerLocal, LeastStale, Lfu, Lru, PerLayer, PerLayerCounts,
    Random, SlotPool,
};

use slotstream_core::*;

use crate::oracles::play::{Twins, events, play, play_one_layer};
use crate::support::{Heard, Scribe, experts, geometry, key, layer, step, take};
use analogue::NaiveAnalogue;
use naive::{Naive, Rule};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn policies_of_this_job_equal_their_naive_models(events in events()) {
        play(&events, Twins(Lfu::new(), Naive::new(Rule::Lfu(16.0))));
        play(&events, Twins(Lfu::with_half_life(0.5), Naive::new(Rule::Lfu(0.5))));
        play(&events, Twins(LeastStale::new(), Naive::new(Rule::LeastStale)));
        play(&events, Twins(Cyclic::new(), Naive::new(Rule::Cyclic)));
        play(&events, Twins(HotPin::with(0.5, 3), Naive::new(Rule::HotPin(0.5, 3))));
        play(&events, Twins(HotPin::with(1.0, 1), Naive::new(Rule::HotPin(1.0, 1))));
        play(&events, Twins(Random::seeded(3), Naive::new(Rule::Random(3))));
        play(&events, Twins(PerLayer::new(Lru::new()), Naive::new(Rule::PerLayer)));
        let counts = PerLayerCounts::with(Lru::new(), 2, 3);
        play(&events, Twins(counts, Naive::new(Rule::PerLayerCounts(2, 3))));
    }

    #[test]
    fn analogue_equals_its_naive_model(events in events(), passes in passes()) {
        for (window, half_life) in [(2048, 16.0), (5, 0.5), (1, 100.0)] {
            let twins = || {
                let naive = NaiveAnalogue::new(window as usize, half_life);
                Twins(Analogue::with(window, half_life), naive)
            };
            play(&events, twins());
            play_one_layer(&events, twins());
            converse(&passes, twins());
        }
    }

    /// A combinator hands on everything that the policy inside lives on.
    #[test]
    fn combinators_tell_the_policy_inside(events in events()) {
        // With one layer only, a combinator changes nothing.
        play_one_layer(&events, Twins(LayerLocal::new(Lfu::new()), Lfu::new()));
        let hot = PerLayer::new(HotPin::with(0.5, 3));
        play_one_layer(&events, Twins(hot, HotPin::with(0.5, 3)));
        let lfu = PerLayerCounts::with(Lfu::new(), 1, 1);
        play_one_layer(&events, Twins(lfu, Lfu::new()));
    }
}

/// A pass of a session: for each token its id, and in each of four layers two experts of eight.
type Turn = (u32, Vec<(u32, Vec<u16>)>);

/// Sessions by turns, whose tokens mostly choose as other tokens of the same id.
fn passes() -> impl Strategy<Value = Vec<Turn>> {
    let token = (0..4_u32, proptest::collection::vec(0..24_u16, 4)).prop_map(|(id, dice)| {
        let habit = |at: usize| (id as u16 * 5 + at as u16 * 3) % 8;
        let own = dice.into_iter().enumerate();
        (id, own.map(|(at, die)| if die < 8 { die } else { habit(at) }).collect())
    });
    let rows = prop_oneof![6 => proptest::collection::vec(token.clone(), 1), 1 => proptest::collection::vec(token, 0..12)];
    proptest::collection::vec((0..3_u32, rows), 1..80)
}

fn converse(passes: &[Turn], policy: impl EvictionPolicy) {
    let mut pool = SlotPool::new(geometry(4, 8, 2), 9, policy).unwrap();
    let mut out = Ensured::new();
    for (pass, (session, rows)) in passes.iter().enumerate() {
        let tokens: Vec<u32> = rows.iter().map(|(id, _)| *id).collect();
        let session = SessionId::new((*session).into());
        let step = Step { session, ..step(pass as u64, &tokens) };
        pool.begin_step(&step).unwrap();
        for of in 0..4 {
            let route = |(_, first): &(u32, Vec<u16>)| {
                let first = first[usize::from(of)];
                experts(&[first, (first + 1) % 8])
            };
            let ids: Vec<ExpertIdx> = rows.iter().flat_map(route).collect();
            pool.routing(&Routing::new(&step, layer(of), 2, &ids, &[])).unwrap();
            let mut distinct = ids.clone();
            distinct.sort_unstable();
            distinct.dedup();
            for wave in distinct.chunks(8) {
                pool.ensure(layer(of), wave, Phase::Decode, &mut out).unwrap();
                pool.publish_all(&mut out).unwrap();
                pool.release();
            }
        }
    }
    pool.validate().unwrap();
}

/// What the oracles do not see: admissions, forecasts, sizes, resets and states.
#[test]
fn combinators_hand_on_the_rest() {
    fn heard<P: EvictionPolicy>(around: fn(Scribe<Lru>) -> P) -> Vec<Heard> {
        let (inner, log) = Scribe::new(Lru::new());
        let mut policy = around(inner);
        policy.bind(&geometry(2, 4, 1), 4).unwrap();
        assert!(policy.admit(key(0, 1), Origin::PromptHot));
        let needed_by = Deadline { passes_ahead: 0, layer: LayerIdx::new(1) };
        policy.on_forecast(&[Prediction { key: key(1, 1), confidence: 1.0, needed_by }]);
        policy.on_resize(3);
        policy.on_step(&step(5, &[]));
        policy.reset();
        take(&log)
    }
    let expected = [
        Heard::Admit(key(0, 1), Origin::PromptHot),
        Heard::Forecast(1),
        Heard::Resize(3),
        Heard::Step(5),
        Heard::Reset,
    ];
    assert_eq!(heard(LayerLocal::new), expected);
    assert_eq!(heard(PerLayer::new), expected);
    assert_eq!(heard(PerLayerCounts::new), expected);

    let mut lfu = Lfu::new();
    lfu.bind(&geometry(2, 4, 1), 4).unwrap();
    lfu.on_miss(key(1, 3));
    let state = lfu.export();
    let policies: [Box<dyn EvictionPolicy>; 3] = [
        Box::new(LayerLocal::new(Lfu::new())),
        Box::new(PerLayer::new(Lfu::new())),
        Box::new(PerLayerCounts::new(Lfu::new())),
    ];
    for mut policy in policies {
        policy.bind(&geometry(2, 4, 1), 4).unwrap();
        assert_ne!(policy.export(), state);
        policy.import(state.as_deref().unwrap()).unwrap();
        assert_eq!(policy.export(), state);
    }
}
