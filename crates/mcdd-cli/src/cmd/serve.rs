//! `mcdd serve`: models over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use mcdd_serve::{Config, Limits, Server};

use crate::options::Running;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd serve flowers.mcdd                        http://127.0.0.1:8080 has a page
  mcdd serve models/ --state watched --token-file token.txt
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

    /// Log a line for each request
    #[arg(long)]
    log_requests: bool,

    /// Largest request, in megabytes
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_megabytes: u32,

    /// Most rows of a request
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_rows: u32,

    /// Most rows that wait; past them the answer is 503
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_queued_rows: u32,

    /// Seconds for a client to send a request
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
        limits: Limits {
            body_bytes,
            total_bytes: body_bytes * 4,
            rows: args.max_rows as usize,
            queued_rows: args.max_queued_rows as usize,
            read_time: Duration::from_secs(args.read_timeout.into()),
            drain_time: Duration::from_secs(args.drain_timeout.into()),
            ..Limits::default()
        },
    };
    let server = Server::new(config)?;
    if !args.running.quiet {
        ui::note(&format!("serving on http://{}", server.address()?));
    }
    server.run()?;
    Ok(ExitCode::SUCCESS)
}
