//! Threads that live as long as a job: each owns its state, carries out the same orders, and meets
//! the others at a barrier.

use crate::WorkloadError;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a thread of a team owns and does.
pub(crate) trait Member<O, A> {
    /// Carries out one order.
    fn carry_out(&mut self, order: O) -> A;
}

struct Thread<O, A> {
    orders: Option<Sender<O>>,
    answers: Receiver<Result<A, WorkloadError>>,
    handle: Option<JoinHandle<()>>,
}

/// Persistent threads; they end when the team is dropped.
pub(crate) struct Team<O, A> {
    threads: Vec<Thread<O, A>>,
}

impl<O: Send + 'static, A: Send + 'static> Team<O, A> {
    /// Starts threads; `member(i)` is called on thread `i` and makes its state there. All have it
    /// when this returns.
    pub(crate) fn start<M: Member<O, A>>(
        threads: usize,
        member: impl Fn(usize) -> Result<M, WorkloadError> + Send + Sync + 'static,
    ) -> Result<Self, WorkloadError> {
        let member = Arc::new(member);
        let mut team = Team { threads: Vec::with_capacity(threads) };
        let mut made = Vec::with_capacity(threads);
        for index in 0..threads {
            let (orders, ordered) = channel();
            let (answer, answers) = channel();
            let (tell, told) = channel();
            let member = Arc::clone(&member);
            let body = move || {
                let state = member(index);
                drop(member);
                match state {
                    Ok(mut state) => {
                        // The one who listens is gone only if the team is being dropped.
                        let _ = tell.send(Ok(()));
                        work(&mut state, &ordered, &answer);
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            };
            let handle = std::thread::Builder::new().name(format!("worker-{index}")).spawn(body);
            let handle = Some(handle.map_err(|error| WorkloadError::Threads { threads, reason: error.to_string() })?);
            team.threads.push(Thread { orders: Some(orders), answers, handle });
            made.push(told);
        }
        for told in made {
            told.recv().map_err(|_| WorkloadError::ThreadLost)??;
        }
        Ok(team)
    }

    /// Gives every thread one order and waits for every answer, in the order of the threads.
    pub(crate) fn all(&self, order: impl Fn() -> O) -> Result<Vec<A>, WorkloadError> {
        for thread in &self.threads {
            let sent = thread.orders.as_ref().map(|orders| orders.send(order()));
            if !matches!(sent, Some(Ok(()))) {
                return Err(WorkloadError::ThreadLost);
            }
        }
        self.threads.iter().map(|thread| thread.answers.recv().map_err(|_| WorkloadError::ThreadLost)?).collect()
    }
}

fn work<O, A>(state: &mut impl Member<O, A>, ordered: &Receiver<O>, answer: &Sender<Result<A, WorkloadError>>) {
    while let Ok(order) = ordered.recv() {
        if answer.send(Ok(state.carry_out(order))).is_err() {
            return;
        }
    }
}

impl<O, A> Drop for Team<O, A> {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            thread.orders = None;
        }
        for handle in self.threads.iter_mut().filter_map(|thread| thread.handle.take()) {
            // A thread that panicked has said so on standard error; its answers ended then.
            let _ = handle.join();
        }
    }
}

/// How long a thread that waits keeps its CPU. Threads that finish together meet within this; where
/// there are fewer CPUs than threads (or host CPUs than vCPUs, which no guest can see) a thread
/// that spun on would take the CPU from the one it waits for.
const SPIN: Duration = Duration::from_micros(200);
/// How long it then offers its CPU to others before it sleeps.
const YIELD: Duration = Duration::from_millis(2);

/// A barrier whose release has one time for all: the moment at which the last thread arrived.
pub(crate) struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicU32,
    released_ns: AtomicU64,
    epoch: Instant,
    /// How many threads sleep until `released`.
    sleepers: Mutex<usize>,
    released: Condvar,
}

impl Barrier {
    /// A barrier for so many threads.
    pub(crate) fn new(threads: usize) -> Barrier {
        Barrier {
            threads,
            arrived: AtomicUsize::new(0),
            round: AtomicU32::new(0),
            released_ns: AtomicU64::new(0),
            epoch: Instant::now(),
            sleepers: Mutex::new(0),
            released: Condvar::new(),
        }
    }

    /// Waits for all threads; the time since the barrier was made at which the last one arrived.
    pub(crate) fn wait(&self) -> Duration {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.release(round);
        } else {
            self.wait_for_release(round);
        }
        // The next release comes only after this thread has arrived again, so this is the time of
        // this round.
        Duration::from_nanos(self.released_ns.load(Ordering::Relaxed))
    }

    fn release(&self, round: u32) {
        self.released_ns.store(self.epoch.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.round.store(round.wrapping_add(1), Ordering::Release);
        // To wake is a call of the kernel, even where nobody sleeps.
        if *sleepers > 0 {
            self.released.notify_all();
        }
    }

    fn wait_for_release(&self, round: u32) {
        let waiting = || self.round.load(Ordering::Acquire) == round;
        let arrived = Instant::now();
        while waiting() {
            let waited = arrived.elapsed();
            if waited < SPIN {
                for _ in 0..50 {
                    std::hint::spin_loop();
                }
            } else if waited < YIELD {
                std::thread::yield_now();
            } else {
                let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
                *sleepers += 1;
                while waiting() {
                    sleepers = self.released.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
                }
                *sleepers -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_the_barrier_before_all_have_come() {
        let threads = 8;
        let barrier = Arc::new(Barrier::new(threads));
        let inside = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..threads)
            .map(|index| {
                let (barrier, inside) = (Arc::clone(&barrier), Arc::clone(&inside));
                std::thread::spawn(move || {
                    let mut times = Vec::new();
                    for round in 0..200 {
                        // Some come late enough for the others to sleep.
                        if round % 50 == index {
                            std::thread::sleep(Duration::from_millis(3));
                        }
                        inside.fetch_add(1, Ordering::SeqCst);
                        times.push(barrier.wait());
                        assert!(inside.load(Ordering::SeqCst) >= threads * (round + 1));
                    }
                    times
                })
            })
            .collect();
        let times: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
        assert!(times.iter().all(|other| *other == times[0]), "all threads see the same release times");
        assert!(times[0].windows(2).all(|pair| pair[0] <= pair[1]));
    }

    struct Adder(usize);
    impl Member<usize, usize> for Adder {
        fn carry_out(&mut self, order: usize) -> usize {
            self.0 += order;
            self.0
        }
    }

    #[test]
    fn members_keep_their_state_and_answer_in_order() {
        let team = Team::start(3, |index| Ok(Adder(100 * index))).unwrap();
        assert_eq!(team.all(|| 1).unwrap(), [1, 101, 201]);
        assert_eq!(team.all(|| 2).unwrap(), [3, 103, 203]);
    }
}
