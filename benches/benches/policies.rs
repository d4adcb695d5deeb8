//! What policies cost a token at the shape of the 48 x 512 model, 10 experts a layer: synthetic
//! routing replayed through the engine's pool, whose own time is in every figure.
//!
//! `cargo bench -p slotstream-benches --bench policies [-- POLICY...]` prints a line a policy and
//! pool size, in microseconds a token; the first half of the tokens only fills pool and history.

#![expect(clippy::print_stdout, reason = "it shows what it measured")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slotstream_cache::parse_policy;
use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, Routing, SlotId,
    SlotView, Step,
};
use slotstream_replay::{Requests, Simulation, Synthetic};

const POLICIES: [&str; 5] = ["clock", "lru", "lfu", "analogue", "analogue:window=512"];
/// 3, 9 and 15.6 token routes.
const SLOTS: [usize; 3] = [1440, 4320, 7509];
const TOKENS: usize = 4000;
const ROUNDS: usize = 3;

/// Notes how long each token took.
#[derive(Debug)]
struct Timed {
    inner: Box<dyn EvictionPolicy>,
    began: Option<Instant>,
    tokens: Arc<Mutex<Vec<Duration>>>,
}

impl EvictionPolicy for Timed {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.inner.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.inner.on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.inner.choose_victim(incoming, view)
    }
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.inner.bind(geometry, slots)
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.inner.on_miss(key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.inner.on_remove(slot, key, cause);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.inner.on_routing(routing);
    }
    fn on_step(&mut self, step: &Step<'_>) {
        if let Some(began) = self.began {
            self.tokens.lock().expect("one thread").push(began.elapsed());
        }
        self.began = Some(Instant::now());
        self.inner.on_step(step);
    }
    fn reset(&mut self) {
        self.inner.reset();
    }
}

/// Microseconds of each token but the last, the fastest first.
fn tokens(requests: &Requests, policy: &str, slots: usize) -> Vec<f64> {
    let tokens = Arc::default();
    let inner = parse_policy(policy).expect("a known policy");
    let timed = Timed { inner, began: None, tokens: Arc::clone(&tokens) };
    Simulation::new(slots).run(requests, timed).expect("a lawful policy");
    let tokens = tokens.lock().expect("one thread");
    let mut tokens: Vec<f64> =
        tokens[TOKENS / 2..].iter().map(|token| token.as_secs_f64() * 1e6).collect();
    tokens.sort_by(f64::total_cmp);
    tokens
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let named = POLICIES.map(str::to_owned).to_vec();
    let geometry = Geometry::new(48, 512, 10).expect("a legal shape");
    let recipe = Synthetic::new(0.6, 1.6, 60.0).expect("legal knobs");
    let requests = recipe.passes(TOKENS).requests(geometry);
    for policy in if given.is_empty() { named } else { given } {
        for slots in SLOTS {
            for round in 0..ROUNDS {
                let tokens = tokens(&requests, &policy, slots);
                let mean = tokens.iter().sum::<f64>() / tokens.len() as f64;
                let at = |share: f64| tokens[((tokens.len() - 1) as f64 * share) as usize];
                println!(
                    "{policy}, {slots} slots, round {round}: mean {mean:.1}, median {:.1}, 99% \
                     {:.1}, worst {:.1} us a token",
                    at(0.5),
                    at(0.99),
                    at(1.0)
                );
            }
        }
    }
}
