//! Small networks beside PyTorch: outputs, gradients, running statistics and five steps of training.

use safetensors::SafeTensors;

use super::super::tests::{close, wide};
use super::tests::thin_resnet;
use super::{ImageBuffers, ImageEngine, ImagePredictor};
use crate::compute::pool::Pool;
use crate::net::resnet::stages;
use crate::net::{Graph, Params, densenet};
use crate::train::optim::{Optimizer, State, update};

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
        close(&params.export(i), &wide(&numbers(file, &name)), 1e-4).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

fn check(file: &SafeTensors, net: &str, graph: &Graph) {
    let pool = Pool::new(2);
    let mut params = Params::new(graph.specs());
    for i in 0..params.specs().len() {
        let name = format!("{net}.parameters.{}", params.specs()[i].name);
        params.import(i, &numbers(file, &name)).unwrap();
    }
    let x = by_pixels(&numbers(file, &format!("{net}.images")), [8, 8, 3]);
    let matrix = numbers(file, &format!("{net}.matrix"));
    let mut engine = ImageEngine::new(graph).unwrap();
    engine.load(&params, &pool);
    let optimizer = Optimizer::Sgd { momentum: 0.9 };
    let mut state = State::new(&optimizer, &params);
    let mut gradients = [vec![0.0; params.data.len()]];
    for step in 1..=5 {
        engine.forward(&params, &x, &pool);
        let (latents, d) = engine.latents_and_gradient();
        d.copy_from_slice(&matrix);
        if step == 1 {
            close(latents, &wide(&numbers(file, &format!("{net}.outputs"))), 1e-4).unwrap();
        }
        engine.backward(&params, &x, &mut gradients[0], &pool);
        engine.update_running_stats(&mut params);
        if step == 1 {
            let mut named = params.clone();
            named.data.clone_from(&gradients[0]);
            same(file, &format!("{net}.gradients"), &named, |trained| trained);
            same(file, &format!("{net}.running"), &params, |trained| !trained);
        }
        update(&optimizer, 0.01, 0.001, step, &mut params, &gradients, &mut state, &pool);
        engine.load(&params, &pool);
    }
    same(file, &format!("{net}.after"), &params, |_| true);
    let predictor = ImagePredictor::new(graph, &params).unwrap();
    let found = predictor.latents(&x, &mut ImageBuffers::default()).to_vec();
    close(&found, &wide(&numbers(file, &format!("{net}.predicted"))), 1e-4).unwrap();
}

#[test]
fn networks_are_pytorchs() {
    let bytes = include_bytes!("../../../../tests/fixtures/images.safetensors");
    let file = SafeTensors::deserialize(bytes).unwrap();
    check(&file, "resnet", &thin_resnet());
    check(&file, "densenet", &densenet([8, 8, 3], 16, 4, 0.5, Some(5)).unwrap());
    // Wide enough for the convolutions that need fewer products.
    check(&file, "wide", &stages([8, 8, 3], &[1], 32, 1, Some(5)).unwrap());
}
