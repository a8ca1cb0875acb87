//! ALAD on some rows of a batch: forward and backward through all networks, on one thread without waiting.

use super::nets::{Nets, XX, XZ, ZZ};
use crate::net::cpu::{Pairs, Pass};

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
    /// What the second pass through a network adds to the gradient of the first.
    more: Vec<f32>,
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

    /// Encodes the rows and generates from the codes, and reconstructs both.
    pub(super) fn forward(&mut self, nets: &Nets, width: usize) {
        let (e, g) = (&nets.encoder, &nets.generator);
        self.rows = self.x.len() / width;
        let encoded = self.encode.forward(&e.engine, &e.used, &self.x);
        self.rebuild.forward(&g.engine, &g.used, encoded);
        let generated = self.generate.forward(&g.engine, &g.used, &self.z);
        self.recode.forward(&e.engine, &e.used, generated);
    }

    /// The losses and gradients of the discriminators: `log D(real) + log(1 - D(other))` for each.
    pub(super) fn train_discriminators(&mut self, nets: &Nets, batch: usize, width: usize, code: usize) {
        self.discriminator_loss = 0.0;
        let pairs = pairs(&self.x, &self.z, [&self.encode, &self.generate, &self.rebuild, &self.recode]);
        for k in [XZ, XX, ZZ] {
            let (net, pass) = (&nets.discriminators[k], &mut self.discriminators[k]);
            let pairs = Pairs { widths: widths(k, width, code), halves: &pairs[k] };
            pass.forward_pairs(&net.engine, &net.used, pairs);
            let (logits, d) = pass.latents_and_gradient();
            let (real, other) = logits.split_at(self.rows);
            let (d_real, d_other) = d.split_at_mut(self.rows);
            self.discriminator_loss +=
                cross_entropy(real, true, batch, d_real) + cross_entropy(other, false, batch, d_other);
            pass.backward_pairs(&net.engine, &net.used, pairs, &mut self.discriminator_gradients[k]);
        }
        let features = nets.discriminators[XX].used.specs()[1].len();
        let all = &self.discriminators[XX].penultimate()[..2 * self.rows * features];
        let (same, other) = all.split_at(self.rows * features);
        self.error = same.iter().zip(other).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / batch as f64;
    }

    /// The losses and gradients of encoder and generator: the classes of all pairs are swapped. Pairs of a vector with
    /// itself are left out, as they depend on neither network. The discriminators have no gradients here.
    pub(super) fn train_generator(&mut self, nets: &Nets, batch: usize, width: usize, code: usize) {
        let n = self.rows;
        self.generator_loss = 0.0;
        let pairs = pairs(&self.x, &self.z, [&self.encode, &self.generate, &self.rebuild, &self.recode]);
        for k in [XZ, XX, ZZ] {
            let (net, pass) = (&nets.discriminators[k], &mut self.discriminators[k]);
            let halves = if k == XZ { &pairs[k][..] } else { &pairs[k][1..] };
            pass.forward_pairs(&net.engine, &net.used, Pairs { widths: widths(k, width, code), halves });
            let (logits, d) = pass.latents_and_gradient();
            let from = logits.len() - n;
            self.generator_loss += cross_entropy(&logits[..from], false, batch, &mut d[..from]);
            self.generator_loss += cross_entropy(&logits[from..], true, batch, &mut d[from..]);
            pass.backward_hidden(&net.engine, &net.used);
        }
        let [xz, xx, zz] = &mut self.discriminators;
        let [of_xz, of_xx, of_zz] = &nets.discriminators;
        let (e, g) = (&nets.encoder, &nets.generator);

        // Backward through the second halves of G(E(x)) and E(G(z)).
        let d_rebuilt = self.rebuild.latents_and_gradient().1;
        xx.input_gradient(&of_xx.engine, &of_xx.used, 0..n, width..2 * width, d_rebuilt);
        self.rebuild.backward(&g.engine, &g.used, self.encode.latents(), &mut self.generator[1]);
        let d_recoded = self.recode.latents_and_gradient().1;
        zz.input_gradient(&of_zz.engine, &of_zz.used, 0..n, code..2 * code, d_recoded);
        self.recode.backward(&e.engine, &e.used, self.generate.latents(), &mut self.encoder[1]);

        // And through the first halves, with the gradients of the pairs of row and code added.
        let d_encoded = self.encode.latents_and_gradient().1;
        xz.input_gradient(&of_xz.engine, &of_xz.used, 0..n, width..width + code, d_encoded);
        self.more.resize(n * code, 0.0);
        self.rebuild.input_gradient(&g.engine, &g.used, 0..n, 0..code, &mut self.more);
        add(d_encoded, &self.more);
        self.encode.backward(&e.engine, &e.used, &self.x, &mut self.encoder[0]);
        let d_generated = self.generate.latents_and_gradient().1;
        xz.input_gradient(&of_xz.engine, &of_xz.used, n..2 * n, 0..width, d_generated);
        self.more.resize(n * width, 0.0);
        self.recode.input_gradient(&e.engine, &e.used, 0..n, 0..width, &mut self.more);
        add(d_generated, &self.more);
        self.generate.backward(&g.engine, &g.used, &self.z, &mut self.generator[0]);
    }
}

/// The inputs of each discriminator: first the pairs of the class "real", then the others.
fn pairs<'a>(x: &'a [f32], z: &'a [f32], passes: [&'a Pass; 4]) -> [[[&'a [f32]; 2]; 2]; 3] {
    let [encoded, generated, rebuilt, recoded] = passes.map(Pass::latents);
    [[[x, encoded], [generated, z]], [[x, x], [x, rebuilt]], [[z, z], [z, recoded]]]
}

/// The lengths of the two vectors that a discriminator reads.
fn widths(discriminator: usize, width: usize, code: usize) -> [usize; 2] {
    match discriminator {
        XX => [width, width],
        ZZ => [code, code],
        _ => [width, code],
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
