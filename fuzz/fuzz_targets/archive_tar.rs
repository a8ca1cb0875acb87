#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mcdd_fuzz::targets::archive_tar(bytes));
