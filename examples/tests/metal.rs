//! The self-check's own part, with the emulator in place of a GPU.

#[path = "../../crates/slotstream-qwen/tests/metal/encoder.rs"]
mod encoder;

use slotstream::ops::PlanEncoder;
use slotstream_examples::metal_selfcheck::{kernels, tensors};
use slotstream_kernel_cases::{Case, FAMILIES, Family};

use encoder::Emulated;

/// What the larger cases need is left out.
const MOST_BYTES: usize = 2 << 20;

#[test]
#[ignore = "needs clang >= 19"]
fn every_kernel_passes_the_self_check() {
    let encoder = Emulated::new();
    for family in FAMILIES {
        let checked = kernels::check(&*encoder, family, MOST_BYTES);
        assert_eq!(checked.wrong, [""; 0], "{}", family.name);
        assert!(checked.right > 5 && checked.max_error < 1e-2, "{checked:?}");
    }
}

/// A case with what another one is to give.
fn mixed_up() -> Vec<Case> {
    let norm = FAMILIES.iter().find(|family| family.name == "norm").expect("a family");
    let mut cases = (norm.cases)();
    cases.truncate(2);
    cases.iter_mut().for_each(Case::spoil);
    cases
}

#[test]
#[ignore = "needs clang >= 19"]
fn a_wrong_result_is_told() {
    let family = Family::new("norm", mixed_up);
    let checked = kernels::check(&*Emulated::new(), &family, MOST_BYTES);
    assert_eq!((checked.right, checked.wrong.len()), (0, 2), "{checked:?}");
    assert!(checked.wrong[0].contains("norm 1 x 1 x 1: result 0: value 0 is"), "{checked:?}");
}

#[test]
#[ignore = "needs clang >= 19"]
fn an_operation_is_timed_and_compared() {
    let encoder = Emulated::new();
    let copy_gb_s = kernels::copy_gb_s(&*encoder, 1 << 20, 2).expect("copies");
    let norm = FAMILIES.iter().find(|family| family.name == "norm").expect("a family");
    let case = &(norm.timed)()[0];
    let timed = kernels::time(&*encoder, case, 2, copy_gb_s).expect("it runs");
    assert!(timed.max_error.is_some_and(|error| error < 1e-5), "{timed:?}");
    // In, weights and out.
    assert_eq!((timed.launches, timed.bytes), (1, 3 * 4 * 4 * 2560));
    assert!(timed.us > 0.0 && timed.gb_s > 0.0 && timed.share > 0.0, "{timed:?}");
}

#[test]
#[ignore = "needs clang >= 19"]
fn the_tensor_operations_are_compared() {
    let operations = tensors::check(Emulated::new().device());
    assert!(operations.len() > 10 && operations.iter().all(|one| one.right), "{operations:?}");
}
