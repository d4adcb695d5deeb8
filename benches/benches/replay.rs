//! Lookups a second that the simulator replays through the engine's pool, in processor time.
//!
//! The shape is that of the 48 x 512 model, 10 keys a batch; 7,509 slots hold 30.6% of its 24,576
//! records.

use std::{hint::black_box, time::Duration};

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use slotstream_benches::processor_time;
use slotstream_cache::{Clock, Lru};
use slotstream_core::{Attached, EventSink, EvictionPolicy, Geometry};
use slotstream_replay::{
    Opt, Phases, Requests, Shadows, Simulation, Synthetic, all_policies, named_policy,
};

const SLOTS: usize = 7509;

/// Measures [`processor_time`]; shown as times are.
struct ProcessorTime;

static WALL_TIME: WallTime = WallTime;

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        processor_time()
    }

    fn end(&self, begun: Duration) -> Duration {
        processor_time() - begun
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, time: &Duration) -> f64 {
        WALL_TIME.to_f64(time)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WALL_TIME.formatter()
    }
}

fn requests() -> Requests {
    let geometry = Geometry::new(48, 512, 10).expect("a legal shape");
    Synthetic::new(0.6, 1.6, 60.0).expect("legal knobs").passes(1500).requests(geometry)
}

fn misses<P: EvictionPolicy>(requests: &Requests, policy: P) -> u64 {
    let run = Simulation::new(SLOTS).run(requests, policy).expect("a lawful policy");
    run.count(Phases::All).lookups.misses
}

fn replay(criterion: &mut Criterion<ProcessorTime>) {
    let requests = requests();
    let mut group = criterion.benchmark_group("replay");
    group
        .throughput(Throughput::Elements(requests.lookups()))
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    group.bench_function("clock", |b| b.iter(|| misses(black_box(&requests), Clock::new())));
    group.bench_function("lru", |b| b.iter(|| misses(black_box(&requests), Lru::new())));
    group.bench_function("opt", |b| b.iter(|| misses(black_box(&requests), Opt::new(&requests))));
    group.finish();
    // As a command line names them: behind a pointer.
    let mut group = criterion.benchmark_group("named");
    group
        .throughput(Throughput::Elements(requests.lookups()))
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2));
    for name in all_policies() {
        group.bench_function(&name, |b| {
            b.iter(|| {
                let policy = named_policy(&name, &requests).expect("known");
                misses(black_box(&requests), policy)
            });
        });
    }
    group.finish();
}

/// Processor time that one shadow costs a live engine for each decoded token.
fn shadow(criterion: &mut Criterion<ProcessorTime>) {
    let requests = requests();
    let mut group = criterion.benchmark_group("shadow, a token");
    group
        .throughput(Throughput::Elements(requests.passes().len() as u64))
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    for policy in all_policies().into_iter().filter(|name| name != "opt") {
        group.bench_function(&policy, |b| b.iter(|| watch(black_box(&requests), &policy)));
    }
    group.finish();
}

fn watch(requests: &Requests, policy: &str) -> usize {
    let mut shadows = Shadows::new();
    shadows.add_named(policy).expect("known");
    let geometry = *requests.geometry();
    let pool = Attached { geometry, record_bytes: 0, slots: SLOTS, floor: 640, policy: "none" };
    shadows.on_attach(&pool);
    for pass in requests.passes() {
        let step = pass.step();
        shadows.on_step(&step);
        pass.visits().for_each(|visit| shadows.on_routing(&visit.routing(&step)));
    }
    shadows.reports().expect("nothing to replay").len()
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(ProcessorTime);
    targets = replay, shadow
}
criterion_main!(benches);
