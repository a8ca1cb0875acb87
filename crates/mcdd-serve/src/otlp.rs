//! Spans of requests for OpenTelemetry: OTLP over HTTP, as JSON. Off unless an address is given.
//!
//! A thread gathers spans and sends them every second. If the collector is slow or gone, spans are dropped and counted;
//! requests never wait. A request with a `traceparent` header (W3C) continues its trace, and is left out if that says so.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::log::Log;

/// Spans that wait to be sent.
const WAITING: usize = 2048;
/// Spans of a message.
const MESSAGE: usize = 512;
const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a request belongs to, by its `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl Parent {
    /// `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`.
    pub(crate) fn parse(header: &str) -> Option<Parent> {
        let digits = |text: &str, count: usize| {
            (text.len() == count && text.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()))
                .then(|| u128::from_str_radix(text, 16).ok())
                .flatten()
        };
        let mut parts = header.split('-');
        let version = digits(parts.next()?, 2)?;
        let (trace, span, flags) = (digits(parts.next()?, 32)?, digits(parts.next()?, 16)?, digits(parts.next()?, 2)?);
        let whole = version != 255 && (version > 0 || parts.next().is_none());
        (whole && trace != 0 && span != 0).then_some(Parent { trace, span: span as u64, sampled: flags & 1 == 1 })
    }
}

/// What a request was about, for its span.
#[derive(Clone)]
pub(crate) struct Subject {
    pub model: String,
    pub rows: usize,
}

/// A request that was answered.
pub(crate) struct Span {
    pub method: String,
    pub path: String,
    pub status: u16,
    pub began: SystemTime,
    pub took: Duration,
    pub request_id: String,
    pub parent: Option<Parent>,
    pub subject: Option<Subject>,
}

/// Takes spans for the collector.
pub(crate) struct Spans {
    sender: SyncSender<Span>,
    dropped: Arc<AtomicU64>,
}

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Collector {
    /// Name and port.
    host: String,
    path: String,
}

impl Collector {
    fn parse(url: &str) -> mcdd::Result<Collector> {
        let wrong = || {
            mcdd::Error::setting(format!("`otlp` is {url:?}")).hint(
                "give the address of a collector, such as http://127.0.0.1:4318; one with HTTPS is reached by a collector on this machine",
            )
        };
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        if host.is_empty() || !plain(rest) || host.contains('@') {
            return Err(wrong());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:4318") };
        let path = if path.is_empty() { "/v1/traces".to_owned() } else { format!("/{path}") };
        Ok(Collector { host, path })
    }

    /// Sends a message; an answer other than 2xx is an error.
    fn post(&self, body: &str) -> io::Result<()> {
        let address = self.host.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.path,
            self.host,
            body.len()
        )?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        if status.starts_with(b"HTTP/1.") && status[9] == b'2' {
            return Ok(());
        }
        Err(io::Error::other(format!("it answered {}", String::from_utf8_lossy(&status[9..]))))
    }
}

impl Spans {
    /// Starts the thread that sends.
    pub(crate) fn start(url: &str, log: Log) -> mcdd::Result<Spans> {
        let collector = Collector::parse(url)?;
        let (sender, spans) = sync_channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        thread::Builder::new()
            .name("otlp".into())
            .spawn(move || send(&collector, &spans, &counted, log))
            .map_err(|e| mcdd::Error::setting(format!("no thread for `otlp`: {e}")))?;
        Ok(Spans { sender, dropped })
    }

    /// Takes a span, unless its trace is not wanted, or too many wait.
    pub(crate) fn add(&self, span: Span) {
        if span.parent.is_none_or(|p| p.sampled) && self.sender.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of spans that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn send(collector: &Collector, spans: &Receiver<Span>, dropped: &AtomicU64, log: Log) {
    // Names of traces and spans: not secret, but different on every start.
    let random = RandomState::new();
    let mut count = 0u64;
    let mut id = || {
        count += 1;
        let mut hasher = random.build_hasher();
        hasher.write_u64(count);
        hasher.finish().max(1)
    };
    let mut reachable = true;
    let mut ended = false;
    while !ended {
        let (mut message, until) = (Vec::new(), Instant::now() + EVERY);
        while message.len() < MESSAGE {
            match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(span) => message.push(described(&span, [id(), id(), id()])),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    ended = true;
                    break;
                }
            }
        }
        if message.is_empty() {
            continue;
        }
        let lost = message.len() as u64;
        let sent = collector.post(&envelope(message).to_string());
        if sent.is_err() {
            dropped.fetch_add(lost, Ordering::Relaxed);
        }
        // A line when it begins and when it ends, not for each message.
        match &sent {
            Err(e) if reachable => {
                log.line(
                    "warning",
                    &[("event", "spans are dropped"), ("collector", &collector.host), ("error", &e.to_string())],
                );
            }
            Ok(()) if !reachable => {
                log.line("info", &[("event", "spans are sent again"), ("collector", &collector.host)])
            }
            _ => {}
        }
        reachable = sent.is_ok();
    }
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

/// A span in the form of OTLP.
fn described(span: &Span, random: [u64; 3]) -> Value {
    let began = span.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let trace = span.parent.map_or((u128::from(random[0]) << 64) | u128::from(random[1]), |p| p.trace);
    let mut attributes = vec![
        attribute("http.request.method", json!({ "stringValue": span.method })),
        attribute("http.route", json!({ "stringValue": span.path })),
        attribute("http.response.status_code", json!({ "intValue": span.status.to_string() })),
        attribute("mcdd.request_id", json!({ "stringValue": span.request_id })),
    ];
    if let Some(subject) = &span.subject {
        attributes.push(attribute("mcdd.model", json!({ "stringValue": subject.model })));
        attributes.push(attribute("mcdd.rows", json!({ "intValue": subject.rows.to_string() })));
    }
    let mut out = json!({
        "traceId": format!("{trace:032x}"),
        "spanId": format!("{:016x}", random[2]),
        "name": format!("{} {}", span.method, span.path),
        "kind": 2,
        "startTimeUnixNano": began.as_nanos().to_string(),
        "endTimeUnixNano": (began + span.took).as_nanos().to_string(),
        "attributes": attributes,
        "status": if span.status >= 500 { json!({ "code": 2 }) } else { json!({}) },
    });
    if let Some(parent) = span.parent {
        out["parentSpanId"] = format!("{:016x}", parent.span).into();
    }
    out
}

fn envelope(spans: Vec<Value>) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            attribute("service.name", json!({ "stringValue": "mcdd" })),
            attribute("service.version", json!({ "stringValue": version })),
        ] },
        "scopeSpans": [{ "scope": { "name": "mcdd-serve", "version": version }, "spans": spans }],
    }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_those_of_the_standard() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent::parse(good).unwrap();
        assert_eq!((parent.trace, parent.span), (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7));
        assert!(parent.sampled && !Parent::parse(&good.replace("-01", "-00")).unwrap().sampled);
        assert!(Parent::parse(&format!("01{}-more", &good[2..])).is_some());
        for bad in [
            "",
            "00",
            &good[..54],
            &good.replace("4bf9", "4BF9"),
            &good.replace("4bf9", "+bf9"),
            &format!("{good}-more"),
            &format!("ff{}", &good[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Parent::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn collectors_have_a_port_and_a_path() {
        let parse = |url: &str| Collector::parse(url).map(|c| (c.host, c.path)).ok();
        let parts = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(parse("http://127.0.0.1:4318"), parts("127.0.0.1:4318", "/v1/traces"));
        assert_eq!(parse("http://collector/a/b"), parts("collector:4318", "/a/b"));
        assert_eq!(parse("http://[::1]:9/"), parts("[::1]:9", "/v1/traces"));
        for bad in ["", "127.0.0.1:4318", "https://x", "http://", "http://a b", "http://a\r\nb", "http://u@h"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
