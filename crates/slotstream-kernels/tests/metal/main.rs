//! The plans of the Metal kernels, carried out by the emulator, against `reference/`.

mod affine;
mod attention;
mod bf16;
mod case;
mod conv;
mod data;
mod delta;
mod experts;
mod hyper;
mod limits;
mod norm;
mod pages;
mod ple;
mod rope;
mod route;
mod select;
mod suite;
