//! Lists of jobs of expert MLPs.

use slotstream_core::{AffineFormat, ExpertShape, RecordLayout};
use slotstream_kernels::metal::{ExpertJobs, ExpertViews, SlotJob, View, expert_mlp};

#[test]
fn no_rows_are_no_launch_and_lists_are_checked() {
    let layout =
        RecordLayout::new(ExpertShape::new(64, 64, AffineFormat::Q4_G64).expect("a shape"));
    let view = View::new((), 0, 1 << 20);
    let views =
        ExpertViews { slots: view, jobs: view, batches: view, x: view, act: view, out: view };
    let plan = |jobs: &[SlotJob<'_>]| {
        let lists = ExpertJobs::new(jobs).expect("a place a row");
        expert_mlp(&layout, &lists, 4, (3, 6), &views)
    };
    assert_eq!(plan(&[]), Ok(Vec::new()));
    assert_eq!(plan(&[SlotJob { slot: 0, rows: &[], places: &[] }]), Ok(Vec::new()));
    assert_eq!(plan(&[SlotJob { slot: 3, rows: &[2], places: &[5] }]).map(|p| p.len()), Ok(2));
    for job in [
        SlotJob { slot: 4, rows: &[2], places: &[5] },
        SlotJob { slot: 3, rows: &[3], places: &[5] },
        SlotJob { slot: 3, rows: &[2], places: &[6] },
    ] {
        assert!(plan(&[job]).is_err(), "{job:?}");
    }
    assert!(ExpertJobs::new(&[SlotJob { slot: 0, rows: &[0, 1], places: &[0] }]).is_err());
}
