//! Evaluate a model: accuracy by class, and detection of rows that it should not know.
//!
//! `cargo run --release -p mcdd --example evaluation`

use mcdd::data::digits;
use mcdd::prelude::*;

fn main() -> mcdd::Result<()> {
    let (known, sevens) = digits().leave_out("7")?;
    let (train, test) = known.split(0.2, 0)?;
    let settings = Settings::builder().preset(Preset::Fast).epochs(30).build()?;
    let model = Model::fit(&train, &settings)?;

    // Nothing is fitted here: model and threshold come from the training rows.
    let evaluation =
        Evaluation::of_tables(&model, &test, &[("sevens", &sevens)], model.threshold()?, Bootstrap::default())?;
    if let Some(accuracy) = &evaluation.accuracy {
        println!("accuracy {:.3} on {} rows", accuracy.value, evaluation.rows);
    }
    println!("kept as known: {:.3} (asked for: {})", evaluation.kept, evaluation.threshold.wanted);
    for set in &evaluation.ood {
        println!("{}: {:.3} rejected", set.name, set.rejected);
        for metric in set.metrics() {
            println!("  {} (positive: {}): {:.3}", metric.name, metric.positive, metric.value);
        }
    }
    Ok(())
}
