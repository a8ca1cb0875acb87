//! Small networks compared with PyTorch: outputs, gradients, running statistics and five steps of training.

use std::ops::Range;
use std::sync::Mutex;

use safetensors::SafeTensors;

use super::super::tests::{close, wide};
use super::tests::thin_resnet;
use super::{ImageNetwork, ImageTrainer};
use crate::compute::pool::Pool;
use crate::net::engine::{Network, NetworkBuffers, Trainer, TrainerOptions, TrainingObjective};
use crate::net::resnet::stages;
use crate::net::{Graph, Optimizer, Params, Update, densenet};

fn numbers(file: &SafeTensors, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap_or_else(|_| panic!("{name}"));
    tensor.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Images with the channels of a pixel together.
fn by_pixels(images: &[f32], [height, width, channels]: [usize; 3]) -> Vec<f32> {
    let pixels = height * width;
    let image = |i: &[f32]| (0..pixels * channels).map(|n| i[n % channels * pixels + n / channels]).collect::<Vec<_>>();
    images.chunks_exact(pixels * channels).flat_map(image).collect()
}

fn same(file: &SafeTensors, part: &str, params: &Params, wanted: impl Fn(bool) -> bool) {
    for (i, spec) in params.specs().iter().enumerate().filter(|(_, spec)| wanted(spec.trained)) {
        let name = format!("{part}.{}", spec.name);
        close(params.get(i), &wide(&numbers(file, &name)), 1e-4).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

fn check(file: &SafeTensors, net: &str, graph: &Graph) {
    let pool = Pool::new(2);
    let mut params = Params::new(graph.specs());
    for i in 0..params.specs().len() {
        let name = format!("{net}.parameters.{}", params.specs()[i].name);
        params.set(i, &numbers(file, &name)).unwrap();
    }
    let x = by_pixels(&numbers(file, &format!("{net}.images")), [8, 8, 3]);
    let matrix = numbers(file, &format!("{net}.matrix"));
    let optimizer = Optimizer::Sgd { momentum: 0.9 };
    let options = TrainerOptions { batch: x.len() / graph.input, whole: true, optimizer };
    let mut trainer = ImageTrainer::new(graph, &params, &options).unwrap();
    let objective = Product { x, matrix, latents: Mutex::default() };
    for step in 1..=5 {
        trainer.step(options.batch, &objective, &pool);
        if step == 1 {
            let outputs = wide(&numbers(file, &format!("{net}.outputs")));
            close(&objective.latents.lock().unwrap(), &outputs, 1e-4).unwrap();
            let mut gradient = params.clone();
            trainer.gradient(&mut gradient);
            same(file, &format!("{net}.gradients"), &gradient, |trained| trained);
        }
        trainer.update(&Update { optimizer, rate: 0.01, weight_decay: 0.001, step }, &pool);
        trainer.store(&mut params);
        if step == 1 {
            same(file, &format!("{net}.running"), &params, |trained| !trained);
        }
    }
    same(file, &format!("{net}.after"), &params, |_| true);
    let network = ImageNetwork::new(graph, &params).unwrap();
    let found = network.latents(&objective.x, &mut NetworkBuffers::default()).to_vec();
    close(&found, &wide(&numbers(file, &format!("{net}.predicted"))), 1e-4).unwrap();
}

/// The sum of the products of latents and a matrix; the latents are kept.
struct Product {
    x: Vec<f32>,
    matrix: Vec<f32>,
    latents: Mutex<Vec<f32>>,
}

impl TrainingObjective for Product {
    fn inputs<'b>(&'b self, _: Range<usize>, _: &'b mut Vec<f32>) -> &'b [f32] {
        &self.x
    }

    fn loss(&self, _: usize, _: Range<usize>, z: &[f32], dz: &mut [f32]) -> f64 {
        *self.latents.lock().unwrap() = z.to_vec();
        dz.copy_from_slice(&self.matrix);
        0.0
    }
}

#[test]
fn networks_match_pytorch() {
    let bytes = include_bytes!("../../../../tests/fixtures/images.safetensors");
    let file = SafeTensors::deserialize(bytes).unwrap();
    check(&file, "resnet", &thin_resnet());
    check(&file, "densenet", &densenet([8, 8, 3], 16, 4, 0.5, Some(5)).unwrap());
    // Wide enough for the convolutions that need fewer products.
    check(&file, "wide", &stages([8, 8, 3], &[1], 32, 1, Some(5)).unwrap());
}
