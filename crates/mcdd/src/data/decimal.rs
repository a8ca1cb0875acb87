//! Short decimal numbers by operations on whole words, without a branch that depends on their digits, several at once.

/// The powers of ten that an `f64` holds exactly.
pub(super) const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

const ONES: u64 = 0x0101_0101_0101_0101;

/// The lowest bit of each byte that is a point, where digits are numbers.
#[inline(always)]
fn points(values: u64) -> u64 {
    const LOW: u64 = 0x7f * ONES;
    let x = values ^ (u64::from(b'.' ^ b'0') * ONES);
    !(((x & LOW) + LOW) | x | LOW) >> 7
}

/// What [`decimal`] says of anything but digits and a point. Else it says how many points there are.
pub(super) const OTHER: u64 = 2;

/// The number whose digits and point are the highest `length` bytes of `bytes`, the last one in the highest, and its number of points;
/// or [`OTHER`], also if `length` is not 1 to 8.
///
/// No branch depends on the digits, because a wrongly predicted one takes longer than the rest: the point is cut out by masks. All
/// steps are such that the compiler can take several numbers at once.
#[inline(always)]
pub(super) fn decimal(bytes: u64, length: u64, negative: u64) -> (f64, u64) {
    let shift = 64u64.wrapping_sub(length << 3) & 63;
    // Digits as numbers, and zeros before the first.
    let values = ((bytes ^ (0x30 * ONES)) >> shift) << shift;
    let points = points(values);
    // All bits before the first point.
    let has_point = u64::from(points != 0);
    let before = points.wrapping_sub(has_point);
    // What is 255 times the points is all bits of these bytes.
    let all = (points << 8).wrapping_sub(points);
    let digits = (values & !(before | all)) | ((values & before) << 8);
    let wrong = (digits.wrapping_add(0x76 * ONES) | digits) & (0x80 * ONES);
    // One point at most, and not alone.
    let wrong =
        wrong | (points & before) | (has_point & u64::from(length == 1)) | u64::from(length.wrapping_sub(1) >= 8);
    // Digits after the point; without one, `leading_zeros` is 64.
    let after = (u64::from(points.leading_zeros()) >> 3) & 7;
    // At most eight digits fit into 31 bits.
    let value = f64::from(join(digits) as u32 as i32) / TENS[after as usize];
    let found = if wrong != 0 { OTHER } else { has_point };
    (f64::from_bits(value.to_bits() | negative << 63), found)
}

/// The same for 9 to 16 digits and points: `high` has the last eight, `low` those before.
#[inline(always)]
fn long_decimal(low: u64, high: u64, length: u64, negative: u64) -> (f64, u64) {
    let shift = 128u64.wrapping_sub(length << 3) & 63;
    let low = ((low ^ (0x30 * ONES)) >> shift) << shift;
    let high = high ^ (0x30 * ONES);
    let points = [points(low), points(high)];
    let has_point = points.map(|points| u64::from(points != 0));
    let before = [points[0].wrapping_sub(has_point[0]), points[1].wrapping_sub(has_point[1])];
    let all = points.map(|points| (points << 8).wrapping_sub(points));
    // A point in the high half moves the last of the low half there.
    let moved = has_point[1].wrapping_neg();
    let digits = [
        ((low << 8) & moved) | (((low & !(before[0] | all[0])) | ((low & before[0]) << 8)) & !moved),
        (high & !(before[1] | all[1])) | ((high & before[1]) << 8) | ((low >> 56) & moved),
    ];
    let wrong = digits.map(|digits| (digits.wrapping_add(0x76 * ONES) | digits) & (0x80 * ONES));
    let several = (points[0] & before[0]) | (points[1] & before[1]) | (has_point[0] & has_point[1]);
    let value = (join(digits[0]) & 0xffff_ffff) * 100_000_000 + join(digits[1]);
    // Larger numbers may not be exact.
    let refused = u64::from(length.wrapping_sub(9) >= 8) | u64::from(value >= 1 << 53);
    let after = points.map(|points| (u64::from(points.leading_zeros()) >> 3) & 7);
    let after = (after[1] & moved) | ((after[0] + 8) & has_point[0].wrapping_neg() & !moved);
    let value = value as i64 as f64 / TENS[(after & 15) as usize];
    let found = if wrong[0] | wrong[1] | several | refused != 0 { OTHER } else { has_point[0] | has_point[1] };
    (f64::from_bits(value.to_bits() | negative << 63), found)
}

/// Cells that are read at once.
pub(super) const CELLS: usize = 8;

/// Reads several cells as [`number::cell`](super::number::cell) would: numbers of at most sixteen digits and points after the sign that are exact, with a point only
/// if `points` has a 1. Returns a bit for each cell that is something else, whose value is not a number.
///
/// What calls it is to be marked `#[inline(always)]`, below a [`Kernel`](crate::compute::simd::Kernel), so that it is compiled for the
/// vectors that the machine has.
#[inline(always)]
pub(super) fn cells(
    text: &[u8],
    starts: &[u32; CELLS],
    ends: &[u32; CELLS],
    points: &[u8; CELLS],
    values: &mut [f64; CELLS],
) -> u64 {
    // The eight bytes before a place: what of them belongs to the cell before is shifted out.
    let before = |end: usize| {
        let bytes = end.checked_sub(8).and_then(|from| text.get(from..end)).and_then(<[u8]>::first_chunk::<8>);
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    };
    let (mut high, mut lengths, mut negatives) = ([0u64; CELLS], [0u64; CELLS], [0u64; CELLS]);
    for i in 0..CELLS {
        let (start, end) = (starts[i] as usize, ends[i] as usize);
        high[i] = before(end);
        negatives[i] = u64::from(text.get(start).is_some_and(|&first| first == b'-'));
        lengths[i] = (end as u64).wrapping_sub(start as u64).wrapping_sub(negatives[i]);
    }
    let mut others = [0u64; CELLS];
    for i in 0..CELLS {
        let (value, found) = decimal(high[i], lengths[i], negatives[i]);
        let other = found > u64::from(points[i]);
        values[i] = if other { f64::NAN } else { value };
        others[i] = u64::from(other) << i;
    }
    let others = others.iter().fold(0, |all, other| all | other);
    if lengths.iter().fold(0, |all, length| all | u64::from(length.wrapping_sub(9) < 8)) == 0 {
        return others;
    }
    let mut low = [0u64; CELLS];
    for i in 0..CELLS {
        low[i] = before((ends[i] as usize).saturating_sub(8));
    }
    let mut read = [0u64; CELLS];
    for i in 0..CELLS {
        let (value, found) = long_decimal(low[i], high[i], lengths[i], negatives[i]);
        let long = found <= u64::from(points[i]);
        values[i] = if long { value } else { values[i] };
        read[i] = u64::from(long) << i;
    }
    others & !read.iter().fold(0, |all, read| all | read)
}

/// The number of eight digits, the first in the lowest byte: pairs, fours and then all eight are joined. Products of 32 bits are in
/// all vectors.
#[inline(always)]
pub(super) fn join(digits: u64) -> u64 {
    const HALF: u64 = 0xffff_ffff;
    let pairs = (digits << 3).wrapping_add(digits << 1).wrapping_add(digits >> 8);
    let (low, high) = (pairs & 0x0000_00ff_0000_00ff, (pairs >> 16) & 0x0000_00ff_0000_00ff);
    (low & HALF) * 1_000_000 + (low >> 32) * 100 + (high & HALF) * 10_000 + (high >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::simd::{Kernel, Simd, dispatch_at, for_each_level};
    use proptest::prelude::*;

    /// [`cells`] at a level of vectors.
    struct AtOnce<'a> {
        text: &'a [u8],
        starts: [u32; CELLS],
        ends: [u32; CELLS],
        points: [u8; CELLS],
        values: &'a mut [f64; CELLS],
        others: &'a mut u64,
    }

    impl Kernel for AtOnce<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            *self.others = cells(self.text, &self.starts, &self.ends, &self.points, self.values);
        }
    }

    proptest! {
        #[test]
        fn cells_at_once_are_single_cells(
            cells in proptest::collection::vec(
                "[-]?[0-9.]{0,9}|[-]?[0-9]{0,16}[.]?[0-9]{0,8}|[-+]?[0-9]{1,3}[.][0-9]{3,13}|[ -9A-Z\u{c}\u{ff}]{0,17}",
                CELLS,
            ),
            before in "[0-9.]{0,17}",
            points in proptest::collection::vec(0u8..2, CELLS),
        ) {
            let mut text = before;
            let (mut starts, mut ends) = ([0; CELLS], [0; CELLS]);
            for (i, cell) in cells.iter().enumerate() {
                text.push(',');
                starts[i] = text.len() as u32;
                text.push_str(cell);
                ends[i] = text.len() as u32;
            }
            let points: [u8; CELLS] = points.try_into().unwrap();
            let mut all_levels = Vec::new();
            for_each_level(|level| {
                let (mut values, mut others) = ([7.0; CELLS], 0);
                let kernel = AtOnce { text: text.as_bytes(), starts, ends, points, values: &mut values, others: &mut others };
                // SAFETY: the machine has the level.
                unsafe { dispatch_at(level, kernel) };
                all_levels.push((values.map(f64::to_bits), others));
            });
            for (values, others) in all_levels {
                for (i, cell) in cells.iter().enumerate() {
                    let digits = cell.strip_prefix('-').unwrap_or(cell);
                    // At the front of the text there are no eight, or sixteen, bytes before the end.
                    let whole: String = digits.chars().filter(|&c| c != '.').collect();
                    let read = match digits.len() {
                        1..=8 => ends[i] >= 8,
                        9..=16 => ends[i] >= 16 && whole.parse::<u64>().is_ok_and(|whole| whole < 1 << 53),
                        _ => false,
                    } && digits.bytes().all(|b| b == b'.' || b.is_ascii_digit())
                        && !whole.is_empty()
                        && digits.len() - whole.len() <= usize::from(points[i]);
                    prop_assert_eq!(others >> i & 1 == 0, read, "{}", cell);
                    let want = if read { cell.parse::<f64>().unwrap() } else { f64::NAN };
                    prop_assert_eq!(values[i], want.to_bits(), "{}", cell);
                }
            }
        }
    }
}
