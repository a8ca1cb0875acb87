//! `mcdd serve`: models over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use mcdd_serve::{Config, Limits, ModelLimits, Server, TlsFiles};

use crate::options::Running;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd serve flowers.mcdd                        http://127.0.0.1:8080 has a page
  mcdd serve models/ --state watched --token-file token.txt
  mcdd serve models/ --limit flowers:rows=1000:queued-rows=50000
  mcdd serve flowers.mcdd --listen 0.0.0.0:8443 --tls-certificate server.pem --tls-key key.pem
  curl --data-binary @new.csv -H 'Content-Type: text/csv' http://127.0.0.1:8080/predict
  curl http://127.0.0.1:8080/v2/models/flowers   what the model reads and answers

Paths: / (a page), /predict, /v2 (the Open Inference Protocol, for clients of KServe, Triton and MLServer), /status, /metrics, \
/openapi.json. Models are called by the names of their files. A file that changes is read again; one that cannot be read leaves \
the model that was served before. SIGTERM answers the requests under way, then ends.";

/// Serve models over HTTP: predictions, a page, metrics, and an alarm when rows change
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Models, or folders of .mcdd files
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<PathBuf>,

    /// Address and port; 0.0.0.0 is every network of the machine
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// File with a token that requests must have (Authorization: Bearer …)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Probability of a false alarm of a model's monitor
    #[arg(long, value_name = "FRACTION", default_value_t = 0.01)]
    alpha: f64,

    /// Folder that keeps the states of the monitors
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// Serve HTTPS with the certificates of this file (PEM, the server's first)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Send a span of each request to a collector of OpenTelemetry (OTLP over HTTP, as JSON)
    #[arg(long, value_name = "http://HOST:4318")]
    otlp: Option<String>,

    /// Log a line for each request
    #[arg(long)]
    log_requests: bool,

    /// Lower limits of a model: rows and megabytes of a request, rows that wait. Repeatable
    #[arg(long, value_name = "MODEL:rows=N:queued-rows=N:megabytes=N", value_parser = limit)]
    limit: Vec<(String, ModelLimits)>,

    /// Largest request, in megabytes, also after decompression
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_megabytes: u32,

    /// Most rows of a request
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_rows: u32,

    /// Most rows that wait; past them the answer is 503
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_queued_rows: u32,

    /// Most memory of all requests under way, in megabytes; past it the answer is 503
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..))]
    max_memory: u32,

    /// Seconds for a client to send a request, or to take more of an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    read_timeout: u32,

    /// Seconds for requests under way when the server stops
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=3600))]
    drain_timeout: u32,

    #[command(flatten)]
    running: Running,
}

/// The token of a file: its text, without space around it.
fn token(path: &PathBuf) -> mcdd::Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| mcdd::Error::io(e, path))?;
    let token = text.trim();
    if token.len() < 16 || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(mcdd::Error::setting("a token has 16 or more letters, digits and signs, without spaces")
            .at_file(path)
            .hint("make one with: openssl rand -hex 32"));
    }
    Ok(token.to_owned())
}

/// The limits of a model, as `flowers:rows=1000:megabytes=2`.
fn limit(text: &str) -> Result<(String, ModelLimits), String> {
    let mut limits = ModelLimits::default();
    let mut parts: Vec<&str> = text.split(':').collect();
    let mut count = 0;
    while let Some((key, value)) = parts.last().and_then(|part| part.split_once('=')) {
        let number = value.parse::<usize>().ok().filter(|n| (1..1 << 40).contains(n));
        let number = number.ok_or_else(|| format!("{key} is {value:?}, and not a number from 1"))?;
        match key {
            "rows" => limits.rows = number,
            "queued-rows" => limits.queued_rows = number,
            "megabytes" => limits.body_bytes = number << 20,
            _ => return Err(format!("there is no limit {key:?}; the limits are rows, queued-rows, megabytes")),
        }
        parts.pop();
        count += 1;
    }
    let model = parts.join(":");
    if count == 0 || model.is_empty() {
        return Err("give a model and its limits, such as flowers:rows=1000".into());
    }
    Ok((model, limits))
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let body_bytes = (args.max_megabytes as usize) << 20;
    let config = Config {
        threads: args.running.threads(),
        models: args.models,
        listen: args.listen,
        token: args.token_file.as_ref().map(token).transpose()?,
        alpha: args.alpha,
        state: args.state,
        log_requests: args.log_requests,
        tls: args.tls_certificate.zip(args.tls_key).map(|(certificates, key)| TlsFiles { certificates, key }),
        otlp: args.otlp,
        model_limits: args.limit,
        limits: Limits {
            body_bytes,
            total_bytes: (args.max_memory as usize) << 20,
            rows: args.max_rows as usize,
            queued_rows: args.max_queued_rows as usize,
            read_time: Duration::from_secs(args.read_timeout.into()),
            drain_time: Duration::from_secs(args.drain_timeout.into()),
            ..Limits::default()
        },
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let server = Server::new(config)?;
    let address = server.address()?;
    server.run(|| {
        if !args.running.quiet {
            ui::note(&format!("serving on {scheme}://{address}"));
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
