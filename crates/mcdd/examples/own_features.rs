//! Use a detector on the features of your own network.
//!
//! `cargo run --release -p mcdd --example own_features`

use mcdd::compute::pool::Pool;
use mcdd::detector::{DetectorConfig, Features, Training};
use mcdd::model::ScorerSettings;
use mcdd::prelude::*;
use mcdd::seed::Stream;

/// What a network would give: 8 features for each row, around one of two centers.
fn features(rows: usize, center: f32, seed: u64) -> Vec<f32> {
    let mut random = Stream::new(seed, "features");
    (0..rows * 8).map(|i| if i / 8 % 2 == 0 { center } else { -center } + random.normal() as f32).collect()
}

fn main() -> mcdd::Result<()> {
    let train = features(1000, 3.0, 1);
    let labels: Vec<u32> = (0..1000).map(|row| row % 2).collect();
    let training = Training {
        rows: Features { count: 1000, features: &train, logits: &[] },
        labels: Some(&labels),
        classes: 2,
        ..Training::default()
    };

    // Any detector of the list, with its settings: "knn:k=10", "vim", "energy" (on logits), …
    let settings = ScorerSettings::new(DetectorConfig::parse("mahalanobis")?);
    let names = ["positive".to_owned(), "negative".to_owned()];
    let scorer = Scorer::fit(&training, &names, &settings, Pool::shared())?;
    let threshold = scorer.threshold()?;

    for (what, center) in [("rows like the training rows", 3.0), ("rows between the classes", 0.0)] {
        let new = features(500, center, 2);
        let mut found = Predictions::default();
        scorer.predict(&Features { count: 500, features: &new, logits: &[] }, &mut found, Pool::shared())?;
        let unknown = found.confidence.iter().filter(|&&c| !threshold.known(c)).count();
        println!("{what}: {unknown} of 500 unknown");
    }
    Ok(())
}
