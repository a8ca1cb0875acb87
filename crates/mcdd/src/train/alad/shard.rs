//! ALAD on some rows of a batch: forward and backward through all networks, on one thread without waiting.

use super::nets::{Nets, XX, XZ, ZZ};
use crate::net::cpu::{Pass, concat_rows};

/// Buffers, gradients and losses of some rows.
#[derive(Clone, Default)]
pub(super) struct Shard {
    /// Rows of the table, and as many codes.
    pub x: Vec<f32>,
    pub z: Vec<f32>,
    rows: usize,
    /// E(x), G(z), G(E(x)) and E(G(z)).
    encode: Pass,
    generate: Pass,
    rebuild: Pass,
    recode: Pass,
    discriminators: [Pass; 3],
    /// The inputs of the discriminators: first the pairs of the class "real", then the others.
    pairs: [Vec<f32>; 3],
    /// Gradients with respect to `Net::used`; encoder and generator run twice, with a buffer each.
    pub encoder: [Vec<f32>; 2],
    pub generator: [Vec<f32>; 2],
    pub discriminator_gradients: [Vec<f32>; 3],
    /// This shard's part of the means over the batch.
    pub discriminator_loss: f64,
    pub generator_loss: f64,
    pub error: f64,
}

impl Shard {
    pub(super) fn new(nets: &Nets) -> Shard {
        let zeros = |n: usize| vec![0.0; n];
        let (e, g) = (nets.encoder.raw.data().len(), nets.generator.raw.data().len());
        Shard {
            encoder: [zeros(e), zeros(e)],
            generator: [zeros(g), zeros(g)],
            discriminator_gradients: [XZ, XX, ZZ].map(|k| zeros(nets.discriminators[k].raw.data().len())),
            ..Shard::default()
        }
    }

    /// Encodes the rows and generates from the codes, reconstructs both, and concatenates the pairs.
    pub(super) fn forward(&mut self, nets: &Nets, width: usize, code: usize) {
        let (e, g) = (&nets.encoder, &nets.generator);
        let (x, z) = (&self.x[..], &self.z[..]);
        self.rows = x.len() / width;
        let encoded = self.encode.forward(&e.engine, &e.used, x);
        let rebuilt = self.rebuild.forward(&g.engine, &g.used, encoded);
        let generated = self.generate.forward(&g.engine, &g.used, z);
        let recoded = self.recode.forward(&e.engine, &e.used, generated);
        let shapes = [(width, code), (width, width), (code, code)];
        let sources = [[(x, encoded), (generated, z)], [(x, x), (x, rebuilt)], [(z, z), (z, recoded)]];
        for ((pairs, (a, b)), sources) in self.pairs.iter_mut().zip(shapes).zip(sources) {
            pairs.resize(2 * self.rows * (a + b), 0.0);
            let halves = pairs.chunks_exact_mut(self.rows * (a + b));
            for (half, (first, second)) in halves.zip(sources) {
                concat_rows(first, a, second, b, half);
            }
        }
    }

    /// The losses and gradients of the discriminators: `log D(real) + log(1 - D(other))` for each.
    pub(super) fn train_discriminators(&mut self, nets: &Nets, batch: usize) {
        self.discriminator_loss = 0.0;
        let buffers = self.discriminators.iter_mut().zip(&self.pairs).zip(&mut self.discriminator_gradients);
        for (((pass, pairs), gradient), net) in buffers.zip(&nets.discriminators) {
            pass.forward(&net.engine, &net.used, pairs);
            let (logits, d) = pass.latents_and_gradient();
            let (real, other) = logits.split_at(self.rows);
            let (d_real, d_other) = d.split_at_mut(self.rows);
            self.discriminator_loss +=
                cross_entropy(real, true, batch, d_real) + cross_entropy(other, false, batch, d_other);
            pass.backward(&net.engine, &net.used, pairs, gradient);
        }
        let features = nets.discriminators[XX].used.specs()[1].len();
        let all = &self.discriminators[XX].penultimate()[..2 * self.rows * features];
        let (same, other) = all.split_at(self.rows * features);
        self.error = same.iter().zip(other).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / batch as f64;
    }

    /// The losses and gradients of encoder and generator: the classes of all pairs are swapped. Pairs of a vector with
    /// itself are left out, as they depend on neither network.
    pub(super) fn train_generator(&mut self, nets: &Nets, batch: usize, width: usize, code: usize) {
        let n = self.rows;
        self.generator_loss = 0.0;
        for k in [XZ, XX, ZZ] {
            let (net, pass) = (&nets.discriminators[k], &mut self.discriminators[k]);
            let pairs = if k == XZ { &self.pairs[k][..] } else { &self.pairs[k][self.pairs[k].len() / 2..] };
            pass.forward(&net.engine, &net.used, pairs);
            let (logits, d) = pass.latents_and_gradient();
            let from = logits.len() - n;
            self.generator_loss += cross_entropy(&logits[..from], false, batch, &mut d[..from]);
            self.generator_loss += cross_entropy(&logits[from..], true, batch, &mut d[from..]);
            pass.backward(&net.engine, &net.used, pairs, &mut self.discriminator_gradients[k]);
        }
        let [xz, xx, zz] = &mut self.discriminators;
        let [d_xz, d_xx, d_zz] = [(xz, XZ), (xx, XX), (zz, ZZ)]
            .map(|(p, k)| p.input_gradient(&nets.discriminators[k].engine, &nets.discriminators[k].used));
        let (e, g) = (&nets.encoder, &nets.generator);

        // Backward through the second halves of G(E(x)) and E(G(z)).
        let (encoded, d_encoded) = self.encode.latents_and_gradient();
        take_columns(self.rebuild.latents_and_gradient().1, d_xx, width..2 * width, 2 * width);
        self.rebuild.backward(&g.engine, &g.used, encoded, &mut self.generator[1]);
        let (generated, d_generated) = self.generate.latents_and_gradient();
        take_columns(self.recode.latents_and_gradient().1, d_zz, code..2 * code, 2 * code);
        self.recode.backward(&e.engine, &e.used, generated, &mut self.encoder[1]);

        // And through the first halves, with the gradients of the pairs of row and code added.
        let (of_rows, of_codes) = d_xz.split_at(n * (width + code));
        take_columns(d_encoded, of_rows, width..width + code, width + code);
        add(d_encoded, self.rebuild.input_gradient(&g.engine, &g.used));
        self.encode.backward(&e.engine, &e.used, &self.x, &mut self.encoder[0]);
        take_columns(d_generated, of_codes, 0..width, width + code);
        add(d_generated, self.recode.input_gradient(&e.engine, &e.used));
        self.generate.backward(&g.engine, &g.used, &self.z, &mut self.generator[0]);
    }
}

/// Some columns of rows that are `width` long.
fn take_columns(to: &mut [f32], from: &[f32], columns: std::ops::Range<usize>, width: usize) {
    for (to, from) in to.chunks_exact_mut(columns.len()).zip(from.chunks_exact(width)) {
        to.copy_from_slice(&from[columns.clone()]);
    }
}

fn add(to: &mut [f32], more: &[f32]) {
    to.iter_mut().zip(more).for_each(|(t, m)| *t += m);
}

/// The cross-entropy of logits whose class is `real`, as a part of the mean over `batch` rows, and its gradient.
fn cross_entropy(logits: &[f32], real: bool, batch: usize, gradient: &mut [f32]) -> f64 {
    let sign = if real { -1.0f32 } else { 1.0 };
    let mut loss = 0.0;
    for (&logit, d) in logits.iter().zip(gradient) {
        // log(1 + e^t), with the exponential of what is below 0 only.
        let t = sign * logit;
        let small = libm::expf(-t.abs());
        loss += f64::from(t.max(0.0)) + f64::from(libm::log1pf(small));
        let p = if t > 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) };
        *d = sign * p / batch as f32;
    }
    loss / batch as f64
}
