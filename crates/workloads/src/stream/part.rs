//! One thread's share of the three arrays.

use super::kernels::Kernels;
use super::{Kernel, expected, largest_error};
use crate::{Placement, WorkloadError};

/// Arrays start on a page, so that no page is shared by two threads or two nodes.
const PAGE_BYTES: usize = 4096;

/// Elements that start on a page boundary inside a vector.
struct Array {
    storage: Vec<f64>,
    start: usize,
    length: usize,
}

impl Array {
    /// Reserves memory and touches it for the first time: by the thread that calls this, so on its
    /// node.
    fn new(length: usize, value: f64) -> Result<Array, WorkloadError> {
        let capacity = length + PAGE_BYTES / size_of::<f64>();
        let mut storage: Vec<f64> = Vec::new();
        storage
            .try_reserve_exact(capacity)
            .map_err(|_| WorkloadError::Memory { bytes: capacity * size_of::<f64>() })?;
        let start = storage.as_ptr().align_offset(PAGE_BYTES);
        storage.resize(start + length, value);
        Ok(Array { storage, start, length })
    }

    fn elements(&self) -> &[f64] {
        &self.storage[self.start..self.start + self.length]
    }

    fn elements_mut(&mut self) -> &mut [f64] {
        &mut self.storage[self.start..self.start + self.length]
    }
}

/// `a`, `b` and `c` of one thread.
pub(super) struct Part {
    a: Array,
    b: Array,
    c: Array,
}

impl Part {
    /// STREAM's start values, then `a = 2 a`, as STREAM does before it counts.
    pub(super) fn new(length: usize) -> Result<Part, WorkloadError> {
        let mut part = Part { a: Array::new(length, 1.0)?, b: Array::new(length, 2.0)?, c: Array::new(length, 0.0)? };
        for element in part.a.elements_mut() {
            *element *= 2.0;
        }
        Ok(part)
    }

    /// Runs one kernel over this part.
    pub(super) fn run(&mut self, kernel: Kernel, with: &Kernels) {
        let (a, b, c) = (&mut self.a, &mut self.b, &mut self.c);
        match kernel {
            Kernel::Copy => with.copy(c.elements_mut(), a.elements()),
            Kernel::Scale => with.scale(b.elements_mut(), c.elements()),
            Kernel::Add => with.add(c.elements_mut(), a.elements(), b.elements()),
            Kernel::Triad => with.triad(a.elements_mut(), b.elements(), c.elements()),
        }
    }

    /// The largest relative error in this part after so many repetitions.
    pub(super) fn error_after(&self, repetitions: u32) -> f64 {
        let [a, b, c] = expected(repetitions);
        [(&self.a, a), (&self.b, b), (&self.c, c)]
            .into_iter()
            .map(|(array, value)| largest_error(array.elements(), value))
            .fold(0.0, f64::max)
    }

    /// Pages of this part on each node, as the placement reads them back.
    pub(super) fn pages_by_node(&self, placement: &dyn Placement) -> Vec<(u32, u64)> {
        [&self.a, &self.b, &self.c]
            .into_iter()
            .flat_map(|array| placement.pages_by_node(array.elements().as_ptr().cast(), size_of_val(array.elements())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Stores;

    #[test]
    fn an_element_that_a_kernel_left_out_is_found() {
        let kernels = Kernels::new(Stores::Ordinary).unwrap();
        let mut part = Part::new(1003).unwrap();
        for kernel in Kernel::ALL {
            part.run(kernel, &kernels);
        }
        assert_eq!(part.error_after(1), 0.0);
        part.c.elements_mut()[1002] = 2.0;
        assert!(part.error_after(1) > super::super::TOLERANCE);
    }

    #[test]
    fn arrays_start_on_pages() {
        let array = Array::new(100, 1.0).unwrap();
        assert_eq!(array.elements().as_ptr() as usize % PAGE_BYTES, 0);
        assert_eq!(array.elements().len(), 100);
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        assert!(matches!(Array::new(1 << 55, 1.0), Err(WorkloadError::Memory { .. })));
    }
}
