//! Finding bytes.

/// A bit for each byte that is one of two; the first byte is the lowest bit.
#[inline(always)]
pub(crate) fn either(block: &[u8; 64], wanted: [u8; 2]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8};
        let (parts, _) = block.as_chunks::<16>();
        let mut found = 0;
        for (i, part) in parts.iter().enumerate() {
            // SAFETY: all processors of this kind have SSE2, and a part has sixteen bytes.
            let equal = unsafe {
                let bytes = _mm_loadu_si128(part.as_ptr().cast());
                let [first, second] = wanted.map(|byte| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8)));
                _mm_movemask_epi8(_mm_or_si128(first, second))
            };
            found |= u64::from(equal as u32) << (16 * i);
        }
        found
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        either_by_words(block, wanted)
    }
}

/// The same, eight bytes at a time.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn either_by_words(block: &[u8; 64], wanted: [u8; 2]) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let repeated = wanted.map(|byte| u64::from_ne_bytes([byte; 8]));
    // The high bit of each byte that is zero.
    let zeros = |bytes: u64| !(((bytes & LOW) + LOW) | bytes | LOW);
    let eight = |bytes: u64| -> u64 {
        let found = zeros(bytes ^ repeated[0]) | zeros(bytes ^ repeated[1]);
        (found >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    };
    let (words, _) = block.as_chunks::<8>();
    let words = words.iter().enumerate();
    words.fold(0, |found, (j, &word)| found | eight(u64::from_le_bytes(word)) << (8 * j))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_where_the_bytes_are(
            block in proptest::collection::vec(prop_oneof![Just(b','), Just(b'\n'), Just(0xac), any::<u8>()], 64),
        ) {
            let block: [u8; 64] = block.try_into().unwrap();
            for wanted in [[b',', b'\n'], [0xac, 0], [b'-', b'\n']] {
                let want = (0..64).filter(|&i| wanted.contains(&block[i])).fold(0u64, |bits, i| bits | 1 << i);
                prop_assert_eq!([either(&block, wanted), either_by_words(&block, wanted)], [want; 2]);
            }
        }
    }
}
