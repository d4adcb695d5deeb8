//! What lanes and provider meet at. The model checks compile `landing.rs` and `provider.rs` with
//! a checker's own in its place: see `crates/slotstream-io/tests/model`.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
