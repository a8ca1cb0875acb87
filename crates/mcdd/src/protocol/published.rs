//! The paper's printed numbers (Tables 2 to 4), for comparison with ours. They are stored in `published.tsv`.

use std::sync::LazyLock;

/// One printed number, in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The number of the table in the paper.
    pub table: u32,
    /// The network: mlp, resnet or densenet.
    pub network: String,
    /// The data set, by its name in [`sets`](crate::data::sets).
    pub data: String,
    /// The class that was left out, as its publisher calls it, or the set that was OOD; `-` for accuracies of images.
    pub ood: String,
    /// accuracy, tnr85, auroc, aupr_id or detection_accuracy.
    pub metric: String,
    /// softmax+msp, softmax+mahalanobis or deep-mcdd.
    pub method: String,
    /// In percent.
    pub value: f64,
}

static ALL: LazyLock<Vec<Published>> = LazyLock::new(|| {
    let lines = include_str!("published.tsv").lines().filter(|l| !l.starts_with('#')).skip(1);
    lines.filter_map(read).flatten().collect()
});

/// The methods of the paper's tables, in their order.
pub const METHODS: [&str; 3] = ["softmax+msp", "softmax+mahalanobis", "deep-mcdd"];

/// A line has a number for each method.
fn read(line: &str) -> Option<[Published; 3]> {
    let parts: Vec<&str> = line.split('\t').collect();
    let [table, network, data, ood, metric, numbers @ ..] = parts.as_slice() else { return None };
    let table = table.parse().ok()?;
    let numbers: Vec<f64> = numbers.iter().map(|n| n.parse()).collect::<Result<_, _>>().ok()?;
    let numbers: [f64; 3] = numbers.try_into().ok()?;
    Some(std::array::from_fn(|i| Published {
        table,
        network: network.to_string(),
        data: data.to_string(),
        ood: ood.to_string(),
        metric: metric.to_string(),
        method: METHODS[i].to_owned(),
        value: numbers[i],
    }))
}

/// All numbers.
pub fn all() -> &'static [Published] {
    &ALL
}

/// The paper's number for a table with a class left out (Table 2), in percent.
pub fn tabular(data: &str, ood: &str, metric: &str, method: &str) -> Option<f64> {
    let same =
        |p: &&Published| p.table == 2 && p.data == data && p.ood == ood && p.metric == metric && p.method == method;
    ALL.iter().find(same).map(|p| p.value)
}

/// The network of the paper's image tables that is of the same family.
pub fn network(name: &str) -> Option<&'static str> {
    match name {
        _ if name.starts_with("resnet") => Some("resnet34"),
        _ if name.starts_with("densenet") => Some("densenet100"),
        _ => None,
    }
}

/// The paper's number for images of one set against those of another (Tables 3 and 4), in percent, with the network of the
/// same family ([`network`]). Accuracies are the same for all sets.
pub fn images(name: &str, data: &str, ood: &str, metric: &str, method: &str) -> Option<f64> {
    let family = network(name)?.trim_end_matches(|c: char| c.is_ascii_digit());
    let ood = if metric == "accuracy" { "-" } else { ood };
    let same = |p: &&Published| {
        p.table > 2
            && (p.network.as_str(), p.data.as_str(), p.ood.as_str()) == (family, data, ood)
            && (p.metric.as_str(), p.method.as_str()) == (metric, method)
    };
    ALL.iter().find(same).map(|p| p.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data sets have the sizes of the paper's Table 1.
    #[test]
    fn sets_are_those_of_the_paper() {
        let lines = include_str!("published_sets.tsv").lines().filter(|l| !l.starts_with('#')).skip(1);
        let found: Vec<String> = lines.map(str::to_owned).collect();
        let ours = crate::data::sets::ALL.iter().take(found.len());
        let ours: Vec<String> =
            ours.map(|s| format!("{}\t{}\t{}\t{}", s.name, s.features, s.rows, s.classes)).collect();
        assert_eq!((found.len(), found), (4, ours));
    }

    /// Means of the paper's tables, computed independently from the same source.
    #[test]
    fn every_number_is_there() {
        let count = |table| all().iter().filter(|p| p.table == table).count();
        assert_eq!((count(2), count(3), count(4)), (34 * 5 * 3, 6 * 3, 18 * 4 * 3));
        assert!(all().iter().all(|p| (0.0..=100.0).contains(&p.value)));
        assert_eq!(tabular("gas", "1", "auroc", "deep-mcdd"), Some(96.08));
        assert_eq!(images("resnet34", "svhn", "cifar10", "auroc", "deep-mcdd"), Some(95.60));
        assert_eq!(images("densenet100", "cifar10", "svhn", "accuracy", "softmax+msp"), Some(92.87));
        assert_eq!(images("resnet20", "svhn", "cifar10", "auroc", "deep-mcdd"), Some(95.60));
        assert_eq!(images("mlp", "svhn", "cifar10", "auroc", "deep-mcdd"), None);
        assert_eq!(tabular("mnist", "9", "detection_accuracy", "softmax+msp"), Some(80.44));
        assert_eq!(tabular("drive", "11", "tnr85", "softmax+mahalanobis"), Some(100.0));
        assert_eq!(tabular("drive", "12", "tnr85", "softmax+mahalanobis"), None);
        for (data, softmax, mahalanobis, ours) in [
            ("gas", 74.3, 87.7, 97.99),
            ("shuttle", 60.6, 98.90, 99.43),
            ("drive", 42.5, 83.8, 86.96),
            ("mnist", 73.6, 72.9, 88.69),
        ] {
            for (method, mean) in METHODS.iter().zip([softmax, mahalanobis, ours]) {
                let same =
                    |p: &&Published| p.table == 2 && p.data == data && p.metric == "auroc" && p.method == *method;
                let values: Vec<f64> = all().iter().filter(same).map(|p| p.value).collect();
                let found = values.iter().sum::<f64>() / values.len() as f64;
                assert!((found - mean).abs() < 0.06, "{data} {method}: {found} {mean}");
            }
        }
    }
}
