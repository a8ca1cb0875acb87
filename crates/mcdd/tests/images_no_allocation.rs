//! Batches of images are prepared without allocating, once an epoch has begun.

mod counting;

use counting::allocations;
use mcdd::data::{Augment, ImageShape, ImageSpec, Images, Loader, Loading};

#[test]
fn batches_allocate_nothing() {
    let shape = ImageShape { height: 8, width: 8, channels: 3 };
    let pixels: Vec<u8> = (0..100 * shape.values()).map(|i| (i % 251) as u8).collect();
    let labels: Vec<String> = (0..100).map(|i| (i % 4).to_string()).collect();
    let images = Images::from_pixels(pixels, shape, Some(&labels)).unwrap();
    let rows: Vec<usize> = (0..100).collect();
    let spec = ImageSpec::fit(&images, &rows).unwrap();
    for threads in [1, 2] {
        let augment = Some(Augment::default());
        let what = Loading { images: &images, rows: &rows, spec: &spec, augment, seed: 1, batch: 16, threads };
        std::thread::scope(|scope| {
            let mut loader = Loader::start(scope, what).unwrap();
            // A thread that wakes up for the first time may allocate; one that always does would do so in every epoch.
            let least = (0..5).map(|epoch| {
                loader.epoch(epoch, rows.chunks(16)).unwrap();
                let before = allocations();
                let mut seen = 0;
                while let Some(batch) = loader.next_batch() {
                    seen += batch.y.len();
                }
                assert_eq!(seen, 100);
                allocations() - before
            });
            assert_eq!(least.min(), Some(0), "{threads} threads");
        });
    }
}
