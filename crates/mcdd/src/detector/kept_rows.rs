//! Which training rows a detector keeps, if not all: a random part that spares small classes, or rows that are spread evenly.

use crate::compute::pool::{Pool, chunks};
use crate::compute::vector::squared_distance;
use crate::seed::Stream;
use crate::stats::moments::mean;

/// Rows among which those that are spread evenly are chosen.
pub(super) const CANDIDATES: usize = 20_000;
/// Rows whose distances are computed together.
const TOGETHER: usize = 2048;
/// The most rows that cover the others.
const MAX_COVER: usize = 4000;
/// Rows whose distances to other classes are computed, and rows of these.
const SAMPLE: usize = 500;
const OTHERS: usize = 5000;

/// The given rows.
pub(super) fn select(rows: &[f32], width: usize, kept: &[usize]) -> Vec<f32> {
    kept.iter().flat_map(|&i| &rows[i * width..(i + 1) * width]).copied().collect()
}

/// `limit` of `count` rows, in their order. Only the largest classes lose rows, and these end up equally large up to one row.
pub(super) fn balanced_subset(labels: Option<&[u32]>, count: usize, limit: usize, seed: u64) -> Vec<usize> {
    let classes = labels.and_then(|labels| labels.iter().max()).map_or(1, |&last| last as usize + 1);
    let mut classes = vec![Vec::new(); classes];
    for row in 0..count {
        classes[labels.map_or(0, |l| l[row] as usize)].push(row);
    }
    // The smallest class first: what it does not use of its quota goes to the larger ones.
    classes.sort_by_key(|rows| (rows.len(), rows.first().copied()));
    let (mut left, mut kept) = (limit, Vec::with_capacity(limit));
    let count = classes.len();
    for (i, rows) in classes.iter_mut().enumerate() {
        let quota = rows.len().min(left / (count - i));
        if quota < rows.len() {
            Stream::new(seed, &format!("knn/rows/{i}")).shuffle(rows);
        }
        kept.extend_from_slice(&rows[..quota]);
        left -= quota;
    }
    kept.sort_unstable();
    kept
}

/// The indices of at most `limit` of the rows: the one that is nearest to the mean, then each time the one that is farthest from all
/// before it. Copies of a row are kept once. Ties go to the earlier row.
pub(super) fn farthest_first(rows: &[f32], width: usize, limit: usize, pool: &Pool) -> Vec<usize> {
    spread(rows, width, pool, |kept, farthest| kept == limit || farthest <= 0.0)
}

/// The indices of as few rows as leave no other row farther from them than a fraction of the median distance between rows of
/// different classes; none if half of the rows, or [`MAX_COVER`], are not enough.
pub(super) fn covering(
    rows: &[f32],
    width: usize,
    labels: &[u32],
    fraction: f64,
    seed: u64,
    pool: &Pool,
) -> Option<Vec<usize>> {
    let candidates = balanced_subset(Some(labels), labels.len(), CANDIDATES.min(labels.len()), seed);
    let radius = (fraction * between_classes(rows, width, labels)) as f32;
    let most = MAX_COVER.min(candidates.len() / 2);
    let mut covered = false;
    let kept = spread(&select(rows, width, &candidates), width, pool, |kept, farthest| {
        covered = farthest <= radius * radius;
        // Twice the rows reduce the radius by a factor of the square root of 2 at the most, if they lie on a surface or fill more.
        let hopeless = kept.is_power_of_two() && farthest * kept as f32 > radius * radius * most as f32 && kept >= 512;
        covered || hopeless || kept >= most
    });
    covered.then(|| kept.into_iter().map(|i| candidates[i]).collect())
}

/// The median distance of some rows to the nearest row of another class; 0 if there is no other class.
fn between_classes(rows: &[f32], width: usize, labels: &[u32]) -> f64 {
    let row = |i: usize| &rows[i * width..(i + 1) * width];
    let some = |most: usize| (0..labels.len()).step_by(labels.len().div_ceil(most).max(1));
    let nearest = |i: usize| {
        let others = some(OTHERS).filter(|&j| labels[j] != labels[i]);
        others.map(|j| squared_distance(row(i), row(j))).fold(f32::INFINITY, f32::min)
    };
    let mut distances: Vec<f32> = some(SAMPLE).map(nearest).filter(|d| d.is_finite()).collect();
    distances.sort_by(f32::total_cmp);
    distances.get(distances.len() / 2).map_or(0.0, |&d| libm::sqrt(f64::from(d)))
}

/// The indices of rows that are spread evenly, until `enough` says so of their number and the largest squared distance of another
/// row to them.
fn spread(rows: &[f32], width: usize, pool: &Pool, mut enough: impl FnMut(usize, f32) -> bool) -> Vec<usize> {
    let center: Vec<f32> = mean(rows, width).into_iter().map(|v| v as f32).collect();
    let count = rows.len() / width;
    let distance = |i: usize, to: &[f32]| squared_distance(&rows[i * width..(i + 1) * width], to);
    let first = (0..count).map(|i| distance(i, &center)).enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    let mut next = first.map_or(0, |(i, _)| i);
    // Of each row, the squared distance to the nearest kept one.
    let mut nearest = vec![f32::INFINITY; count];
    let mut kept = Vec::new();
    loop {
        let new = &rows[next * width..(next + 1) * width];
        kept.push(next);
        pool.split(chunks(&mut nearest, TOGETHER), |c, nearest| {
            for (i, nearest) in (c * TOGETHER..).zip(nearest) {
                *nearest = nearest.min(distance(i, new));
            }
        });
        next = (0..count).fold(0, |best, i| if nearest[i] > nearest[best] { i } else { best });
        if enough(kept.len(), nearest[next]) {
            return kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, width: usize) -> Vec<f32> {
        let mut s = Stream::new(3, "rows");
        (0..count * width).map(|_| s.normal() as f32).collect()
    }

    #[test]
    fn small_classes_stay_complete() {
        // Three classes of 10, 100 and 1000 rows.
        let labels: Vec<u32> = (0..1110).map(|i| if i < 10 { 0 } else { 1 + u32::from(i >= 110) }).collect();
        let sizes = |limit: usize| {
            let kept = balanced_subset(Some(&labels), 1110, limit, 0);
            assert!(kept.len() == limit && kept.is_sorted_by(|a, b| a < b));
            [0, 1, 2].map(|c| kept.iter().filter(|&&r| labels[r] == c).count())
        };
        assert_eq!(sizes(300), [10, 100, 190]);
        assert_eq!(sizes(101), [10, 45, 46]);
        assert_eq!(sizes(2), [0, 1, 1]);
        assert_eq!(balanced_subset(None, 1110, 50, 0).len(), 50);
        assert_ne!(balanced_subset(None, 1110, 50, 0), balanced_subset(None, 1110, 50, 1));
    }

    fn near(x: &[f32], rows: &[f32]) -> f32 {
        rows.chunks(x.len()).map(|y| squared_distance(x, y)).fold(f32::INFINITY, f32::min)
    }

    #[test]
    fn spread_rows_cover_all_others() {
        let (train, width) = (rows(700, 3), 3);
        let all: Vec<&[f32]> = train.chunks(width).collect();
        let of = |limit: usize| {
            let kept = farthest_first(&train, width, limit, &Pool::new(2));
            assert_eq!(kept, farthest_first(&train, width, limit, &Pool::new(1)));
            select(&train, width, &kept)
        };
        let kept = of(60);
        assert_eq!(kept.len(), 60 * width);
        // Every row is as near to a kept one as the kept ones are to each other, at least.
        let cover = all.iter().map(|x| near(x, &kept)).fold(0.0, f32::max);
        for (i, x) in kept.chunks(width).enumerate() {
            assert!(all.contains(&x));
            assert!(near(x, &[&kept[..i * width], &kept[(i + 1) * width..]].concat()) >= cover);
        }
        // Fewer rows are the first of more; copies are kept once.
        assert_eq!(of(20), kept[..20 * width]);
        let twice = [&train[..], &train].concat();
        assert_eq!(farthest_first(&twice, width, 1000, &Pool::new(1)).len(), train.len() / width);
    }

    #[test]
    fn a_cover_is_as_near_as_asked_and_no_larger_than_needed() {
        // Two flat classes at a distance of 10.
        let (mut train, width) = (rows(3000, 3), 3);
        train.chunks_mut(width).enumerate().for_each(|(i, x)| x[2] = 10.0 * (i % 2) as f32);
        let labels: Vec<u32> = (0..3000).map(|i| i % 2).collect();
        let of = |fraction| covering(&train, width, &labels, fraction, 0, &Pool::new(2));
        let apart = between_classes(&train, width, &labels);
        assert!((10.0..10.3).contains(&apart), "{apart}");
        let mut sizes = Vec::new();
        for fraction in [0.02, 0.05, 0.1] {
            let kept = select(&train, width, &of(fraction).unwrap());
            let radius = (fraction * apart) as f32;
            assert!(train.chunks(width).all(|x| near(x, &kept) <= radius * radius));
            let fewer = select(&train, width, &farthest_first(&train, width, kept.len() / width - 1, &Pool::new(1)));
            assert!(train.chunks(width).any(|x| near(x, &fewer) > radius * radius));
            sizes.push(kept.len() / width);
        }
        assert!(sizes.is_sorted_by(|a, b| a > b) && sizes[0] <= 1500, "{sizes:?}");
        // Too many rows would be needed, or there is nothing to compare with.
        assert!(of(0.0001).is_none());
        assert!(covering(&train, width, &[0; 3000], 0.1, 0, &Pool::new(1)).is_none());
    }
}
