//! What the other threads do while one chases: each goes through two arrays of its own, reading one
//! and writing the other, until the chase is over.

use super::LINE_BYTES;
use crate::{Placement, WorkloadError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements between two looks at whether the chase is over: some microseconds.
const PIECE: usize = 4096;

/// Arrays of one thread.
pub(super) struct Load {
    from: Vec<u64>,
    to: Vec<u64>,
    placement: Arc<dyn Placement>,
}

impl Load {
    /// Both arrays together have so many bytes, and are touched by the thread that calls this.
    pub(super) fn new(bytes: u64, placement: Arc<dyn Placement>) -> Result<Load, WorkloadError> {
        let elements = (bytes.max(2 * LINE_BYTES) / 16) as usize;
        let array = || {
            let mut array = Vec::new();
            let no_memory = |_| WorkloadError::Memory { bytes: 8 * elements };
            array.try_reserve_exact(elements).map_err(no_memory)?;
            array.extend(0..elements as u64);
            Ok(array)
        };
        Ok(Load { from: array()?, to: array()?, placement })
    }

    /// Streams until the flag is set; how many elements it copied.
    pub(super) fn stream(&mut self, is_over: &AtomicBool) -> u64 {
        let mut elements = 0;
        loop {
            for (to, from) in self.to.chunks_mut(PIECE).zip(self.from.chunks(PIECE)) {
                if is_over.load(Ordering::Relaxed) {
                    return elements;
                }
                copy(to, from);
                elements += from.len() as u64;
            }
        }
    }

    /// The CPUs that the thread might use, and the pages of its arrays, read back.
    pub(super) fn inspect(&self) -> (String, Vec<(u32, u64)>) {
        let pages = |array: &[u64]| self.placement.pages_by_node(array.as_ptr().cast(), size_of_val(array));
        (self.placement.thread_cpus(), [pages(&self.from), pages(&self.to)].concat())
    }
}

#[inline(never)]
fn copy(to: &mut [u64], from: &[u64]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Anywhere;

    #[test]
    fn it_streams_until_it_is_told() {
        let is_over = AtomicBool::new(false);
        let mut load = Load::new(1 << 20, Arc::new(Anywhere)).unwrap();
        let elements = std::thread::scope(|scope| {
            let streaming = scope.spawn(|| load.stream(&is_over));
            std::thread::sleep(std::time::Duration::from_millis(20));
            is_over.store(true, Ordering::Relaxed);
            streaming.join().unwrap()
        });
        assert!(elements > 0 && load.from == load.to);
        assert_eq!(load.stream(&is_over), 0);
    }
}
