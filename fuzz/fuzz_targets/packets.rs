//! The fuzzer of `weir_fuzz_targets::packets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz_targets::packets(data));
