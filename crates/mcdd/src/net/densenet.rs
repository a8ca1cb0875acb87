//! Densely connected networks (Huang, Liu, van der Maaten, Weinberger 2017) with bottlenecks and compression (DenseNet-BC).
//!
//! The paper on Deep-MCDD uses 100 layers, growth 12 and compression 0.5. Parameters have the names of the common PyTorch
//! code for small images (`block1.layer.0.conv1`, `trans1.bn1`, `fc`).

use super::graph::{Graph, Layer};
use super::resnet::Build;
use crate::error::{Error, Result};

/// Channels between the two convolutions of a layer, in terms of the growth.
const BOTTLENECK: usize = 4;

/// Three dense blocks with `depth` layers in all, each layer adding `growth` channels; between blocks their number is
/// multiplied by `reduction` and the image halved. The latent vector is the mean of each channel, or `latent` features of a
/// linear layer after it.
///
/// # Errors
/// If there is no such depth or growth, or the image is too small to be halved twice.
pub fn densenet(
    image: [usize; 3],
    depth: usize,
    growth: usize,
    reduction: f64,
    latent: Option<usize>,
) -> Result<Graph> {
    if depth < 10 || !(depth - 4).is_multiple_of(6) || depth > 1000 {
        let error = Error::setting(format!("there is no DenseNet with three blocks and {depth} layers"));
        return Err(error.hint("use 40, 100, 190 or another depth that is 6n + 4"));
    }
    if !((1..=256).contains(&growth) && reduction > 0.0 && reduction <= 1.0) {
        return Err(Error::setting("growth must be from 1 to 256, and the reduction above 0 and at most 1"));
    }
    let (mut build, value) = Build::new(image);
    let mut width = 2 * growth;
    let mut value = build.conv("conv1".into(), value, [image[2], width], 3, 1);
    for stage in 1..=3 {
        for i in 0..(depth - 4) / 6 {
            let name = format!("block{stage}.layer.{i}");
            let more = step(&mut build, &name, value, [width, BOTTLENECK * growth], 1, "1");
            let more = step(&mut build, &name, more, [BOTTLENECK * growth, growth], 3, "2");
            value = build.add(format!("{name}.cat"), Layer::Concat, &[value, more]);
            width += growth;
        }
        if stage < 3 {
            let fewer = ((width as f64 * reduction) as usize).max(1);
            let name = format!("trans{stage}");
            value = step(&mut build, &name, value, [width, fewer], 1, "1");
            value = build.add(format!("{name}.pool"), Layer::AvgPool { kernel: 2, stride: 2 }, &[value]);
            width = fewer;
        }
    }
    let value = build.norm("bn1".into(), value, width);
    let value = build.relu("relu1".into(), value);
    build.finish(value, width, "fc", latent)
}

/// Batch normalization, ReLU and a convolution, called `bn1` and so on after `number`.
fn step(build: &mut Build, name: &str, from: usize, channels: [usize; 2], kernel: usize, number: &str) -> usize {
    let value = build.norm(format!("{name}.bn{number}"), from, channels[0]);
    let value = build.relu(format!("{name}.relu{number}"), value);
    build.conv(format!("{name}.conv{number}"), value, channels, kernel, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{ParamSpec, Shape};

    #[test]
    fn it_has_the_parameters_of_the_paper() {
        let graph = densenet([32, 32, 3], 100, 12, 0.5, Some(10)).unwrap();
        // "DenseNet-BC (k = 12), depth 100: 0.8M".
        assert_eq!(graph.specs().iter().filter(|s| s.trained).map(ParamSpec::len).sum::<usize>(), 769_162);
        assert_eq!(densenet([32, 32, 3], 100, 12, 0.5, None).unwrap().latent().unwrap(), 342);
        let names: Vec<String> = graph.specs().into_iter().map(|s| s.name).collect();
        for name in ["conv1.weight", "block1.layer.0.bn1.weight", "block3.layer.15.conv2.weight", "trans2.conv1.weight"]
        {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
        assert!(names.iter().any(|n| n == "bn1.running_mean") && names.last().unwrap() == "fc.bias");
    }

    #[test]
    fn images_that_can_be_halved_twice_give_a_row() {
        for image in [[4, 4, 1], [5, 7, 2], [28, 28, 1]] {
            let shapes = densenet(image, 10, 4, 0.5, None).unwrap().shapes().unwrap();
            assert!(matches!(shapes.last(), Some(Shape::Row(_))));
        }
        let wrong =
            [([3, 4, 1], 10, 4, 0.5), ([8, 8, 1], 11, 4, 0.5), ([8, 8, 1], 10, 0, 0.5), ([8, 8, 1], 10, 4, f64::NAN)];
        for (image, depth, growth, reduction) in wrong {
            assert!(densenet(image, depth, growth, reduction, None).is_err());
        }
    }
}
