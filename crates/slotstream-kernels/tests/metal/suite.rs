//! All cases, and the emulator that runs them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use slotstream_emulator::Emulator;
use slotstream_kernels::metal::LIBRARIES;

use crate::case::Case;
use crate::{affine, attention, bf16, conv, delta, experts, hyper, norm, ple, rope, route, select};

/// The cases of a file.
type Cases = fn() -> Vec<Case>;

const ALL: &[(&str, Cases)] = &[
    ("affine", affine::cases),
    ("attention", attention::cases),
    ("bf16", bf16::cases),
    ("conv", conv::cases),
    ("delta", delta::cases),
    ("experts", experts::cases),
    ("hyper", hyper::cases),
    ("norm", norm::cases),
    ("ple", ple::cases),
    ("rope", rope::cases),
    ("route", route::cases),
    ("sample", route::samples),
    ("select", select::cases),
];

static EMULATOR: LazyLock<Emulator> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulator");
    match Emulator::new(LIBRARIES, &folder) {
        Ok(emulator) => emulator,
        Err(error) => panic!("{error}"),
    }
});

/// Runs the cases of one file.
pub(crate) fn run(cases: Cases) {
    let wrong: Vec<String> = cases().iter().filter_map(|case| case.run(&EMULATOR).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_case_has_a_plan_within_the_limits() {
    // `Dispatch::launch` checks them: a case without a plan does not come about.
    for (file, cases) in ALL {
        let launches: usize = cases().iter().map(|case| case.launches.len()).sum();
        assert!(launches > 0, "{file}");
    }
}

#[test]
#[ignore = "needs clang >= 19"]
fn every_kernel_is_in_a_case() {
    let launched: BTreeSet<&str> = ALL
        .iter()
        .flat_map(|(_, cases)| cases())
        .flat_map(|case| case.launches)
        .map(|launch| launch.kernel())
        .collect();
    assert_eq!(EMULATOR.kernels().collect::<BTreeSet<_>>(), launched);
}
