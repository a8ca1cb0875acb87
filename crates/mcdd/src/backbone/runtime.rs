//! Running a network with rten, one row at a time, so that a row's features do not depend on other rows or on threads.
//!
//! A network is tried first: node by node, on zeros, each only if its cost is bounded ([`super::bounds`]). The trial gives the shape
//! of every value, and finds what rten cannot run.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};
use rten_tensor::prelude::*;
use rten_tensor::{Tensor, TensorView};

use super::bounds::{self, Known};
use crate::error::{Error, Result};
use crate::onnx::read::{File, shown};

/// The most elements of a value.
const MAX_ELEMENTS: f64 = (1u64 << 27) as f64;

/// The most elements of all values together, and the most multiplications of a row, by the number of constants: a small file may take
/// little memory and time.
fn limits(constants: f64) -> (f64, f64) {
    ((3.3e7 + 1e4 * constants).min(2.7e8), (1e9 + 1e6 * constants).min(1e11))
}
/// The most dimensions.
const MAX_RANK: usize = 8;

/// The shape of each value.
pub(super) type Shapes = HashMap<String, Vec<usize>>;

/// A network that is ready to run.
pub(super) struct Runtime {
    model: Model,
    input: NodeId,
    dims: Vec<usize>,
    outputs: Vec<NodeId>,
    /// Pools of one thread each, which are free.
    pools: Mutex<Vec<Arc<ThreadPool>>>,
}

/// Calls rten, which may panic on a hostile network.
fn guarded<T>(what: &str, call: impl FnOnce() -> std::result::Result<T, String>) -> Result<T> {
    let failed = |why: &str| Error::data(format!("the network cannot be run: {what}{why}"));
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|why| failed(&format!(": {}", shown(&why)))),
        Err(_) => Err(failed(" failed")),
    }
}

fn load(file: &File, dims: &[usize], optimize: bool) -> Result<Model> {
    let mut file = file.clone();
    file.inputs.iter_mut().for_each(|port| port.dims = dims.iter().map(|&d| Some(d)).collect());
    let bytes = file.to_bytes();
    drop(file);
    guarded("loading", || {
        ModelOptions::with_all_ops().enable_optimization(optimize).load(bytes).map_err(|e| e.to_string())
    })
}

fn options(pool: &Arc<ThreadPool>) -> Option<RunOptions> {
    Some(RunOptions::default().with_thread_pool(Some(Arc::clone(pool))))
}

fn pool() -> Arc<ThreadPool> {
    Arc::new(ThreadPool::with_num_threads(1))
}

/// The elements of a value, if they are few numbers.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    const MOST: usize = 1024;
    match value {
        Value::Int32Tensor(t) if t.len() <= MOST => Some(t.iter().map(|&v| f64::from(v)).collect()),
        Value::FloatTensor(t) if t.len() <= MOST => Some(t.iter().map(|&v| f64::from(v)).collect()),
        _ => None,
    }
}

/// Runs a network on zeros of this shape, node by node. Gives the shapes of all values; those that are not numbers of 32 bits are left out.
///
/// # Errors
/// If it cannot be run, or needs too much memory or time.
pub(super) fn try_run(file: &File, dims: &[usize]) -> Result<Shapes> {
    let model = load(file, dims, false)?;
    let pool = pool();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for name in file.nodes.iter().flat_map(|n| &n.inputs).chain(file.outputs.iter().map(|p| &p.name)) {
        *uses.entry(name).or_default() += 1;
    }
    let mut values: HashMap<&str, Value> = HashMap::new();
    let mut shapes = Shapes::new();
    let too_large = |what: &str| {
        Error::data(format!("the network is too large: {what}"))
            .hint("give a smaller network, or a smaller `image_size` if its input has no fixed size")
    };
    let input = dims.iter().map(|&d| d as f64).product::<f64>();
    let constants = file.constants.values().map(|t| t.dims.iter().map(|&d| d as f64).product::<f64>()).sum();
    let (max_all, max_products) = limits(constants);
    if input > MAX_ELEMENTS.min(max_all) {
        return Err(too_large("its input"));
    }
    for port in &file.inputs {
        values.insert(&port.name, Tensor::<f32>::zeros(dims).into());
        shapes.insert(port.name.clone(), dims.to_vec());
    }
    let (mut all, mut products) = (input, 0.0);
    for node in &file.nodes {
        let first = node.outputs.iter().find(|n| !n.is_empty()).map_or("", String::as_str);
        let place = format!("{} ({})", shown(&node.op), shown(first));
        let known = |name: &String| -> Option<Known> {
            if let Some(value) = values.get(name.as_str()) {
                return Some(Known { dims: value.shape().to_vec(), numbers: numbers(value) });
            }
            let constant = file.constants.get(name)?;
            Some(Known { dims: constant.dims.clone(), numbers: constant.numbers() })
        };
        let inputs: Vec<Option<Known>> = node.inputs.iter().map(known).collect();
        let cost = bounds::cost(node, &inputs)
            .ok_or_else(|| Error::data(format!("the size of what {place} computes cannot be determined")))?;
        all += cost.elements;
        products += cost.products;
        // A number that is not finite is too large as well.
        let small = cost.elements <= MAX_ELEMENTS && all <= max_all && products <= max_products;
        if !small {
            return Err(too_large(&place));
        }
        let wanted: Vec<&String> = node.outputs.iter().filter(|n| uses.contains_key(n.as_str())).collect();
        let found = guarded(&place, || {
            let id = |name: &str| model.node_id(name).map_err(|e| e.to_string());
            let mut given = Vec::new();
            for name in &node.inputs {
                if let Some(value) = values.get(name.as_str()) {
                    let id = id(name)?;
                    if given.iter().all(|(other, _)| *other != id) {
                        given.push((id, value.into()));
                    }
                }
            }
            let outputs = wanted.iter().map(|name| id(name)).collect::<std::result::Result<Vec<_>, _>>()?;
            model.run(given, &outputs, options(&pool)).map_err(|e| e.to_string())
        })?;
        for name in node.inputs.iter().filter(|n| !n.is_empty()) {
            if let Some(left) = uses.get_mut(name.as_str()) {
                *left -= 1;
                if *left == 0 {
                    values.remove(name.as_str());
                }
            }
        }
        for (name, value) in wanted.into_iter().zip(found) {
            if value.shape().len() > MAX_RANK {
                return Err(Error::data(format!("{place} computes more than {MAX_RANK} dimensions")));
            }
            if matches!(value, Value::FloatTensor(_)) {
                shapes.insert(name.clone(), value.shape().to_vec());
            }
            values.insert(name, value);
        }
    }
    Ok(shapes)
}

impl Runtime {
    /// A network that was tried with inputs of this shape.
    pub(super) fn new(file: &File, dims: &[usize]) -> Result<Runtime> {
        let model = load(file, dims, true)?;
        let id =
            |name: &str| model.find_node(name).ok_or_else(|| Error::data(format!("there is no value {}", shown(name))));
        let [input] = &file.inputs[..] else {
            return Err(Error::data("the network must have one input"));
        };
        let input = id(&input.name)?;
        let outputs = file.outputs.iter().map(|p| id(&p.name)).collect::<Result<Vec<_>>>()?;
        Ok(Runtime { model, input, dims: dims.to_vec(), outputs, pools: Mutex::default() })
    }

    /// Runs the rows of a block. `fill` writes the network's input of a row, and `take` gets its outputs, or `None` if it failed.
    pub(super) fn run(
        &self,
        rows: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
        mut take: impl FnMut(usize, Option<&[&[f32]]>) + Send,
    ) {
        let free = self.pools.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pool = free.unwrap_or_else(pool);
        let done = catch_unwind(AssertUnwindSafe(|| {
            pool.run(|| {
                let mut x = vec![0.0f32; self.dims.iter().product()];
                for row in 0..rows {
                    fill(row, &mut x);
                    let input = TensorView::from_data(&self.dims[..], &x[..]);
                    let run = || self.model.run(vec![(self.input, input.into())], &self.outputs, options(&pool));
                    let found = catch_unwind(AssertUnwindSafe(run)).ok().and_then(std::result::Result::ok);
                    let found: Option<Vec<Tensor<f32>>> =
                        found.and_then(|values| values.into_iter().map(|v| v.into_tensor::<f32>()).collect());
                    let tensors: Option<Vec<_>> = found.map(|all| all.iter().map(|t| t.to_vec()).collect());
                    let slices: Option<Vec<&[f32]>> =
                        tensors.as_ref().map(|all| all.iter().map(|t: &Vec<f32>| &t[..]).collect());
                    take(row, slices.as_deref());
                }
            });
        }));
        if done.is_ok() {
            self.pools.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{Builder, Dim, Type};

    /// rten has every operator that a backbone may have.
    #[test]
    fn all_operators_are_there() {
        for op in bounds::all() {
            let mut graph = Builder::new();
            let x = graph.input("x", Type::F32, &[Dim::Rows, Dim::Size(2)]);
            let y = graph.op(op, &[x]);
            graph.output("y", y, Type::F32, &[Dim::Rows]);
            let bytes = graph.finish("probe", &[]).unwrap();
            let loaded = ModelOptions::with_all_ops().enable_optimization(false).load(bytes);
            let message = loaded.err().map_or(String::new(), |e| e.to_string());
            assert!(!message.contains("not supported") && !message.contains("not enabled"), "{op}: {message}");
        }
    }
}
