//! How large STREAM's arrays are.
//!
//! STREAM 5.10 asks for arrays of at least 4 times the sum of all last-level caches that the run
//! uses, and of at least a million elements. Memory bounds that, and under software emulation also
//! patience. Where the rule cannot be kept, a note says so.

use super::ELEMENT_BYTES;
use topology::{Bytes, Machine};

/// STREAM's a, b and c.
const ARRAYS: u64 = 3;
/// STREAM's rule.
const LLC_MULTIPLE: u64 = 4;
/// STREAM's smallest array.
const FEWEST_ELEMENTS: u64 = 1_000_000;
/// The arrays take at most this part of the available memory: a VM with virtual nodes may need
/// several times its arrays.
const MEMORY_PART: u64 = 4;
/// Stands in for a cache whose size the machine does not say.
const ASSUMED_LLC: Bytes = Bytes::from_mib(32);

/// What the size depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Sum of the last-level caches that usable hardware threads share.
    pub llc: Bytes,
    /// Memory that can be taken now.
    pub available: Bytes,
    /// What the experiment wants where memory allows, also if caches ask for less.
    pub wanted_elements: u64,
    /// The experiment's own bound.
    pub max_elements: Option<u64>,
}

/// The size of each array, and what to say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ArraySize {
    /// Elements of each array, over all VMs.
    pub elements: u64,
    /// Size of one array divided by the sum of the last-level caches.
    pub llc_multiple: f64,
    /// What a reader of the table has to know.
    pub note: Option<String>,
}

impl ArraySize {
    /// Bytes of the three arrays together.
    pub fn bytes(&self) -> Bytes {
        footprint(self.elements)
    }
}

/// Bytes of three arrays of `elements`.
pub fn footprint(elements: u64) -> Bytes {
    Bytes(elements.saturating_mul(ARRAYS * ELEMENT_BYTES))
}

/// Sum of the last-level caches that usable hardware threads share.
pub fn llc_sum(machine: &Machine) -> Bytes {
    let used: std::collections::BTreeSet<_> = machine.usable_threads().filter_map(|thread| thread.llc).collect();
    let sizes = machine.llcs.iter().filter(|llc| used.contains(&llc.id)).map(|llc| llc.size.unwrap_or(ASSUMED_LLC));
    let sum: Bytes = sizes.sum();
    if sum == Bytes(0) { ASSUMED_LLC } else { sum }
}

/// The size that the experiment wants, or the smallest in whole millions that keeps STREAM's rule
/// if that is more; within the bounds.
pub fn automatic(bounds: &Bounds) -> ArraySize {
    let rule = (LLC_MULTIPLE * bounds.llc.0).div_ceil(ELEMENT_BYTES).max(FEWEST_ELEMENTS);
    let wanted = rule.next_multiple_of(FEWEST_ELEMENTS).max(bounds.wanted_elements);
    let by_memory = bounds.available.0 / MEMORY_PART / (ARRAYS * ELEMENT_BYTES);
    let by_file = bounds.max_elements.unwrap_or(u64::MAX);
    let elements = wanted.min(by_memory).min(by_file).max(1000);
    let why = if by_memory < by_file { "by the free memory" } else { "by the experiment" };
    describe(elements, bounds.llc, Some(why))
}

/// A size that the experiment fixed.
pub fn fixed(elements: u64, llc: Bytes) -> ArraySize {
    describe(elements, llc, None)
}

fn describe(elements: u64, llc: Bytes, bounded: Option<&str>) -> ArraySize {
    let llc_multiple = (elements * ELEMENT_BYTES) as f64 / llc.0 as f64;
    let note = (llc_multiple < LLC_MULTIPLE as f64).then(|| {
        let why = bounded.map(|why| format!(" (bounded {why})")).unwrap_or_default();
        format!(
            "Each array is only {llc_multiple:.2} x the last-level caches ({llc}){why}; STREAM asks for {LLC_MULTIPLE} \
            x. \
             Caches may help these figures."
        )
    });
    ArraySize { elements, llc_multiple, note }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds(llc_mib: u64, available_gib: u64, max_elements: Option<u64>) -> Bounds {
        Bounds {
            llc: Bytes::from_mib(llc_mib),
            available: Bytes(available_gib << 30),
            wanted_elements: 0,
            max_elements,
        }
    }

    #[test]
    fn four_times_the_caches_in_whole_millions() {
        // 4 x 32 MiB = 134217728 B = 16777216 elements: 17 million.
        let size = automatic(&bounds(32, 64, None));
        assert_eq!((size.elements, size.note), (17_000_000, None));
    }

    #[test]
    fn a_small_cache_still_gets_a_million_elements() {
        // 4 x 1 MiB = 524288 elements: less than STREAM's smallest.
        assert_eq!(automatic(&bounds(1, 64, None)).elements, 1_000_000);
    }

    #[test]
    fn a_large_cache_is_bounded_by_memory_and_says_so() {
        // 4 x 480 MiB = 251658240 elements, 5.6 GiB in three arrays. A quarter of 16 GiB is 4 GiB:
        // 4294967296 / 24 = 178956970.
        let size = automatic(&bounds(480, 16, None));
        assert_eq!(size.elements, 178_956_970);
        let note = size.note.expect("a note");
        assert!(note.contains("2.84 x") && note.contains("free memory"), "{note}");
    }

    #[test]
    fn an_experiment_gets_what_it_wants_where_memory_allows() {
        let wanted =
            |llc_mib, available_gib| Bounds { wanted_elements: 100_000_000, ..bounds(llc_mib, available_gib, None) };
        // 4 x 32 MiB ask for 17 million only; three arrays of 10^8 are 2.4 GB, less than a quarter
        // of 64 GiB.
        assert_eq!(automatic(&wanted(32, 64)).elements, 100_000_000);
        // 4 x 480 MiB ask for more: 251658240 elements, rounded up.
        assert_eq!(automatic(&wanted(480, 64)).elements, 252_000_000);
        // A quarter of 4 GiB: 1073741824 / 24 = 44739242.
        assert_eq!(automatic(&wanted(32, 4)).elements, 44_739_242);
    }

    #[test]
    fn the_experiment_may_bound_it() {
        // 20 million elements are 160 MB; 160e6 / 503316480 = 0.318.
        let size = automatic(&bounds(480, 64, Some(20_000_000)));
        assert_eq!(size.elements, 20_000_000);
        assert!(size.note.expect("a note").contains("0.32 x"));
    }

    properties::properties! {
        #[test]
        fn memory_is_never_exceeded_and_a_broken_rule_is_never_silent(llc in 1u64..2048, available in 1u64..4096, cap in prop::option::of(1_000_000u64..1_000_000_000)) {
            let size = automatic(&bounds(llc, available, cap));
            prop_assert!(size.bytes().0 <= (available << 30) / 4);
            prop_assert!(cap.is_none_or(|cap| size.elements <= cap));
            prop_assert_eq!(size.note.is_some(), size.elements * 8 < 4 * (llc << 20));
        }
    }
}
