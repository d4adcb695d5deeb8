//! Allocations of a token. In a binary of its own: its allocator counts.

#[path = "../it/rig.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
mod rig;

use std::sync::Arc;

use slotstream_kernels::Cpu;
use slotstream_qwen::{Logits, QwenModel};

use rig::{Goldens, Rig, tiny_model};

/// Allocations and bytes of one decode step of the tiny model (12 layers) when all is warm: every
/// record resident, scratch grown, on one thread: what handing work to others costs is not counted.
/// To be lowered when they fall, and not to be raised lightly.
const ALLOCATIONS: u64 = 784;
const BYTES: u64 = 107_104;

/// Tensors are used again; what is left are views of tensors, lists of a call, and what is read.
#[test]
fn a_decode_step_allocates_no_more_than_it_did() {
    let goldens = Goldens::open("tiny-moe/golden.safetensors");
    let tokens = [goldens.ids("p1.input_ids"), goldens.ids("p1.greedy_ids")].concat();
    let mut rig = Rig::new(&tiny_model(), Arc::new(Cpu::new(1).expect("one")), 1.0);
    // The first sequence brings every record that the second one needs.
    let mut state = rig.state();
    for token in &tokens {
        rig.run(&mut state, &[*token], Logits::Last, None);
    }
    rig.recorder.take();
    let mut state = rig.state();
    let mut steps = Vec::new();
    for token in &tokens {
        let counted = allocation_counter::measure(|| {
            rig.run(&mut state, &[*token], Logits::Last, None);
        });
        // What the test itself keeps is let go outside.
        rig.recorder.take();
        steps.push((counted.count_total, counted.bytes_total));
    }
    let mut counts: Vec<u64> = steps.iter().map(|step| step.0).collect();
    let mut bytes: Vec<u64> = steps.iter().map(|step| step.1).collect();
    counts.sort_unstable();
    bytes.sort_unstable();
    let (count, bytes) = (counts[counts.len() / 2], bytes[bytes.len() / 2]);
    // Room for what happens now and then: pages, windows moved to the front, rows to be read.
    let most = counts[counts.len() - 1];
    assert!(
        count <= ALLOCATIONS && bytes <= BYTES && most <= ALLOCATIONS + ALLOCATIONS / 2,
        "{count} allocations of {bytes} bytes a token, {most} in the worst step; \
         there were {ALLOCATIONS} of {BYTES}"
    );
}

/// What a pass takes at its widest point is what the plan says, never more and not much less. What
/// the state keeps of it is in another row of the plan; routes that the test records are not in any.
#[test]
fn a_pass_takes_what_is_planned() {
    for rows in [1, 100, 512] {
        let mut rig = Rig::new(&tiny_model(), Arc::new(Cpu::new(1).expect("one")), 1.0);
        let tokens: Vec<u32> = (0..rows).map(|i| (i * 37 % 4000) as u32).collect();
        let mut state = rig.state();
        let counted = allocation_counter::measure(|| {
            rig.run(&mut state, &tokens, Logits::Last, None);
        });
        let recorded = rig.recorder.take();
        let routes: usize =
            recorded.iter().map(|r| r.ids.len() + r.weights.len() + r.logits.len()).sum();
        let planned = QwenModel::planned_workspace(rig.model.config(), rows, 1);
        // Pages are counted with the state; windows were there before.
        let fresh = rig.state().bytes();
        let taken = counted.bytes_max - (state.bytes() - fresh);
        println!("{rows} rows: {taken} bytes of {planned}, and {} of routes", 4 * routes);
        assert!(taken <= planned, "{rows} rows took {taken} bytes, {planned} are planned");
        let held = taken + planned / 50;
        assert!(rows < 100 || 10 * held >= 7 * planned, "{rows} rows: {taken} of {planned}");
    }
}
