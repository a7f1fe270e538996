//! Multiplication and addition in one step.

/// `a b + c`, rounded once where the CPU does both in one step. `FUSES` says whether it does: on
/// one that does not, asking for one rounding would be a call of a function, and slow.
///
/// In a function of several versions it is `target_cfg_f!(target_feature = "fma")`.
#[inline(always)]
pub(crate) fn fused<const FUSES: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSES { a.mul_add(b, c) } else { a * b + c }
}
