//! One file or folder a subcommand.

pub mod bench;
pub mod check;
pub mod completions;
pub mod datasets;
pub mod demo;
pub mod evaluate;
pub mod explain;
pub mod export;
pub mod figure;
pub mod inspect;
pub mod layers;
pub mod methods;
pub mod metrics;
pub mod monitor;
pub mod predict;
pub mod refit;
pub mod reproduce;
pub mod score;
pub mod serve;
pub mod train;
