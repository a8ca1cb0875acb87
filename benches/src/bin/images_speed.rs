//! How fast images are read and batches made ready: `images_speed PATH...`, or made-up images of CIFAR's size.

use std::path::PathBuf;
use std::time::Instant;

use mcdd::data::{Augment, ImageOptions, ImageShape, ImageSpec, Images, Label, Loader, Loading};

fn main() -> mcdd::Result<()> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let images = if paths.is_empty() {
        let shape = ImageShape { height: 32, width: 32, channels: 3 };
        let pixels: Vec<u8> = (0..20_000 * shape.values()).map(|i| (i * 7 % 251) as u8).collect();
        Images::from_pixels(pixels, shape, None::<&[&str]>)?
    } else {
        let start = Instant::now();
        let options = ImageOptions { label: Label::None, ..ImageOptions::default() };
        let (images, notices) = Images::read(&paths, &options)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("read {} images in {seconds:.2} s: {:.0} a second", images.rows(), images.rows() as f64 / seconds);
        notices.iter().for_each(|notice| println!("note: {notice}"));
        images
    };
    let rows: Vec<usize> = (0..images.rows()).collect();
    let start = Instant::now();
    let spec = ImageSpec::fit(&images, &rows)?;
    println!("normalization fitted in {:.3} s", start.elapsed().as_secs_f64());
    // Interleaved, so that what else the machine does meets all of them.
    for round in 0..3 {
        for augment in [None, Some(Augment::default())] {
            let what = Loading { images: &images, rows: &rows, spec: &spec, augment, seed: 1, batch: 64, threads: 1 };
            let seconds = std::thread::scope(|scope| {
                let mut loader = Loader::start(scope, what)?;
                loader.epoch(round, rows.chunks(64))?;
                let start = Instant::now();
                while loader.next_batch().is_some() {}
                mcdd::Result::Ok(start.elapsed().as_secs_f64())
            })?;
            let what = if augment.is_some() { "augmented" } else { "plain" };
            println!("{what}: {:.0} images a second by one thread", rows.len() as f64 / seconds);
        }
    }
    Ok(())
}
