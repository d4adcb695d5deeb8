//! The way of a record into its slot: it is visible when its last piece has landed, and whoever
//! waits for it waits for all of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slotstream_core::{ErrorKind, Matrix, PIECE_ORDER, Part};

use crate::explore::explore;
use crate::rig::Rig;
use crate::{Error, ExpertProvider, ExpertsError};

/// The piece that a failed pass names.
fn failed_piece(error: Error) -> (u16, Matrix, Part, ErrorKind) {
    let kind = error.kind();
    let Error::Provider { source, .. } = error else { panic!("another error: {error}") };
    match *source.downcast::<ExpertsError>().expect("the provider's own") {
        ExpertsError::Read { key, matrix, part, .. } => (key.expert().get(), matrix, part, kind),
        other => panic!("another error: {other}"),
    }
}

#[test]
fn records_are_computed_whole() {
    explore(5, 1000, || {
        let mut rig = Rig::new(1, 2);
        rig.demand(&[3]).expect("a lawful demand");
        assert!(!rig.is_resident(3), "it is claimed, and nobody has published it");
        rig.compute().expect("its record is read");
        assert_eq!(rig.take_seen(), [3]);
        rig.experts.end_pass();
        rig.assert_sound();
        assert!(rig.is_resident(3));
    });
}

#[test]
fn two_records_land_in_any_order() {
    explore(3, 1000, || {
        let mut rig = Rig::new(2, 4);
        rig.demand(&[3, 1]).expect("a lawful demand");
        rig.compute().expect("its records are read");
        assert_eq!(rig.take_seen(), [1, 3]);
        rig.experts.end_pass();
        rig.assert_sound();
    });
}

/// Whichever thread fails first, the error is that of the lowest piece; by then every other
/// piece has landed and the slot can be used again.
#[test]
fn a_failed_record_is_joined_before_its_slot_is_free() {
    explore(4, 1000, || {
        let mut rig = Rig::new(1, 2);
        rig.pass_at_once(&[0]);
        rig.lanes.failing.lock().expect("one at a time").extend([16 + 5, 16 + 2]);
        rig.demand(&[1]).expect("a lawful demand");
        let (expert, matrix, part, kind) = failed_piece(rig.compute().expect_err("it fails"));
        assert_eq!((expert, (matrix, part)), (1, PIECE_ORDER[2]));
        assert_eq!(kind, ErrorKind::Transient);
        rig.assert_sound();
        assert!(rig.is_resident(0) && !rig.is_resident(1));
        assert_eq!(rig.take_seen(), [0], "nothing of a failed record is computed");
        rig.experts.end_pass();
        rig.lanes.failing.lock().expect("one at a time").clear();
        rig.pass_at_once(&[1]);
        assert_eq!(rig.take_seen(), [1]);
    });
}

/// A queue that drops jobs unread does not leave the provider waiting.
#[test]
fn dropped_jobs_are_failed_reads() {
    explore(4, 1000, || {
        let mut rig = Rig::new(1, 2);
        rig.lanes.dropped.lock().expect("one at a time").extend([0, 1, 8]);
        rig.demand(&[0]).expect("a lawful demand");
        let (expert, matrix, part, kind) = failed_piece(rig.compute().expect_err("it fails"));
        assert_eq!((expert, (matrix, part), kind), (0, PIECE_ORDER[0], ErrorKind::Cancelled));
        rig.assert_sound();
        assert!(!rig.is_resident(0));
    });
}

/// A pass that ends between demand and compute cancels what has not begun and waits for the
/// rest. What arrived whole may stay.
#[test]
fn a_pass_that_ends_early_joins_its_reads() {
    explore(4, 1000, || {
        let mut rig = Rig::new(1, 2);
        rig.demand(&[2]).expect("a lawful demand");
        rig.experts.end_pass();
        rig.assert_sound();
        rig.pass_at_once(&[2]);
        assert_eq!(rig.take_seen(), [2]);
    });
}

#[test]
fn a_dropped_provider_joins_its_reads() {
    explore(4, 1000, || {
        let mut rig = Rig::new(1, 2);
        rig.demand(&[2]).expect("a lawful demand");
        let lanes = Arc::clone(&rig.lanes);
        drop(rig);
        lanes.assert_all_ended();
    });
}

/// An op panics on a resident record while another is on its way.
#[test]
fn a_panic_while_records_land_loses_none_of_them() {
    explore(4, 1000, || {
        let mut rig = Rig::new(2, 4);
        rig.pass_at_once(&[0, 1]);
        rig.demand(&[0, 2]).expect("a lawful demand");
        rig.checks.panics.store(true, Ordering::SeqCst);
        let unwound = catch_unwind(AssertUnwindSafe(|| rig.compute()));
        assert!(unwound.is_err(), "the op panics");
        rig.checks.panics.store(false, Ordering::SeqCst);
        // What an engine does after a panic.
        rig.experts.clear();
        rig.assert_sound();
        rig.take_seen();
        rig.pass_at_once(&[2, 0]);
        assert_eq!(rig.take_seen(), [0, 2]);
    });
}

#[test]
fn a_swept_record_is_computed_whole_and_leaves_no_trace() {
    explore(4, 1000, || {
        let mut rig = Rig::sweeping(1, 2);
        rig.demand(&[3]).expect("a lawful demand");
        rig.compute().expect("its record is read");
        assert_eq!(rig.take_seen(), [3]);
        rig.experts.end_pass();
        rig.assert_sound();
        assert!(!rig.is_resident(3));
    });
}

/// By the time a sweep fails every read of it has ended, so its memory can be lent again.
#[test]
fn a_failed_sweep_is_joined() {
    explore(4, 1000, || {
        let mut rig = Rig::sweeping(1, 2);
        rig.lanes.failing.lock().expect("one at a time").extend([16 + 5, 16 + 2]);
        rig.demand(&[1]).expect("a lawful demand");
        let error = rig.compute().expect_err("it fails");
        assert_eq!(error.kind(), ErrorKind::Transient);
        assert!(rig.take_seen().is_empty());
        rig.experts.end_pass();
        rig.assert_sound();
        rig.lanes.failing.lock().expect("one at a time").clear();
        rig.pass_at_once(&[1]);
        assert_eq!(rig.take_seen(), [1]);
    });
}

#[test]
fn a_sweep_that_is_not_computed_is_joined() {
    explore(4, 1000, || {
        let mut rig = Rig::sweeping(1, 2);
        rig.demand(&[2]).expect("a lawful demand");
        rig.experts.end_pass();
        rig.assert_sound();
        rig.pass_at_once(&[2]);
        assert_eq!(rig.take_seen(), [2]);
    });
}
