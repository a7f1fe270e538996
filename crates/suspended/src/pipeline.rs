//! Pieces go through several threads and come out in the order in which they went in.
//!
//! Piece number `i` goes to worker `i % workers`, and whoever takes results asks the workers in the
//! same turn: no number is compared, and no more than a few pieces for each worker are on the way.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Pieces that wait for one worker, and results of it that wait to be taken.
const WAITING: usize = 2;
/// Between two looks at a worker that has enough: others of its pieces keep it at work meanwhile.
const FULL: Duration = Duration::from_millis(1);
/// Most workers: one does some 500 MB in a second.
const MOST_WORKERS: usize = 8;

/// Where pieces go in.
#[derive(Debug)]
pub(crate) struct Into<T> {
    workers: Vec<SyncSender<(u64, T)>>,
    next: u64,
}

/// Where results come out.
#[derive(Debug)]
pub(crate) struct OutOf<T> {
    workers: Vec<Receiver<T>>,
    next: u64,
}

/// Starts the workers; `worker` makes what one does. They end when what goes in is dropped, or what
/// comes out.
pub(crate) fn start<In, Out, Work>(worker: impl Fn() -> Work) -> (Into<In>, OutOf<Out>)
where
    In: Send + 'static,
    Out: Send + 'static,
    Work: FnMut(u64, In) -> Out + Send + 'static,
{
    let count = thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
    let (mut into, mut out_of) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let ((give, get), (put, take)) = (sync_channel(WAITING), sync_channel(WAITING));
        let mut work = worker();
        thread::spawn(move || {
            while let Ok((number, piece)) = get.recv() {
                if put.send(work(number, piece)).is_err() {
                    return;
                }
            }
        });
        into.push(give);
        out_of.push(take);
    }
    (Into { workers: into, next: 0 }, OutOf { workers: out_of, next: 0 })
}

impl<T> Into<T> {
    /// The next piece; false where nobody takes results any more.
    pub(crate) fn put(&mut self, piece: T) -> bool {
        let worker = self.worker();
        self.workers[worker].send((self.next - 1, piece)).is_ok()
    }

    /// The same, which also waits no longer once it was called off; false then.
    pub(crate) fn put_unless(&mut self, piece: T, called_off: &AtomicBool) -> bool {
        let worker = self.worker();
        let mut piece = (self.next - 1, piece);
        loop {
            piece = match self.workers[worker].try_send(piece) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(piece)) => piece,
            };
            if called_off.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(FULL);
        }
    }

    fn worker(&mut self) -> usize {
        let worker = (self.next % self.workers.len() as u64) as usize;
        self.next += 1;
        worker
    }
}

impl<T> OutOf<T> {
    /// The next result; `None` after the last.
    pub(crate) fn take(&mut self) -> Option<T> {
        let worker = (self.next % self.workers.len() as u64) as usize;
        self.next += 1;
        self.workers[worker].recv().ok()
    }
}

/// Why less came out than went in.
pub(crate) fn thread_ended() -> io::Error {
    io::Error::other("a thread ended before its work")
}
