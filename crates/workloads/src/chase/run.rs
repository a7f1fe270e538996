//! The chase itself: its buffer, its path, its verification.

use super::load::Load;
use super::{ChaseJob, LATENCY, LINE_BYTES, LOADED_LATENCY};
use crate::team::{Barrier, Member, Team};
use crate::workload::{Measured, Outcome, Prepared, Repetition, Verification};
use crate::{MAX_REPETITIONS, Placement, WorkloadError, count_pages};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The same cycle on every run.
const SEED: u64 = 0x686f_6d65_6e6f_6465;

/// One cache line: the index of the next, and nothing else.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    next: usize,
}

#[derive(Clone, Copy)]
enum Order {
    /// The first thread chases, the others sleep.
    Alone,
    /// The first thread chases while the others stream.
    Loaded,
    Inspect,
}

enum Answer {
    Seconds(f64),
    /// What a thread that is the load has to say: nothing.
    Streamed,
    Chaser(Outcome),
    Load(String, Vec<(u32, u64)>),
}

/// A chase whose buffer is placed and filled, and its load.
pub(super) struct ChaseRun {
    team: Team<Order, Answer>,
    threads: u32,
    loads: u64,
}

impl ChaseRun {
    /// Starts the threads, places them, places and fills the buffer and the arrays.
    pub(super) fn prepare(
        job: &ChaseJob,
        repetitions: u32,
        placement: &Arc<dyn Placement>,
    ) -> Result<ChaseRun, WorkloadError> {
        check_job(job, repetitions)?;
        let (lines, loads) = ((job.buffer_bytes / LINE_BYTES) as usize, job.loads);
        let (placement, threads) = (Arc::clone(placement), job.threads.count);
        let arrays = job.buffer_bytes / u64::from(threads.max(2) - 1);
        let meeting = Arc::new(Meeting { start: Barrier::new(threads as usize), is_over: AtomicBool::new(false) });
        let team = Team::start(threads as usize, move |index| {
            placement.place_thread(index)?;
            let role = if index == 0 {
                Role::Chaser(Chaser::new(lines, loads, Arc::clone(&placement))?)
            } else {
                Role::Load(Load::new(arrays, Arc::clone(&placement))?)
            };
            Ok(Worker { role, meeting: Arc::clone(&meeting) })
        })?;
        Ok(ChaseRun { team, threads, loads })
    }
}

impl Prepared for ChaseRun {
    fn repetition(&mut self) -> Result<Repetition, WorkloadError> {
        let mut repetition = Repetition { figures: Vec::new(), phases: Vec::new() };
        for (order, quantity) in [(Order::Alone, LATENCY), (Order::Loaded, LOADED_LATENCY)] {
            if matches!(order, Order::Loaded) && self.threads == 1 {
                break;
            }
            let Some(Answer::Seconds(seconds)) = self.team.all(|| order)?.into_iter().next() else {
                return Err(WorkloadError::ThreadLost);
            };
            let value = seconds / self.loads as f64 * 1e9;
            repetition.figures.push(Measured { quantity: quantity.to_owned(), value });
            repetition.phases.push(seconds);
        }
        Ok(repetition)
    }

    /// Walks the cycle once.
    fn finish(&mut self) -> Result<Outcome, WorkloadError> {
        let mut answers = self.team.all(|| Order::Inspect)?.into_iter();
        let Some(Answer::Chaser(mut outcome)) = answers.next() else { return Err(WorkloadError::ThreadLost) };
        for answer in answers {
            let Answer::Load(cpus, pages) = answer else { return Err(WorkloadError::ThreadLost) };
            outcome.thread_cpus.push(cpus);
            outcome.pages_by_node.extend(pages);
        }
        outcome.pages_by_node = count_pages(outcome.pages_by_node);
        Ok(outcome)
    }
}

fn check_job(job: &ChaseJob, repetitions: u32) -> Result<(), WorkloadError> {
    let bad = |message: String| Err(WorkloadError::BadJob(message));
    if job.buffer_bytes < 2 * LINE_BYTES || job.buffer_bytes > isize::MAX as u64 / 2 {
        return bad(format!(
            "`buffer_bytes` is {}; at least {} are needed, two cache lines",
            job.buffer_bytes,
            2 * LINE_BYTES
        ));
    }
    if job.loads == 0 {
        return bad("`loads` is 0; at least 1 is needed".into());
    }
    if job.threads.count == 0 {
        return bad("`threads.count` is 0; at least 1 is needed".into());
    }
    if !(1..=MAX_REPETITIONS).contains(&repetitions) {
        return bad(format!("`repetitions` is {repetitions}; valid are 1 to {MAX_REPETITIONS}"));
    }
    Ok(())
}

/// Where the threads of a loaded chase meet, and how its load hears that it is over.
struct Meeting {
    start: Barrier,
    is_over: AtomicBool,
}

enum Role {
    Chaser(Chaser),
    Load(Load),
}

struct Worker {
    role: Role,
    meeting: Arc<Meeting>,
}

impl Member<Order, Answer> for Worker {
    fn carry_out(&mut self, order: Order) -> Answer {
        let Meeting { start, is_over } = &*self.meeting;
        match (&mut self.role, order) {
            (Role::Chaser(chaser), Order::Alone) => Answer::Seconds(chaser.chase()),
            (Role::Chaser(chaser), Order::Loaded) => {
                // Before the others come: they look only behind the barrier.
                is_over.store(false, Ordering::Relaxed);
                start.wait();
                let seconds = chaser.chase();
                is_over.store(true, Ordering::Relaxed);
                Answer::Seconds(seconds)
            }
            (Role::Chaser(chaser), Order::Inspect) => Answer::Chaser(chaser.inspect()),
            (Role::Load(_), Order::Alone) => Answer::Streamed,
            (Role::Load(load), Order::Loaded) => {
                start.wait();
                load.stream(is_over);
                Answer::Streamed
            }
            (Role::Load(load), Order::Inspect) => {
                let (cpus, pages) = load.inspect();
                Answer::Load(cpus, pages)
            }
        }
    }
}

struct Chaser {
    lines: Vec<Line>,
    loads: u64,
    loads_done: u64,
    position: usize,
    placement: Arc<dyn Placement>,
}

impl Chaser {
    fn new(count: usize, loads: u64, placement: Arc<dyn Placement>) -> Result<Chaser, WorkloadError> {
        let bytes = count * size_of::<Line>();
        let mut lines: Vec<Line> = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| WorkloadError::Memory { bytes })?;
        lines.extend((0..count).map(|next| Line { next }));
        make_one_cycle(&mut lines, SEED);
        Ok(Chaser { lines, loads, loads_done: 0, position: 0, placement })
    }

    fn inspect(&self) -> Outcome {
        let start = self.lines.as_ptr().cast();
        let verification = if position_after(&self.lines, self.loads_done) == Some(self.position) {
            Verification::Verified
        } else {
            let reason = "the path leaves cache lines out, or the loads ended at another line than they must";
            Verification::Wrong { reason: reason.to_owned() }
        };
        Outcome {
            verification,
            thread_cpus: vec![self.placement.thread_cpus()],
            pages_by_node: self.placement.pages_by_node(start, size_of_val(self.lines.as_slice())),
        }
    }

    /// Seconds of all loads of a repetition.
    fn chase(&mut self) -> f64 {
        let started = Instant::now();
        self.position = follow(&self.lines, self.position, self.loads);
        let seconds = started.elapsed().as_secs_f64();
        self.loads_done += self.loads;
        seconds
    }
}

#[inline(never)]
fn follow(lines: &[Line], from: usize, loads: u64) -> usize {
    (0..loads).fold(from, |position, _| lines[position].next)
}

/// Sattolo's algorithm: a random permutation that is one cycle over all lines.
fn make_one_cycle(lines: &mut [Line], seed: u64) {
    let mut random = SplitMix(seed);
    for last in (1..lines.len()).rev() {
        let other = random.below(last as u64) as usize;
        let next = lines[last].next;
        lines[last].next = lines[other].next;
        lines[other].next = next;
    }
}

/// Where so many loads from line 0 end; `None` unless the path visits every line once before it
/// returns.
fn position_after(lines: &[Line], loads: u64) -> Option<usize> {
    let wanted = (loads % lines.len() as u64) as usize;
    let (mut position, mut found) = (0, None);
    for step in 0..lines.len() {
        if step == wanted {
            found = Some(position);
        }
        position = lines[position].next;
        // Back at the start early: the path leaves lines out.
        if position == 0 && step + 1 != lines.len() {
            return None;
        }
    }
    if position == 0 { found } else { None }
}

/// Steele, Lea and Flood's SplitMix64: enough for a shuffle, and no dependency.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (Lemire's multiplication; its bias is under 2^-32 for any buffer that
    /// fits a machine).
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Anywhere;
    use crate::workload::{Pinning, Threads};

    fn cycle(count: usize, seed: u64) -> Vec<Line> {
        let mut lines: Vec<Line> = (0..count).map(|next| Line { next }).collect();
        make_one_cycle(&mut lines, seed);
        lines
    }

    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!(size_of::<Line>() as u64, LINE_BYTES);
    }

    #[test]
    fn every_line_is_visited_once_for_any_size_and_seed() {
        for count in 2..200 {
            for seed in 0..5 {
                let lines = cycle(count, seed);
                let mut seen = vec![false; count];
                let mut position = 0;
                for _ in 0..count {
                    assert!(!std::mem::replace(&mut seen[position], true), "{count} lines, seed {seed}");
                    position = lines[position].next;
                }
                assert_eq!(position, 0);
            }
        }
    }

    #[test]
    fn a_path_that_leaves_lines_out_is_found() {
        let mut lines = cycle(100, 1);
        assert_eq!(position_after(&lines, 100), Some(0));
        assert_eq!(position_after(&lines, 101), Some(lines[0].next));
        // A short cut: line 0 now leads two lines on.
        lines[0].next = lines[lines[0].next].next;
        assert_eq!(position_after(&lines, 100), None);
        lines[0].next = 0;
        assert_eq!(position_after(&lines, 100), None);
    }

    #[test]
    fn a_chase_verifies_and_one_load_too_few_does_not() {
        let placement: Arc<dyn Placement> = Arc::new(Anywhere);
        let mut chaser = Chaser::new(1000, 12_345, Arc::clone(&placement)).unwrap();
        chaser.chase();
        chaser.chase();
        assert_eq!(chaser.inspect().verification, Verification::Verified);
        chaser.loads_done -= 1;
        assert!(matches!(chaser.inspect().verification, Verification::Wrong { .. }));
    }

    #[test]
    fn a_job_of_one_thread_is_not_loaded() {
        let placement: Arc<dyn Placement> = Arc::new(Anywhere);
        let threads = Threads { count: 1, pinning: Pinning::None, cpu_node: None, memory_node: None };
        let job = ChaseJob { buffer_bytes: 1 << 20, loads: 50_000, threads };
        let mut run = ChaseRun::prepare(&job, 2, &placement).unwrap();
        let repetition = run.repetition().unwrap();
        assert_eq!(repetition.figures[0].value, repetition.phases[0] / 50_000.0 * 1e9);
        assert_eq!((repetition.figures.len(), repetition.phases.len()), (1, 1));
        assert_eq!(run.finish().unwrap().verification, Verification::Verified);
        let error = ChaseRun::prepare(&ChaseJob { buffer_bytes: 64, ..job }, 2, &placement).err().unwrap().to_string();
        assert!(error.contains("buffer_bytes"), "{error}");
    }
    #[test]
    fn a_job_of_three_threads_says_what_a_load_takes_beside_the_others() {
        let placement: Arc<dyn Placement> = Arc::new(Anywhere);
        let threads = Threads { count: 3, pinning: Pinning::None, cpu_node: None, memory_node: None };
        let job = ChaseJob { buffer_bytes: 1 << 20, loads: 50_000, threads };
        let mut run = ChaseRun::prepare(&job, 2, &placement).unwrap();
        for _ in 0..2 {
            let repetition = run.repetition().unwrap();
            let names: Vec<&str> = repetition.figures.iter().map(|figure| figure.quantity.as_str()).collect();
            assert_eq!(names, ["latency", "loaded_latency"]);
            assert!(repetition.figures.iter().all(|figure| figure.value > 0.0), "{repetition:?}");
        }
        let outcome = run.finish().unwrap();
        assert_eq!((outcome.verification, outcome.thread_cpus.len()), (Verification::Verified, 3));
        let none = ChaseJob { threads: Threads { count: 0, ..threads }, ..job };
        let error = ChaseRun::prepare(&none, 2, &placement).err().unwrap().to_string();
        assert!(error.contains("threads.count"), "{error}");
    }
}
