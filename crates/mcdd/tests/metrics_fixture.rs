//! The metrics against scikit-learn, on the cases of `scripts/metrics_fixtures.py`.

use mcdd::metrics::{detection, openood};
use serde_json::Value;

fn scores(text: &Value) -> Vec<f64> {
    // Read here and not by the JSON parser, whose last bit is not guaranteed.
    text.as_str().unwrap().split(' ').map(|s| s.parse().unwrap()).collect()
}

#[test]
fn agrees_with_scikit_learn() {
    let fixture: Value = serde_json::from_str(include_str!("fixtures/metrics.json")).unwrap();
    let cases = fixture["cases"].as_array().unwrap();
    assert!(cases.len() >= 60);
    let mut with_ties = 0;
    for case in cases {
        let (id, ood) = (scores(&case["id"]), scores(&case["ood"]));
        let found = detection(&id, &ood).unwrap();
        let open = openood(&id, &ood).unwrap();
        let mut values: Vec<(&str, f64)> = found.rows().iter().map(|row| (row.key, row.value)).collect();
        values.extend([
            ("tie_fraction", found.tie_fraction),
            ("openood_fpr95", open.fpr95),
            ("openood_auroc", open.auroc),
            ("openood_aupr_in", open.aupr_in),
            ("openood_aupr_out", open.aupr_out),
        ]);
        let expected = case["expected"].as_object().unwrap();
        assert_eq!(expected.len(), values.len());
        for (key, value) in values {
            let expected = expected[key].as_f64().unwrap();
            assert!((value - expected).abs() <= 1e-12, "{}: {key} is {value}, not {expected}", case["name"]);
        }
        assert_eq!((found.n_id, found.n_ood), (id.len(), ood.len()));
        with_ties += usize::from(found.tie_fraction > 0.0);
    }
    assert!(with_ties >= 30, "only {with_ties} cases have ties between ID and OOD");
}
