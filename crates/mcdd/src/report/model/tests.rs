//! Reports on small models: their numbers by definition, for many models and tables.

use super::*;
use crate::compute::pool::Pool;
use crate::data::{Table, digits};
use crate::evaluate::{Bootstrap, Evaluator};
use crate::head::HeadConfig;
use crate::metrics;
use crate::model::{Model, Predictions};
use crate::seed::Stream;
use crate::train::{Preset, Settings};

fn quick() -> Settings {
    Settings { hidden: vec![16], latent: 8, epochs: 4, ..Preset::Paper.settings() }
}

fn gathered(model: &Model, known: &Table, unknown: &[&Table], labels: bool) -> Report {
    let mut gather = Gather::new(model, 0.9, unknown.len(), 1).unwrap();
    let mut evaluator = Evaluator::new(model.classes(), model.threshold_at(Some(0.9)).unwrap());
    let of_model = |label: &&str| labels && model.classes().iter().any(|c| c == label);
    let names: Vec<Option<&str>> = (0..known.rows()).map(|i| known.label_name(i).filter(of_model)).collect();
    evaluator.add(&model.predict(known).unwrap(), Some(&names));
    for table in unknown {
        let set = evaluator.ood_set("");
        evaluator.add_ood(set, &model.predict(table).unwrap().confidence);
    }
    let add = |gather: &mut Gather, table: &Table, set: Option<usize>| {
        let x = model.schema().transform(table, None).unwrap();
        let p = model.predict(table).unwrap();
        for (i, x) in x.chunks_exact(model.schema().width()).enumerate() {
            let label = table.label_name(i).filter(|_| labels);
            let class = label.and_then(|l| model.classes().iter().position(|c| c == l));
            let side = set.map_or(Side::Known(class), Side::Unknown);
            gather.add(side, Place::row(i as u64 + 1), x, label, &p, i);
        }
    };
    add(&mut gather, known, None);
    for (i, table) in unknown.iter().enumerate() {
        let set = gather.set(&format!("set <{i}>"));
        add(&mut gather, table, Some(set));
    }
    let about = About { title: "<title>".into(), data: "a & b".into(), ..About::default() };
    gather.finish(about, &evaluator.finish(Bootstrap { replicates: 20, seed: 0 }).unwrap(), &Pool::new(2)).unwrap()
}

fn split() -> (Table, Table, Table) {
    let (known, unknown) = digits().leave_out("7").unwrap();
    let (train, test) = known.split(0.4, 0).unwrap();
    (train, test, unknown)
}

#[test]
fn every_position_follows_the_definition() {
    let (train, test, unknown) = split();
    let model = Model::fit(&train, &quick()).unwrap();
    let report = gathered(&model, &test, &[&unknown], true);
    let (id, ood): (Predictions, Predictions) = (model.predict(&test).unwrap(), model.predict(&unknown).unwrap());
    let right: Vec<bool> = (0..id.rows()).map(|i| test.label(i) == Some(id.class[i])).collect();
    assert_eq!(report.accuracy.as_ref().unwrap().value, percent(metrics::accuracy(&right).unwrap().accuracy));
    assert_eq!(report.positions[report.used].tpr, "0.9");
    for (at, p) in report.positions.iter().enumerate() {
        let t = model.calibration().threshold(p.tpr.parse().unwrap()).unwrap();
        let kept: Vec<usize> = (0..id.rows()).filter(|&i| t.known(id.confidence[i])).collect();
        let good = kept.iter().filter(|&&i| right[i]).count();
        let taken = ood.confidence.iter().filter(|c| t.known(**c)).count();
        assert_eq!(p.counts, (kept.len(), good, vec![taken]), "{}", p.tpr);
        assert_eq!(p.kept, percent(kept.len() as f64 / id.rows() as f64));
        assert_eq!(p.right, Some(percent(good as f64 / kept.len() as f64)));
        assert_eq!(p.rejected, [percent(1.0 - taken as f64 / ood.rows() as f64)]);
        // The confusion matrix has the same sums.
        let classes = report.classes.len();
        let sum =
            |test: &dyn Fn(&[usize; 4]) -> bool| report.counts.iter().filter(|c| test(c)).map(|c| c[3]).sum::<usize>();
        assert_eq!(sum(&|c| c[2] <= at && c[0] < classes), kept.len());
        assert_eq!(sum(&|c| c[2] <= at && c[0] == c[1]), good);
        assert_eq!(sum(&|c| c[2] <= at && c[0] == classes), taken);
    }
    for (c, class) in report.classes.iter().enumerate() {
        let rows: Vec<usize> = (0..test.rows()).filter(|&i| test.label(i) == Some(c as u32)).collect();
        assert_eq!((class.rows, class.right), (rows.len(), rows.iter().filter(|&&i| right[i]).count()));
        let predicted = id.class.iter().filter(|&&p| p == c as u32).count();
        assert_eq!(class.recall, Some(percent(class.right as f64 / rows.len() as f64)));
        assert_eq!(class.precision, Some(percent(class.right as f64 / predicted as f64)));
        assert!(class.sigma == Some(1.0) && class.radius.unwrap() > 0.0 && class.circle <= class.radius);
    }
    let mistakes = &report.groups[1].rows;
    let wrong = |i: &usize| !right[*i];
    let surest = (0..id.rows()).filter(wrong).max_by(|&a, &b| id.confidence[a].total_cmp(&id.confidence[b]));
    assert_eq!(mistakes.first().map(|w| report.points[w.point].row as usize - 1), surest);
    let nearest = &report.points[report.groups[0].rows[0].point];
    assert_eq!((nearest.set, nearest.label.as_deref()), (1, Some("7")));
    let most = ood.confidence.iter().copied().fold(f64::MIN, f64::max);
    assert!((nearest.confidence - most).abs() <= 1e-5 * most.abs());
    assert_eq!(report.picture, Some([8, 8, 1]));
    assert!(report.groups.iter().flat_map(|g| &g.rows).all(|w| w.columns.len() == 5 && w.class.is_some()));
}

#[test]
fn a_report_is_deterministic_and_small() {
    let (train, test, unknown) = split();
    let model = Model::fit(&train, &quick()).unwrap();
    let page = || gathered(&model, &test, &[&unknown, &train], true).page().unwrap();
    let first = page();
    assert_eq!(first, page());
    assert!(first.len() < 1_000_000, "{}", first.len());
    assert!(first.contains("&lt;title&gt;") && !first.contains("<title><title>") && !first.contains("set <0>"));
    // Only the page's own scripts.
    assert_eq!(first.matches("<script").count(), 2);
    for word in ["http://", "https://", "@import", "url("] {
        assert_eq!(first.matches(word).count(), usize::from(word == "http://"), "{word}");
    }
}

/// Rows around as many corners as there are classes.
fn corners(classes: usize, rows: usize, width: usize) -> Table {
    let mut random = Stream::new(4, "report");
    let labels: Vec<String> = (0..rows).map(|i| format!("c{:03}", i % classes)).collect();
    let value = |i: usize, c: usize, r: &mut Stream| {
        let side = (i % classes) >> (c % 10) & 1;
        (4.0 * side as f64 + 0.3 * r.normal()) as f32
    };
    let x: Vec<f32> =
        (0..rows).flat_map(|i| (0..width).map(|c| value(i, c, &mut random)).collect::<Vec<_>>()).collect();
    Table::from_rows(&x, width, Some(&labels)).unwrap()
}

#[test]
fn every_model_has_a_page_and_figures() {
    let table = corners(4, 200, 3);
    let (known, unknown) = table.leave_out("c003").unwrap();
    let with = |method: &str, latent: usize| Settings { head: HeadConfig::parse(method).unwrap(), latent, ..quick() };
    let all = [
        with("deep-mcdd:sigma=learned", 2),
        with("softmax", 1),
        with("soft-mcdd", 3),
        with("deep-svdd", 4),
        with("gda", 4),
        with("protonet", 4),
        Settings { epochs: 1, ..Preset::Fast.settings() },
    ];
    for settings in all {
        let model = Model::fit(&known, &settings).unwrap();
        for labels in [true, false] {
            for sets in [&[][..], &[&unknown], &[&unknown; 5]] {
                let report = gathered(&model, &known, sets, labels);
                assert_eq!(report.accuracy.is_some(), labels && model.classifies());
                assert_eq!(report.sets.len(), sets.len());
                assert_eq!(
                    report.counts.iter().map(|c| c[3]).sum::<usize>(),
                    known.rows() + sets.len() * unknown.rows()
                );
                assert!(report.points.iter().all(|p| p.at.iter().all(|v| v.is_finite())));
                assert!(report.page().unwrap().contains("</html>"));
                if sets.len() < 2 {
                    let figures = report.figures().unwrap();
                    assert!(figures.iter().any(|(name, _)| *name == "latent"));
                    assert_eq!(figures.iter().any(|(name, _)| *name == "roc"), !sets.is_empty());
                    figures.iter().for_each(|(_, f)| assert!(f.svg().ends_with("</svg>\n")));
                }
            }
        }
    }
}

#[test]
fn many_classes_are_merged() {
    let table = corners(80, 1600, 10);
    let model = Model::fit(&table, &Settings { epochs: 2, ..quick() }).unwrap();
    let report = gathered(&model, &table, &[], true);
    assert_eq!((report.classes.len(), &report.classes[59].name[..]), (60, "21 other classes"));
    assert_eq!(report.classes.iter().map(|c| c.rows).sum::<usize>(), 1600);
    assert_eq!(report.classes[59].rows, 420);
    let right: usize = report.classes.iter().map(|c| c.right).sum();
    assert_eq!(percent(right as f64 / 1600.0), report.accuracy.as_ref().unwrap().value);
    let last = &report.classes[59];
    assert_eq!((&last.recall, &last.precision), (&Some(percent(last.right as f64 / 420.0)), &None));
    assert!(report.classes[59].mean.is_none() && report.page().is_ok() && report.figures().is_ok());
}
