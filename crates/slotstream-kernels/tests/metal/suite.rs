//! All cases on the emulator, in every order.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use slotstream_emulator::{Emulator, Order};
use slotstream_kernel_cases::{Case, FAMILIES};
use slotstream_kernels::metal::{Dispatch, LIBRARIES};

static EMULATOR: LazyLock<Emulator> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulator");
    match Emulator::new(LIBRARIES, &folder) {
        Ok(emulator) => emulator,
        Err(error) => panic!("{error}"),
    }
});

/// Runs a case in every order: the results are right, and the same to the bit. Else says what is
/// wrong.
fn run(case: &Case) -> Result<(), String> {
    let run = |order| {
        let results = EMULATOR.run(case.memory(), case.launches(), &case.results(), order);
        results.map_err(|error| format!("{}, {order:?}: {error}", case.name()))
    };
    let normal = run(Order::Normal)?;
    case.check(&normal).map_err(|what| format!("{}: {what}", case.name()))?;
    for order in [Order::Reversed, Order::Random { seed: 7 }] {
        if run(order)? != normal {
            return Err(format!("{}: {order:?} gives other bits", case.name()));
        }
    }
    Ok(())
}

fn run_family(name: &str) {
    let family = FAMILIES.iter().find(|family| family.name == name).expect("a family");
    let wrong: Vec<String> = (family.cases)().iter().filter_map(|case| run(case).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One test for each family, so that they run beside each other.
macro_rules! families {
    ($($name:ident)*) => {
        $(
            #[test]
            #[ignore = "needs clang >= 19"]
            fn $name() {
                run_family(stringify!($name));
            }
        )*

        #[test]
        fn every_family_has_a_test() {
            let names: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

families! { affine attention bf16 conv delta experts hyper norm ple rope route sample select }

#[test]
fn every_case_has_a_plan_within_the_limits() {
    // `Dispatch::launch` checks them: a case without a plan does not come about.
    for family in FAMILIES {
        for cases in [family.cases, family.timed] {
            let launches: usize = cases().iter().map(|case| case.launches().len()).sum();
            assert!(launches > 0, "{}", family.name);
        }
    }
}

#[test]
#[ignore = "needs clang >= 19"]
fn every_kernel_is_in_a_case() {
    let cases: Vec<Case> = FAMILIES.iter().flat_map(|family| (family.cases)()).collect();
    let launched: BTreeSet<&str> =
        cases.iter().flat_map(Case::launches).map(Dispatch::kernel).collect();
    assert_eq!(EMULATOR.kernels().collect::<BTreeSet<_>>(), launched);
}
