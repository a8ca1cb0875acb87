//! What people look at: figures of what methods do.

pub mod figure;
