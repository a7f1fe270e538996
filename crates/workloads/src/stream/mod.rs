//! STREAM's four kernels by the rules of John McCalpin's STREAM 5.10
//! (<https://www.cs.virginia.edu/stream/>): what they count, how they are timed, what their result
//! must be.

pub mod arrays;
mod kernels;
mod part;
mod run;
mod section;

pub use section::{Stores, Stream, StreamJob};

use crate::{MAX_REPETITIONS, WorkloadError};

/// STREAM's factor in Scale and Triad.
pub const SCALAR: f64 = 3.0;
/// A larger relative error than this fails the verification, as STREAM 5.10 has it for doubles.
pub const TOLERANCE: f64 = 1e-13;
/// Bytes of one element.
pub const ELEMENT_BYTES: u64 = 8;

/// One of STREAM's kernels, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// `c = a`
    Copy,
    /// `b = 3 c`
    Scale,
    /// `c = a + b`
    Add,
    /// `a = b + 3 c`
    Triad,
}

/// What a kernel does for each element of its arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Bytes that STREAM counts: loads and stores, not write-allocates.
    pub counted_bytes: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Elements loaded.
    pub loads: u64,
    /// Elements stored.
    pub stores: u64,
    /// Bytes that ordinary stores read besides, because a line is fetched before it is written.
    /// Streaming stores read none.
    pub write_allocate_bytes: u64,
}

impl Kernel {
    /// All of them, in the order in which they run.
    pub const ALL: [Kernel; 4] = [Kernel::Copy, Kernel::Scale, Kernel::Add, Kernel::Triad];

    /// The name that STREAM prints.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Copy => "Copy",
            Kernel::Scale => "Scale",
            Kernel::Add => "Add",
            Kernel::Triad => "Triad",
        }
    }

    /// What it does for each element.
    pub fn account(self) -> Account {
        let (loads, flops) = match self {
            Kernel::Copy => (1, 0),
            Kernel::Scale => (1, 1),
            Kernel::Add => (2, 1),
            Kernel::Triad => (2, 2),
        };
        Account {
            counted_bytes: (loads + 1) * ELEMENT_BYTES,
            flops,
            loads,
            stores: 1,
            write_allocate_bytes: ELEMENT_BYTES,
        }
    }

    /// Bandwidth in MB/s (10^6 bytes) as STREAM prints it.
    pub fn mb_per_second(self, elements: u64, seconds: f64) -> f64 {
        (self.account().counted_bytes * elements) as f64 / 1e6 / seconds
    }
}

/// What every element of `[a, b, c]` must be after so many repetitions: the recurrence that
/// STREAM's own check computes.
pub fn expected(repetitions: u32) -> [f64; 3] {
    let (mut a, mut b, mut c) = (1.0_f64, 2.0, 0.0);
    a *= 2.0;
    for _ in 0..repetitions {
        c = a;
        b = SCALAR * c;
        c = a + b;
        a = b + SCALAR * c;
    }
    [a, b, c]
}

/// The largest relative error of any element.
pub fn largest_error(elements: &[f64], expected: f64) -> f64 {
    // A NaN would vanish in `max`, so it counts as infinitely wrong.
    let error = |&element: &f64| if element.is_nan() { f64::INFINITY } else { (element - expected).abs() };
    let scale = if expected == 0.0 { 1.0 } else { expected.abs() };
    elements.iter().map(error).fold(0.0, f64::max) / scale
}

/// The elements that thread `index` of `threads` works on: as even as possible, in order, as
/// OpenMP's static schedule.
pub fn share(elements: u64, threads: u32, index: u32) -> std::ops::Range<u64> {
    let bound = |index: u32| (u128::from(elements) * u128::from(index) / u128::from(threads)) as u64;
    bound(index)..bound(index + 1)
}

fn check_job(job: &StreamJob, repetitions: u32) -> Result<(), WorkloadError> {
    let bad = |message: String| Err(WorkloadError::BadJob(message));
    if job.threads.count == 0 {
        return bad("`threads` is 0; at least 1 is needed".into());
    }
    if job.elements < u64::from(job.threads.count) {
        return bad(format!("`elements` is {}, fewer than the {} threads", job.elements, job.threads.count));
    }
    if job.elements > (isize::MAX as u64) / ELEMENT_BYTES / 3 {
        return bad(format!("`elements` is {}; three such arrays do not fit an address space", job.elements));
    }
    // The values grow fifteenfold each time: 2 * 15^250 is 2.1e294, still a double.
    if !(2..=MAX_REPETITIONS).contains(&repetitions) {
        return bad(format!(
            "`repetitions` is {repetitions}; valid are 2 to {MAX_REPETITIONS} (the first does not count)"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_flops_are_those_that_stream_counts() {
        let table = Kernel::ALL.map(|kernel| {
            let account = kernel.account();
            (account.counted_bytes, account.flops, account.loads, account.stores, account.write_allocate_bytes)
        });
        assert_eq!(table, [(16, 0, 1, 1, 8), (16, 1, 1, 1, 8), (24, 1, 2, 1, 8), (24, 2, 2, 1, 8)]);
        // 24 bytes x 10^8 elements in 0.1 s = 2.4e9 / 0.1 / 1e6 = 24000 MB/s.
        assert_eq!(Kernel::Triad.mb_per_second(100_000_000, 0.1), 24_000.0);
    }

    #[test]
    fn the_recurrence_is_worked_by_hand() {
        assert_eq!(expected(0), [2.0, 2.0, 0.0]);
        // c = 2, b = 6, c = 2 + 6 = 8, a = 6 + 24 = 30.
        assert_eq!(expected(1), [30.0, 6.0, 8.0]);
        // a is multiplied by 15 each time.
        assert_eq!(expected(2), [450.0, 90.0, 120.0]);
        assert!(expected(MAX_REPETITIONS).iter().all(|value| value.is_finite()));
    }

    #[test]
    fn one_wrong_element_is_found() {
        let mut elements = vec![30.0; 1001];
        assert_eq!(largest_error(&elements, 30.0), 0.0);
        elements[777] = 30.0 + 1e-11;
        assert!(largest_error(&elements, 30.0) > TOLERANCE);
        elements[777] = f64::NAN;
        assert!(largest_error(&elements, 30.0) > TOLERANCE);
    }

    #[test]
    fn shares_cover_every_element_once_and_differ_by_one_at_most() {
        for elements in (1..60).chain([1_000_003, u64::MAX / 24]) {
            for threads in [1, 2, 3, 7, 16, 59] {
                let shares: Vec<_> = (0..threads).map(|index| share(elements, threads, index)).collect();
                assert_eq!((shares[0].start, shares[shares.len() - 1].end), (0, elements));
                assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
                let lengths = shares.iter().map(|share| share.end - share.start);
                let (shortest, longest) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
                assert!(longest - shortest <= 1, "{elements} over {threads}");
            }
        }
    }
}
