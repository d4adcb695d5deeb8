use outside_policy::SampledLru;
use slotstream_core::{BindError, EvictionPolicy, Geometry};

#[test]
fn the_policy_is_lawful() {
    for (samples, seed) in [(1, 0), (2, 1), (5, 7), (1000, u64::MAX)] {
        slotstream_testkit::policy::assert_lawful(|| Box::new(SampledLru::new(samples, seed)));
    }
}

#[test]
fn a_policy_that_looks_at_nothing_is_refused() {
    let geometry = Geometry::new(2, 8, 2).unwrap();
    let refused = SampledLru::new(0, 0).bind(&geometry, 8).unwrap_err();
    assert!(matches!(refused, BindError::Parameter { name: "samples", .. }), "{refused}");
}
