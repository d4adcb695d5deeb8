//! The built-in eviction policies. Deterministic, and free of allocation after `bind`.

mod by_layer;
mod clock;
mod cyclic;
mod hot_pin;
mod inner;
mod layer_local;
mod least_stale;
mod lfu;
mod lists;
mod lru;
mod minima;
mod options;
mod parse;
mod per_layer;
mod random;
mod visits;

pub use clock::Clock;
pub use cyclic::Cyclic;
pub use hot_pin::HotPin;
pub use layer_local::LayerLocal;
pub use least_stale::LeastStale;
pub use lfu::Lfu;
pub use lru::Lru;
pub use options::PolicyOption;
pub use parse::{PolicyInfo, PolicyNameError, parse_policy, policies, policy_names};
pub use per_layer::{PerLayer, PerLayerCounts};
pub use random::Random;
