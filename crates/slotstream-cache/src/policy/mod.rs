//! The built-in eviction policies. Deterministic, and free of allocation after `bind`.

mod clock;
mod layer_local;
mod lru;
mod options;
mod parse;
mod random;

pub use clock::Clock;
pub use layer_local::LayerLocal;
pub use lru::Lru;
pub use options::PolicyOption;
pub use parse::{PolicyInfo, PolicyNameError, parse_policy, policies, policy_names};
pub use random::Random;
