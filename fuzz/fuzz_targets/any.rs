//! The target that `MCDD_FUZZ_TARGET` names: one program, because linking twenty takes long.
#![no_main]

use std::sync::OnceLock;

use mcdd_fuzz::targets::{ALL, Target};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<Target> = OnceLock::new();
    let (_, target) = TARGET.get_or_init(|| {
        let name = std::env::var("MCDD_FUZZ_TARGET").unwrap_or_default();
        *ALL.iter().find(|(known, _)| *known == name).unwrap_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
            panic!("MCDD_FUZZ_TARGET is {name:?}, not one of {}", names.join(", "))
        })
    });
    target(bytes);
});
