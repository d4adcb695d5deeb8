//! Shared by the examples.

#[cfg(doctest)]
mod documents;
