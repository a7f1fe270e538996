//! The loops themselves.
//!
//! Ordinary stores: plain loops, which LLVM turns into vector loads and stores, as gcc does at
//! `-O2`. The crate is built with `#![no_builtins]`, without which Copy would become a call of
//! memcpy, whose large-copy path may store past the caches.
//!
//! Streaming stores: `vmovntpd`, as in likwid-bench's `*_mem_avx` kernels.

use super::SCALAR;
use super::Stores;
use crate::WorkloadError;

/// The loops for one kind of store, chosen once for this CPU.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    copy: fn(&mut [f64], &[f64]),
    scale: fn(&mut [f64], &[f64]),
    add: fn(&mut [f64], &[f64], &[f64]),
    triad: fn(&mut [f64], &[f64], &[f64]),
}

impl Kernels {
    /// An error where this CPU lacks the stores.
    pub(super) fn new(stores: Stores) -> Result<Kernels, WorkloadError> {
        match stores {
            Stores::Ordinary => Ok(Self { copy, scale, add, triad }),
            Stores::Streaming => streaming(),
        }
    }

    /// `c = a`
    pub(super) fn copy(&self, c: &mut [f64], a: &[f64]) {
        (self.copy)(c, a);
    }
    /// `b = 3 c`
    pub(super) fn scale(&self, b: &mut [f64], c: &[f64]) {
        (self.scale)(b, c);
    }
    /// `c = a + b`
    pub(super) fn add(&self, c: &mut [f64], a: &[f64], b: &[f64]) {
        (self.add)(c, a, b);
    }
    /// `a = b + 3 c`
    pub(super) fn triad(&self, a: &mut [f64], b: &[f64], c: &[f64]) {
        (self.triad)(a, b, c);
    }
}

#[inline(never)]
fn copy(c: &mut [f64], a: &[f64]) {
    for (c, &a) in c.iter_mut().zip(a) {
        *c = a;
    }
}

#[inline(never)]
fn scale(b: &mut [f64], c: &[f64]) {
    for (b, &c) in b.iter_mut().zip(c) {
        *b = SCALAR * c;
    }
}

#[inline(never)]
fn add(c: &mut [f64], a: &[f64], b: &[f64]) {
    for ((c, &a), &b) in c.iter_mut().zip(a).zip(b) {
        *c = a + b;
    }
}

#[inline(never)]
fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
    for ((a, &b), &c) in a.iter_mut().zip(b).zip(c) {
        *a = b + SCALAR * c;
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn streaming() -> Result<Kernels, WorkloadError> {
    Err(WorkloadError::NoStreamingStores(format!("there are none in homenode for {}", std::env::consts::ARCH)))
}

#[cfg(target_arch = "x86_64")]
fn streaming() -> Result<Kernels, WorkloadError> {
    if !std::arch::is_x86_feature_detected!("avx") {
        return Err(WorkloadError::NoStreamingStores("this CPU has no AVX".into()));
    }
    Ok(Kernels { copy: avx::copy, scale: avx::scale, add: avx::add, triad: avx::triad })
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use super::SCALAR;
    use std::arch::x86_64::{
        __m256d, _mm_sfence, _mm256_add_pd, _mm256_loadu_pd, _mm256_mul_pd, _mm256_set1_pd, _mm256_stream_pd,
    };

    /// Doubles in a vector.
    const LANES: usize = 4;
    /// Vectors in a pass of the loop: two cache lines, so that a write-combining buffer fills at
    /// once.
    const UNROLL: usize = 4;

    /// Streams `value(i)` to `to[i..i + LANES]`, and computes what lies before and behind the
    /// aligned middle by `single(i)`.
    ///
    /// # Safety
    /// The CPU has AVX; `value(i)` is sound for every `i` with `i + LANES <= to.len()`.
    #[target_feature(enable = "avx")]
    #[inline]
    unsafe fn stream(to: &mut [f64], value: impl Fn(usize) -> __m256d, single: impl Fn(usize) -> f64) {
        let length = to.len();
        let head = to.as_ptr().align_offset(LANES * size_of::<f64>()).min(length);
        for (index, element) in to[..head].iter_mut().enumerate() {
            *element = single(index);
        }
        let mut index = head;
        while index + LANES * UNROLL <= length {
            for vector in 0..UNROLL {
                let at = index + vector * LANES;
                // SAFETY: `at + LANES <= length` by the loop's condition, and `to[head]` is aligned
                // to a vector, so is `to[at]`.
                unsafe { _mm256_stream_pd(to.as_mut_ptr().add(at), value(at)) };
            }
            index += LANES * UNROLL;
        }
        for (index, element) in to.iter_mut().enumerate().skip(index) {
            *element = single(index);
        }
        // Streaming stores are weakly ordered: they must be seen before the barrier is.
        _mm_sfence();
    }

    /// # Safety
    /// The CPU has AVX and `index + LANES <= from.len()`.
    #[target_feature(enable = "avx")]
    #[inline]
    unsafe fn load(from: &[f64], index: usize) -> __m256d {
        // SAFETY: the caller's promise; the load needs no alignment.
        unsafe { _mm256_loadu_pd(from.as_ptr().add(index)) }
    }

    pub(super) fn copy(c: &mut [f64], a: &[f64]) {
        let a = &a[..c.len()];
        // SAFETY: `streaming` checked for AVX; `a` is as long as `c`.
        unsafe { stream(c, |i| load(a, i), |i| a[i]) }
    }

    pub(super) fn scale(b: &mut [f64], c: &[f64]) {
        let c = &c[..b.len()];
        // SAFETY: `streaming` checked for AVX; `c` is as long as `b`.
        unsafe { stream(b, |i| _mm256_mul_pd(_mm256_set1_pd(SCALAR), load(c, i)), |i| SCALAR * c[i]) }
    }

    pub(super) fn add(c: &mut [f64], a: &[f64], b: &[f64]) {
        let (a, b) = (&a[..c.len()], &b[..c.len()]);
        // SAFETY: `streaming` checked for AVX; `a` and `b` are as long as `c`.
        unsafe { stream(c, |i| _mm256_add_pd(load(a, i), load(b, i)), |i| a[i] + b[i]) }
    }

    pub(super) fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
        let (b, c) = (&b[..a.len()], &c[..a.len()]);
        let product = |i| {
            // SAFETY: as for `stream` below.
            unsafe { _mm256_mul_pd(_mm256_set1_pd(SCALAR), load(c, i)) }
        };
        // SAFETY: `streaming` checked for AVX; `b` and `c` are as long as `a`.
        unsafe { stream(a, |i| _mm256_add_pd(load(b, i), product(i)), |i| b[i] + SCALAR * c[i]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length around the vector width and every alignment that a slice of doubles can have.
    fn compare(stores: Stores) {
        let kernels = Kernels::new(stores).unwrap();
        let source: Vec<f64> = (0..96).map(|i| f64::from(i) + 0.25).collect();
        for length in 0..40 {
            for offset in 0..8 {
                let x = &source[offset..offset + length];
                let y = &source[2 * offset + 1..2 * offset + 1 + length];
                let check = |run: &dyn Fn(&mut [f64]), expected: &dyn Fn(usize) -> f64| {
                    let mut to = vec![-1.0; 64];
                    run(&mut to[offset..offset + length]);
                    for (index, &element) in to.iter().enumerate() {
                        let inside = (offset..offset + length).contains(&index);
                        let wanted = if inside { expected(index - offset) } else { -1.0 };
                        assert_eq!(element, wanted, "{stores:?}, length {length}, offset {offset}, element {index}");
                    }
                };
                check(&|to| kernels.copy(to, x), &|i| x[i]);
                check(&|to| kernels.scale(to, x), &|i| 3.0 * x[i]);
                check(&|to| kernels.add(to, x, y), &|i| x[i] + y[i]);
                check(&|to| kernels.triad(to, x, y), &|i| x[i] + 3.0 * y[i]);
            }
        }
    }

    #[test]
    fn ordinary_stores_compute_every_element_and_no_other() {
        compare(Stores::Ordinary);
    }

    #[test]
    fn streaming_stores_compute_every_element_and_no_other() {
        match Kernels::new(Stores::Streaming) {
            Ok(_) => compare(Stores::Streaming),
            Err(error) => eprintln!("SKIPPED streaming_stores_compute_every_element_and_no_other: {error}"),
        }
    }
}
