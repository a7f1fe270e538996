//! Bit masks as the kernel (`00000000,0000000f`) and hwloc (`0x0000000f,,0x1`) print them: 32-bit
//! words, highest first.

use crate::{Id, IdSet};

/// The ids whose bits are set; `None` for text that is no mask. hwloc's endless set (`0xf...f`) is
/// no mask either.
pub(super) fn ids<T: Id>(mask: &str) -> Option<IdSet<T>> {
    const MOST_WORDS: usize = super::MOST_THREADS / 32;
    let words: Vec<&str> = mask.trim().split(',').collect();
    if words.len() > MOST_WORDS {
        return None;
    }
    let mut set = IdSet::new();
    for (index, word) in words.iter().rev().enumerate() {
        let digits = word.trim_start_matches("0x");
        // hwloc leaves a word of zeros empty.
        let bits = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 16).ok()? };
        set.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| T::from_number(index as u32 * 32 + bit)));
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuId;

    #[test]
    fn the_last_word_holds_the_lowest_ids() {
        let text = |mask| ids::<CpuId>(mask).map(|set| set.to_string());
        assert_eq!(text("00000000,0000000f"), Some("0-3".to_owned()));
        assert_eq!(text("0x1,,0x80000000\n"), Some("31,64".to_owned())); // bit 31 of word 0, bit 0 of word 2: 2 x 32
        assert_eq!(text("0xf...f"), None);
        assert_eq!(text("12345678901"), None);
    }
}
