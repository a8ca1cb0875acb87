use super::*;

/// Runs every operation.
struct Operations<'a> {
    numbers: &'a [f32; 64],
    out: &'a mut [f32; 174],
}

impl Kernel for Operations<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (from, to) = (self.numbers.as_ptr(), self.out.as_mut_ptr());
        #[repr(align(64))]
        struct Aligned([f32; 16]);
        let mut third = Aligned([0.0; 16]);
        third.0.copy_from_slice(&self.numbers[32..48]);
        // SAFETY: sixteen numbers are readable, and there is room for them.
        unsafe {
            let [a, b, c] = [0, 16, 32].map(|at| simd.load(from.add(at)));
            let results = [
                simd.splat(self.numbers[3]),
                simd.add(a, b),
                simd.sub(a, b),
                simd.mul_add(a, b, c),
                simd.unless_not_positive(a, b),
                simd.where_positive(a, b),
            ];
            for (i, v) in results.into_iter().enumerate() {
                simd.store(v, to.add(16 * i));
            }
            let twelves = simd.load_twelves([from, from.add(16)]);
            simd.store_twelves(twelves, [to.add(96), to.add(112)]);
            let twelves = simd.mul_add_twelves([self.numbers[48], self.numbers[49]], third.0.as_ptr(), twelves);
            simd.store_twelves(twelves, [to.add(128), to.add(144)]);
        }
        for (i, limit) in [0.5, f32::NAN, f32::INFINITY, -9.0].into_iter().enumerate() {
            // SAFETY: there are 64 numbers.
            let any = [0, 16, 48].map(|at| simd.any_not_above(unsafe { simd.load(from.add(at)) }, limit));
            any.iter().enumerate().for_each(|(j, &any)| self.out[160 + 3 * i + j] = f32::from(u8::from(any)));
        }
        // SAFETY: there are 64 numbers.
        let [a, b] = [0, 48].map(|at| unsafe { simd.load(from.add(at)) });
        self.out[172..].copy_from_slice(&[simd.total([a, b]), simd.total([b, b])]);
        // What is beyond the twelfth number is not defined.
        for at in [96, 112, 128, 144] {
            self.out[at + 12..at + 16].fill(0.0);
        }
    }
}

#[test]
fn every_level_gives_the_same_bits() {
    let mut numbers = [0.0f32; 64];
    let mut stream = crate::seed::Stream::new(7, "levels");
    numbers.iter_mut().for_each(|v| *v = stream.normal() as f32);
    for (i, v) in [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE].into_iter().enumerate() {
        numbers[16 + 2 * i] = v;
        numbers[47 - i] = v;
    }
    let run = |level| {
        let mut out = [0.0f32; 174];
        // SAFETY: the level is available.
        unsafe { dispatch_at(level, Operations { numbers: &numbers, out: &mut out }) };
        // The sign and payload of what is not a number may differ.
        out.map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() })
    };
    let expected = run(Level::Portable);
    for_each_level(|level| assert_eq!(run(level), expected, "{level:?}"));
}

#[test]
fn the_current_level_is_there_and_named() {
    assert!(Level::current().is_available());
    assert_eq!(Level::ALL.map(Level::name), ["portable", "avx2", "avx512"]);
}
