//! Policies allocate nothing after `bind`.

use slotstream_cache::{Ensured, SlotPool, parse_policy, policy_names};
use slotstream_core::*;

use crate::support::{experts, geometry, key, layer};

const LAYERS: u16 = 6;
const EXPERTS: u16 = 20;
const TOP_K: u16 = 3;

/// Allocations of 400 passes: decode, prompts in waves, failed reads, forecasts, hot admissions
/// and a cleared pool.
fn allocations(policy: impl EvictionPolicy) -> u64 {
    let model = geometry(LAYERS, EXPERTS, TOP_K);
    let mut pool = SlotPool::new(model, 30, policy).unwrap();
    // Grown with another pool: only the policy's first allocation could hide in a first call.
    let mut out = Ensured::new();
    let all: Vec<ExpertIdx> = experts(&(0..EXPERTS).collect::<Vec<_>>());
    let mut other = SlotPool::new(model, 30, slotstream_cache::Clock::new()).unwrap();
    other.ensure(layer(0), &all, Phase::Prefill, &mut out).unwrap();
    drop(out.take_claims());

    let mut state = 3_u32;
    let mut dice = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) % below) as u16
    };
    let mut passes = Vec::new();
    for pass in 0..400 {
        let rows = if pass % 16 == 0 { 14 } else { 1 };
        let ids: Vec<u16> = (0..rows * usize::from(LAYERS))
            .flat_map(|_| {
                let first = dice(u32::from(EXPERTS)).min(dice(u32::from(EXPERTS)));
                [first, (first + 1) % EXPERTS, (first + 5) % EXPERTS]
            })
            .collect();
        passes.push((rows, experts(&ids)));
    }
    let (tokens, logits) = ([7_u32; 14], [0.5_f32; 14 * EXPERTS as usize]);
    let mut wanted = Vec::with_capacity(usize::from(EXPERTS));
    let measured = allocation_counter::measure(|| {
        for (pass, (rows, ids)) in passes.iter().enumerate() {
            let step = Step {
                pass: PassId::new(pass as u64),
                phase: if *rows > 1 { Phase::Prefill } else { Phase::Decode },
                session: SessionId::new(0),
                position: pass as u64,
                tokens: &tokens[..*rows],
            };
            pool.begin_step(&step).unwrap();
            for of in 0..LAYERS {
                let per_layer = rows * usize::from(TOP_K);
                let own = &ids[usize::from(of) * per_layer..][..per_layer];
                let routing = Routing::new(&step, layer(of), usize::from(TOP_K), own, &[])
                    .with_logits(&logits[..rows * usize::from(EXPERTS)]);
                pool.routing(&routing).unwrap();
                wanted.clear();
                wanted.extend((0..EXPERTS).map(ExpertIdx::new).filter(|id| own.contains(id)));
                let needed_by = Deadline { passes_ahead: 0, layer: layer((of + 1) % LAYERS) };
                let next = key((of + 1) % LAYERS, pass as u16 % EXPERTS);
                pool.forecast(&[Prediction { key: next, confidence: 0.5, needed_by }]).unwrap();
                let ticket = pool.claim(next, Origin::Prefetch);
                for wave in wanted.chunks(12) {
                    pool.ensure(layer(of), wave, Phase::Decode, &mut out).unwrap();
                    pool.publish_all(&mut out).unwrap();
                    pool.release();
                }
                if let Ok(ticket) = ticket {
                    let _ = pool.abort(ticket, slotstream_cache::Abort::ReadFailed);
                }
            }
            if let Ok(claim) = pool.claim(key(1, pass as u16 % EXPERTS), Origin::PromptHot) {
                pool.publish(claim).unwrap();
            }
            if pass == 300 {
                pool.clear();
            }
        }
    });
    assert!(pool.counters().evicted > 1000, "{} evictions", pool.counters().evicted);
    measured.count_total
}

#[test]
fn nothing_is_allocated_after_bind() {
    for name in policy_names() {
        let inner: &[&str] = if name.ends_with(':') { &["clock", "lfu", "hot-pin"] } else { &[""] };
        for inner in inner {
            let name = format!("{name}{inner}");
            assert_eq!(allocations(parse_policy(&name).unwrap()), 0, "{name}");
        }
    }
    for name in ["hot-pin:every=3", "per-layer-counts:warm-up=5+every=3:random"] {
        assert_eq!(allocations(parse_policy(name).unwrap()), 0, "{name}");
    }
}

/// The count would notice: one box in the first call.
#[test]
fn an_allocation_is_noticed() {
    #[derive(Debug, Default)]
    struct Late(Option<Box<u64>>);
    impl EvictionPolicy for Late {
        fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
            self.0.get_or_insert_with(|| Box::new(u64::from(slot.get())));
        }
        fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
        fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
            (0..view.len() as u32).map(SlotId::new).find(|slot| view.is_evictable(*slot))
        }
        fn reset(&mut self) {}
    }
    assert_eq!(allocations(Late::default()), 1);
}

/// What a policy says that it will hold is what it takes, not much more and never less.
#[test]
fn planned_bytes_are_what_is_allocated() {
    for (layers, experts, top_k) in [(48, 512, 10), (12, 56, 6), (1, 2, 1)] {
        let model = geometry(layers, experts, top_k);
        for window in ["1", "100", "2048", "5000"] {
            let name = format!("analogue:window={window}");
            for name in [name.clone(), format!("layer-local:{name}"), format!("per-layer:{name}")] {
                let mut policy = parse_policy(&name).unwrap();
                let planned = policy.planned_bytes(&model);
                let slots = model.records();
                let taken = allocation_counter::measure(|| policy.bind(&model, slots).unwrap());
                let taken = u64::try_from(taken.bytes_current).unwrap();
                assert!(taken <= planned, "{name} {layers}: {taken} of {planned}");
                if model.records() > 1000 && window != "1" && name.starts_with("analogue") {
                    assert!(10 * taken > 7 * planned, "{name} {layers}: {taken} of {planned}");
                }
            }
        }
    }
    assert_eq!(parse_policy("lru").unwrap().planned_bytes(&geometry(2, 4, 1)), 0);
    let wide = geometry(256, u16::MAX, 60_000);
    let refused = parse_policy("analogue").unwrap().bind(&wide, wide.records());
    assert!(matches!(refused, Err(BindError::Parameter { .. })), "31 GB of history");
}
