//! Runs a mixture-of-experts model larger than memory by streaming its experts from the SSD

pub mod sampling;
#[cfg(feature = "text")]
pub mod text;
