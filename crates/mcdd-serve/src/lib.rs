//! An HTTP server for mcdd models.
//!
//! - The Open Inference Protocol, version 2, over REST, with the binary tensor extension (`/v2`).
//! - Plain requests: rows as JSON, CSV, JSON Lines or an Arrow stream, or an image, answered in kind (`/predict`).
//! - A page (`/`), metrics (`/metrics`) and a description of all this (`/openapi.json`).
//! - A monitor for each model, which raises an alarm when rows are no longer like the calibration rows ([`mcdd::monitor`]).
//!
//! Requests wait in a bounded queue; past it the answer is 503. A row's prediction is that of `mcdd predict`, to the bit.
//! Modules depend on each other in one direction: `lib`, `http`, the pages and protocols, `app`, then what it holds.

#![warn(missing_docs, unreachable_pub)]

mod app;
mod config;
mod failure;
mod http;
mod local;
mod log;
mod metrics;
mod models;
mod openapi;
mod page;
mod plain;
mod protocol;
mod queue;
mod recent;
mod rows;
mod tensor;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use mcdd::compute::pool::Pool;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::log::Log;
use crate::models::Models;

pub use config::{Config, Limits};
#[doc(hidden)]
pub use local::Local;

/// How often files are looked at, and states are written.
const TICK: Duration = Duration::from_secs(1);

/// A server that has read its models and has its port.
pub struct Server {
    app: Arc<App>,
    runtime: Runtime,
    listener: TcpListener,
}

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;

/// Opens the port.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On other systems it would let another program take the port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Server {
    /// Reads the models and opens the port.
    ///
    /// # Errors
    /// If a model cannot be read, or the address cannot be listened on.
    pub fn new(config: Config) -> mcdd::Result<Server> {
        if !(config.alpha > 0.0 && config.alpha < 1.0) {
            return Err(
                mcdd::Error::setting(format!("`alpha` is {}", config.alpha)).hint("give a fraction such as 0.01")
            );
        }
        if let Some(folder) = &config.state {
            std::fs::create_dir_all(folder).map_err(|e| mcdd::Error::io(e, folder))?;
            mcdd::files::check_folder(folder)?;
        }
        let models = Models::open(config.models.clone(), config.alpha, config.state.clone(), Log)?;
        let address = config.listen;
        let open = || {
            let runtime =
                Builder::new_multi_thread().worker_threads(config.threads.clamp(1, 4)).enable_all().build()?;
            let listener = runtime.block_on(listen(address))?;
            Ok::<_, io::Error>((runtime, listener))
        };
        let (runtime, listener) = open().map_err(|e| {
            mcdd::Error::setting(format!("cannot listen on {address}: {e}")).hint("give another address with `listen`")
        })?;
        Ok(Server { app: Arc::new(App::new(config, models, Log)), runtime, listener })
    }

    /// The address, with the port that was chosen.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `SIGTERM` or an interrupt. Then requests under way are answered, and no others.
    ///
    /// # Errors
    /// If the system refuses threads or signals.
    pub fn run(self) -> io::Result<()> {
        self.run_until(stop_signal())
    }

    /// Serves until `stop` is ready.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_until(self, stop: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        let Server { app, runtime, listener } = self;
        let working = {
            let app = Arc::clone(&app);
            thread::Builder::new().name("predict".into()).spawn(move || {
                let pool = Pool::new(app.config.threads);
                app.queue.work(&pool, || {
                    app.metrics.panicked();
                    app.log.line("error", &[("event", "a prediction panicked")]);
                });
            })?
        };
        let result = runtime.block_on(serve(Arc::clone(&app), listener, stop));
        app.queue.close();
        // Work that nobody waits for any more does not hold the process.
        runtime.shutdown_timeout(Duration::from_millis(200));
        if working.is_finished() || app.queue.rows() == 0 {
            let _ = working.join();
        }
        app.models.save();
        app.log.line("info", &[("event", "stopped")]);
        result
    }
}

/// `SIGTERM`, or an interrupt.
async fn stop_signal() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        std::future::poll_fn(|cx| {
            let ready = term.poll_recv(cx).is_ready() || interrupt.poll_recv(cx).is_ready();
            if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        Ok(())
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

/// Looks at the files every second, and at once after `SIGHUP`.
async fn keep_up(app: Arc<App>) {
    #[cfg(unix)]
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    loop {
        #[cfg(unix)]
        match &mut hangup {
            Some(hangup) => drop(timeout(TICK, hangup.recv()).await),
            None => sleep(TICK).await,
        }
        #[cfg(not(unix))]
        sleep(TICK).await;
        let app = Arc::clone(&app);
        let look = move || {
            app.models.refresh();
            app.models.save();
        };
        let _ = tokio::task::spawn_blocking(look).await;
    }
}

async fn serve(app: Arc<App>, listener: TcpListener, stop: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let limits = app.config.limits.clone();
    let graceful = Arc::new(GracefulShutdown::new());
    let connections = Arc::new(Semaphore::new(limits.connections));
    let router = http::router(Arc::clone(&app));
    let keeping = tokio::spawn(keep_up(Arc::clone(&app)));
    let accepting = {
        let graceful = Arc::clone(&graceful);
        tokio::spawn(async move {
            loop {
                let Ok(place) = Arc::clone(&connections).acquire_owned().await else { return };
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(_) => {
                        // No file is left for a connection, or the client is gone already.
                        sleep(Duration::from_millis(20)).await;
                        continue;
                    }
                };
                let _ = stream.set_nodelay(true);
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(limits.read_time)
                    .max_buf_size(1 << 16)
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
                let connection = graceful.watch(connection);
                tokio::spawn(async move {
                    let _ = connection.await;
                    drop(place);
                });
            }
        })
    };
    let stopped = stop.await;
    app.ready.store(false, Ordering::Relaxed);
    app.log.line("info", &[("event", "stopping")]);
    accepting.abort();
    let _ = accepting.await;
    keeping.abort();
    if let Some(graceful) = Arc::into_inner(graceful)
        && timeout(app.config.limits.drain_time, graceful.shutdown()).await.is_err()
    {
        app.log.line("warning", &[("event", "requests under way were cut off")]);
    }
    stopped
}
