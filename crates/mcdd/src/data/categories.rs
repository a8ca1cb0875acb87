//! Which texts of a column become categories.
//!
//! Up to [`ALL_KEPT`] different texts are all kept. With more, those in at least [`RECURRING`] training rows are kept, and
//! the others are one category together. A column with more than 20 different texts is left out where more than half of
//! its cells hold a text that occurs once: it is free text, or an identifier. [`MAX_CATEGORIES`] is the limit for all.

use super::recognize::FEW_TEXTS;

/// The most categories of a column; the less frequent ones of a column with more are one category together.
pub const MAX_CATEGORIES: usize = 1000;

/// Up to this number of different texts all of them are categories, however rare.
const ALL_KEPT: usize = 50;

/// In a column with more texts, the number of training rows from which a text is a category of its own.
const RECURRING: usize = 5;

/// What a column of texts becomes.
#[derive(Debug, PartialEq)]
pub(super) enum Choice {
    /// It has no text.
    Empty,
    /// It has one text only.
    Constant,
    /// Categories in the order of their texts, and the number of other texts, which are one category together.
    Keep(Vec<String>, usize),
    /// Free text or identifiers: the number of different texts.
    FreeText(usize),
}

/// Chooses by the training rows. Where the caller asks for categories (`forced`), only [`MAX_CATEGORIES`] limits them.
/// Returns the number of missing cells too.
pub(super) fn choose(codes: &[u32], names: &[String], rows: &[usize], forced: bool) -> (Choice, usize) {
    let mut counts = vec![0usize; names.len()];
    let mut missing = 0;
    for &row in rows {
        match counts.get_mut(codes[row] as usize) {
            Some(count) => *count += 1,
            None => missing += 1,
        }
    }
    let mut found: Vec<(&String, usize)> = names.iter().zip(counts).filter(|(_, count)| *count > 0).collect();
    let different = found.len();
    let once = found.iter().filter(|(_, count)| *count == 1).count();
    let choice = match different {
        0 => Choice::Empty,
        1 => Choice::Constant,
        _ if !forced && different > FEW_TEXTS && 2 * once > rows.len() - missing => Choice::FreeText(different),
        _ => {
            if !forced && different > ALL_KEPT {
                found.retain(|(_, count)| *count >= RECURRING);
            }
            // The most frequent first, then by their texts.
            found.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
            found.truncate(MAX_CATEGORIES);
            let mut categories: Vec<String> = found.into_iter().map(|(name, _)| name.clone()).collect();
            categories.sort_unstable();
            match categories.len() {
                0 => Choice::FreeText(different),
                kept => Choice::Keep(categories, different - kept),
            }
        }
    };
    (choice, missing)
}

#[cfg(test)]
mod tests {
    use super::super::column::MISSING;
    use super::*;

    /// A column where text `i` occurs `counts[i]` times.
    fn column(counts: &[usize]) -> (Vec<u32>, Vec<String>, Vec<usize>) {
        let codes: Vec<u32> =
            counts.iter().enumerate().flat_map(|(i, &n)| std::iter::repeat_n(i as u32, n)).chain([MISSING]).collect();
        let names = (0..counts.len()).map(|i| format!("t{i:04}")).collect();
        let rows = (0..codes.len()).collect();
        (codes, names, rows)
    }

    fn chosen(counts: &[usize], forced: bool) -> Choice {
        let (codes, names, rows) = column(counts);
        let (choice, missing) = choose(&codes, &names, &rows, forced);
        assert_eq!(missing, 1);
        choice
    }

    /// The number of categories, and of texts that are one together.
    fn kept(counts: &[usize], forced: bool) -> (usize, usize) {
        match chosen(counts, forced) {
            Choice::Keep(categories, others) => {
                assert!(categories.is_sorted());
                (categories.len(), others)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn few_texts_are_all_kept() {
        assert_eq!(chosen(&[], false), Choice::Empty);
        assert_eq!(chosen(&[3], false), Choice::Constant);
        assert_eq!(kept(&[1, 1], false), (2, 0));
        assert_eq!(kept(&[1; 20], false), (20, 0));
        assert_eq!(kept(&[2; 50], false), (50, 0));
        assert_eq!(kept(&[5; 300], false), (300, 0));
    }

    #[test]
    fn free_text_is_left_out_and_rare_texts_are_one_category() {
        assert_eq!(chosen(&[1; 21], false), Choice::FreeText(21));
        assert_eq!(chosen(&[2; 51], false), Choice::FreeText(51));
        assert_eq!(chosen(&[1; 2000], false), Choice::FreeText(2000));
        let mut counts = vec![1; 100];
        counts.extend([80, 40, 5, 4]);
        assert_eq!(kept(&counts, false), (3, 101));
        assert_eq!(kept(&counts, true), (104, 0));
        assert_eq!(kept(&[7; 1200], false), (1000, 200));
        assert_eq!(kept(&[1; 1200], true), (1000, 200));
    }

    #[test]
    fn only_the_given_rows_count() {
        let (codes, names, _) = column(&[3, 3, 3]);
        let (choice, missing) = choose(&codes, &names, &[0, 1, 8], false);
        assert_eq!((choice, missing), (Choice::Keep(vec!["t0000".into(), "t0002".into()], 0), 0));
    }
}
