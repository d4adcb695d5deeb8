//! Law 1b: chunk size, thread count and pool size do not change a bit.

use std::sync::Arc;

use slotstream_kernels::{Cpu, Kernels, Reference};

use crate::rig::{Goldens, Rig, random_model};

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn chunks_are_bit_identical() {
    let goldens = Goldens::open("random/golden.safetensors");
    let sets: [Arc<dyn Kernels>; 3] = [
        Arc::new(Reference),
        Arc::new(Cpu::new(1).expect("one thread")),
        Arc::new(Cpu::new(2).expect("two threads")),
    ];
    let mut cpu = Vec::new();
    for kernels in sets {
        let (name, is_cpu) = (kernels.name(), kernels.name() != "reference");
        let mut rig = Rig::new(&random_model(), kernels, 0.4);
        for prompt in ["p17", "p200"] {
            let tokens = goldens.ids(&format!("{prompt}.input_ids"));
            let whole = bits(&rig.all_logits(&tokens, tokens.len()));
            for chunk in [1, 2, 3, 7, 64] {
                let split = bits(&rig.all_logits(&tokens, chunk));
                assert!(split == whole, "{name} {prompt}: chunks of {chunk} differ");
            }
            if is_cpu {
                cpu.push(whole);
            }
        }
    }
    let [one_p17, one_p200, two_p17, two_p200] = &cpu[..] else { panic!("two thread counts") };
    assert!(one_p17 == two_p17 && one_p200 == two_p200, "thread counts differ");
}

#[test]
fn the_floor_pool_runs_in_waves_and_gives_the_same_bits() {
    let goldens = Goldens::open("random/golden.safetensors");
    let tokens = goldens.ids("p200.input_ids");
    let kernels = || Arc::new(Cpu::new(1).expect("one thread"));
    let mut large = Rig::new(&random_model(), kernels(), 1.0);
    let mut floor = Rig::new(&random_model(), kernels(), 0.0);
    let whole = bits(&large.all_logits(&tokens, 200));
    assert_eq!(large.experts.metrics().waves, 0);
    assert!(bits(&floor.all_logits(&tokens, 200)) == whole);
    assert!(floor.experts.metrics().waves > 0, "the floor pool holds less than a layer");
    floor.experts.pool().validate().expect("consistent");
}
