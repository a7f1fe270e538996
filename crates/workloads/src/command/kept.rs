//! What is kept of an output of any length: its beginning and its end.

use std::collections::VecDeque;

/// Bytes that are kept of the beginning, and again of the end.
const KEPT_BYTES: usize = 16 << 10;

/// The beginning and the end of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
}

impl Kept {
    /// Adds what was said next.
    pub fn add(&mut self, said: &[u8]) {
        self.bytes += said.len() as u64;
        let (head, rest) = said.split_at(said.len().min(KEPT_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(KEPT_BYTES)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(KEPT_BYTES);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// How much was said.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The beginning and the end, with a line between them that says how much is left out.
    pub fn text(&self) -> String {
        let (head, tail) = (String::from_utf8_lossy(&self.head), self.tail());
        match self.bytes - (self.head.len() + self.tail.len()) as u64 {
            0 => format!("{head}{tail}"),
            left_out => format!("{head}\n[... {left_out} bytes are left out ...]\n{tail}"),
        }
    }

    /// The last lines that are not empty.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let text = if self.tail.is_empty() { String::from_utf8_lossy(&self.head).into_owned() } else { self.tail() };
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].iter().map(|line| line.chars().take(200).collect()).collect()
    }

    fn tail(&self) -> String {
        let (one, two) = self.tail.as_slices();
        String::from_utf8_lossy(&[one, two].concat()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_output_is_kept_whole() {
        let mut kept = Kept::default();
        kept.add(b"one\ntwo\n");
        kept.add(b"three\n\n");
        assert_eq!((kept.text().as_str(), kept.bytes()), ("one\ntwo\nthree\n\n", 15));
        assert_eq!(kept.last_lines(2), ["two", "three"]);
    }

    properties::properties! {
        #[test]
        fn what_is_kept_is_the_beginning_and_the_end(
            pieces in prop::collection::vec((0usize..40_000, any::<u8>()), 0..8),
        ) {
            let all: Vec<u8> = pieces.iter().flat_map(|&(length, byte)| vec![byte; length]).collect();
            let mut kept = Kept::default();
            let mut rest = all.as_slice();
            for &(length, _) in &pieces {
                let (piece, later) = rest.split_at(length);
                kept.add(piece);
                rest = later;
            }
            prop_assert_eq!(kept.bytes(), all.len() as u64);
            prop_assert!(all.starts_with(&kept.head));
            let tail: Vec<u8> = kept.tail.iter().copied().collect();
            prop_assert!(all.ends_with(&tail));
            prop_assert_eq!(kept.head.len() + tail.len(), all.len().min(2 * KEPT_BYTES));
        }
    }
}
