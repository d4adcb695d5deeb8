//! What goes wrong from outside: reads, files, cancellation, parts that panic. A typed error, a
//! consistent pool, and right tokens afterwards.

mod cancel;
mod changed;
mod foreign;
mod matrix;
mod reads;
mod rig;
mod sums;

use rig::{Armed, Source, Under, WAYS, Way, armed_engine, assert_sound, build_with};
