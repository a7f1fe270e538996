//! How well the kernels of simultaneous VMs overlapped.
//!
//! An agent reports a repetition when it is over. Its end is the moment at which the report
//! arrived, its start lies the sum of its kernels' seconds before. Clocks of guests are not
//! compared; all ends are moments of the host's clock.

/// When a participant's repetition ended (seconds on any common clock) and how long each kernel
/// took.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The end.
    pub end: f64,
    /// Seconds of the kernels, in the order in which they ran.
    pub seconds: Vec<f64>,
}

impl Interval {
    /// Start and end of a kernel.
    fn kernel(&self, index: usize) -> (f64, f64) {
        let after: f64 = self.seconds[index + 1..].iter().sum();
        let end = self.end - after;
        (end - self.seconds[index], end)
    }
}

/// For the worst kernel: the time in which all participants ran it, divided by the time in which
/// any did. 1 for one participant; `None` of nothing.
pub fn overlap(intervals: &[Interval]) -> Option<f64> {
    let kernels = intervals.iter().map(|interval| interval.seconds.len()).min()?;
    (0..kernels).map(|kernel| of_kernel(intervals, kernel)).min_by(f64::total_cmp)
}

fn of_kernel(intervals: &[Interval], kernel: usize) -> f64 {
    let spans: Vec<(f64, f64)> = intervals.iter().map(|interval| interval.kernel(kernel)).collect();
    let fold = |pick: fn(&(f64, f64)) -> f64, choose: fn(f64, f64) -> f64| spans.iter().map(pick).reduce(choose);
    let first = fold(|span| span.0, f64::min).unwrap_or_default();
    let last_start = fold(|span| span.0, f64::max).unwrap_or_default();
    let first_end = fold(|span| span.1, f64::min).unwrap_or_default();
    let last = fold(|span| span.1, f64::max).unwrap_or_default();
    if last > first { ((first_end - last_start) / (last - first)).clamp(0.0, 1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_worst_kernel_counts() {
        // A ends at 10 after kernels of 2 s and 1 s: [7, 9] and [9, 10]. B ends at 10.5 after 2 s
        // and 1 s: [7.5, 9.5], [9.5, 10.5]. First kernel: all ran in [7.5, 9] = 1.5 of [7, 9.5] =
        // 2.5: 0.6. Second: [9.5, 10] = 0.5 of [9, 10.5] = 1.5: 1/3.
        let a = Interval { end: 10.0, seconds: vec![2.0, 1.0] };
        let b = Interval { end: 10.5, seconds: vec![2.0, 1.0] };
        let worst = overlap(&[a, b]).expect("two participants");
        assert!((worst - 1.0 / 3.0).abs() < 1e-9, "{worst}");
    }

    #[test]
    fn alone_is_a_full_overlap_and_apart_is_none() {
        let a = Interval { end: 1.0, seconds: vec![0.5] };
        let b = Interval { end: 9.0, seconds: vec![0.5] };
        assert_eq!(overlap(std::slice::from_ref(&a)), Some(1.0));
        assert_eq!(overlap(&[a, b]), Some(0.0));
        assert_eq!(overlap(&[]), None);
    }

    properties::properties! {
        #[test]
        fn overlap_is_a_share_and_does_not_depend_on_the_order(ends in prop::collection::vec(0.0f64..10.0, 1..5)) {
            let mut all: Vec<Interval> = ends.iter().map(|&end| Interval { end, seconds: vec![1.0, 2.0, 0.5, 0.5] }).collect();
            let share = overlap(&all).expect("some");
            prop_assert!((0.0..=1.0).contains(&share));
            all.reverse();
            prop_assert!((overlap(&all).expect("some") - share).abs() < 1e-12);
        }
    }
}
