//! Places in the queue, counted in rows.
//!
//! A request takes a place when its body has arrived and before it is read as rows, so that no work is done for a request that is refused then.
//! How many rows it has is estimated by its bytes, from the request before, and counted exactly once they are read.
//! While the queue is full, requests stand in line for a while. While there are as many rows in line as the queue holds, the bodies of
//! others are not received: these requests wait at the gate, in order, and are refused there.

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

/// The most bytes that count of a body before they have arrived, so that heads alone do not close the gate.
const FIRST_BYTES: usize = 1 << 16;

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

/// A request that waits at the gate.
struct Guest {
    model: String,
    most: usize,
    bytes: usize,
    come: oneshot::Sender<Coming>,
}

#[derive(Default)]
struct State {
    rows: usize,
    own: BTreeMap<String, Own>,
    line: VecDeque<Waiter>,
    /// The rows of the line.
    standing: usize,
    gate: VecDeque<Guest>,
    /// The rows of bodies that are being received.
    coming: usize,
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

    /// The rows that so many bytes probably have.
    fn estimate(&self, model: &str, bytes: usize) -> usize {
        (bytes / self.own.get(model).map_or(ROW_BYTES, |own| own.row_bytes)).max(1)
    }

    /// Whether fewer rows are on their way than the queue holds, beside those that find room in it.
    fn open(&self, most: usize) -> bool {
        self.rows + self.standing + self.coming < 2 * most
    }

    fn open_for(&self, model: &str, own_most: usize, most: usize) -> bool {
        self.standing + self.coming < most || self.fits_own(model, 1, own_most)
    }

    /// The next at the gate whose body may be received: the first, or one behind others whose models have no room.
    fn next_guest(&mut self, most: usize) -> Option<(Guest, usize)> {
        let mut at = 0;
        loop {
            let first = self.gate.get(at)?;
            if first.come.is_closed() {
                self.gate.remove(at);
            } else if !self.open(most) {
                return None;
            } else if !self.open_for(&first.model, first.most, most) {
                at += 1;
            } else {
                let guest = self.gate.remove(at)?;
                let rows = self.estimate(&guest.model, guest.bytes);
                self.coming += rows;
                return Some((guest, rows));
            }
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

/// A request whose body is being received.
pub(crate) struct Coming {
    places: Arc<Places>,
    model: String,
    rows: usize,
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
        let (line, gate) = (std::mem::take(&mut state.line), std::mem::take(&mut state.gate));
        state.standing = 0;
        drop(state);
        drop((line, gate));
    }

    /// Leave to receive the body of a request to a model that may have so many rows at once. `bytes` is the length of the body, if
    /// it is known.
    pub(crate) async fn come(self: &Arc<Self>, model: &str, most: usize, bytes: Option<usize>) -> Answer<Coming> {
        let bytes = bytes.unwrap_or(0).min(FIRST_BYTES);
        let coming = {
            let mut state = self.lock();
            if state.closed {
                return Err(Failure::busy());
            }
            // No one overtakes.
            if state.gate.is_empty() && state.open(self.most) && state.open_for(model, most, self.most) {
                let rows = state.estimate(model, bytes);
                state.coming += rows;
                return Ok(Coming { places: Arc::clone(self), model: model.to_owned(), rows });
            }
            let (come, coming) = oneshot::channel();
            state.gate.push_back(Guest { model: model.to_owned(), most, bytes, come });
            coming
        };
        // Those before it may have gone, or wait for another model.
        self.let_in();
        match timeout(PATIENCE, coming).await {
            Ok(Ok(coming)) => Ok(coming),
            _ => Err(Failure::busy()),
        }
    }

    /// A place for a request of so many bytes to a model that may have so many rows at once.
    pub(crate) async fn enter(self: &Arc<Self>, model: &str, most: usize, bytes: usize) -> Answer<Place> {
        let entering = {
            let mut state = self.lock();
            if state.closed {
                return Err(Failure::busy());
            }
            let rows = state.estimate(model, bytes);
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

    /// Lets in those of the line that find room, and then those at the gate.
    fn let_in(self: &Arc<Self>) {
        loop {
            // If one is gone in this moment, its place is dropped and the next one enters.
            let mut state = self.lock();
            if let Some(waiter) = state.next(self.most) {
                drop(state);
                let _ = waiter.enter.send(self.place(waiter.model, waiter.rows, 0));
            } else if let Some((guest, rows)) = state.next_guest(self.most) {
                drop(state);
                let _ = guest.come.send(Coming { places: Arc::clone(self), model: guest.model, rows });
            } else {
                return;
            }
        }
    }
}

impl Coming {
    fn set(&mut self, rows: usize) {
        let mut state = self.places.lock();
        state.coming = state.coming + rows - self.rows;
        let fewer = rows < self.rows;
        self.rows = rows;
        drop(state);
        if fewer {
            self.places.let_in();
        }
    }

    /// So many bytes have arrived.
    pub(crate) fn reach(&mut self, bytes: usize) {
        let rows = self.places.lock().estimate(&self.model, bytes);
        self.set(rows.max(self.rows));
    }

    /// It takes long: only the bytes that have arrived count, so that slow clients do not close the gate.
    pub(crate) fn slow(&mut self, bytes: usize) {
        let rows = self.places.lock().estimate(&self.model, bytes);
        self.set(rows);
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.set(0);
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
            // The model a has no room; b has, behind a in the line; then the queue has none.
            let waiting = [send("a1", "a", 50, 10), send("b1", "b", 100, 50), send("b2", "b", 100, 1)];
            for _ in 0..20 {
                yield_now().await;
            }
            assert_eq!(*order.lock().unwrap(), ["b1"]);
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

    /// While as many rows are on their way as the queue and the line hold, no other body is received.
    #[test]
    fn bodies_are_received_while_there_is_room_in_the_line() {
        run(async {
            let places = Places::new(100);
            let row = ROW_BYTES;
            // A herd: each has as many rows as half of the queue.
            let mut herd = Vec::new();
            for _ in 0..4 {
                herd.push(places.come("a", 100, Some(50 * row)).await.unwrap());
            }
            let begun = Instant::now();
            assert_eq!(places.come("a", 100, Some(row)).await.err().unwrap().status, 503);
            assert!(begun.elapsed() >= PATIENCE);
            // The next are let in, in order, as soon as there is room: one of the herd takes long and counts with what has arrived.
            let order = Arc::new(Mutex::new(Vec::new()));
            let wait = |name: &'static str| {
                let (places, order) = (Arc::clone(&places), Arc::clone(&order));
                tokio::spawn(async move {
                    let coming = places.come("a", 100, Some(40 * row)).await;
                    order.lock().unwrap().push(name);
                    coming.map_err(|failure| failure.status)
                })
            };
            let waiting = [wait("first"), wait("second"), wait("third")];
            yield_now().await;
            herd[0].slow(20 * row);
            herd[1].reach(60 * row);
            yield_now().await;
            yield_now().await;
            assert_eq!(*order.lock().unwrap(), ["first"]);
            herd.truncate(1);
            let [first, second, third] = waiting;
            let more = [first.await.unwrap().unwrap(), second.await.unwrap().unwrap(), third.await.unwrap().unwrap()];
            assert_eq!(*order.lock().unwrap(), ["first", "second", "third"]);
            drop((herd, more));
            assert_eq!(places.lock().coming, 0);
            // A head alone counts for no more than its first bytes.
            let head = places.come("a", 100, Some(1 << 30)).await.unwrap();
            assert_eq!(head.rows, FIRST_BYTES / row);
            drop(head);
            places.close();
            assert!(places.come("a", 100, None).await.is_err());
        });
    }
}
