//! A connection whose client must take what is written within a time, and reads the last answer before the connection is closed.

use std::future::Future as _;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long a client that is answered before it has sent everything may go on sending.
const LINGER: Duration = Duration::from_secs(2);

/// A stream that ends if nothing can be written for a time: its client does not read, or is gone.
///
/// If it is closed by an answer to a request that is not all read, what the client still sends is read and thrown away, up to a time and a
/// number of bytes. Otherwise the system would reset the connection, and the client might not see the answer.
pub(crate) struct Timed {
    stream: TcpStream,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Whether the last answer closes the connection.
    closing: Arc<AtomicBool>,
    ending: Option<Pin<Box<Sleep>>>,
    /// Bytes that may still be thrown away.
    left: usize,
}

impl Timed {
    /// `most` is the number of bytes that are thrown away once `closing` is set.
    pub(crate) fn new(stream: TcpStream, patience: Duration, most: usize, closing: Arc<AtomicBool>) -> Timed {
        Timed { stream, patience, waiting: None, closing, ending: None, left: most }
    }

    /// An answer of the stream to a write; one that has to wait does so for a time.
    fn within<T>(&mut self, cx: &mut Context<'_>, answer: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if answer.is_ready() {
            self.waiting = None;
            return answer;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        if waiting.as_mut().poll(cx).is_ready() {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        } else {
            Poll::Pending
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.stream).poll_write(cx, from);
        self.within(cx, answer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let answer = Pin::new(&mut self.stream).poll_write_vectored(cx, from);
        self.within(cx, answer)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, answer)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() {
            let answer = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.within(cx, answer))?;
            if !self.closing.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let Timed { stream, ending, left, .. } = &mut *self;
        let ending = ending.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut space = [MaybeUninit::<u8>::uninit(); 1 << 14];
        while *left > 0 && ending.as_mut().poll(cx).is_pending() {
            let mut some = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut *stream).poll_read(cx, &mut some)) {
                Ok(()) if !some.filled().is_empty() => *left = left.saturating_sub(some.filled().len()),
                // The client has closed its side, or is gone.
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
