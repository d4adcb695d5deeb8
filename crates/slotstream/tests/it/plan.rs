//! The memory plan.

use slotstream::checkpoint::Checkpoint;
use slotstream::core::ErrorKind;
use slotstream::machine::Machine;
use slotstream::{
    DeviceKind, Engine, EngineBuilder, Error, MemoryPlan, PlanRequest, SessionOptions, Sizing,
};
use slotstream_replay::{Shadows, Shared};
use slotstream_testkit::checkpoint::{CheckpointSpec, published_config};

use crate::rig::{builder, tiny_model};

#[test]
fn rows_are_all_there_and_add_up() {
    let plan = builder().plan().expect("fits");
    let names: Vec<_> = plan.rows.iter().map(|row| row.name).collect();
    let expected = [
        "pool",
        "fixed",
        "prefill workspace",
        "sweep staging",
        "draft head",
        "lookahead",
        "retained state",
        "checkpoints",
        "gpu",
        "margin",
    ];
    assert_eq!(names, expected);
    assert_eq!(plan.slots, 201);
    assert_eq!(plan.rows[0].bytes, 201 * 32_768);
    assert_eq!(plan.total_bytes(), plan.rows.iter().map(|row| row.bytes).sum::<u64>());
    let text = plan.to_string();
    assert!(expected.iter().all(|name| text.contains(name)) && text.contains("planned peak"));
}

#[test]
fn a_budget_buys_slots_or_is_refused_with_the_arithmetic() {
    let rich = builder().sizing(Sizing::Memory(4 << 30)).plan().expect("fits");
    assert_eq!(rich.slots, 672, "no more slots than records");
    let fixed = rich.total_bytes() - rich.rows[0].bytes;
    // The process grows between two plans, so leave room for it.
    let budget = fixed + (100 << 20);
    let plan = builder().sizing(Sizing::Memory(budget)).plan().expect("fits");
    assert!(plan.total_bytes() <= budget && plan.slots >= 18);
    let error = builder().sizing(Sizing::Memory(1 << 20)).plan().expect_err("too little");
    assert_eq!(error.kind(), ErrorKind::User);
    let Error::Budget { budget, floor_slots, floor_bytes, .. } = &error else { panic!("{error}") };
    assert_eq!((*budget, *floor_slots, *floor_bytes), (1 << 20, 18, 18 * 32_768));
    assert!(error.to_string().contains("18 slots x 32768 bytes"), "{error}");
}

/// On a Mac it is opened when the engine is built.
#[cfg(not(target_os = "macos"))]
#[test]
fn metal_is_there_on_macs_only() {
    let engine = Engine::builder(tiny_model()).device(DeviceKind::Metal);
    let error = engine.plan().expect_err("this is no Mac");
    assert!(matches!(error, Error::Device { device: "metal", .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.to_string().contains("Macs only"), "{error}");
}

#[test]
fn illegal_options_are_named() {
    let floor = builder().sizing(Sizing::Slots(17)).plan().expect_err("below the floor");
    assert!(floor.to_string().contains("18"), "{floor}");
    let cases: [(&str, Result<_, Error>); 7] = [
        ("share", builder().sizing(Sizing::Share(1.5)).plan()),
        ("share", builder().sizing(Sizing::Share(f64::NAN)).plan()),
        ("lanes", builder().lanes(0).plan()),
        ("threads", builder().threads(5000).plan()),
        ("chunk", builder().chunk(0).plan()),
        ("context", builder().context(1 << 20).plan()),
        ("rollback", builder().rollback_rows(9).plan()),
    ];
    for (word, result) in cases {
        let error = result.expect_err(word);
        assert_eq!(error.kind(), ErrorKind::User);
        assert!(error.to_string().contains(word), "{error}");
    }
    let missing = Engine::builder(tiny_model().join("nowhere")).build().expect_err("no folder");
    assert!(missing.to_string().contains("nowhere"), "{missing}");
}

/// The headers of the published shape, without payload.
struct Published(tempfile::TempDir);

impl Published {
    fn write() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        CheckpointSpec::new(published_config()).write_sparse(folder.path()).expect("writes");
        Self(folder)
    }

    fn builder(&self) -> EngineBuilder {
        Engine::builder(self.0.path()).threads(2)
    }

    fn on(&self, gib: u64) -> Result<MemoryPlan, Error> {
        self.builder().machine(Machine::simulated(gib << 30)).plan()
    }
}

/// Planned anywhere: the GPU is a figure.
#[test]
fn a_gpu_has_a_row_and_its_working_set_is_the_limit() {
    let published = Published::write();
    let checkpoint = Checkpoint::open(published.0.path()).expect("headers");
    let plan = |device, working_set| {
        let machine = Machine::simulated(64 << 30).with_working_set(working_set);
        let mut request = PlanRequest::new(machine);
        (request.device, request.lanes) = (device, 8);
        MemoryPlan::new(&checkpoint, &request)
    };
    let mac = plan(DeviceKind::Metal, 10 << 30).expect("fits");
    let budget = mac.budget.clone().expect("a machine has one");
    assert_eq!(budget.bytes, 8 << 30);
    assert!(budget.why.contains("the GPU's working set less 2 GiB"), "{}", budget.why);
    assert!(mac.total_bytes() <= budget.bytes && mac.slots >= mac.floor_slots, "{mac}");
    // What is read and not yet copied, and activations in buffers that are too large.
    let landing = 8 * mac.slot_bytes;
    assert_eq!(mac.row_bytes("gpu"), mac.row_bytes("prefill workspace") + landing, "{mac}");
    assert!(mac.to_string().contains("recommends 10737418240"), "{mac}");
    let cpu = plan(DeviceKind::Cpu, 10 << 30).expect("fits");
    assert_eq!(cpu.row_bytes("gpu"), 0);
    assert!(cpu.slots > mac.slots);
    let error = plan(DeviceKind::Metal, 4 << 30).expect_err("2 GiB are left");
    assert!(matches!(error, Error::Budget { budget: 2_147_483_648, .. }), "{error}");
}

#[test]
fn the_published_shape_on_machines_of_all_sizes() {
    let published = Published::write();
    let mut slots = 0;
    for gib in [12, 16, 24, 32, 48, 64] {
        let plan = published.on(gib).expect("fits");
        let budget = plan.budget.clone().expect("a machine has one");
        assert_eq!(budget.bytes, (gib << 30) / 10 * 7);
        assert!(plan.total_bytes() <= budget.bytes, "{gib} GiB: {plan}");
        // Whatever is left is less than a slot and a step of the context.
        let step = 256 * plan.row_bytes("retained state") / plan.context as u64;
        assert!(plan.total_bytes() + plan.slot_bytes + step > budget.bytes, "{gib} GiB: {plan}");
        assert!(plan.slots > slots && plan.slots >= plan.floor_slots, "{gib} GiB: {plan}");
        slots = plan.slots;
        // The longer context costs no more than a sixteenth of what it and the pool have, beside the
        // recurrent state.
        let state = plan.row_bytes("retained state");
        assert!(plan.context >= 4096 && state < (state + plan.row_bytes("pool")) / 8, "{plan}");
    }
    let rich = published.on(256).expect("fits");
    assert_eq!((rich.slots, rich.context), (24_576, 262_144), "everything that there is");
}

#[test]
fn a_small_machine_gets_shorter_passes_before_a_shorter_context() {
    let published = Published::write();
    // A process that has nothing yet: a real one grows meanwhile.
    let machine = Machine::default();
    let published = || published.builder().checkpoints(0);
    let usual = published().sizing(Sizing::PerLayer(14)).machine(machine).plan();
    let usual = usual.expect("asked for");
    assert_eq!((usual.slots, usual.context, usual.chunk), (48 * 14, 4096, 512));
    assert!((usual.experts_per_layer() - 14.0).abs() < 1e-9);
    // Room for the floor, and not for passes of 512 rows.
    let floor = usual.total_bytes() - (usual.slots - usual.floor_slots) as u64 * usual.slot_bytes;
    let builder = |bytes| published().sizing(Sizing::Memory(bytes)).machine(machine);
    let tight = builder(floor - (20 << 20)).plan().expect("with shorter passes");
    assert!(tight.chunk < 512 && tight.context == 4096, "{tight}");
    let asked = builder(floor - (20 << 20)).chunk(512).plan().expect("with a shorter context");
    assert!(asked.chunk == 512 && asked.context < 4096, "what was asked for stays: {asked}");
    let both = builder(floor - (20 << 20)).chunk(512).context(4096).plan();
    assert!(matches!(both, Err(Error::Budget { .. })), "what was asked for is not changed");
    let Err(Error::Budget { plan, budget, fixed, floor_bytes, .. }) = builder(1 << 30).plan()
    else {
        panic!("1 GiB is too little");
    };
    assert_eq!((plan.chunk, plan.context), (64, 1024), "the smallest plan is told");
    assert!(budget == 1 << 30 && fixed + floor_bytes == plan.total_bytes());
}

/// More memory gives no fewer slots, rows or tokens, whatever was asked for.
#[test]
fn more_memory_never_gives_less() {
    let published = Published::write();
    let published = Checkpoint::open(published.0.path()).expect("legal");
    let tiny = Checkpoint::open(&tiny_model()).expect("legal");
    let (mib, gib) = (1_u64 << 20, 1_u64 << 30);
    // From too little to more than everything; steps of some slots where things change.
    let near = |from, to, step: u64| (from..to).step_by(step as usize).collect::<Vec<u64>>();
    let mut large = near(3 * gib, 7 * gib, 5 * mib);
    large.extend(near(7 * gib, 120 * gib, 1031 * mib));
    large.extend([u64::MAX - 1, u64::MAX]);
    let small = near(20 * mib, 600 * mib, mib / 3);
    type Ask = fn(&mut PlanRequest);
    let nothing: Ask = |_| ();
    let cases: [(&Checkpoint, &[u64], Ask); 7] = [
        (&published, &large, nothing),
        (&published, &large, |ask| ask.chunk = Some(200)),
        (&published, &large, |ask| ask.context = Some(3000)),
        (&published, &large, |ask| {
            (ask.chunk, ask.sessions, ask.rollback_rows) = (Some(512), 3, 2);
            ask.sink_bytes_a_token = 4000;
        }),
        (&tiny, &small, nothing),
        (&tiny, &small, |ask| ask.chunk = Some(33)),
        (&tiny, &small, |ask| ask.context = Some(1000)),
    ];
    for (number, (checkpoint, budgets, ask)) in cases.into_iter().enumerate() {
        let mut before: Option<MemoryPlan> = None;
        let mut refused = 0;
        for bytes in budgets {
            let mut request = PlanRequest::new(Machine::default());
            (request.sizing, request.threads) = (Sizing::Memory(*bytes), 2);
            ask(&mut request);
            let plan = match MemoryPlan::new(checkpoint, &request) {
                Ok(plan) => plan,
                Err(Error::Budget { .. }) if before.is_none() => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("case {number}, {bytes}: {error}"),
            };
            assert!(plan.total_bytes() <= *bytes, "case {number}, {bytes}: {plan}");
            assert!(plan.slots >= plan.floor_slots && plan.chunk <= plan.context);
            if let Some(before) = &before {
                let grew = [
                    plan.slots >= before.slots,
                    plan.chunk >= before.chunk,
                    plan.context >= before.context,
                ];
                assert_eq!(grew, [true; 3], "case {number}, {bytes}:\n{before}\n{plan}");
            }
            before = Some(plan);
        }
        let last = before.expect("the largest fits");
        assert!(refused > 0, "case {number} never was too small");
        assert_eq!(last.slots, last.records, "case {number}: {last}");
    }
}

#[test]
fn shadows_are_in_the_plan() {
    let fixed = |builder: EngineBuilder| {
        // The process grows meanwhile: a machine of its own has none.
        let plan = builder.machine(Machine::default()).plan().expect("fits");
        plan.row_bytes("fixed")
    };
    let without = fixed(builder());
    let with = |name: &str| {
        let mut shadows = Shadows::new();
        shadows.add_named(name).expect("a name");
        let shadows = Shared::new(shadows);
        fixed(builder().sink(Box::new(shadows))) - without
    };
    assert!(with("lru") > 0 && with("analogue") > with("lru"));
    // Six experts of twelve layers, for each of 1,024 tokens.
    assert!(with("opt") >= 1024 * 12 * 6 * 8);
}

#[test]
fn sessions_hold_no_more_state_than_was_planned() {
    let machine = Machine::default();
    let all = builder().sizing(Sizing::Share(1.0)).machine(machine).plan().expect("fits");
    // Room for every record, one session, and a short one.
    let budget = Sizing::Memory(all.total_bytes() + (2 << 20));
    let engine = builder().sizing(budget).machine(machine).build().expect("builds");
    assert_eq!(engine.plan().slots, 672);
    let tokens: Vec<u32> = (0..900).map(|i| i % 4000).collect();
    let mut first = engine.session(SessionOptions::new()).expect("planned");
    first.prefill(&tokens).expect("planned");
    let mut second = engine.session(SessionOptions::new()).expect("a small one");
    let refused = second.prefill(&tokens).expect_err("no room for a second one of that length");
    assert!(matches!(refused, Error::State { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::User);
    drop((first, second));
    let mut third = engine.session(SessionOptions::new()).expect("planned");
    third.prefill(&tokens).expect("now there is room");
}
