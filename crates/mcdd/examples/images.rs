//! Train on images that are in memory.
//!
//! `cargo run --release -p mcdd --example images`

use mcdd::data::ImageShape;
use mcdd::net::NetName;
use mcdd::prelude::*;
use mcdd::seed::Stream;
use mcdd::train::{DataKind, Run};

const SHAPE: ImageShape = ImageShape { height: 8, width: 8, channels: 1 };

/// Gray images of a bright bar at `angle` (0: horizontal, 1: vertical, 2: diagonal), with noise.
fn bars(count: usize, angles: &[usize], seed: u64) -> (Vec<u8>, Vec<String>) {
    let mut random = Stream::new(seed, "bars");
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for i in 0..count {
        let (angle, at) = (angles[i % angles.len()], 2 + random.below(4));
        for (y, x) in (0..8).flat_map(|y| (0..8).map(move |x| (y, x))) {
            let on = [y == at, x == at, y == x][angle];
            pixels.push(if on { 200 } else { 20 } + random.below(40) as u8);
        }
        labels.push(["horizontal", "vertical", "diagonal"][angle].to_owned());
    }
    (pixels, labels)
}

fn main() -> mcdd::Result<()> {
    // Pixels are borrowed bytes: image by image, row by row. Folders of files: Images::read(&["photos".into()], &options).
    let (pixels, labels) = bars(400, &[0, 1], 1);
    let train = Images::from_pixels(&pixels[..], SHAPE, Some(&labels))?;

    let settings = Settings::builder().epochs(4).build_for(DataKind::Images(Some(NetName::parse("resnet8")?)))?;
    let model = Model::fit_images(&train, &settings, &Run::default())?.model;
    let threshold = model.threshold()?;

    for (what, angles) in [("bars as in training", [0, 1]), ("diagonal bars", [2, 2])] {
        let (pixels, _) = bars(100, &angles, 2);
        let found = model.predict_images(&Images::from_pixels::<&str>(&pixels[..], SHAPE, None)?)?;
        let unknown = found.confidence.iter().filter(|&&c| !threshold.known(c)).count();
        println!("{what}: {unknown} of 100 unknown");
    }
    Ok(())
}
