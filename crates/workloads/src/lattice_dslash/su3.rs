//! Matrices of SU(3) for one site: made when the lattice is made, and checked when it is done.

use crate::kernel::Random;

/// Real and imaginary part.
pub(super) type Complex = [f64; 2];
/// Rows of a matrix.
pub(super) type Matrix = [[Complex; 3]; 3];

pub(super) fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

pub(super) fn conjugate(a: Complex) -> Complex {
    [a[0], -a[1]]
}

pub(super) fn adjoint(a: &Matrix) -> Matrix {
    std::array::from_fn(|row| std::array::from_fn(|column| conjugate(a[column][row])))
}

pub(super) fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let element = |row: usize, column: usize| {
        let terms = [0, 1, 2].map(|at| times(a[row][at], b[at][column]));
        [terms[0][0] + terms[1][0] + terms[2][0], terms[0][1] + terms[1][1] + terms[2][1]]
    };
    std::array::from_fn(|row| std::array::from_fn(|column| element(row, column)))
}

/// The largest difference of an element from the unit matrix.
pub(super) fn from_unit(a: &Matrix) -> f64 {
    let elements = (0..9).map(|at| {
        let unit = if at / 3 == at % 3 { 1.0 } else { 0.0 };
        let error = (a[at / 3][at % 3][0] - unit).abs().max(a[at / 3][at % 3][1].abs());
        if error.is_nan() { f64::INFINITY } else { error }
    });
    elements.fold(0.0, f64::max)
}

/// A random matrix of SU(3) that depends on nothing but the site: two random rows that are made
/// orthonormal, and the row that is orthogonal to both.
pub(super) fn random(site: usize) -> Matrix {
    let mut random = Random::new(271_828_183).ahead(12 * site as u64 + 1);
    let mut row = || -> [Complex; 3] { std::array::from_fn(|_| [random.next() - 0.5, random.next() - 0.5]) };
    let (first, second) = (unit(row()), row());
    let overlap = (0..3).map(|at| times(conjugate(first[at]), second[at]));
    let overlap = overlap.fold([0.0; 2], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
    let second = unit(std::array::from_fn(|at| {
        let along = times(overlap, first[at]);
        [second[at][0] - along[0], second[at][1] - along[1]]
    }));
    let third = std::array::from_fn(|at| {
        let (next, last) = ((at + 1) % 3, (at + 2) % 3);
        let (a, b) = (times(first[next], second[last]), times(first[last], second[next]));
        conjugate([a[0] - b[0], a[1] - b[1]])
    });
    [first, second, third]
}

fn unit(row: [Complex; 3]) -> [Complex; 3] {
    let length = row.iter().flatten().map(|part| part * part).sum::<f64>().sqrt();
    row.map(|element| element.map(|part| part / length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_matrices_are_unitary_and_differ() {
        for site in 0..100 {
            let matrix = random(site);
            assert!(from_unit(&product(&matrix, &adjoint(&matrix))) < 1e-14);
            assert!(from_unit(&product(&matrix, &adjoint(&random(site + 1)))) > 0.01);
        }
    }
}
