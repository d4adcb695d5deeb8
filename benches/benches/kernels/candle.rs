//! candle's quantized products, on one thread.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{Device, Module, Tensor};

use crate::measure::Cases;
use crate::weights::{SET, values};

/// Q4_0 is what is nearest to our format, and Q4_K candle's best where rows consist of whole
/// blocks of 256.
const TYPES: [(&str, GgmlDType); 2] = [("Q4_0", GgmlDType::Q4_0), ("Q4_K", GgmlDType::Q4K)];

pub(crate) fn add(
    cases: &mut Cases,
    shapes: &[(usize, usize)],
    rows: &[usize],
) -> Result<(), Box<dyn Error>> {
    if candle_core::utils::get_num_threads() != 1 {
        let line = "candle is left out: it would use several threads without RAYON_NUM_THREADS=1";
        return Ok(writeln!(std::io::stdout(), "{line}")?);
    }
    for (name, format) in TYPES {
        for &(n, k) in shapes {
            if !k.is_multiple_of(format.block_size()) || !cases.wants("candle") {
                continue;
            }
            let (set, len) = matrices(format, n, k)?;
            let set = Arc::new(set);
            for &m in [1].iter().chain(rows) {
                let x = Tensor::from_vec(values(m * k), (m, k), &Device::Cpu)?;
                let work = if m == 1 { len } else { 2 * m * n * k };
                let set = Arc::clone(&set);
                let name = format!("affine {n}x{k} m={m}/candle {name}");
                cases.add(name, work, 1, move |i| {
                    set[i % set.len()].forward(&x).expect("shapes agree");
                });
            }
        }
    }
    Ok(())
}

/// Half a set of different memory with the same matrix, and the bytes of one.
fn matrices(
    format: GgmlDType,
    n: usize,
    k: usize,
) -> Result<(Vec<QMatMul>, usize), Box<dyn Error>> {
    let matrix = Tensor::from_vec(values(n * k), (n, k), &Device::Cpu)?;
    let first = QTensor::quantize(&matrix, format)?;
    let bytes = first.data()?;
    let copy = || -> Result<QMatMul, Box<dyn Error>> {
        let storage = QStorage::from_data(bytes.clone(), &Device::Cpu, format)?;
        Ok(QMatMul::from_arc(Arc::new(QTensor::new(storage, (n, k))?))?)
    };
    let set = (0..SET / 2 / bytes.len()).map(|_| copy()).collect::<Result<_, _>>()?;
    Ok((set, bytes.len()))
}
