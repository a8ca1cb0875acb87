//! The default settings on small, wide, unbalanced and unusual tables.

use mcdd::data::{Column, Table, digits};
use mcdd::model::Model;
use mcdd::seed::Stream;
use mcdd::train::{Callback, Epoch, Run, Settings};

/// A table of numbers with a class for each row.
fn table(rows: &[(Vec<f64>, usize)]) -> Table {
    let width = rows[0].0.len();
    let mut csv: String = (0..width).map(|i| format!("f{i},")).collect();
    csv.push_str("label\n");
    for (values, class) in rows {
        values.iter().for_each(|v| csv.push_str(&format!("{v},")));
        csv.push_str(&format!("c{class}\n"));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(&path, csv).unwrap();
    Table::read(&[path], &Default::default()).unwrap()
}

/// Classes of the given sizes, each around its own center.
fn classes(sizes: &[usize], width: usize) -> Vec<(Vec<f64>, usize)> {
    let mut s = Stream::new(5, "awkward");
    let mut rows = Vec::new();
    for (class, &size) in sizes.iter().enumerate() {
        let place: Vec<f64> = (0..width).map(|_| 4.0 * s.normal()).collect();
        rows.extend((0..size).map(|_| (place.iter().map(|p| p + s.normal()).collect(), class)));
    }
    rows
}

/// Trains with the default settings and few epochs, and checks all predictions.
fn check(table: &Table) -> Model {
    let model = Model::fit(table, &Settings::builder().epochs(4).build().unwrap()).unwrap();
    let again = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
    let found = again.predict(table).unwrap();
    assert_eq!(found, model.predict(table).unwrap());
    let numbers = found.confidence.iter().chain(&found.p_value).chain(&found.posterior).chain(&found.distance);
    assert!(numbers.into_iter().all(|v| v.is_finite()));
    assert!(found.p_value.iter().all(|p| *p > 0.0 && *p <= 1.0));
    model
}

#[test]
fn unusual_tables() {
    check(&table(&classes(&[20; 4], 3)));
    check(&table(&classes(&[30, 30], 2)));
    check(&table(&classes(&[10; 500], 4)));
    check(&table(&classes(&[40; 3], 1)));
    check(&table(&classes(&[20; 3], 2000)));
    check(&table(&classes(&[5, 5], 2)));
    check(&table(&classes(&[3000, 5], 3)));
    // All rows of a class are equal; then there are outliers.
    let mut same: Vec<(Vec<f64>, usize)> =
        (0..90).map(|i| (vec![(i % 3) as f64, 1.0 + (i % 3) as f64], i % 3)).collect();
    check(&table(&same));
    same[7].0[0] = 1e30;
    same[8].0[1] = -1e-30;
    check(&table(&same));
    // The last batch has one row.
    check(&table(&classes(&[75, 76, 72], 3)));
}

#[test]
fn constant_columns_are_an_error() {
    let constant: Vec<(Vec<f64>, usize)> = (0..40).map(|i| (vec![1.0, 2.0], i % 2)).collect();
    let error = Model::fit(&table(&constant), &Settings::default()).err().unwrap();
    assert!(error.to_string().contains("constant"), "{error}");
}

#[test]
fn values_outside_the_clipping_range_lower_the_confidence() {
    let rows = classes(&[100; 3], 4);
    let model = Model::fit(&table(&rows), &Settings::builder().epochs(20).build().unwrap()).unwrap();
    let threshold = model.threshold().unwrap();
    let unknown = |factor: f64| {
        // The first value of each row is moved; clipped values are all equal to the networks.
        let moved: Vec<_> = rows.iter().map(|(v, c)| ([&[v[0] + factor], &v[1..]].concat(), *c)).collect();
        let found = model.predict(&table(&moved)).unwrap();
        found.confidence.iter().filter(|&&c| !threshold.known(c)).count() as f64 / rows.len() as f64
    };
    assert!(unknown(0.0) < 0.15);
    let fractions = [1e2, 1e3, 1e6, 1e12].map(unknown);
    assert!(fractions.iter().all(|&f| f == 1.0), "{fractions:?}");
    let confidence = |v: f64| {
        let row = [&[v], &rows[0].0[1..]].concat();
        model.predict(&table(&[(row, 0)])).unwrap().confidence[0]
    };
    let falling = [1e2, 1e3, 1e6, 1e30].map(confidence);
    assert!(falling.is_sorted_by(|a, b| a > b), "{falling:?}");
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let table = digits().select(&(0..300).collect::<Vec<_>>());
    let settings = Settings::builder().epochs(3).build().unwrap();
    let bytes = |threads| {
        let run = Run { threads, ..Run::default() };
        Model::fit_with(&table, &settings, &run).unwrap().model.to_bytes().unwrap()
    };
    let one = bytes(1);
    assert!([2, 3, 5, 7].into_iter().all(|threads| bytes(threads) == one));
}

#[test]
fn a_network_does_not_depend_on_the_number_of_others() {
    let table = digits().select(&(0..300).collect::<Vec<_>>());
    let with = |members| {
        let settings = Settings::builder().members(members).calibration_fraction(0.2).epochs(2).build().unwrap();
        Model::fit(&table, &settings).unwrap()
    };
    let (five, two) = (with(5), with(2));
    assert_eq!((five.members(), two.members()), (5, 2));
    assert_eq!(five.history(1), two.history(1));
    let x = five.schema().transform(&table, None).unwrap();
    assert_eq!(five.latents(1, &x), two.latents(1, &x));
    assert_ne!(five.latents(0, &x), two.latents(1, &x));
}

/// Counts epochs.
#[derive(Default)]
struct Count(std::sync::Mutex<(usize, usize, usize)>);

impl Callback for Count {
    fn begin(&self, members: usize, epochs: usize, _rows: usize) {
        *self.0.lock().unwrap() = (members, epochs, 0);
    }
    fn epoch(&self, _member: usize, _epoch: &Epoch) {
        self.0.lock().unwrap().2 += 1;
    }
}

#[test]
fn a_limit_of_steps_limits_the_epochs_and_is_reported() {
    let table = digits();
    let rows = table.rows() * 9 / 10;
    let settings = Settings::builder().epochs(9).steps(rows.div_ceil(200) * 2).members(2).build().unwrap();
    let count = Count::default();
    let fitted = Model::fit_with(&table, &settings, &Run { callback: &count, ..Run::default() }).unwrap();
    assert_eq!(*count.0.lock().unwrap(), (2, 2, 4));
    assert_eq!(fitted.model.history(1).unwrap().0.len(), 2);
    assert_eq!(*fitted.model.settings(), settings);
    assert!(fitted.notices.iter().any(|n| n.contains("2 epochs instead of 9")));
    // At least one epoch.
    assert_eq!(Settings::builder().epochs(9).steps(1).build().unwrap().epochs_for(1_000_000), 1);
    assert_eq!(settings.epochs_for(10), 9);
}

#[test]
fn the_file_of_many_rows_is_small() {
    // Of 60,000 rows each network stores 50,000 at the most, and far fewer where rows lie close together.
    let mut s = Stream::new(1, "large");
    let values: Vec<f64> = (0..60_000).map(|i| (i % 2) as f64 * 5.0 + s.normal()).collect();
    let mut large = table(&[(vec![0.0], 0), (vec![1.0], 1)]);
    let picks: Vec<usize> = (0..60_000).map(|i| i % 2).collect();
    large = large.select(&picks);
    large.columns = vec![Column::Number(values)];
    let builder = || Settings::builder().epochs(1).hidden([4]).latent(2).members(2);
    let size = |settings| Model::fit(&large, &settings).unwrap().to_bytes().unwrap().len();
    let rows = 2 * 50_000 * 2 * 4;
    let all = size(builder().detector("knn:k=1:log=true:rows=50000").build().unwrap());
    assert!(all > rows && all < rows + 200_000, "{all}");
    let few = size(builder().build().unwrap());
    assert!(few < 2 * 4_000 * 2 * 4 + 200_000, "{few}");
}
