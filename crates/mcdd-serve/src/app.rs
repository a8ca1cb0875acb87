//! What all requests share: models, queue, limits, and how a body is read.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use axum::http::{HeaderMap, StatusCode};
use flate2::bufread::MultiGzDecoder;
use http_body_util::BodyExt as _;
use mcdd::model::Predictions;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::aside::{self, aside};
use crate::config::Config;
use crate::failure::{Answer, Failure};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::models::{Models, Served};
use crate::otlp::Spans;
use crate::places::{PATIENCE, Place};
use crate::queue::Queue;
use crate::room::{Memory, Room};

/// The state of the server.
pub(crate) struct App {
    pub config: Config,
    pub models: Models,
    pub queue: Queue,
    pub metrics: Metrics,
    pub log: Log,
    /// Where spans go, if anywhere.
    pub spans: Option<Spans>,
    /// Whether requests are welcome: not while the server stops.
    pub ready: AtomicBool,
    memory: Memory,
    refusing: Semaphore,
    pub next_id: AtomicU64,
}

/// A body, and its part of the memory for requests.
pub(crate) struct Received {
    pub bytes: Vec<u8>,
    pub room: Room,
}

impl App {
    pub(crate) fn new(config: Config, models: Models, spans: Option<Spans>, log: Log) -> App {
        aside::start();
        App {
            memory: Memory::new(config.limits.total_bytes),
            refusing: Semaphore::new(REFUSED_AT_ONCE * config.threads.max(1)),
            queue: Queue::new(config.limits.queued_rows.max(config.limits.rows)),
            config,
            models,
            metrics: Metrics::default(),
            log,
            spans,
            ready: AtomicBool::new(true),
            next_id: AtomicU64::new(1),
        }
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
                format!("no model is named {n:?}")
            });
            Failure::new(StatusCode::NOT_FOUND, format!("{what}; the models are {}", names.join(", ")))
        })
    }

    /// Reads a body for a model within its limits of size and time, and takes a place in the queue for it.
    pub(crate) async fn body(&self, served: &Served, headers: &HeaderMap, mut body: Body) -> Answer<(Received, Place)> {
        match self.receive(served, headers, &mut body).await {
            Err(failure) => {
                // In turn, so that thousands that are refused leave time for those that are answered.
                let (_turn, begun) = (self.refusing.acquire().await, Instant::now());
                let close = !discarded(headers, body).await;
                sleep_until(begun + TURN).await;
                Err(Failure { close, ..failure })
            }
            received => received,
        }
    }

    async fn receive(&self, served: &Served, headers: &HeaderMap, body: &mut Body) -> Answer<(Received, Place)> {
        let limit = served.limits.body_bytes;
        let gzip = match headers.get(CONTENT_ENCODING).map(|v| v.as_bytes().to_ascii_lowercase()).as_deref() {
            None | Some(b"" | b"identity") => false,
            Some(b"gzip" | b"x-gzip") => true,
            Some(_) => {
                return Err(Failure::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "the request has another Content-Encoding than gzip; send it with gzip, or without",
                ));
            }
        };
        let stated = stated(headers);
        if stated.is_some_and(|length| length > limit) {
            return Err(too_large(limit));
        }
        // Memory is taken as bytes arrive, so that a client that sends nothing holds a kilobyte.
        let mut room = self.memory.room()?;
        // A request that would wait in vain is refused before its body is received.
        let mut coming = self.queue.places.come(&served.name, served.limits.queued_rows, stated).await?;
        let begun = Instant::now();
        let deadline = begun + self.config.limits.read_time;
        let mut until = deadline.min(begun + PATIENCE);
        let (mut bytes, mut length) = (Vec::new(), 0);
        loop {
            let Ok(frame) = timeout_at(until, body.frame()).await else {
                if until < deadline {
                    coming.slow(length);
                    until = deadline;
                    continue;
                }
                return Err(Failure::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "the body of the request did not arrive in time",
                ));
            };
            match frame {
                None => break,
                Some(Err(_)) => return Err(Failure::bad("the body of the request ended early")),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        length += data.len();
                        if length > limit {
                            return Err(too_large(limit));
                        }
                        room.reach(length)?;
                        coming.reach(length);
                        if let Some(length) = stated.filter(|_| bytes.is_empty()) {
                            // Exactly what is needed, instead of twice as much while it grows.
                            bytes.reserve_exact(length);
                        }
                        bytes.extend_from_slice(data);
                    }
                }
            }
        }
        let received = Received { bytes, room };
        let received = if gzip { aside(true, move || decompressed(received, limit)).await? } else { received };
        drop(coming);
        let place = self.queue.places.enter(&served.name, served.limits.queued_rows, received.bytes.len()).await?;
        Ok((received, place))
    }

    /// Predicts rows, after those that wait before them.
    pub(crate) async fn predict(
        &self,
        served: &Arc<Served>,
        x: Vec<f32>,
        place: Place,
        room: &mut Room,
    ) -> Answer<Predictions> {
        let rows = x.len() / served.model.schema().width().max(1);
        room.take_for_answer(rows, served.model.classes().len())?;
        let answer = self.queue.add(Arc::clone(served), x, place)?;
        let predictions = answer.await.map_err(|_| Failure::internal())??;
        self.metrics.predicted(served, &predictions);
        Ok(predictions)
    }
}

/// The length of a body, if its head says it.
fn stated(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok())
}

/// Throws away the rest of a refused body if it is small and there, so that the connection can be used again. Whether that was done.
async fn discarded(headers: &HeaderMap, mut body: Body) -> bool {
    let rest = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    // A client that waits to be told to go on is not told.
    let small = stated(headers).is_some_and(|length| length <= DISCARDED) && !headers.contains_key(EXPECT);
    small && timeout(DISCARD_TIME, rest).await.unwrap_or(false)
}

fn too_large(limit: usize) -> Failure {
    Failure::too_large(format!("the request has more than {limit} bytes; send its rows in several requests"))
}

/// The content of a compressed body, up to a limit.
fn decompressed(body: Received, limit: usize) -> Answer<Received> {
    let Received { bytes, mut room } = body;
    let (mut source, mut out) = (MultiGzDecoder::new(&bytes[..]), Vec::new());
    let mut part = vec![0; 1 << 16];
    loop {
        let count = source
            .read(&mut part)
            .map_err(|_| Failure::bad("the body of the request is not valid gzip, or ended early"))?;
        if count == 0 {
            return Ok(Received { bytes: out, room });
        }
        if out.len() + count > limit {
            return Err(too_large(limit));
        }
        room.reach(bytes.len() + out.len() + count)?;
        out.extend_from_slice(&part[..count]);
    }
}

/// How many requests with a body are refused at the same time for each thread, and how long that takes at least: 2,000 a second.
const REFUSED_AT_ONCE: usize = 16;
const TURN: Duration = Duration::from_millis(8);
/// The most bytes of a refused body that are received, and how long that may take.
const DISCARDED: usize = 1 << 20;
const DISCARD_TIME: Duration = Duration::from_millis(200);

/// From here on a body is read aside.
pub(crate) const LARGE: usize = 1 << 15;
/// From here on an answer is written aside.
pub(crate) const MANY: usize = 100;
