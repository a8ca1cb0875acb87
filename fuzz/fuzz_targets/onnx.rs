#![no_main]
// What runs a network may panic on a hostile one; the library catches that, and others still abort.
libfuzzer_sys::fuzz_target!(init: std::panic::set_hook(Box::new(|_| {})), |bytes: &[u8]| mcdd_fuzz::targets::onnx(bytes));
