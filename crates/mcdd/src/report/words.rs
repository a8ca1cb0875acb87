//! What the metrics mean, in plain words, and numbers of rows.

use crate::data::sets::thousands;

/// `1 row`, `1,234 rows`.
pub(super) fn rows(n: usize) -> String {
    format!("{} row{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// A sentence about a metric, by its key in [`crate::metrics::Row`].
pub(super) fn meaning(key: &str) -> &'static str {
    match key {
        "accuracy" => "The fraction of known rows whose predicted class is right, whether they are kept or not.",
        "auroc" => {
            "How often a known row gets a higher confidence than an unknown row, over all pairs of them. 100 is perfect, \
             50 is chance. It is the area under the ROC curve."
        }
        "aupr_id" => {
            "The area under the curve of precision against recall, with known rows as the positive ones. 100 is perfect, \
             chance is the percentage of known rows."
        }
        "aupr_ood" => "The same with unknown rows as the positive ones. Chance is the percentage of unknown rows.",
        "tnr85" => "The fraction of unknown rows that are rejected at a threshold that keeps 85% of these known rows.",
        "tnr95" => "The fraction of unknown rows that are rejected at a threshold that keeps 95% of these known rows.",
        "fpr95_id" => {
            "The fraction of unknown rows that are kept at that threshold: 100 minus the TNR. Lower is better."
        }
        "fpr95_ood" => {
            "The fraction of known rows that are rejected at a threshold that rejects 95% of the unknown rows. Lower is \
             better."
        }
        "detection_accuracy" => {
            "The mean of the fraction of known rows that are kept and of unknown rows that are rejected, at the threshold \
             where it is largest. 50 is chance."
        }
        "tie_fraction" => "The fraction of pairs of a known and an unknown row that have the same confidence.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::detection;

    #[test]
    fn one_row_is_singular() {
        assert_eq!([0, 1, 1234].map(rows), ["0 rows", "1 row", "1,234 rows"]);
    }

    #[test]
    fn every_metric_has_a_meaning() {
        let found = detection(&[1.0], &[0.0]).unwrap();
        let keys = found.rows().map(|r| r.key).into_iter().chain(["accuracy", "tie_fraction"]);
        keys.for_each(|key| assert!(meaning(key).ends_with('.'), "{key}"));
    }
}
