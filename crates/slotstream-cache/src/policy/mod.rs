//! The built-in eviction policies. Deterministic, and free of allocation after `bind`.

mod clock;
mod layer_local;
mod lru;
mod parse;

pub use clock::Clock;
pub use layer_local::LayerLocal;
pub use lru::Lru;
pub use parse::{PolicyNameError, parse_policy, policy_names};
