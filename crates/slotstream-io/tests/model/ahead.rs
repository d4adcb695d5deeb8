//! The way of a record that is read ahead: whenever its pieces land, it is computed whole or
//! leaves no trace.

use std::sync::atomic::Ordering;

use crate::ExpertProvider;
use crate::explore::explore;
use crate::rig::Rig;

#[test]
fn a_forecast_record_is_computed_whole_whenever_it_lands() {
    explore(4, 1000, || {
        let mut rig = Rig::new(1, 3);
        rig.forecast_and_demand(&[3], &[3]).expect("a lawful demand");
        rig.compute().expect("its record is read");
        assert_eq!(rig.take_seen(), [3]);
        rig.experts.end_pass();
        rig.join();
        rig.assert_sound();
        assert!(rig.is_resident(3));
    });
}

/// A read that fails before, while or after its layer asks is done again on demand.
#[test]
fn a_failed_forecast_is_read_on_demand() {
    explore(3, 1000, || {
        let mut rig = Rig::new(1, 3);
        rig.lanes.spoils_speculation.store(true, Ordering::SeqCst);
        rig.forecast_and_demand(&[2], &[2]).expect("a lawful demand");
        rig.compute().expect("the demand is read");
        assert_eq!(rig.take_seen(), [2]);
        rig.experts.end_pass();
        rig.join();
        rig.assert_sound();
        assert!(rig.is_resident(2));
    });
}

/// Nobody asks for it: it ends when its layer has passed, and its slot with it.
#[test]
fn a_wrong_forecast_leaves_no_trace() {
    explore(2, 1000, || {
        let mut rig = Rig::new(1, 3);
        rig.forecast_and_demand(&[2], &[1]).expect("a lawful demand");
        rig.compute().expect("its record is read");
        assert_eq!(rig.take_seen(), [1]);
        rig.experts.end_pass();
        rig.join();
        rig.assert_sound();
        assert!(rig.is_resident(1) && !rig.is_resident(2));
    });
}

/// The pass ends before the layer asks, and the next one wants the record whose reads were just
/// called off.
#[test]
fn a_forecast_that_was_called_off_can_be_demanded() {
    explore(3, 1000, || {
        let mut rig = Rig::new(1, 3);
        rig.forecast(&[2]).expect("a lawful pass");
        rig.experts.end_pass();
        rig.demand(&[2]).expect("a lawful demand");
        rig.compute().expect("its record is read");
        assert_eq!(rig.take_seen(), [2]);
        rig.experts.end_pass();
        rig.join();
        rig.assert_sound();
    });
}

#[test]
fn a_dropped_provider_joins_what_it_read_ahead() {
    explore(4, 1000, || {
        let mut rig = Rig::new(1, 3);
        rig.forecast(&[2]).expect("a lawful pass");
        let lanes = std::sync::Arc::clone(&rig.lanes);
        drop(rig);
        lanes.assert_all_ended();
    });
}

#[test]
fn a_resize_joins_what_is_read_ahead() {
    explore(4, 1000, || {
        let mut rig = Rig::new(1, 4);
        rig.forecast(&[2]).expect("a lawful pass");
        rig.experts.end_pass();
        rig.experts.resize(2).expect("from the floor up");
        rig.assert_sound();
        rig.pass_at_once(&[2]);
        assert_eq!(rig.take_seen(), [2]);
    });
}

/// A late record joins a pass that is given up.
#[test]
fn an_abandoned_call_joins_its_late_records() {
    explore(3, 1000, || {
        let mut rig = Rig::new(1, 3);
        rig.forecast_and_demand(&[3], &[3]).expect("a lawful demand");
        rig.experts.end_pass();
        rig.join();
        rig.assert_sound();
        rig.pass_at_once(&[3]);
        assert_eq!(rig.take_seen(), [3]);
    });
}
