//! Every built-in policy passes the conformance suite, as an outsider's would.

use slotstream_cache::{Clock, LayerLocal, Lru, parse_policy, policy_names};
use slotstream_testkit::policy::{Broken, assert_lawful, check};

#[test]
fn built_in_policies_are_lawful() {
    for name in policy_names() {
        let inner: &[&str] = if name.ends_with(':') {
            &["clock", "lru", "lfu", "arc", "s3fifo", "lirs", "wtinylfu"]
        } else {
            &[""]
        };
        for inner in inner {
            assert_lawful(|| parse_policy(&format!("{name}{inner}")).unwrap());
        }
    }
    // With options that make much happen in a short run.
    for name in [
        "lfu:half-life=0.5",
        "analogue:window=1",
        "analogue:window=3+half-life=0.5",
        "slru:protected=1",
        "2q:in=0+out=3",
        "lirs:hir=0.4+stack=1",
        "lirs:hir=1+stack=64",
        "s3fifo:small=1+ghost=0",
        "s3fifo:small=0.4+ghost=2+threshold=1",
        "wtinylfu:window=0.4+protected=0.5+sample=1",
        "wtinylfu:window=1",
        "random:seed=9",
        "hot-pin:share=1+every=1",
        "hot-pin:share=0.1+every=3",
        "per-layer-counts:warm-up=1+every=2:random",
        "per-layer:per-layer-counts:warm-up=2+every=1:hot-pin:every=2",
        "layer-local:per-layer:cyclic",
    ] {
        assert_lawful(|| parse_policy(name).unwrap());
    }
    assert_lawful(|| Box::new(LayerLocal::new(LayerLocal::new(Lru::default()))));
    assert_lawful(|| Box::new(Clock::default()));
}

/// The suite would notice: a clock whose reset forgets its hand.
#[test]
fn a_clock_that_keeps_its_hand_is_not() {
    use slotstream_core::*;

    #[derive(Debug)]
    struct Kept(Clock);
    impl EvictionPolicy for Kept {
        fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
            self.0.on_insert(slot, key, origin);
        }
        fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
            self.0.on_hit(slot, key);
        }
        fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
            self.0.choose_victim(incoming, view)
        }
        fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
            self.0.bind(geometry, slots)
        }
        fn on_resize(&mut self, slots: usize) {
            self.0.on_resize(slots);
        }
        fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
            self.0.on_remove(slot, key, cause);
        }
        fn reset(&mut self) {}
    }
    let found = check(|| Box::new(Kept(Clock::new()))).unwrap_err();
    let kept = |what: &Broken| matches!(what, Broken::ResetKeepsState { .. });
    assert!(found.iter().all(|violation| kept(&violation.what)), "{found:?}");
}
