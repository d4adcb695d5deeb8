//! The memory plan.

#[cfg(not(target_os = "macos"))]
use slotstream::DeviceKind;
use slotstream::core::ErrorKind;
use slotstream::{Engine, Error, Sizing};

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
