//! What no plan may ask for.

use slotstream_core::AffineFormat;
use slotstream_kernels::metal::{
    AffineView, Dispatch, Element, MAX_BUFFERS, MAX_CONSTANTS, MAX_THREADGROUP_MEMORY, MAX_THREADS,
    NORM, PlanError, View, affine_matmul, grouped_rms_norm,
};

const VIEW: View<()> = View::new((), 0, 1 << 20);

fn plan() -> Dispatch<()> {
    Dispatch::new(&NORM, "grouped_rms_norm")
}

fn limited(result: Result<Dispatch<()>, PlanError>, of: &str) {
    match result {
        Err(PlanError::Limit { what, .. }) => assert_eq!(what, of),
        other => panic!("{of}: {other:?}"),
    }
}

#[test]
fn a_launch_keeps_the_limits_of_the_device() {
    let full = |buffers| (0..buffers).fold(plan(), |plan, _| plan.input(VIEW));
    assert!(full(MAX_BUFFERS).launch([1; 3], MAX_THREADS).is_ok());
    limited(full(MAX_BUFFERS + 1).launch([1; 3], 32), "buffers");
    // The constants take an index, too.
    limited(full(MAX_BUFFERS).with_constants(vec![0; 4]).launch([1; 3], 32), "buffers");
    let constants = vec![0; MAX_CONSTANTS + 1];
    limited(plan().with_constants(constants).launch([1; 3], 32), "bytes of constants");

    let memory = MAX_THREADGROUP_MEMORY as usize;
    assert!(plan().with_threadgroup_memory(memory).launch([1; 3], 32).is_ok());
    for memory in [memory + 1, usize::MAX / 2] {
        let result = plan().with_threadgroup_memory(memory).launch([1; 3], 32);
        limited(result, "bytes of threadgroup memory");
    }
    limited(plan().launch([1; 3], 0), "threads");
    limited(plan().launch([1; 3], MAX_THREADS + 32), "threads");
    assert!(matches!(plan().launch([1; 3], 33), Err(PlanError::Simdgroups { threads: 33, .. })));

    assert!(plan().launch([u32::MAX as usize / 64, 1, 1], 64).is_ok());
    for grid in [[0, 1, 1], [1, 0, 1], [u32::MAX as usize / 64 + 1, 1, 1], [1, 1, 1 << 32]] {
        limited(plan().launch(grid, 64), "threadgroups");
    }
}

#[test]
fn arguments_are_long_enough_and_aligned() {
    let floats = |offset, len: usize| View::new((), offset, 4 * len);
    let norm = |x, weight, out| grouped_rms_norm(2, 3, 5, 1e-6, x, weight, out);
    assert!(norm(floats(0, 30), floats(4, 15), floats(8, 30)).is_ok());
    for (argument, result) in [
        ("x", norm(floats(0, 29), floats(0, 15), floats(0, 30))),
        ("weight", norm(floats(0, 30), floats(0, 14), floats(0, 30))),
        ("out", norm(floats(0, 30), floats(0, 15), floats(0, 29))),
    ] {
        assert!(
            matches!(&result, Err(PlanError::Length { argument: of, .. }) if *of == argument),
            "{argument}: {result:?}"
        );
    }
    let result = norm(floats(2, 30), floats(0, 15), floats(0, 30));
    assert!(matches!(
        result,
        Err(PlanError::Alignment { argument: "x", offset: 2, wanted: 4, .. })
    ));
}

#[test]
fn only_what_there_are_kernels_for() {
    let product = |bits, group, cols| {
        let format = AffineFormat::new(bits, group).expect("a format");
        let w = AffineView { format, rows: 8, cols, weight: VIEW, scales: VIEW, biases: VIEW };
        affine_matmul(Element::F32, 1, VIEW, &w, VIEW)
    };
    assert!(product(4, 32, 96).is_ok() && product(4, 64, 640).is_ok());
    for (bits, group) in [(8, 64), (4, 128), (8, 32)] {
        assert!(matches!(product(bits, group, 640), Err(PlanError::Format { .. })));
    }
    assert!(matches!(product(4, 64, 96), Err(PlanError::Parts { of: 96, part: 64, .. })));
    // Nothing to do is no launch.
    let w = AffineView {
        format: AffineFormat::Q4_G64,
        rows: 8,
        cols: 64,
        weight: VIEW,
        scales: VIEW,
        biases: VIEW,
    };
    limited(affine_matmul(Element::F32, 0, VIEW, &w, VIEW), "threadgroups");
}
