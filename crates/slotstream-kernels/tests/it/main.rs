//! The kernels against oracles, against each other and against golden values.

mod attention;
mod compositions;
mod cpu_bits;
mod data;
mod delta;
mod far_offsets;
mod fast;
mod pieces;
mod rows;
mod select;
mod small_ops;
