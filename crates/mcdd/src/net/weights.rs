//! Weights that were trained elsewhere: a safetensors file with PyTorch's names and shapes.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use super::{Graph, Params};
use crate::container::hex;
use crate::error::{Error, Result};
use crate::files::read_at_most;

/// The largest size of a file.
const MAX_BYTES: u64 = 4 << 30;

/// The weights of a network, and the file they came from.
pub struct Weights {
    /// Every parameter of the network.
    pub params: Params,
    /// The SHA-256 of the file.
    pub sha256: String,
    /// Tensors of the file that the network does not have, such as a classifier.
    pub unused: Vec<String>,
}

impl Weights {
    /// Reads the weights of `graph`.
    ///
    /// # Errors
    /// If the file cannot be read, a tensor is missing, or one has another shape or type.
    pub fn read(path: &Path, graph: &Graph) -> Result<Weights> {
        Self::from_bytes(&read_at_most(path, MAX_BYTES)?, graph).map_err(|e| e.at_file(path))
    }

    fn from_bytes(bytes: &[u8], graph: &Graph) -> Result<Weights> {
        let file = SafeTensors::deserialize(bytes).map_err(|e| {
            Error::format(format!("is not a safetensors file ({e})"))
                .hint("in Python: safetensors.torch.save_file(model.state_dict(), \"weights.safetensors\")")
        })?;
        let mut params = Params::new(graph.specs());
        let graph_names: Vec<String> = params.specs().iter().map(|s| s.name.clone()).collect();
        for i in 0..params.specs().len() {
            let spec = params.specs()[i].clone();
            let tensor = file.tensor(&spec.name).map_err(|_| {
                let mut names = file.names();
                names.sort_unstable();
                let some = |names: &[&str]| names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
                let wanted: Vec<&str> = graph_names.iter().map(String::as_str).collect();
                Error::format(format!("has no tensor {:?}", spec.name)).hint(format!(
                    "the network has {}, …; the file has {}, …",
                    some(&wanted),
                    some(&names)
                ))
            })?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != spec.shape {
                return Err(Error::format(format!(
                    "tensor {:?} is {:?} {:?}, and the network needs F32 {:?}",
                    spec.name,
                    tensor.dtype(),
                    tensor.shape(),
                    spec.shape
                ))
                .hint(if spec.name.starts_with("linear") {
                    "leave `latent` out: the layers on top of the network are trained here"
                } else {
                    "give the `net` that the weights belong to, and 32-bit numbers"
                }));
            }
            let values: Vec<f32> = tensor.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            if values.iter().any(|v| !v.is_finite()) {
                return Err(Error::format(format!("tensor {:?} has values that are not finite", spec.name)));
            }
            params.set(i, &values)?;
        }
        let known = |name: &str| params.specs().iter().any(|s| s.name == name) || name.ends_with("num_batches_tracked");
        let mut unused: Vec<String> = file.names().into_iter().filter(|n| !known(n)).map(str::to_owned).collect();
        unused.sort();
        Ok(Weights { sha256: hex(&Sha256::digest(bytes)), params, unused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::NetName;
    use crate::seed::Stream;
    use safetensors::tensor::TensorView;

    /// Changes a tensor; returns whether to keep it.
    type Change<'a> = &'a dyn Fn(&str, &mut Vec<usize>, &mut Vec<f32>) -> bool;

    fn file(params: &Params, change: Change) -> Vec<u8> {
        let mut tensors = Vec::new();
        for (i, spec) in params.specs().iter().enumerate() {
            let (mut shape, mut values) = (spec.shape.clone(), params.get(i).to_vec());
            if change(&spec.name, &mut shape, &mut values) {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                tensors.push((spec.name.clone(), shape, bytes));
            }
        }
        tensors.push(("fc.weight".into(), vec![1], 1f32.to_le_bytes().to_vec()));
        let views = tensors.iter().map(|(n, s, b)| (n, TensorView::new(Dtype::F32, s.clone(), b).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    #[test]
    fn weights_are_read_and_invalid_ones_are_named() {
        let graph = NetName::parse("resnet8").unwrap().graph([8, 8, 3], None).unwrap();
        let params = graph.init(&mut Stream::new(3, "weights"));
        let read = Weights::from_bytes(&file(&params, &|_, _, _| true), &graph).unwrap();
        assert_eq!((read.params.data, read.unused), (params.data.clone(), vec!["fc.weight".to_owned()]));
        let wrong = |change: Change, what: &str| {
            let e = Weights::from_bytes(&file(&params, change), &graph).err().unwrap().to_string();
            assert!(e.contains("bn1.bias") && e.contains(what), "{e}");
        };
        wrong(&|name, _, _| name != "bn1.bias", "no tensor");
        wrong(
            &|name, shape, _| {
                if name == "bn1.bias" {
                    shape.insert(0, 1);
                }
                true
            },
            "needs F32",
        );
        wrong(
            &|name, _, values| {
                if name == "bn1.bias" {
                    values[0] = f32::NAN;
                }
                true
            },
            "finite",
        );
        let bytes = file(&params, &|_, _, _| true);
        for end in (0..bytes.len()).step_by(997) {
            assert!(Weights::from_bytes(&bytes[..end], &graph).is_err());
        }
    }
}
