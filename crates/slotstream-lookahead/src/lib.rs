//! Forecasters: which experts a later layer of a mixture-of-experts model will want.
//!
//! A forecaster looks at a pass from outside, through [`slotstream_core::Forecaster`], and names
//! records before their layer asks for them, so that their reads can begin early. It can be wrong,
//! and it never changes a token. Each one here is a type of its own; [`parse_forecaster`] makes
//! them from a name such as `attention-tap:threshold=0.1`, [`forecasters`] lists them.
//!
//! | name | asks |
//! |---|---|
//! | `none` | nothing |
//! | `boundary-1` | the layer's own router on the streams before the layer |
//! | `boundary-2` | the same one layer earlier |
//! | `attention-tap` | the next layer's router on the streams after this layer's attention |
//! | `previous-token` | which experts the layer used for the token before |
//! | `markov` | which experts the layer used after those of the token before |
//! | `co-occurrence` | which experts the layer used with those of the layer before |
//! | `mixture` | several of these, each as far as it has been right about the layer |
//! | `oracle` | a recording of the same run |
//!
//! The first group asks for *probes*: the target layer's own mix and router on earlier streams.
//! Where an n-gram (PLE) layer lies in between, the probe first adds its output, unless told
//! otherwise (`ple=0`). The second group learns from the routes of its session alone, prompt
//! included, and forgets them with the session. Nothing here reads a file, knows a tensor or keeps
//! time.
//!
//! # Capturing
//! A forecaster that only looks is a recorder: it asks for probes with
//! [`keep_mixed`](slotstream_core::Probe::keep_mixed), copies `mixed` (`[rows, hidden]`) and
//! `logits` (`[rows, experts]`) of each [`ProbeResult`](slotstream_core::ProbeResult) in `predict`,
//! and the true logits of the target layer in `observe`; rows of one pass belong together in
//! order, and `observe` of the target follows in the same pass. It predicts nothing, and an engine
//! that reads nothing ahead asks it in all passes, prompts included. [`Turn`] says where a pass
//! begins and whose it is.
//!
//! # Example
//! ```
//! use slotstream_core::Geometry;
//! use slotstream_lookahead::parse_forecaster;
//!
//! let geometry = Geometry::new(48, 512, 10)?;
//! let forecaster = parse_forecaster("boundary-1:top=12+threshold=-0.2", &geometry)?;
//! assert_eq!(forecaster.name(), "boundary-1:top=12+threshold=-0.2");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod attention_tap;
mod boundary;
mod choice;
mod co_occurrence;
mod corrected;
mod correction;
mod error;
mod markov;
mod mixture;
mod options;
mod oracle;
mod parse;
mod previous_token;
mod recorder;
mod sessions;
mod transitions;
mod turn;

pub use attention_tap::AttentionTap;
pub use boundary::Boundary;
pub use choice::top_experts;
pub use co_occurrence::CoOccurrence;
pub use corrected::Corrected;
pub use correction::{
    Correction, CorrectionError, CorrectionShape, ORIGINAL_SCHEMA, SCHEMA, TargetCorrection,
};
#[cfg(feature = "train")]
pub use correction::{Fit, TrainError, TrainOptions, agreement, fit};
pub use error::{BoxedSource, FileFault, LookaheadError};
pub use markov::Markov;
pub use mixture::Mixture;
pub use options::ForecastOptions;
pub use oracle::{Oracle, OracleRoutes};
pub use parse::{
    ForecastFiles, ForecasterInfo, NoFiles, forecasters, parse_forecaster, parse_forecaster_with,
};
pub use previous_token::PreviousToken;
pub use recorder::{MemorySamples, Recorder, Sample, SampleSink, SampleSource};
pub use slotstream_core::NoForecast;
pub use turn::Turn;
