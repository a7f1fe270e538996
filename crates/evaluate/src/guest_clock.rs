//! Whether the clock of a guest runs as fast as the host's monotonic one.
//!
//! **Rule.** Only what is certain counts. A repetition cannot take longer in the guest than the
//! host waited for it: where it says so, its clock runs fast. Between two answers of a guest at
//! least the time passed from the moment in which the host heard the first to that in which it
//! asked for the second: where the guest's clock went less far, it runs slow. So neither a slow way
//! of the words nor a guest that waits for a CPU looks like a wrong clock.
//!
//! **Example.** The first answer is heard at 10 s, the last one asked for at 20 s. The guest's
//! clock went from 3 s to 8 s in between: it runs at half the speed, at most.

use crate::records::{Clock, Repetition};

/// Over a shorter time a clock that lags says too little: a guest makes up for ticks that it lost.
const LEAST_SECONDS: f64 = 1.0;

/// How fast the fastest participant's clock ran in a repetition, as a multiple of the host's: at
/// least that. So a result above 1 is a clock that runs fast, and one below says nothing.
pub(crate) fn fast(repetition: &Repetition) -> Option<f64> {
    let waited = repetition.host_seconds.filter(|seconds| *seconds > 0.0)?;
    let own = repetition.participants.iter().map(|measured| measured.phases.iter().sum::<f64>());
    own.max_by(f64::total_cmp).map(|own| own / waited)
}

/// How fast the slowest participant's clock ran in a job, as a multiple of the host's: at most
/// that. `all`: repetitions of the job's configuration, in the order of time; before it too, since
/// what passed since the last answer of the job before belongs to it. `None` where too little time
/// passed.
pub(crate) fn slow(all: &[&Repetition], job: u64) -> Option<f64> {
    let first = all.iter().position(|one| one.job == job)?;
    let last = all.iter().rposition(|one| one.job == job)?;
    let from = |index: usize| speeds(&all[index].clocks, &all[last].clocks);
    let since = first.checked_sub(1).map(from).unwrap_or_default();
    from(first).into_iter().chain(since).min_by(f64::total_cmp)
}

/// Between two answers of each participant; none of those that started anew in between.
fn speeds(earlier: &[Clock], later: &[Clock]) -> Vec<f64> {
    let speed = |(earlier, later): (&Clock, &Clock)| {
        let least = later.asked_seconds - earlier.heard_seconds;
        let own = later.own_seconds - earlier.own_seconds;
        (least >= LEAST_SECONDS && own >= 0.0).then(|| own / least)
    };
    earlier.iter().zip(later).filter_map(speed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

    fn repetition(job: u64, own: f64, asked: f64, heard: f64) -> Repetition {
        Repetition {
            configuration: "VM".to_owned(),
            point: Point::over_threads("stream", 1),
            round: 0,
            job,
            repetition: 0,
            participants: Vec::new(),
            overlap: 1.0,
            other_cpu_percent: 0.0,
            steal_percent: 0.0,
            own_cpu_percent: None,
            host_seconds: None,
            clocks: vec![Clock { own_seconds: own, asked_seconds: asked, heard_seconds: heard }],
            rejected: false,
        }
    }

    #[test]
    fn a_slow_clock_is_seen_between_two_answers() {
        // The example.
        let (one, two) = (repetition(1, 3.0, 9.0, 10.0), repetition(1, 8.0, 20.0, 25.0));
        assert_eq!(slow(&[&one, &two], 1), Some(0.5));
        // An answer that was long on its way says nothing: asked for at 11 s, it is within 1 s.
        assert_eq!(slow(&[&one, &repetition(1, 3.5, 10.9, 30.0)], 1), None);
        // A right clock that was asked late, and heard late, never looks slow.
        assert!(slow(&[&one, &repetition(1, 14.0, 20.0, 25.0)], 1).is_some_and(|speed| speed > 1.0));
        assert_eq!((slow(&[&one], 1), slow(&[], 1)), (None, None));
    }

    #[test]
    fn what_passed_since_the_job_before_counts_and_a_new_guest_begins_anew() {
        let before = repetition(1, 3.0, 9.0, 10.0);
        assert_eq!(slow(&[&before, &repetition(2, 8.0, 20.0, 25.0)], 2), Some(0.5));
        assert_eq!(slow(&[&before, &repetition(2, 1.0, 20.0, 25.0)], 2), None, "its clock began anew");
        let before_the_session = repetition(1, 3.0, 900.0, 901.0);
        assert_eq!(slow(&[&before_the_session, &repetition(2, 8.0, 20.0, 25.0)], 2), None);
    }
}
