//! The fuzzer of `weir_fuzz_targets::rings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz_targets::rings(data));
