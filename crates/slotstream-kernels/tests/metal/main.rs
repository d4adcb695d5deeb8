//! The plans of the Metal kernels: their limits, and all cases carried out by the emulator.

mod limits;
mod lists;
mod suite;
