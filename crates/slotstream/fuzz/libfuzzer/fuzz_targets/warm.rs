#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| slotstream_fuzz::expect_clean("warm", input));
