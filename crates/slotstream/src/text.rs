//! Text around a model of token ids: tokenizer, chat template, streaming decoder, stop strings.
//!
//! ```
//! use slotstream::text::{ChatOptions, ChatTemplate, Message, StopMatcher, StreamDecoder, Tokenizer};
//! use std::path::Path;
//!
//! let folder = Path::new("../../examples/models/tiny-moe");
//! let tokenizer = Tokenizer::load(&folder.join("tokenizer.json"), 4096)?;
//! let template = ChatTemplate::load(folder, None)?;
//! let prompt = template.render(&[Message::user("What is a vector?")], &ChatOptions::default())?;
//! assert_eq!(tokenizer.encode(&prompt, false)?[..3], [4064, 1714, 198]);
//!
//! // The ids that a model would generate, one by one.
//! let generated = tokenizer.encode("A list that can grow. 🙂\n\nuser: thanks", false)?;
//! let mut decoder = StreamDecoder::new(&tokenizer, true);
//! let mut stops = StopMatcher::new(["\n\nuser:"])?;
//! let mut text = String::new();
//! for id in generated {
//!     text.push_str(stops.push(decoder.push(id)?));
//!     if stops.matched().is_some() {
//!         break;
//!     }
//! }
//! text.push_str(stops.push(decoder.finish()?));
//! text.push_str(stops.finish());
//! assert_eq!(text, "A list that can grow. 🙂");
//! # Ok::<(), slotstream::text::TextError>(())
//! ```

mod error;
mod files;
mod guard;
mod stop;
mod stream;
mod template;
mod tokenizer;
mod traps;

pub use error::TextError;
pub(crate) use files::is_there;
pub use guard::panics_are_caught;
pub use stop::StopMatcher;
pub use stream::StreamDecoder;
pub use template::{ChatOptions, ChatTemplate, ContentPart, Message, ToolCall};
pub use tokenizer::Tokenizer;
