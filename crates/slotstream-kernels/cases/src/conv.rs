//! Causal and dilated convolutions.

use slotstream_kernels::metal::{ConvShape, conv_silu};
use slotstream_kernels::{ConvArgs, reference};

use crate::case::Case;
use crate::data::Random;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for channels in [1, 32, 64, 96, 640, 2560] {
        for (kernel, dilation) in [(1, 1), (4, 1), (4, 3), (3, 2)] {
            for m in [1, 5] {
                cases.push(convolution(m, ConvShape { channels, kernel, dilation }, None));
            }
        }
    }
    let shape = ConvShape { channels: 70, kernel: 4, dilation: 3 };
    for odd in [f32::NAN, f32::INFINITY] {
        cases.push(convolution(4, shape, Some(odd)));
    }
    cases
}

/// What a gated delta layer convolves.
pub(crate) fn timed() -> Vec<Case> {
    let shape = ConvShape { channels: 10_240, kernel: 4, dilation: 1 };
    vec![convolution(1, shape, None)]
}

fn convolution(m: usize, shape: ConvShape, odd: Option<f32>) -> Case {
    let ConvShape { channels, kernel, dilation } = shape;
    let mut case = Case::new(format!("conv {m} {shape:?}"));
    let mut random = Random::new((m + channels) as u64);
    let mut window = random.values(((kernel - 1) * dilation + m) * channels);
    if let Some(odd) = odd {
        window[channels + 3] = odd;
    }
    let weight = random.values(channels * kernel);
    let mut want = vec![f32::NAN; m * channels];
    let args = ConvArgs { window: &window, weight: &weight, channels, kernel, dilation };
    reference::conv_silu(&args, &mut want);
    let (window, weight) = (case.floats(&window), case.floats(&weight));
    let out = case.scratch(want.len());
    case.launch(conv_silu(m, shape, window, weight, out).expect("a plan"));
    case.want_floats(out, want, 1e-6);
    case
}
