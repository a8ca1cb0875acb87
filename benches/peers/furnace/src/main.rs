//! furnace-server with a network of the layers of mcdd's preset `fast`: 16 inputs, 128, 128, 3 classes. Its weights are random, since only
//! its speed is of interest. `furnace-peer PORT` serves it on loopback.

use furnace::{HostTensor, IoSpec, Model, Server, TensorModel, Values};

const SIZES: [usize; 4] = [16, 128, 128, 3];

/// Weights by input, so that the inner loop is over outputs and is compiled to vector instructions.
#[derive(Debug)]
struct Network(Vec<Vec<f32>>);

impl Network {
    fn new() -> Network {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        Network(SIZES.windows(2).map(|s| (0..s[0] * s[1]).map(|_| random() / (s[0] as f32).sqrt()).collect()).collect())
    }

    fn probabilities(&self, row: &[f32]) -> Vec<f32> {
        let mut x = row.to_vec();
        for (layer, weights) in self.0.iter().enumerate() {
            let mut y = vec![0.0; SIZES[layer + 1]];
            for (v, w) in x.iter().zip(weights.chunks_exact(y.len())) {
                y.iter_mut().zip(w).for_each(|(y, w)| *y += v * w);
            }
            if layer + 2 < SIZES.len() {
                y.iter_mut().for_each(|v| *v = v.max(0.0));
            }
            x = y;
        }
        let e: Vec<f32> = x.iter().map(|v| v.exp()).collect();
        let sum: f32 = e.iter().sum();
        e.iter().map(|v| v / sum).collect()
    }
}

impl TensorModel for Network {
    fn name(&self) -> &str {
        "m"
    }

    fn backend(&self) -> &str {
        "cpu"
    }

    fn inputs(&self) -> Vec<IoSpec> {
        vec![IoSpec::fp32("input", &SIZES[..1])]
    }

    fn outputs(&self) -> Vec<IoSpec> {
        vec![IoSpec::fp32("probabilities", &SIZES[3..])]
    }

    fn run(&self, inputs: Vec<HostTensor>) -> furnace::Result<Vec<HostTensor>> {
        let Values::F32(values) = &inputs[0].values else { unreachable!("checked against inputs()") };
        let found: Vec<f32> = values.chunks_exact(SIZES[0]).flat_map(|row| self.probabilities(row)).collect();
        Ok(vec![HostTensor { shape: vec![found.len() / SIZES[3], SIZES[3]], values: Values::F32(found) }])
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(18090);
    Server::new().port(port).model(Model::custom(Network::new())).serve().await?;
    Ok(())
}
