//! What all requests share: models, queue, limits, and how a body is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use mcdd::model::Predictions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::config::Config;
use crate::failure::{Answer, Failure};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::models::{Models, Served};
use crate::queue::Queue;

/// The state of the server.
pub(crate) struct App {
    pub config: Config,
    pub models: Models,
    pub queue: Queue,
    pub metrics: Metrics,
    pub log: Log,
    /// Whether requests are welcome: not while the server stops.
    pub ready: AtomicBool,
    /// Kilobytes of bodies that may still be read.
    room: Arc<Semaphore>,
    pub next_id: AtomicU64,
}

/// A body, and its part of the memory for bodies.
pub(crate) struct Received {
    pub bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

fn kilobytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024).max(1)).unwrap_or(u32::MAX)
}

impl App {
    pub(crate) fn new(config: Config, models: Models, log: Log) -> App {
        let room = Arc::new(Semaphore::new(kilobytes(config.limits.total_bytes) as usize));
        let queue = Queue::new(config.limits.queued_rows.max(config.limits.rows));
        let ready = AtomicBool::new(true);
        App { config, models, queue, metrics: Metrics::default(), log, ready, room, next_id: AtomicU64::new(1) }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.models.all().is_empty()
    }

    /// A model by its name; without a name the only one.
    pub(crate) fn model(&self, name: Option<&str>) -> Answer<Arc<Served>> {
        let models = self.models.all();
        let found = match name {
            Some(name) => models.get(name),
            None if models.len() == 1 => models.values().next(),
            None => None,
        };
        found.map(Arc::clone).ok_or_else(|| {
            let names: Vec<&str> = models.keys().map(String::as_str).collect();
            let what = name.map_or("there are several models: name one with ?model=".into(), |n| {
                format!("there is no model {n:?}")
            });
            Failure::new(StatusCode::NOT_FOUND, format!("{what}; the models are {}", names.join(", ")))
        })
    }

    /// Reads a body within its limits of size and time.
    pub(crate) async fn body(&self, headers: &HeaderMap, body: Body) -> Answer<Received> {
        let limit = self.config.limits.body_bytes;
        let too_large = || {
            Failure::too_large(format!("the request has more than {limit} bytes; send its rows in several requests"))
        };
        if headers.contains_key("content-encoding") {
            return Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "compressed requests are not read; send it without Content-Encoding",
            ));
        }
        let stated = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if stated.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        // Memory is taken as bytes arrive, so that a client that sends nothing holds a kilobyte.
        let take = |size: u32| Arc::clone(&self.room).try_acquire_many_owned(size).map_err(|_| Failure::busy());
        let mut room = take(1)?;
        let deadline = Instant::now() + self.config.limits.read_time;
        let (mut body, mut bytes) = (body, Vec::new());
        loop {
            let frame = timeout_at(deadline, body.frame()).await.map_err(|_| {
                Failure::new(StatusCode::REQUEST_TIMEOUT, "the body of the request did not arrive in time")
            })?;
            match frame {
                None => return Ok(Received { bytes, _room: room }),
                Some(Err(_)) => return Err(Failure::bad("the body of the request ended early")),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        if bytes.len() + data.len() > limit {
                            return Err(too_large());
                        }
                        let more = kilobytes(bytes.len() + data.len()).saturating_sub(room.num_permits() as u32);
                        if more > 0 {
                            room.merge(take(more)?);
                        }
                        bytes.extend_from_slice(data);
                    }
                }
            }
        }
    }

    /// Predicts rows, after those that wait before them.
    pub(crate) async fn predict(&self, served: &Arc<Served>, x: Vec<f32>) -> Answer<Predictions> {
        let answer = self.queue.add(Arc::clone(served), x)?;
        let predictions = answer.await.map_err(|_| Failure::internal())??;
        self.metrics.predicted(served, &predictions);
        Ok(predictions)
    }
}

/// Runs work that takes long on a thread of its own.
pub(crate) async fn aside<T: Send + 'static>(
    large: bool,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    if !large {
        return work();
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::internal())?
}

/// From here on a body is read aside.
pub(crate) const LARGE: usize = 1 << 15;
