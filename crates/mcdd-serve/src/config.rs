//! The settings of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What is served, where, and how much of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Model files, or folders of `.mcdd` files.
    pub models: Vec<PathBuf>,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Threads that predict.
    pub threads: usize,
    /// Requests must have this bearer token, except for health and the page.
    pub token: Option<String>,
    /// The probability of a false alarm of each model's monitor.
    pub alpha: f64,
    /// A folder for the states of the monitors.
    pub state: Option<PathBuf>,
    /// Whether a line is logged for each request.
    pub log_requests: bool,
    /// What a client may ask for.
    pub limits: Limits,
}

/// Limits, so that no client can take all memory or time.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request.
    pub body_bytes: usize,
    /// Bytes of all requests that are being read or answered.
    pub total_bytes: usize,
    /// Rows of a request.
    pub rows: usize,
    /// Rows of a request that asks for explanations.
    pub explained_rows: usize,
    /// Rows that wait for a prediction.
    pub queued_rows: usize,
    /// Connections.
    pub connections: usize,
    /// For the header, and again for the body of a request.
    pub read_time: Duration,
    /// For requests under way when the server stops.
    pub drain_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 16 << 20,
            total_bytes: 64 << 20,
            rows: 1_000_000,
            explained_rows: 100,
            queued_rows: 1_000_000,
            connections: 20_000,
            read_time: Duration::from_secs(10),
            drain_time: Duration::from_secs(20),
        }
    }
}
