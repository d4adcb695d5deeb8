//! What slot memory is guarded by. The model checks compile `arena.rs` and `slab.rs` with a
//! checker's own in its place: see `crates/slotstream-io/tests/model`.

pub(crate) use parking_lot::RwLock;
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
