//! Threads that share the arrays of a kernel: each loop is given to all of them, and is over when
//! all have done their part, as a `parallel for` of OpenMP with the static schedule.
//!
//! A kernel lives on the first thread of its crew. It cuts what a loop writes into one part for
//! each thread and hands the parts out; what a loop reads is borrowed by all. So the compiler sees
//! that no two threads write the same element, and kernels need no unsafe code:
//!
//! ```text
//! let shares = crew.shares(n);
//! crew.each(cut(&mut q, &shares), |thread, q| multiply(&rows[thread], &p, q));
//! ```
//!
//! Memory is touched for the first time by the thread that works on it: [`Crew::array`].

use crate::team::Barrier;
use crate::{Placement, WorkloadError, stream};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What all threads do at once; it is given the index of the thread.
type Task<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    /// A `&Task` on the stack of [`Crew::all`], from before `start` until behind `end`.
    task: AtomicPtr<()>,
    start: Barrier,
    end: Barrier,
    over: AtomicBool,
    panicked: AtomicBool,
}

/// The threads of a kernel. The thread that made it is the first of them.
pub struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    threads: usize,
    /// A task that could reach its own crew could wait for itself: no reference leaves the thread.
    not_sync: PhantomData<Cell<()>>,
}

impl Crew {
    /// Starts the other threads and places all, this one as thread 0.
    pub(crate) fn start(threads: usize, placement: &Arc<dyn Placement>) -> Result<Crew, WorkloadError> {
        let shared = Arc::new(Shared {
            task: AtomicPtr::new(std::ptr::null_mut()),
            start: Barrier::new(threads),
            end: Barrier::new(threads),
            over: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        placement.place_thread(0)?;
        let mut helpers = Vec::with_capacity(threads);
        let mut may_begin: Vec<Sender<()>> = Vec::with_capacity(threads);
        let (tell, told) = channel();
        for index in 1..threads {
            let (begin, begins) = channel();
            let (shared, placement, tell) = (Arc::clone(&shared), Arc::clone(placement), tell.clone());
            let body = move || {
                let placed = placement.place_thread(index);
                drop(placement);
                let able = placed.is_ok();
                // Who listens is gone only if the crew is given up, as the next line then sees.
                let _ = tell.send(placed);
                // The barriers are for all threads or none.
                if able && begins.recv().is_ok() {
                    help(index, &shared);
                }
            };
            let started = std::thread::Builder::new().name(format!("worker-{index}")).spawn(body);
            helpers.push(started.map_err(|error| WorkloadError::Threads { threads, reason: error.to_string() })?);
            may_begin.push(begin);
        }
        for _ in 1..threads {
            told.recv().map_err(|_| WorkloadError::ThreadLost)??;
        }
        for begin in may_begin {
            begin.send(()).map_err(|_| WorkloadError::ThreadLost)?;
        }
        Ok(Crew { shared, helpers, threads, not_sync: PhantomData })
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// What each thread works on of so many items: in order, as even as possible.
    pub fn shares(&self, items: usize) -> Vec<Range<usize>> {
        let share = |index| stream::share(items as u64, self.threads as u32, index as u32);
        (0..self.threads).map(share).map(|share| share.start as usize..share.end as usize).collect()
    }

    /// Gives each thread its part and waits for all; what they made of it, in the order of the
    /// threads.
    ///
    /// # Panics
    /// If there are more or fewer parts than threads, or a thread panics.
    pub fn each<P: Send, R: Send>(
        &self,
        parts: impl IntoIterator<Item = P>,
        work: impl Fn(usize, P) -> R + Sync,
    ) -> Vec<R> {
        let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        assert_eq!(parts.len(), self.threads, "one part for each thread");
        let made: Vec<_> = parts.iter().map(|_| Mutex::new(None)).collect();
        self.all(&|thread| {
            let part = parts[thread].lock().unwrap_or_else(PoisonError::into_inner).take();
            let result = part.map(|part| work(thread, part));
            *made[thread].lock().unwrap_or_else(PoisonError::into_inner) = result;
        });
        let made = made.into_iter().map(|made| made.into_inner().unwrap_or_else(PoisonError::into_inner));
        made.map(|made| made.expect("every thread was here")).collect()
    }

    /// The sum of what the threads return, always added up in their order.
    pub fn sum<P: Send>(&self, parts: impl IntoIterator<Item = P>, work: impl Fn(usize, P) -> f64 + Sync) -> f64 {
        self.each(parts, work).into_iter().sum()
    }

    /// An array whose shares are first touched, and filled with `value(index)`, by their threads.
    pub fn array<T: Copy + Send>(
        &self,
        shares: &[Range<usize>],
        value: impl Fn(usize) -> T + Sync,
    ) -> Result<Vec<T>, WorkloadError> {
        let length = shares.last().map_or(0, |last| last.end);
        let mut array: Vec<T> = Vec::new();
        array.try_reserve_exact(length).map_err(|_| WorkloadError::Memory { bytes: length * size_of::<T>() })?;
        self.each(cut(&mut array.spare_capacity_mut()[..length], shares), |thread, part| {
            for (index, element) in shares[thread].clone().zip(part) {
                element.write(value(index));
            }
        });
        // SAFETY: `cut` hands out all of the first `length` elements, and `each` returned, so every
        // thread has written all of its part.
        unsafe { array.set_len(length) };
        Ok(array)
    }

    /// Lets every thread carry out the task once.
    fn all(&self, task: &Task<'_>) {
        if self.threads == 1 {
            return task(0);
        }
        let place: *const &Task<'_> = &task;
        self.shared.task.store(place.cast_mut().cast(), Ordering::Relaxed);
        self.shared.start.wait();
        let own = catch_unwind(AssertUnwindSafe(|| task(0)));
        // Also behind a panic: until here others may use what the task borrows.
        self.shared.end.wait();
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!self.shared.panicked.load(Ordering::Relaxed), "a thread of the crew panicked");
    }
}

fn help(index: usize, shared: &Shared) {
    loop {
        shared.start.wait();
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let place = shared.task.load(Ordering::Relaxed).cast::<&Task<'_>>();
        // SAFETY: `Crew::all` wrote the pointer before it came to `start`, and stays, with what the
        // task borrows, until this thread has come to `end`. `Task` is `Sync`.
        let task = unsafe { *place };
        if catch_unwind(AssertUnwindSafe(|| task(index))).is_err() {
            shared.panicked.store(true, Ordering::Relaxed);
        }
        shared.end.wait();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.start.wait();
        for helper in self.helpers.drain(..) {
            // A panic was caught, and said so on standard error.
            let _ = helper.join();
        }
    }
}

/// Cuts what begins where the first share begins into the shares, which follow one another.
pub(crate) fn cut<'a, T>(mut slice: &'a mut [T], shares: &[Range<usize>]) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(shares.len());
    for share in shares {
        let (part, rest) = slice.split_at_mut(share.len());
        parts.push(part);
        slice = rest;
    }
    parts
}

/// Shares of planes as shares of elements, with so many elements to a plane.
pub(crate) fn scaled(shares: &[Range<usize>], plane: usize) -> Vec<Range<usize>> {
    shares.iter().map(|share| share.start * plane..share.end * plane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Anywhere;

    fn crew(threads: usize) -> Crew {
        let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
        Crew::start(threads, &anywhere).unwrap()
    }

    #[test]
    fn every_element_is_written_once_by_its_thread() {
        for threads in [1, 2, 3, 7] {
            let crew = crew(threads);
            let shares = crew.shares(1003);
            let mut array = crew.array(&shares, |index| index as u64).unwrap();
            for _ in 0..100 {
                crew.each(cut(&mut array, &shares), |_, part| part.iter_mut().for_each(|element| *element += 1));
            }
            assert!(array.iter().enumerate().all(|(index, element)| *element == index as u64 + 100));
            // 1 + 2 + ... + 1003 = 1003 * 1004 / 2.
            let sum = crew.sum(shares, |_, share| share.map(|index| index as f64 + 1.0).sum());
            assert_eq!(sum, 503_506.0);
        }
    }

    #[test]
    fn a_panic_in_a_part_ends_the_loop_for_all() {
        let crew = crew(3);
        for bad in 0..3 {
            let all = AssertUnwindSafe(|| crew.each(0..3, |thread, _| assert_ne!(thread, bad)));
            assert!(catch_unwind(all).is_err());
            crew.shared.panicked.store(false, Ordering::Relaxed);
        }
    }

    struct Refusing;
    impl Placement for Refusing {
        fn place_thread(&self, index: usize) -> Result<(), WorkloadError> {
            if index == 2 { Err(WorkloadError::Placement("no such CPU".into())) } else { Ok(()) }
        }
    }

    #[test]
    fn a_thread_that_cannot_be_placed_ends_the_crew_without_hanging_the_others() {
        let refusing: Arc<dyn Placement> = Arc::new(Refusing);
        let error = Crew::start(4, &refusing).err().unwrap().to_string();
        assert!(error.contains("no such CPU"), "{error}");
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let crew = crew(2);
        let shares = crew.shares(1 << 55);
        assert!(matches!(crew.array(&shares, |_| 0.0), Err(WorkloadError::Memory { .. })));
    }
}
