//! Streaming for any mixture-of-experts graph: pool, reader and slot memory joined
