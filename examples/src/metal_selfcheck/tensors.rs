//! candle's own operations that the graph relies on, against the same on the CPU.

use serde::Serialize;
use slotstream::candle::{DType, Device, Result, Tensor};

/// One operation.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// What it does.
    pub name: &'static str,
    /// Whether it gives the CPU's bits.
    pub right: bool,
    /// Why it could not be done.
    pub error: Option<String>,
}

type Run = fn(&Device) -> Result<Tensor>;

/// Each gives a tensor, whatever its type.
const ALL: &[(&str, Run)] = &[
    ("upload and read back, f32", |device| numbers(device, &[3, 40])),
    ("upload and read back, u32", |device| Tensor::arange(0_u32, 1000, device)),
    ("upload and read back, u8", |device| Tensor::arange(0_u8, 255, device)),
    ("zeros", |device| Tensor::zeros((7, 33), DType::F32, device)),
    ("f32 to bf16", |device| numbers(device, &[5, 64])?.to_dtype(DType::BF16)),
    ("bf16 to f32", |device| {
        numbers(device, &[5, 64])?.to_dtype(DType::BF16)?.to_dtype(DType::F32)
    }),
    ("sum of two", |device| {
        let x = numbers(device, &[6, 96])?;
        &x + x.narrow(0, 0, 6)?.contiguous()?
    }),
    ("rows made contiguous", |device| numbers(device, &[9, 32])?.narrow(0, 3, 4)?.contiguous()),
    ("columns made contiguous", |device| numbers(device, &[9, 32])?.narrow(1, 5, 17)?.contiguous()),
    ("rows written in place", |device| {
        let to = Tensor::zeros((8, 16), DType::F32, device)?;
        to.slice_set(&numbers(device, &[3, 16])?, 0, 4)?;
        Ok(to)
    }),
    ("rows joined", |device| {
        let x = numbers(device, &[9, 32])?;
        Tensor::cat(&[&x.narrow(0, 6, 3)?, &x.narrow(0, 0, 2)?], 0)?.contiguous()
    }),
    ("rows repeated side by side", |device| {
        numbers(device, &[3, 20])?.repeat((1, 4))?.contiguous()
    }),
    ("another shape", |device| numbers(device, &[4, 60])?.reshape((8, 30))),
    ("copy", |device| numbers(device, &[11, 13])?.copy()),
];

/// Numbers of both signs.
fn numbers(device: &Device, shape: &[usize]) -> Result<Tensor> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
    Tensor::from_vec(values, shape, device)
}

/// Does all of them on the device and on the CPU.
#[must_use]
pub fn check(device: &Device) -> Vec<Operation> {
    let one = |&(name, run): &(&'static str, Run)| {
        let both = run(device).and_then(|own| Ok((bits(&own)?, bits(&run(&Device::Cpu)?)?)));
        match both {
            Ok((own, cpu)) => Operation { name, right: own == cpu, error: None },
            Err(error) => Operation { name, right: false, error: Some(error.to_string()) },
        }
    };
    ALL.iter().map(one).collect()
}

/// Shape, type and values: bf16 and integers are exact in f32 up to 2^24.
fn bits(tensor: &Tensor) -> Result<(Vec<usize>, DType, Vec<u32>)> {
    let on_the_cpu = tensor.to_device(&Device::Cpu)?.flatten_all()?;
    let values = on_the_cpu.to_dtype(DType::F32)?.to_vec1::<f32>()?;
    let bits = values.into_iter().map(f32::to_bits).collect();
    Ok((tensor.dims().to_vec(), tensor.dtype(), bits))
}
