//! A small dense linear system, without pivots.

/// Factors a square matrix, row after row, in place: the upper triangle, and below it the factors
/// that lead there. `None` where a pivot is not above 0, which the matrices of the queueing network
/// (diagonal plus, but for a scaling, a positive definite one) have only far from a solution.
pub(super) fn factor(matrix: &mut [f64], n: usize) -> Option<()> {
    for pivot in 0..n {
        let (above, below) = matrix.split_at_mut((pivot + 1) * n);
        let row = &above[pivot * n + pivot..];
        if row[0] <= 0.0 || !row[0].is_finite() {
            return None;
        }
        let inverse = 1.0 / row[0];
        for other in below.chunks_exact_mut(n) {
            let other = &mut other[pivot..];
            if other[0] == 0.0 {
                continue;
            }
            let factor = other[0] * inverse;
            other[0] = factor;
            for (cell, above) in other[1..].iter_mut().zip(&row[1..]) {
                *cell -= factor * above;
            }
        }
    }
    Some(())
}

/// Solves with a factored matrix, in place of the right side.
pub(super) fn solve(factored: &[f64], right: &mut [f64]) {
    let n = right.len();
    for at in 1..n {
        let row = &factored[at * n..at * n + at];
        let before: f64 = row.iter().zip(&*right).map(|(cell, value)| cell * value).sum();
        right[at] -= before;
    }
    for at in (0..n).rev() {
        let row = &factored[at * n..(at + 1) * n];
        let after: f64 = row[at + 1..].iter().zip(&right[at + 1..]).map(|(cell, value)| cell * value).sum();
        right[at] = (right[at] - after) / row[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_equations_in_three_unknowns() {
        // 4x + y = 6, x + 3y + z = 10, y + 2z = 8: x = 1, y = 2, z = 3.
        let mut matrix = [4.0, 1.0, 0.0, 1.0, 3.0, 1.0, 0.0, 1.0, 2.0];
        let mut right = [6.0, 10.0, 8.0];
        factor(&mut matrix, 3).expect("positive pivots");
        solve(&matrix, &mut right);
        for (found, known) in right.iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - known).abs() < 1e-12, "{right:?}");
        }
    }

    #[test]
    fn a_system_without_a_solution_is_refused() {
        assert_eq!(factor(&mut [1.0, 1.0, 1.0, 1.0], 2), None);
    }
}
