//! Stands for a third-party crate.

/// A type.
#[derive(Debug)]
pub struct Type;

/// An error.
#[derive(Debug)]
pub struct Error;

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("foreign")
    }
}

impl std::error::Error for Error {}

/// A trait.
pub trait Trait {}

impl Trait for u8 {}
