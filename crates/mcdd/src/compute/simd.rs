//! Compiles a loop twice, with AVX2 and FMA and portably, and chooses at run time.
//!
//! Both give the same bits: Rust never fuses a multiplication and an addition by itself, and `mul_add` is exact on every
//! machine.

/// Work whose `run` is compiled for the best available instruction set. Mark `run` as `#[inline(always)]`.
pub(crate) trait Kernel {
    /// Runs the kernel.
    fn run(self);
}

/// Runs the kernel with the best available instruction set.
#[inline]
pub(crate) fn dispatch<K: Kernel>(kernel: K) {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<K: Kernel>(kernel: K) {
            kernel.run();
        }
        // SAFETY: this machine has these instructions.
        unsafe { with_avx2(kernel) };
        return;
    }
    kernel.run();
}

/// Whether this machine has AVX2 and FMA. A build with `--cfg mcdd_portable` returns `false`, so that the portable
/// kernels can be tested on any machine.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx2() -> bool {
    !cfg!(mcdd_portable) && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}
