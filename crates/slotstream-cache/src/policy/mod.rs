//! The built-in eviction policies. Deterministic, and free of allocation after `bind`.

mod analogue;
mod arc;
mod by_layer;
mod clock;
mod cyclic;
mod fifo;
mod forecast_aware;
mod ghosts;
mod hot_pin;
mod inner;
mod layer_local;
mod least_stale;
mod lfu;
mod lirs;
mod lists;
mod lru;
mod minima;
mod options;
mod parse;
mod per_layer;
mod random;
mod s3fifo;
mod sieve;
mod slru;
mod two_q;
mod visits;
mod w_tiny_lfu;

pub use analogue::Analogue;
pub use arc::Arc;
pub use clock::Clock;
pub use cyclic::Cyclic;
pub use fifo::Fifo;
pub use forecast_aware::ForecastAware;
pub use hot_pin::HotPin;
pub use layer_local::LayerLocal;
pub use least_stale::LeastStale;
pub use lfu::Lfu;
pub use lirs::Lirs;
pub use lru::Lru;
pub use options::PolicyOption;
pub use parse::{
    DEFAULT_POLICY, PolicyInfo, PolicyNameError, default_policy, parse_policy, policies,
    policy_names,
};
pub use per_layer::{PerLayer, PerLayerCounts};
pub use random::Random;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use slru::Slru;
pub use two_q::TwoQ;
pub use w_tiny_lfu::WTinyLfu;
