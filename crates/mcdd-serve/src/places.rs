//! Places in the queue, counted in rows.
//!
//! A request takes a place when its body has arrived and before it is read as rows, so that no work is done for a request that is refused then.
//! How many rows it has is estimated by its bytes, from the request before, and counted exactly once they are read.
//! While the queue is full, requests stand in line for a while.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::failure::{Answer, Failure};

/// How long a request stands in line. Clients that try again at once after a refusal would otherwise take the time of those that
/// are answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of a row before any was seen.
const ROW_BYTES: usize = 64;

/// The rows of a model.
struct Own {
    rows: usize,
    /// Bytes of a row of its last request.
    row_bytes: usize,
}

/// A request that stands in line.
struct Waiter {
    model: String,
    /// The most rows of its model.
    most: usize,
    rows: usize,
    enter: oneshot::Sender<Place>,
}

#[derive(Default)]
struct State {
    rows: usize,
    own: BTreeMap<String, Own>,
    line: VecDeque<Waiter>,
    /// The rows of the line.
    standing: usize,
    closed: bool,
}

impl State {
    /// Whether so many rows find room. A request of any size does if no others are there.
    fn fits(&self, rows: usize, most: usize) -> bool {
        self.rows == 0 || self.rows + rows <= most
    }

    fn fits_own(&self, model: &str, rows: usize, most: usize) -> bool {
        let own = self.own.get(model).map_or(0, |own| own.rows);
        own == 0 || own + rows <= most
    }

    fn add(&mut self, model: &str, rows: usize) {
        self.rows += rows;
        match self.own.get_mut(model) {
            Some(own) => own.rows += rows,
            None => drop(self.own.insert(model.to_owned(), Own { rows, row_bytes: ROW_BYTES })),
        }
    }

    fn remove(&mut self, model: &str, rows: usize) {
        self.rows -= rows;
        if let Some(own) = self.own.get_mut(model) {
            own.rows -= rows;
        }
    }

    /// The next of the line that may enter: the first, or one behind others whose models have no room.
    fn next(&mut self, most: usize) -> Option<Waiter> {
        let mut at = 0;
        loop {
            let first = self.line.get(at)?;
            if first.enter.is_closed() {
                self.standing -= first.rows;
                self.line.remove(at);
            } else if !self.fits_own(&first.model, first.rows, first.most) {
                at += 1;
            } else if !self.fits(first.rows, most) {
                return None;
            } else {
                let waiter = self.line.remove(at)?;
                self.standing -= waiter.rows;
                self.add(&waiter.model, waiter.rows);
                return Some(waiter);
            }
        }
    }
}

/// All places of a server.
pub(crate) struct Places {
    state: Mutex<State>,
    most: usize,
}

/// The place of a request. It is given back at the end.
pub(crate) struct Place {
    places: Arc<Places>,
    model: String,
    rows: usize,
    bytes: usize,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Places> {
        Arc::new(Places { state: Mutex::default(), most })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of all requests that have a place.
    pub(crate) fn rows(&self) -> usize {
        self.lock().rows
    }

    /// No one enters any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let line = std::mem::take(&mut state.line);
        state.standing = 0;
        drop(state);
        drop(line);
    }

    /// Whether a request to a model would stand behind as many rows as the queue holds, and so in vain.
    pub(crate) fn crowded(&self, model: &str, most: usize) -> bool {
        let state = self.lock();
        state.standing >= self.most && !(state.fits(1, self.most) && state.fits_own(model, 1, most))
    }

    /// A place for a request of so many bytes to a model that may have so many rows at once.
    pub(crate) async fn enter(self: &Arc<Self>, model: &str, most: usize, bytes: usize) -> Answer<Place> {
        let entering = {
            let mut state = self.lock();
            if state.closed {
                return Err(Failure::busy());
            }
            let rows = (bytes / state.own.get(model).map_or(ROW_BYTES, |own| own.row_bytes)).max(1);
            // No one overtakes.
            if state.line.is_empty() && state.fits(rows, self.most) && state.fits_own(model, rows, most) {
                state.add(model, rows);
                return Ok(self.place(model.to_owned(), rows, bytes));
            }
            let (enter, entering) = oneshot::channel();
            state.standing += rows;
            state.line.push_back(Waiter { model: model.to_owned(), most, rows, enter });
            entering
        };
        // Others may have come and gone before it stood in line, or be in line for another model.
        self.let_in();
        match timeout(PATIENCE, entering).await {
            Ok(Ok(mut place)) => {
                place.bytes = bytes;
                Ok(place)
            }
            _ => Err(Failure::busy()),
        }
    }

    fn place(self: &Arc<Self>, model: String, rows: usize, bytes: usize) -> Place {
        Place { places: Arc::clone(self), model, rows, bytes }
    }

    /// Lets in those of the line that find room.
    fn let_in(self: &Arc<Self>) {
        loop {
            let Some(waiter) = self.lock().next(self.most) else { return };
            // If it is gone in this moment, the place is dropped and the next one enters.
            let _ = waiter.enter.send(self.place(waiter.model, waiter.rows, 0));
        }
    }
}

impl Place {
    /// The request turned out to have so many rows.
    pub(crate) fn settle(&mut self, rows: usize) {
        let mut state = self.places.lock();
        state.remove(&self.model, self.rows);
        state.add(&self.model, rows);
        if let (Some(bytes), Some(own)) = (self.bytes.checked_div(rows), state.own.get_mut(&self.model)) {
            own.row_bytes = bytes.max(1);
        }
        let fewer = rows < self.rows;
        self.rows = rows;
        drop(state);
        if fewer {
            self.places.let_in();
        }
    }

    /// So many of its rows are done.
    pub(crate) fn leave(&mut self, rows: usize) {
        if rows > 0 {
            self.places.lock().remove(&self.model, rows);
            self.rows -= rows;
            self.places.let_in();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave(self.rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use tokio::runtime::Builder;
    use tokio::task::yield_now;
    use tokio::time::Instant;

    fn run<T>(test: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn rows_are_estimated_then_counted() {
        run(async {
            let places = Places::new(100);
            let mut first = places.enter("a", 100, 10 * ROW_BYTES).await.unwrap();
            assert_eq!(places.rows(), 10);
            first.settle(64);
            assert_eq!(places.rows(), 64);
            // The next of as many bytes is taken to have as many rows, and has to wait, in vain.
            let begun = Instant::now();
            assert_eq!(places.enter("a", 100, 10 * ROW_BYTES).await.err().unwrap().status, 503);
            assert!(begun.elapsed() >= PATIENCE);
            first.leave(60);
            let second = places.enter("a", 100, 10 * ROW_BYTES).await.unwrap();
            assert_eq!(places.rows(), 68);
            drop((first, second));
            assert_eq!(places.rows(), 0);
            // One that is alone may be larger than all places.
            assert!(places.enter("a", 100, 1 << 20).await.is_ok());
            places.close();
            assert!(places.enter("a", 100, 1).await.is_err());
        });
    }

    #[test]
    fn the_line_is_in_order_and_a_full_model_hinders_no_other() {
        run(async {
            let places = Places::new(100);
            let bytes = |rows: usize| rows * ROW_BYTES;
            let first = places.enter("a", 50, bytes(50)).await.unwrap();
            let order = Arc::new(Mutex::new(Vec::new()));
            let send = |name: &'static str, model: &'static str, most: usize, rows: usize| {
                let (places, order) = (Arc::clone(&places), Arc::clone(&order));
                tokio::spawn(async move {
                    let place = places.enter(model, most, bytes(rows)).await;
                    order.lock().unwrap().push(if place.is_ok() { name } else { "refused" });
                    place
                })
            };
            assert!(!places.crowded("a", 50));
            // The model a has no room; b has, behind a in the line; then the queue has none.
            let waiting = [send("a1", "a", 50, 10), send("b1", "b", 100, 50), send("b2", "b", 100, 1)];
            for _ in 0..20 {
                yield_now().await;
            }
            assert_eq!(*order.lock().unwrap(), ["b1"]);
            assert!(!places.crowded("b", 100));
            let more = send("a2", "a", 50, 90);
            yield_now().await;
            assert!(places.crowded("b", 100) && places.crowded("a", 50));
            more.abort();
            let _ = more.await;
            // A client that goes away leaves the line.
            waiting[0].abort();
            drop(first);
            let [_, b1, b2] = waiting;
            let (b1, b2) = (b1.await.unwrap(), b2.await.unwrap());
            assert_eq!(*order.lock().unwrap(), ["b1", "b2"]);
            assert_eq!(places.rows(), 51);
            drop((b1, b2));
            assert_eq!(places.rows(), 0);
        });
    }
}
