//! Levels of instructions, and kernels that are compiled for each of them.
//!
//! A [`Kernel`] is written once, over [`Simd`]; [`dispatch`] chooses the best level that the machine has. All levels give
//! the same bits: Rust never fuses a multiplication and an addition by itself, `mul_add` is exact on every machine, and no
//! kernel lets the order of a sum depend on the level.

use std::sync::atomic::{AtomicU8, Ordering};

/// The instructions that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of this kind has, for example NEON on 64-bit ARM.
    Portable,
    /// x86 with AVX2 and FMA: vectors of 8 numbers.
    Avx2,
    /// x86 with AVX-512 (F, BW, CD, DQ and VL): vectors of 16 numbers.
    Avx512,
}

/// The environment variable that chooses a level.
const VARIABLE: &str = "MCDD_SIMD";

impl Level {
    /// All levels, the best last.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// The name, as the environment variable has it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether this machine has the instructions of the level.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            match self {
                Level::Portable => true,
                Level::Avx2 => avx2,
                Level::Avx512 => {
                    avx2 && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512cd")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vl")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Level::Portable
        }
    }

    /// The level that the environment variable `MCDD_SIMD` asks for.
    ///
    /// # Errors
    /// If there is no such level, or this machine does not have it; the text says what there is.
    pub fn requested() -> Result<Option<Level>, String> {
        let Some(name) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let available: Vec<&str> = Level::ALL.into_iter().filter(|l| l.is_available()).map(Level::name).collect();
        let available = available.join(", ");
        match Level::ALL.into_iter().find(|level| name == level.name()) {
            Some(level) if level.is_available() => Ok(Some(level)),
            Some(level) => Err(format!("{VARIABLE}: this machine has no {}; it has {available}", level.name())),
            None => Err(format!("{VARIABLE} is {name:?}; it can be {available}, or unset for the best")),
        }
    }

    /// The level in use: the one that `MCDD_SIMD` asks for, or the best one if it asks for none that is there.
    #[inline]
    pub fn current() -> Level {
        /// The current level plus 1; 0 before it is known.
        static CURRENT: AtomicU8 = AtomicU8::new(0);
        #[cold]
        fn find() -> Level {
            let best = Level::ALL.into_iter().filter(|level| level.is_available()).max();
            let level = Level::requested().ok().flatten().or(best).unwrap_or(Level::Portable);
            CURRENT.store(level as u8 + 1, Ordering::Relaxed);
            level
        }
        match CURRENT.load(Ordering::Relaxed) {
            1 => Level::Portable,
            2 => Level::Avx2,
            3 => Level::Avx512,
            _ => find(),
        }
    }
}

/// Operations on sixteen numbers in the registers of a level.
///
/// A value of the type is proof that the machine has the level, so only reading and writing memory is unsafe.
pub(crate) trait Simd: Copy {
    /// Sixteen numbers.
    type Sixteen: Copy;
    /// Two times twelve numbers.
    type Twelves: Copy;
    /// Whether sixteen numbers are one register. A tile of six rows then needs twice the columns to keep the multipliers busy.
    const WIDE: bool;

    fn splat(self, x: f32) -> Self::Sixteen;
    fn add(self, a: Self::Sixteen, b: Self::Sixteen) -> Self::Sixteen;
    fn sub(self, a: Self::Sixteen, b: Self::Sixteen) -> Self::Sixteen;
    /// `a b + c`, rounded once.
    fn mul_add(self, a: Self::Sixteen, b: Self::Sixteen, c: Self::Sixteen) -> Self::Sixteen;
    /// 0 where `z` is 0 or less, else `v`, also where `z` is not a number.
    fn unless_not_positive(self, v: Self::Sixteen, z: Self::Sixteen) -> Self::Sixteen;
    /// `v` where `z` is above 0, else 0, also where `z` is not a number.
    fn where_positive(self, v: Self::Sixteen, z: Self::Sixteen) -> Self::Sixteen;

    /// The sum of thirty-two numbers: first of every eighth one, as `(l0 + l8) + (l16 + l24)`, then of these eight as
    /// `((v0 + v4) + (v2 + v6)) + ((v1 + v5) + (v3 + v7))`.
    fn total(self, v: [Self::Sixteen; 2]) -> f32;

    /// Whether any number is not above the limit, which what is not a number is not.
    fn any_not_above(self, v: Self::Sixteen, limit: f32) -> bool;

    /// # Safety
    /// Sixteen numbers must be readable.
    unsafe fn load(self, from: *const f32) -> Self::Sixteen;
    /// # Safety
    /// There must be room for sixteen numbers.
    unsafe fn store(self, v: Self::Sixteen, to: *mut f32);

    /// # Safety
    /// Sixteen numbers must be readable at both.
    unsafe fn load_twelves(self, from: [*const f32; 2]) -> Self::Twelves;
    /// # Safety
    /// There must be room for sixteen numbers at both.
    unsafe fn store_twelves(self, v: Self::Twelves, to: [*mut f32; 2]);
    /// `[x, y] b + c` with the first twelve numbers at `b`.
    ///
    /// # Safety
    /// Sixteen numbers must be readable at `b`, which is aligned to 64 bytes.
    unsafe fn mul_add_twelves(self, xy: [f32; 2], b: *const f32, c: Self::Twelves) -> Self::Twelves;
}

/// Asks for a cache line that will be read soon, where the processor can be asked.
#[inline(always)]
pub(crate) fn prefetch(from: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address does nothing that can be seen.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(from.cast());
    }
    let _ = from;
}

/// Work that is compiled for every level.
pub(crate) trait Kernel {
    /// Runs the kernel. Mark it, and what it calls with `simd`, as `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S);
}

/// Runs the kernel at the current level.
#[inline(always)]
pub(crate) fn dispatch<K: Kernel>(kernel: K) {
    // SAFETY: the current level is one that the machine has.
    unsafe { dispatch_at(Level::current(), kernel) };
}

/// Runs the kernel at a level.
///
/// # Safety
/// The machine must have the level.
#[inline(always)]
pub(crate) unsafe fn dispatch_at<K: Kernel>(level: Level, kernel: K) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<K: Kernel>(kernel: K) {
            kernel.run(x86::Avx2(()));
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
        fn with_avx512<K: Kernel>(kernel: K) {
            kernel.run(x86::Avx512(()));
        }
        match level {
            // SAFETY: the caller's promise.
            Level::Avx512 => return unsafe { with_avx512(kernel) },
            // SAFETY: the caller's promise.
            Level::Avx2 => return unsafe { with_avx2(kernel) },
            Level::Portable => {}
        }
    }
    let _ = level;
    kernel.run(Portable);
}

/// Calls a function for each level that this machine has, and says which it lacks.
#[cfg(test)]
pub(crate) fn for_each_level(mut f: impl FnMut(Level)) {
    for level in Level::ALL {
        match level.is_available() {
            true => f(level),
            false => eprintln!("skipped: this machine has no {}", level.name()),
        }
    }
}

/// Arrays, which the compiler turns into the vectors that the processor has.
#[derive(Clone, Copy)]
struct Portable;

/// Calls a function for each of sixteen places.
#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; 16] {
    std::array::from_fn(f)
}

impl Simd for Portable {
    type Sixteen = [f32; 16];
    type Twelves = [[f32; 16]; 2];
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn add(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        each(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn unless_not_positive(self, v: [f32; 16], z: [f32; 16]) -> [f32; 16] {
        each(|i| if z[i] <= 0.0 { 0.0 } else { v[i] })
    }
    #[inline(always)]
    fn where_positive(self, v: [f32; 16], z: [f32; 16]) -> [f32; 16] {
        each(|i| if z[i] > 0.0 { v[i] } else { 0.0 })
    }
    #[inline(always)]
    fn total(self, [a, b]: [[f32; 16]; 2]) -> f32 {
        let v: [f32; 8] = std::array::from_fn(|i| (a[i] + a[i + 8]) + (b[i] + b[i + 8]));
        ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
    }
    #[inline(always)]
    fn any_not_above(self, v: [f32; 16], limit: f32) -> bool {
        !v.iter().fold(true, |all, &v| all & (v > limit))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [f32; 16] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 16]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, v: [f32; 16], to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 16]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_twelves(self, from: [*const f32; 2]) -> [[f32; 16]; 2] {
        // SAFETY: the caller's promise.
        unsafe { [self.load(from[0]), self.load(from[1])] }
    }
    #[inline(always)]
    unsafe fn store_twelves(self, v: [[f32; 16]; 2], to: [*mut f32; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            self.store(v[0], to[0]);
            self.store(v[1], to[1]);
        }
    }
    #[inline(always)]
    unsafe fn mul_add_twelves(self, [x, y]: [f32; 2], b: *const f32, c: [[f32; 16]; 2]) -> [[f32; 16]; 2] {
        // SAFETY: the caller's promise.
        let b = unsafe { self.load(b) };
        [self.mul_add([x; 16], b, c[0]), self.mul_add([y; 16], b, c[1])]
    }
}

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;
