//! Preprocessing: what the columns were in training, and how they become the network's inputs.

mod bind;
mod fit;
mod inputs;
mod validate;

pub(crate) use bind::no_names;
pub use inputs::{CLAMP, ColumnKind, Schema, SchemaColumn};
