//! The policies are different things: for each there is a short trace on which it differs from
//! every other, and no two give equal counts on everything that is bundled.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use slotstream_cache::{Ensured, SlotPool, parse_policy, policy_names};
use slotstream_core::*;

use crate::goldens;
use crate::support::{geometry, key, layer, step};

const FIXTURE: &str = include_str!("../fixtures/telling.json");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/telling.json");

/// Most demands of a trace that tells a policy apart.
const MOST: usize = 30;

/// Every policy with its defaults; a combinator with LRU inside.
pub(crate) fn every_policy() -> Vec<String> {
    policy_names().map(|name| if name.ends_with(':') { name + "lru" } else { name }).collect()
}

/// A small pool and what is demanded of it.
#[derive(Clone, Debug)]
struct Trace {
    layers: u16,
    experts: u16,
    top_k: u16,
    slots: usize,
    /// (pass, layer, expert); those of one pass and layer are one call.
    demands: Vec<(u64, u16, u16)>,
}

/// Misses and what is resident in the end.
type Outcome = (u64, BTreeSet<ExpertKey>);

impl Trace {
    fn play(&self, policy: &str) -> Outcome {
        let model = geometry(self.layers, self.experts, self.top_k);
        let mut pool = SlotPool::unfloored(model, self.slots, parse_policy(policy).unwrap())
            .unwrap_or_else(|error| panic!("{policy} in {self:?}: {error}"));
        let mut out = Ensured::new();
        let mut pass = None;
        for call in self.demands.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (number, of, _) = call[0];
            if pass != Some(number) {
                pool.begin_step(&step(number, &[])).unwrap();
                pass = Some(number);
            }
            let route: Vec<_> = call.iter().map(|(.., expert)| ExpertIdx::new(*expert)).collect();
            pool.ensure(layer(of), &route, Phase::Decode, &mut out).unwrap();
            pool.publish_all(&mut out).unwrap();
            pool.release();
        }
        let all = (0..model.records()).map(|index| model.key(index).unwrap());
        (pool.counters().decode.misses, all.filter(|key| pool.is_resident(*key)).collect())
    }

    /// Whether `policy` ends otherwise than each of `others`.
    fn tells(&self, policy: &str, others: &[String]) -> bool {
        let own = self.play(policy);
        others.iter().all(|other| other == policy || self.play(other) != own)
    }

    fn to_json(&self, policy: &str) -> Value {
        let Self { layers, experts, top_k, slots, demands } = self;
        let (misses, resident) = self.play(policy);
        let resident: Vec<_> =
            resident.iter().map(|key| (key.layer().get(), key.expert().get())).collect();
        json!({
            "policy": policy, "layers": layers, "experts": experts, "top_k": top_k,
            "slots": slots, "misses": misses, "resident": resident, "demands": demands,
        })
    }

    fn from_json(value: &Value) -> Self {
        let number = |name: &str| value[name].as_u64().unwrap();
        let small = |value: &Value| u16::try_from(value.as_u64().unwrap()).unwrap();
        let demands = value["demands"].as_array().unwrap();
        Self {
            layers: small(&value["layers"]),
            experts: small(&value["experts"]),
            top_k: small(&value["top_k"]),
            slots: usize::try_from(number("slots")).unwrap(),
            demands: demands
                .iter()
                .map(|demand| (demand[0].as_u64().unwrap(), small(&demand[1]), small(&demand[2])))
                .collect(),
        }
    }
}

fn traces() -> BTreeMap<String, (Trace, Value)> {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    let traces = fixture["traces"].as_object().unwrap();
    let read =
        |(name, value): (&String, &Value)| (name.clone(), (Trace::from_json(value), value.clone()));
    traces.iter().map(read).collect()
}

#[test]
fn a_short_trace_tells_each_policy_from_all_others() {
    let policies = every_policy();
    let traces = traces();
    let known: BTreeSet<&String> = policies.iter().collect();
    assert_eq!(
        traces.keys().collect::<BTreeSet<_>>(),
        known,
        "run the test `write_the_telling_traces` for a new policy"
    );
    for (policy, (trace, written)) in &traces {
        assert!(trace.demands.len() <= MOST, "{policy}");
        let (misses, resident) = trace.play(policy);
        assert_eq!(written["misses"], misses, "{policy}");
        let listed = written["resident"].as_array().unwrap().iter();
        let pair = |at: &Value, part: usize| u16::try_from(at[part].as_u64().unwrap()).unwrap();
        let listed: BTreeSet<_> = listed.map(|at| key(pair(at, 0), pair(at, 1))).collect();
        assert_eq!(listed, resident, "{policy}");
        for other in policies.iter().filter(|other| *other != policy) {
            let found = trace.play(other);
            assert_ne!(found, (misses, resident.clone()), "{policy} and {other} are alike");
        }
    }
}

#[test]
fn no_two_policies_give_equal_counts_on_all_bundled_traces() {
    let traces = traces();
    let mut seen: BTreeMap<Vec<u64>, String> = BTreeMap::new();
    for policy in every_policy() {
        let mut counts: Vec<u64> =
            traces.values().map(|(trace, _)| trace.play(&policy).0).collect();
        counts.extend(goldens::key_misses(&policy, &[100, 336]));
        counts.extend(goldens::routed_misses(&policy, 202));
        if let Some(other) = seen.insert(counts, policy.clone()) {
            panic!("{policy} and {other} give equal counts on every bundled trace");
        }
    }
}

/// Finds the traces and writes the fixture:
/// `cargo test -p slotstream-cache --test it -- --ignored write_the_telling_traces`.
#[test]
#[ignore = "a tool: it writes a fixture"]
fn write_the_telling_traces() {
    let policies = every_policy();
    let mut text = String::from("{\n \"how\": \"");
    text += "found by a random search and shortened, by the ignored test write_the_telling_traces; \
             demands are (pass, layer, expert)\",\n \"traces\": {\n";
    for (at, policy) in policies.iter().enumerate() {
        let trace = found(policy, &policies);
        let comma = if at + 1 < policies.len() { "," } else { "" };
        writeln!(text, "  {:?}: {}{comma}", policy, trace.to_json(policy)).unwrap();
    }
    text += " }\n}\n";
    std::fs::write(PATH, text).unwrap();
}

fn found(policy: &str, others: &[String]) -> Trace {
    let mut dice = Dice(1);
    for _ in 0..200_000 {
        let trace = any_trace(&mut dice);
        if trace.tells(policy, others) {
            return shortened(trace, policy, others);
        }
    }
    panic!("no trace tells {policy} from the others");
}

/// Without the demands that are not needed.
fn shortened(mut trace: Trace, policy: &str, others: &[String]) -> Trace {
    for at in (0..trace.demands.len()).rev() {
        let mut shorter = trace.clone();
        shorter.demands.remove(at);
        if shorter.tells(policy, others) {
            trace = shorter;
        }
    }
    trace
}

/// Single keys of one layer, or routes of several, each a popular expert or any.
fn any_trace(dice: &mut Dice) -> Trace {
    let layers = 1 + dice.below(3) as u16;
    let top_k = if layers == 1 { 1 } else { 1 + dice.below(2) as u16 };
    // The floor of a model of few experts is a route or two; of more, it is a pool to speak of.
    let experts = if dice.below(2) == 0 { 64 } else { 6 + dice.below(6) as u16 };
    let slots = usize::from(layers * top_k).max(2) + dice.below(4);
    let mut demands = Vec::new();
    let popular = 2 + dice.below(4);
    let skipped = dice.below(4);
    for pass in 0.. {
        for of in 0..layers {
            let mut route = BTreeSet::new();
            while route.len() < usize::from(top_k) {
                let below = if dice.below(3) > 0 { popular } else { usize::from(experts.min(11)) };
                route.insert(dice.below(below) as u16);
            }
            if demands.len() + route.len() > MOST {
                return Trace { layers, experts, top_k, slots, demands };
            }
            // A layer is not always visited: models skip none, but a trace may.
            if dice.below(4) >= skipped {
                demands.extend(route.into_iter().map(|expert| (pass, of, expert)));
            }
        }
    }
    unreachable!("the trace is full at some time")
}

/// Numbers for the search.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}
