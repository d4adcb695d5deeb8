//! The C library's heap, kept from growing.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the threshold is set by a function of the C library")
)]

/// Arrays from this size on are mapped, and given back when they are dropped.
///
/// glibc begins like that, and raises the size to that of whatever large array is dropped first, up to
/// 32 MiB. From then on the activations of a prompt's passes lie in the heap, which keeps the holes
/// between them: half as much again as was planned. A token's arrays are smaller than this.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const APART: i32 = 1 << 20;

/// Fixes that size for the whole program, which is the program's to decide and no library's.
pub(crate) fn keep_large_arrays_apart() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes two numbers and no pointer, and is called at the start of a program,
    // before it has a second thread. Refused, the heap may grow; nothing else changes.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, APART) };
}
