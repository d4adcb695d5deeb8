//! libCacheSim's oracleGeneral records.

use std::io::{BufWriter, Write};

use slotstream_core::ExpertKey;

use super::failed;
use crate::Requests;
use crate::trace::TraceError;

/// Writes the distinct records of each visit in route order as oracleGeneral records of
/// libCacheSim: time is the number of the pass, the object the dense number of the record, the
/// size `size` (libCacheSim leaves out requests of size 0). Gives the number of requests.
///
/// # Errors
/// [`TraceError::Io`].
pub fn write_oracle_general(
    requests: &Requests,
    size: u32,
    out: impl Write,
) -> Result<u64, TraceError> {
    let geometry = requests.geometry();
    let mut keys = Vec::new();
    for pass in requests.passes() {
        let time = u32::try_from(pass.index()).unwrap_or(u32::MAX);
        for visit in pass.visits() {
            for expert in visit.experts() {
                let index = geometry.index(ExpertKey::new(visit.layer(), *expert));
                keys.extend(index.map(|index| (time, index)));
            }
        }
    }
    // From the end: the request after this one, counted from 1.
    let mut next = vec![-1_i64; geometry.records()];
    let mut later = vec![-1_i64; keys.len()];
    for (at, (_, index)) in keys.iter().enumerate().rev() {
        later[at] = std::mem::replace(&mut next[*index], at as i64 + 1);
    }
    let mut out = BufWriter::new(out);
    let written = keys.iter().zip(later).try_for_each(|((time, index), next)| {
        let mut record = [0; 24];
        record[..4].copy_from_slice(&time.to_le_bytes());
        record[4..12].copy_from_slice(&(*index as u64).to_le_bytes());
        record[12..16].copy_from_slice(&size.to_le_bytes());
        record[16..].copy_from_slice(&next.to_le_bytes());
        out.write_all(&record)
    });
    written.and_then(|()| out.flush()).map_err(|e| failed(0, e))?;
    Ok(keys.len() as u64)
}
