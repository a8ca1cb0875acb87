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
    /// HTTPS instead of HTTP.
    pub tls: Option<TlsFiles>,
    /// Where spans are sent: a collector of OpenTelemetry, as `http://host:port`.
    pub otlp: Option<String>,
    /// What a client may ask for.
    pub limits: Limits,
    /// What a client may ask of a model, by the name of the model; only lower limits have an effect.
    pub model_limits: Vec<(String, ModelLimits)>,
}

/// The files of HTTPS. They are read again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificates in PEM, the server's first.
    pub certificates: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

/// Limits of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Bytes of a request.
    pub body_bytes: usize,
    /// Rows of a request.
    pub rows: usize,
    /// Rows that wait for a prediction.
    pub queued_rows: usize,
}

impl Default for ModelLimits {
    fn default() -> ModelLimits {
        ModelLimits { body_bytes: usize::MAX, rows: usize::MAX, queued_rows: usize::MAX }
    }
}

impl Config {
    /// The limits of a model: its own, and those of the server.
    pub(crate) fn limits_of(&self, model: &str) -> ModelLimits {
        let whole = ModelLimits {
            body_bytes: self.limits.body_bytes,
            rows: self.limits.rows,
            queued_rows: self.limits.queued_rows,
        };
        self.model_limits.iter().filter(|(name, _)| name == model).fold(whole, |a, (_, b)| ModelLimits {
            body_bytes: a.body_bytes.min(b.body_bytes),
            rows: a.rows.min(b.rows),
            queued_rows: a.queued_rows.min(b.queued_rows),
        })
    }
}

/// Limits, so that no client can take all memory or time.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request, also after decompression.
    pub body_bytes: usize,
    /// Bytes of all requests under way: their bodies, their rows and their answers.
    pub total_bytes: usize,
    /// Rows of a request.
    pub rows: usize,
    /// Rows of a request that asks for explanations.
    pub explained_rows: usize,
    /// Rows that wait for a prediction.
    pub queued_rows: usize,
    /// Connections.
    pub connections: usize,
    /// For the header, and again for the body of a request; and for a client to take the next part of an answer.
    pub read_time: Duration,
    /// For requests under way when the server stops.
    pub drain_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 16 << 20,
            total_bytes: 1 << 30,
            rows: 1_000_000,
            explained_rows: 100,
            queued_rows: 1_000_000,
            connections: 20_000,
            read_time: Duration::from_secs(10),
            drain_time: Duration::from_secs(20),
        }
    }
}
