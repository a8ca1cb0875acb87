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
mod aside;
mod config;
mod failure;
mod http;
mod local;
mod log;
mod metrics;
mod models;
mod openapi;
mod otlp;
mod page;
mod places;
mod plain;
mod protocol;
mod queue;
mod recent;
mod room;
mod rows;
mod tensor;
mod timed;
mod tls;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use axum::http::header::CONNECTION;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use mcdd::compute::pool::Pool;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::log::Log;
use crate::models::Models;
use crate::otlp::Spans;
use crate::timed::Timed;
use crate::tls::Tls;

pub use config::{Config, Limits, ModelLimits, TlsFiles};
#[doc(hidden)]
pub use local::Local;

/// How often files are looked at, and states are written.
const TICK: Duration = Duration::from_secs(1);

/// A server that has read its models and has its port.
pub struct Server {
    app: Arc<App>,
    runtime: Runtime,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
}

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;

/// Files that are open beside connections.
const OTHER_FILES: usize = 100;

/// Raises the number of files that may be open to what the system allows, and returns it.
fn most_files() -> usize {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let before = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
    }
    #[cfg(not(unix))]
    usize::MAX
}

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
        let tls = config.tls.clone().map(|files| Tls::open(files).map(Arc::new)).transpose()?;
        let spans = config.otlp.as_deref().map(|url| Spans::start(url, Log)).transpose()?;
        let models = Models::open(config.clone(), Log)?;
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
        Ok(Server { app: Arc::new(App::new(config, models, spans, Log)), runtime, listener, tls })
    }

    /// The address, with the port that was chosen.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `SIGTERM` or an interrupt. Then requests under way are answered, and no others. `ready` is called once
    /// signals are waited for.
    ///
    /// # Errors
    /// If the system refuses threads or signals.
    pub fn run(self, ready: impl FnOnce()) -> io::Result<()> {
        self.run_until(stop_signal(ready))
    }

    /// Serves until `stop` is ready.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_until(self, stop: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        let Server { app, runtime, listener, tls } = self;
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
        let result = runtime.block_on(serve(Arc::clone(&app), listener, tls, stop));
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
async fn stop_signal(ready: impl FnOnce()) -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        ready();
        std::future::poll_fn(|cx| {
            let ready = term.poll_recv(cx).is_ready() || interrupt.poll_recv(cx).is_ready();
            if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        Ok(())
    }
    #[cfg(not(unix))]
    {
        ready();
        tokio::signal::ctrl_c().await
    }
}

/// Looks at the files every second, and at once after `SIGHUP`.
async fn keep_up(app: Arc<App>, tls: Option<Arc<Tls>>, #[cfg(unix)] mut hangup: Option<tokio::signal::unix::Signal>) {
    loop {
        #[cfg(unix)]
        match &mut hangup {
            Some(hangup) => drop(timeout(TICK, hangup.recv()).await),
            None => sleep(TICK).await,
        }
        #[cfg(not(unix))]
        sleep(TICK).await;
        let (app, tls) = (Arc::clone(&app), tls.clone());
        let look = move || {
            app.models.refresh();
            app.models.save();
            if let Some(tls) = tls {
                tls.refresh(app.log);
            }
        };
        let _ = tokio::task::spawn_blocking(look).await;
    }
}

/// Answers the requests of a connection.
async fn answer<S>(stream: S, router: axum::Router, read_time: Duration, closing: Arc<AtomicBool>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let (answer, closing) = (router.call(request), Arc::clone(&closing));
        async move {
            let answer = answer.await?;
            closing.store(answer.headers().contains_key(CONNECTION), Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_time)
        // A client that has sent its request may close its side.
        .half_close(true)
        // The buffer of a connection, and the longest head.
        .max_buf_size(1 << 14)
        .serve_connection(TokioIo::new(stream), service);
    // It ends with the client, or with a timeout.
    let _ = watcher.watch(connection).await;
}

/// Makes a connection secret if that is asked for, and answers its requests.
async fn connect(stream: TcpStream, router: axum::Router, tls: Option<Arc<Tls>>, limits: &Limits, watcher: Watcher) {
    let _ = stream.set_nodelay(true);
    let read_time = limits.read_time;
    let closing = Arc::new(AtomicBool::new(false));
    let stream = Timed::new(stream, read_time, limits.body_bytes, Arc::clone(&closing));
    match tls {
        None => answer(stream, router, read_time, closing, watcher).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(read_time, tls.acceptor().accept(stream)).await {
                answer(stream, router, read_time, closing, watcher).await;
            }
        }
    }
}

async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    stop: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let limits = Arc::new(app.config.limits.clone());
    let graceful = Arc::new(GracefulShutdown::new());
    let most = limits.connections.min(most_files().saturating_sub(OTHER_FILES).max(1));
    let connections = Arc::new(Semaphore::new(most));
    let router = http::router(Arc::clone(&app));
    let keeping = tokio::spawn(keep_up(
        Arc::clone(&app),
        tls.clone(),
        #[cfg(unix)]
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
    ));
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
                let (router, tls, limits, watcher) =
                    (router.clone(), tls.clone(), Arc::clone(&limits), graceful.watcher());
                tokio::spawn(async move {
                    connect(stream, router, tls, &limits, watcher).await;
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
