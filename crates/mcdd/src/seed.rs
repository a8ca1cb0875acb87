//! Named random streams from one seed.
//!
//! Everything random uses a stream with its own name (`"init/0"`, `"shuffle/0/17"`). So a new consumer changes the numbers
//! of no other, and training can resume at any epoch without saved generator state. The generator is ChaCha8. The
//! distributions are implemented here, so that an upgrade of a random-number crate changes no result.
//!
//! ```
//! use mcdd::seed::Stream;
//!
//! let draw = |seed, name| Stream::new(seed, name).below(1000);
//! assert_eq!(draw(7, "shuffle"), draw(7, "shuffle"));
//! assert_ne!(draw(7, "shuffle"), draw(8, "shuffle"));
//! ```

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// A stream of random numbers that depends only on the seed and its name.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream `name` of `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        let mut key = *b"mcdd random stream, version 1   ";
        key[24..].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        // FNV-1a selects one of the 2^64 independent streams of the key.
        let id = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        rng.set_stream(id);
        Stream(rng)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform integer in `0..n`, without bias.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        assert!(n > 0, "below(0) has no value to return");
        // Lemire's method: multiply, and reject the few values that would be over-represented.
        let threshold = n.wrapping_neg() % n;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            if wide as u64 >= threshold {
                return (wide >> 64) as usize;
            }
        }
    }

    /// A standard normal number (Box-Muller, one of the pair).
    pub fn normal(&mut self) -> f64 {
        let u = 1.0 - self.uniform();
        let v = self.uniform();
        libm::sqrt(-2.0 * libm::log(u)) * libm::cos(core::f64::consts::TAU * v)
    }

    /// Shuffles the items (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i + 1);
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_named_and_reproducible() {
        let take = |seed, name| {
            let mut s = Stream::new(seed, name);
            [s.next_u64(), s.next_u64()]
        };
        assert_eq!(take(1, "a"), take(1, "a"));
        assert_ne!(take(1, "a"), take(1, "b"));
        assert_ne!(take(1, "a"), take(2, "a"));
    }

    #[test]
    fn distributions_have_the_right_moments() {
        let mut s = Stream::new(7, "moments");
        let n = 100_000;
        let (mut mean, mut square, mut counts) = (0.0, 0.0, [0usize; 6]);
        for _ in 0..n {
            let x = s.normal();
            mean += x / n as f64;
            square += x * x / n as f64;
            counts[s.below(6)] += 1;
            assert!((0.0..1.0).contains(&s.uniform()));
        }
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.02);
        assert!(counts.iter().all(|c| (c * 6).abs_diff(n) < n / 20), "{counts:?}");
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut items: Vec<usize> = (0..100).collect();
        Stream::new(3, "shuffle").shuffle(&mut items);
        assert!(items.iter().enumerate().any(|(i, &v)| i != v));
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(i, &v)| i == v));
    }
}
