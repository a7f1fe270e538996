//! Bit masks as the kernel takes them: arrays of 64-bit words, bit n of word n/64 for number n.

use topology::{Id, IdSet};

/// Words of a mask that holds every number an [`IdSet`] accepts (65536 bits; the kernel's limit is
/// 8192 CPUs and 1024 nodes).
const WORDS: usize = 1024;

/// A mask in the kernel's layout.
pub(super) struct Mask(Vec<u64>);

impl Mask {
    /// A mask of zeros, to be filled by the kernel.
    pub(super) fn empty(bits: usize) -> Self {
        Self(vec![0; bits.div_ceil(64).clamp(1, WORDS)])
    }

    /// The numbers of a set. Just as long as its largest number needs.
    pub(super) fn of<T: Id>(set: &IdSet<T>) -> Self {
        let bits = set.iter().next_back().map_or(1, |id| id.number() as usize + 1);
        let mut mask = Self::empty(bits);
        for id in set.iter() {
            let number = id.number() as usize;
            if let Some(word) = mask.0.get_mut(number / 64) {
                *word |= 1 << (number % 64);
            }
        }
        mask
    }

    /// The set of its numbers.
    pub(super) fn to_set<T: Id>(&self) -> IdSet<T> {
        Self::set_of(&self.0)
    }

    /// The set of the numbers in the kernel's words.
    pub(super) fn set_of<T: Id>(words: &[u64]) -> IdSet<T> {
        let bits = |(index, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| (index * 64 + bit) as u32)
        };
        // Nearly all of a mask that was made for the largest machine is empty.
        words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(bits).map(T::from_number).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }

    pub(super) fn bits(&self) -> usize {
        self.0.len() * 64
    }

    pub(super) fn as_ptr(&self) -> *const u64 {
        self.0.as_ptr()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u64 {
        self.0.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::CpuSet;

    #[test]
    fn a_set_survives_the_mask() {
        for text in ["", "0", "63", "64", "0-3,127-129,8191"] {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!(Mask::of(&set).to_set(), set, "{text}");
        }
        assert_eq!(Mask::of(&"64".parse::<CpuSet>().unwrap()).bits(), 128); // bit 64 needs a second word of 64 bits
    }
}
