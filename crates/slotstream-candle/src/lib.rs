//! candle ops over the kernels, slot memory and the expert-provider contract
