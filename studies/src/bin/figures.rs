//! Draws bars and lines of numbers that are made up, to see how they look: `figures FOLDER`.

use mcdd::report::figure::{BarPanel, Figure, LinePanel, Theme, Value, bars, lines};

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| s.to_string()).collect()
}

fn write(folder: &str, name: &str, figure: &Figure) -> Result<(), Box<dyn std::error::Error>> {
    let path = |end: &str| format!("{folder}/{name}{end}");
    std::fs::write(path(".svg"), figure.svg())?;
    std::fs::write(path(".png"), figure.png(Theme::Light)?)?;
    std::fs::write(path("-dark.png"), figure.png(Theme::Dark)?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: figures FOLDER")?;
    let metrics = ["ID accuracy", "TNR at 85% TPR", "AUROC", "Detection accuracy"];
    let value = |mean: f64, deviation: f64| Some(Value { mean, deviation: Some(deviation) });
    let panel = |title: &str, shift: f64| BarPanel {
        title: title.into(),
        unit: "%".into(),
        groups: names(&metrics),
        values: vec![
            vec![value(99.4 - shift, 0.2), value(98.1 - shift, 1.3), value(97.2 - shift, 0.9), value(94.0, 1.1)],
            vec![value(98.9 - shift, 0.4), value(91.1 - shift, 3.3), value(93.2 - shift, 2.9), value(88.3, 2.0)],
            vec![None, value(43.1 - shift, 9.0), value(71.9 - shift, 6.4), value(67.8, 5.2)],
            vec![None, value(31.6 - shift, 12.2), value(61.0 - shift, 8.8), value(60.1, 6.1)],
        ],
    };
    let panels = ["GasSensor", "Shuttle", "DriveDiagnosis", "MNIST"];
    let panels: Vec<BarPanel> = panels.iter().enumerate().map(|(i, p)| panel(p, 2.0 * i as f64)).collect();
    let methods = names(&["Deep-MCDD", "Soft-MCDD", "Deep-SVDD", "ALAD"]);
    let caption = "Made-up numbers. Means over classes, folds and seeds; whiskers: one standard deviation; n/a: the method \
                   does not classify.";
    write(&folder, "bars", &bars("Deep-MCDD and methods without classes", caption, &methods, &panels)?)?;
    write(&folder, "bars-one", &bars("One data set", caption, &methods, &panels[..1])?)?;

    let x: Vec<f64> = (-3..=3).map(|e| 10f64.powi(e)).collect();
    let curve = |top: f64, best: f64, width: f64| {
        let one = |x: &f64| {
            let away = (x.log10() - best) / width;
            value(top * (0.75 + 0.25 / (1.0 + away * away)), 0.4 + 0.8 * away.abs())
        };
        x.iter().map(one).collect::<Vec<_>>()
    };
    let panel = |title: &str, shift: f64| LinePanel {
        title: title.into(),
        x_name: "ν, weight of the distance term".into(),
        y_name: "%".into(),
        log_x: true,
        x: x.clone(),
        values: [(99.5, 3.0), (98.0, 2.5), (97.5, 2.6), (93.0, 2.0), (98.8, 2.4), (96.1, 2.2)]
            .iter()
            .map(|(top, width)| curve(*top - shift, -0.5, *width))
            .collect(),
    };
    let series = names(&["ID accuracy", "TNR at 85% TPR", "AUROC", "Detection accuracy", "AUPR in", "AUPR out"]);
    let caption = "Made-up numbers. Means over classes, folds and seeds; bands: one standard deviation to each side.";
    write(
        &folder,
        "lines",
        &lines("All metrics against ν on GasSensor", caption, &series, &[panel("GasSensor", 0.0)])?,
    )?;
    let panels: Vec<LinePanel> = (0..4).map(|i| panel(&format!("Data set {i}"), f64::from(i) * 3.0)).collect();
    write(&folder, "lines-many", &lines("All metrics against ν", caption, &series, &panels)?)?;
    Ok(())
}
