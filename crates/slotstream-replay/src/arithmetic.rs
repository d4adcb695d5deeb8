//! What a hit rate, a disk and a speed say about each other.
//!
//! All of it assumes that reads cost what their bytes cost: no overlap with computing, no latency.

/// Bytes that a token reads when nothing hits.
#[must_use]
pub fn bytes_a_token(geometry: &slotstream_core::Geometry, record_bytes: u64) -> u64 {
    (geometry.layers() * geometry.top_k()) as u64 * record_bytes
}

/// The hit rate that `tok_s` tokens a second need at least when a token uses `bytes_a_token` bytes
/// and the disk reads `bytes_a_second`: what does not hit has to be read. 0 when the disk is fast
/// enough without any hit.
///
/// ```
/// use slotstream_replay::hit_rate_floor;
/// // 20.91 tokens a second, 1,327.1 MB a token, 17.3 GB/s.
/// let floor = hit_rate_floor(20.91, 1327.1e6, 17.3e9);
/// assert!((floor - 0.38).abs() < 0.005);
/// ```
#[must_use]
pub fn hit_rate_floor(tok_s: f64, bytes_a_token: f64, bytes_a_second: f64) -> f64 {
    (1.0 - bytes_a_second / (tok_s * bytes_a_token)).max(0.0)
}

/// Records that a token reads, from its times with the same pool on two disks: if nothing but the
/// disk differs, the difference of the times is that of reading them. `None` when the disks do
/// not differ.
///
/// ```
/// use slotstream_replay::records_from_two_disks;
/// // 15.93 tokens a second at 12 GB/s, 2.98 at 0.9 GB/s, records of 2,764,800 bytes.
/// let records = records_from_two_disks((15.93, 12e9), (2.98, 0.9e9), 2_764_800.0);
/// assert_eq!(records.map(f64::round), Some(96.0));
/// ```
#[must_use]
pub fn records_from_two_disks(
    (tok_s, bytes_a_second): (f64, f64),
    (other_tok_s, other_bytes_a_second): (f64, f64),
    record_bytes: f64,
) -> Option<f64> {
    let times = 1.0 / other_tok_s - 1.0 / tok_s;
    let reads = record_bytes * (1.0 / other_bytes_a_second - 1.0 / bytes_a_second);
    (reads != 0.0).then(|| times / reads)
}

/// Share of the lookups that still wait for a read when a forecast names each missed record in
/// time with probability `recall`.
///
/// ```
/// use slotstream_replay::stalled_share;
/// assert!((stalled_share(0.074, 0.62) - 0.028).abs() < 0.0005);
/// ```
#[must_use]
pub fn stalled_share(miss_rate: f64, recall: f64) -> f64 {
    miss_rate * (1.0 - recall)
}
