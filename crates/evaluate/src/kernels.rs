//! STREAM's four kernels in figures: what a repetition's seconds mean.

use workloads::stream::Kernel;

/// In the order of every array of four.
pub const NAMES: [&str; 4] = ["Copy", "Scale", "Add", "Triad"];

/// MB/s (10^6 bytes a second) of a kernel over `elements` in `seconds`.
pub fn mb_per_s(kernel: usize, elements: u64, seconds: f64) -> f64 {
    Kernel::ALL[kernel].mb_per_second(elements, seconds)
}

/// Bytes that one repetition of all four kernels counts for `elements`.
pub fn repetition_bytes(elements: u64) -> u64 {
    Kernel::ALL.iter().map(|kernel| kernel.account().counted_bytes).sum::<u64>() * elements
}

/// The middle value; the mean of the two middle ones of an even number. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn megabytes_are_a_million_bytes() {
        // Triad, N = 10^8: 24 x 10^8 bytes in 0.1 s = 24 x 10^9 bytes a second = 24000 MB/s.
        assert!((mb_per_s(3, 100_000_000, 0.1) - 24_000.0).abs() < 1e-6);
        // Copy counts 16 bytes: 16000 MB/s.
        assert!((mb_per_s(0, 100_000_000, 0.1) - 16_000.0).abs() < 1e-6);
    }

    #[test]
    fn names_are_those_of_the_kernels() {
        assert_eq!(Kernel::ALL.map(Kernel::name), NAMES);
        // 16 + 16 + 24 + 24 bytes for each element.
        assert_eq!(repetition_bytes(1000), 80_000);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
