//! What the Metal kernels are launched with, and what must come out.
//!
//! A [`Case`] is memory, launches and the results of `reference/`. Every case is carried out twice: on
//! Linux by the emulator, on a Mac by the self-check. So both test the same, and a kernel's cases are
//! written once.
//!
//! The inputs are the widths of the model and odd ones, ties, empty selections, NaN and infinities, and
//! memory more than 4 GiB apart. Outputs are full of NaN before the first launch.

mod affine;
mod attention;
mod bf16;
mod case;
mod conv;
mod data;
mod delta;
mod experts;
mod hyper;
mod norm;
mod pages;
mod ple;
mod rope;
mod route;
mod select;

pub use case::{Case, Mismatch};

/// The cases of a `.metal` file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Family {
    /// The library's name: the stem of its `.metal` file.
    pub name: &'static str,
    /// Small launches of every kind.
    pub cases: fn() -> Vec<Case>,
    /// One launch, or one operation, at the width of the published model: what is worth timing. No
    /// case for the emulator, which takes minutes for it.
    pub timed: fn() -> Vec<Case>,
}

impl Family {
    /// A family of cases of one's own, none of which is worth timing.
    #[must_use]
    pub const fn new(name: &'static str, cases: fn() -> Vec<Case>) -> Self {
        Self { name, cases, timed: Vec::new }
    }
}

macro_rules! families {
    ($($name:literal: $cases:path, $timed:path;)*) => {
        &[$(Family { name: $name, cases: $cases, timed: $timed }),*]
    };
}

/// All of them: every kernel is launched in one.
pub static FAMILIES: &[Family] = families! {
    "affine": affine::cases, affine::timed;
    "attention": attention::cases, attention::timed;
    "bf16": bf16::cases, bf16::timed;
    "conv": conv::cases, conv::timed;
    "delta": delta::cases, delta::timed;
    "experts": experts::cases, experts::timed;
    "hyper": hyper::cases, hyper::timed;
    "norm": norm::cases, norm::timed;
    "ple": ple::cases, ple::timed;
    "rope": rope::cases, rope::timed;
    "route": route::cases, route::timed;
    "sample": route::samples, route::timed_samples;
    "select": select::cases, select::timed;
};
