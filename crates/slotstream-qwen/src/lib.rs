//! The qwen4_exp text graph on candle tensors
