//! The chase itself: its buffer, its path, its verification.

use super::{ChaseJob, LATENCY, LINE_BYTES};
use crate::team::{Member, Team};
use crate::workload::{Measured, Outcome, Prepared, Repetition, Verification};
use crate::{MAX_REPETITIONS, Placement, WorkloadError, count_pages};
use std::sync::Arc;
use std::time::Instant;

/// The same cycle on every run.
const SEED: u64 = 0x686f_6d65_6e6f_6465;

/// One cache line: the index of the next, and nothing else.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    next: usize,
}

enum Order {
    Repeat,
    Inspect,
}

enum Answer {
    Seconds(f64),
    State(Outcome),
}

/// A chase whose buffer is placed and filled.
pub(super) struct ChaseRun {
    team: Team<Order, Answer>,
    loads: u64,
}

impl ChaseRun {
    /// Starts the thread, places it, places and fills the buffer.
    pub(super) fn prepare(
        job: &ChaseJob,
        repetitions: u32,
        placement: &Arc<dyn Placement>,
    ) -> Result<ChaseRun, WorkloadError> {
        check_job(job, repetitions)?;
        let (lines, loads) = ((job.buffer_bytes / LINE_BYTES) as usize, job.loads);
        let placement = Arc::clone(placement);
        let team = Team::start(1, move |index| {
            placement.place_thread(index)?;
            Chaser::new(lines, loads, Arc::clone(&placement))
        })?;
        Ok(ChaseRun { team, loads })
    }
}

impl Prepared for ChaseRun {
    fn repetition(&mut self) -> Result<Repetition, WorkloadError> {
        let Some(Answer::Seconds(seconds)) = self.team.all(|| Order::Repeat)?.pop() else {
            return Err(WorkloadError::ThreadLost);
        };
        let latency = Measured { quantity: LATENCY.to_owned(), value: seconds / self.loads as f64 * 1e9 };
        Ok(Repetition { figures: vec![latency], phases: vec![seconds] })
    }

    /// Walks the cycle once.
    fn finish(&mut self) -> Result<Outcome, WorkloadError> {
        match self.team.all(|| Order::Inspect)?.pop() {
            Some(Answer::State(outcome)) => Ok(outcome),
            _ => Err(WorkloadError::ThreadLost),
        }
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
    if !(1..=MAX_REPETITIONS).contains(&repetitions) {
        return bad(format!("`repetitions` is {repetitions}; valid are 1 to {MAX_REPETITIONS}"));
    }
    Ok(())
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
            pages_by_node: count_pages(self.placement.pages_by_node(start, size_of_val(self.lines.as_slice()))),
        }
    }
}

impl Member<Order, Answer> for Chaser {
    fn carry_out(&mut self, order: Order) -> Answer {
        match order {
            Order::Repeat => {
                let started = Instant::now();
                self.position = follow(&self.lines, self.position, self.loads);
                let seconds = started.elapsed().as_secs_f64();
                self.loads_done += self.loads;
                Answer::Seconds(seconds)
            }
            Order::Inspect => Answer::State(self.inspect()),
        }
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
        chaser.carry_out(Order::Repeat);
        chaser.carry_out(Order::Repeat);
        assert_eq!(chaser.inspect().verification, Verification::Verified);
        chaser.loads_done -= 1;
        assert!(matches!(chaser.inspect().verification, Verification::Wrong { .. }));
    }

    #[test]
    fn a_job_runs_on_its_own_thread() {
        let placement: Arc<dyn Placement> = Arc::new(Anywhere);
        let threads = Threads { count: 1, pinning: Pinning::None, cpu_node: None, memory_node: None };
        let job = ChaseJob { buffer_bytes: 1 << 20, loads: 50_000, threads };
        let mut run = ChaseRun::prepare(&job, 2, &placement).unwrap();
        let repetition = run.repetition().unwrap();
        assert_eq!(repetition.figures[0].value, repetition.phases[0] / 50_000.0 * 1e9);
        assert_eq!(run.finish().unwrap().verification, Verification::Verified);
        let error = ChaseRun::prepare(&ChaseJob { buffer_bytes: 64, ..job }, 2, &placement).err().unwrap().to_string();
        assert!(error.contains("buffer_bytes"), "{error}");
    }
}
