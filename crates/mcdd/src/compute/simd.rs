//! One way to compile a loop twice: with AVX2 and FMA where the machine has them, and portably.
//!
//! Both give the same bits: Rust never contracts a multiplication and an addition by itself, and `mul_add` is exact
//! everywhere.

/// Work whose `run` is compiled for the best instruction set at hand; mark it `#[inline(always)]`.
pub(crate) trait Kernel {
    /// Does the work.
    fn run(self);
}

/// Runs `kernel`.
#[inline]
pub(crate) fn dispatch<K: Kernel>(kernel: K) {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<K: Kernel>(kernel: K) {
            kernel.run();
        }
        // SAFETY: the features were found on this machine.
        unsafe { with_avx2(kernel) };
        return;
    }
    kernel.run();
}

/// Whether this machine has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}
