//! An engine whose network remembers the latents of rows, for many detectors on one network.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::net::{
    Engine, Graph, InputGradient, Network, NetworkBuffers, Params, Trainer, TrainerOptions, default_engine,
};

/// Values that are remembered, at most: 1 GB.
const CAPACITY: usize = 1 << 28;

type Key = [u8; 32];

/// The default engine with a memory: the network that it made last is made once, and computes the latents of a row once.
#[derive(Default)]
pub(super) struct CachingEngine {
    last: Mutex<Option<(Key, Arc<Caching>)>>,
}

impl Engine for CachingEngine {
    fn network(&self, graph: &Graph, params: &Params) -> Result<Arc<dyn Network>> {
        let text = serde_json::to_string(graph).map_err(|e| Error::format(e.to_string()))?;
        let mut hash = Sha256::new();
        hash.update(text);
        update(&mut hash, &params.data);
        let key: Key = hash.finalize().into();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, net)) = last.as_ref().filter(|(of, _)| *of == key) {
            return Ok(Arc::clone(net) as Arc<dyn Network>);
        }
        let net = default_engine().network(graph, params)?;
        let rows = CAPACITY / net.latent().max(1);
        let net = Arc::new(Caching { net, rows, known: Mutex::default() });
        *last = Some((key, Arc::clone(&net)));
        Ok(net)
    }

    fn trainer(&self, graph: &Graph, params: &Params, options: &TrainerOptions) -> Result<Box<dyn Trainer>> {
        default_engine().trainer(graph, params, options)
    }
}

fn update(hash: &mut Sha256, values: &[f32]) {
    for chunk in values.chunks(4096) {
        hash.update(chunk.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    }
}

struct Caching {
    net: Arc<dyn Network>,
    /// The largest number of rows to remember.
    rows: usize,
    known: Mutex<HashMap<Key, Box<[f32]>>>,
}

/// Buffers of a thread.
#[derive(Default)]
struct Space {
    inner: NetworkBuffers,
    new: Vec<f32>,
    out: Vec<f32>,
}

impl Network for Caching {
    fn input(&self) -> usize {
        self.net.input()
    }

    fn latent(&self) -> usize {
        self.net.latent()
    }

    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let Space { inner, new, out } = buffers.get::<Space>();
        let (width, latent) = (self.net.input(), self.net.latent());
        let key = |row: &[f32]| -> Key {
            let mut hash = Sha256::new();
            update(&mut hash, row);
            hash.finalize().into()
        };
        let keys: Vec<Key> = x.chunks_exact(width).map(key).collect();
        out.resize(keys.len() * latent, 0.0);
        new.clear();
        let mut missing = Vec::new();
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            for (i, key) in keys.iter().enumerate() {
                match known.get(key) {
                    Some(z) => out[i * latent..(i + 1) * latent].copy_from_slice(z),
                    None => missing.push(i),
                }
            }
        }
        for &i in &missing {
            new.extend_from_slice(&x[i * width..(i + 1) * width]);
        }
        if !missing.is_empty() {
            let z = self.net.latents(new, inner);
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            for (&i, z) in missing.iter().zip(z.chunks_exact(latent)) {
                out[i * latent..(i + 1) * latent].copy_from_slice(z);
                if known.len() < self.rows {
                    known.insert(keys[i], z.into());
                }
            }
        }
        out
    }

    fn params(&self) -> &Params {
        self.net.params()
    }

    fn layers(&self) -> usize {
        self.net.layers()
    }

    fn part(&self, layer: usize) -> Result<Arc<dyn Network>> {
        self.net.part(layer)
    }

    fn input_gradient(&self) -> Result<Arc<dyn InputGradient>> {
        self.net.input_gradient()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::mlp;
    use crate::seed::Stream;

    #[test]
    fn latents_are_the_same_and_computed_once() {
        let graph = mlp(5, &[7], 3);
        let params = graph.init(&mut Stream::new(1, "caching"));
        let engine = CachingEngine::default();
        let (plain, net) =
            (default_engine().network(&graph, &params).unwrap(), engine.network(&graph, &params).unwrap());
        let x: Vec<f32> = (0..40).map(|i| (i * i % 11) as f32).collect();
        let mut b = NetworkBuffers::default();
        let wanted = plain.latents(&x, &mut NetworkBuffers::default()).to_vec();
        // Some rows first, one of them twice; then all.
        let some = [&x[5..10], &x[20..30], &x[5..10]].concat();
        assert_eq!(net.latents(&some, &mut b), [&wanted[3..6], &wanted[12..18], &wanted[3..6]].concat());
        assert_eq!(net.latents(&x, &mut b), wanted);
        assert_eq!(net.latents(&x, &mut b), wanted);
        // The same network is not made again, another one is.
        assert!(Arc::ptr_eq(&net, &engine.network(&graph, &params).unwrap()));
        let other = graph.init(&mut Stream::new(2, "caching"));
        let another = engine.network(&graph, &other).unwrap();
        assert!(!Arc::ptr_eq(&net, &another));
        assert_ne!(another.latents(&x, &mut b), wanted);
        // No more rows than there is room for.
        let small = Caching { net: plain, rows: 2, known: Mutex::default() };
        assert_eq!(small.latents(&x, &mut b), wanted);
        assert_eq!(small.known.lock().unwrap().len(), 2);
    }
}
