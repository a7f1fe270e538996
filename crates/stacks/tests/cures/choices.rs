//! Choices that are drawn as plain numbers: a smaller number is a plainer choice, so that a case
//! that fails shrinks to a plain one.

use proptest::prelude::*;

/// Numbers of a case. A choice beyond them is the plainest.
const MOST: usize = 400;

/// The numbers that all choices of a case are made from.
pub(super) fn numbers() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), MOST)
}

/// What is left of them.
#[derive(Debug)]
pub(super) struct Choices<'a>(std::slice::Iter<'a, u16>);

impl<'a> Choices<'a> {
    pub(super) fn new(numbers: &'a [u16]) -> Self {
        Self(numbers.iter())
    }

    /// A number from 0, and below `end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        let drawn = self.0.next().copied().unwrap_or_default();
        (u32::from(drawn) * end) >> 16
    }

    /// True in so many of 100 cases.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of these; the first is the plainest.
    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}
