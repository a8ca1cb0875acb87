//! Train on a table that is in memory, predict new rows, save and load.
//!
//! `cargo run --release -p mcdd --example train_and_predict`

use mcdd::prelude::*;

fn main() -> mcdd::Result<()> {
    // Columns have names and types; a missing cell is NaN or None. Files: Table::read(&["flowers.csv".into()], &options).
    let n = 120;
    let class = |i: usize| ["daisy", "rose", "tulip"][i % 3];
    let wobble = |i: usize| (i as f64 * 0.7).sin() * 0.3;
    let flowers = Table::builder()
        .column("height", (0..n).map(|i| 10.0 * (1 + i % 3) as f64 + wobble(i)))?
        .column("petals", (0..n).map(|i| [21, 30, 6][i % 3]))?
        .column("scent", (0..n).map(|i| if i % 3 == 1 { Some("strong") } else { (i % 2 == 0).then_some("weak") }))?
        .labels((0..n).map(class))?
        .build()?;

    // Settings are checked once, here. `Settings::default()` trains seven networks; `Preset::Fast` trains one.
    let settings = Settings::builder().preset(Preset::Fast).epochs(30).seed(1).build()?;
    let model = Model::fit(&flowers, &settings)?;

    let new = Table::builder()
        .column("height", [20.1, 10.2, 500.0])?
        .column("petals", [30, 21, 3])?
        .column("scent", ["strong", "weak", "weak"])?
        .build()?;
    let found = model.predict(&new)?;
    let threshold = model.threshold()?;
    for i in 0..found.rows() {
        let label = &model.classes()[found.class[i] as usize];
        let verdict = if threshold.known(found.confidence[i]) { label } else { "unknown" };
        println!("row {}: {verdict} (most like {label}, p-value {:.3})", i + 1, found.p_value[i]);
    }

    // One file, which runs nothing when it is opened.
    let path = std::env::temp_dir().join("flowers.mcdd");
    model.save(&path)?;
    assert_eq!(Model::load(&path)?.predict(&new)?, found);
    println!("saved and loaded: {}", path.display());
    Ok(())
}
