//! Least squares with coefficients of zero or more, of up to three columns. With so few, every set
//! of columns is tried, which is exact; a library's iteration would need more lines to call.

/// The most columns.
pub(crate) const COLUMNS: usize = 3;

/// The coefficients from zero that make `sum (1 - row . coefficients)^2` smallest; rows are divided
/// by what they should give, so that errors are relative.
pub(crate) fn solve(rows: &[[f64; COLUMNS]], used: [bool; COLUMNS]) -> [f64; COLUMNS] {
    let mut best = ([0.0; COLUMNS], f64::INFINITY);
    for set in 1..1usize << COLUMNS {
        let columns: Vec<usize> = (0..COLUMNS).filter(|column| set & (1 << column) != 0).collect();
        if columns.len() > rows.len() || columns.iter().any(|&column| !used[column]) {
            continue;
        }
        let Some(coefficients) = normal(rows, &columns).filter(|all| all.iter().all(|&one| one >= 0.0)) else {
            continue;
        };
        let error = squares(rows, &coefficients);
        // Of sets that fit as well, the one with fewer columns comes first.
        if error < best.1 - 1e-12 {
            best = (coefficients, error);
        }
    }
    best.0
}

/// Sum of the squared relative errors.
pub(super) fn squares(rows: &[[f64; COLUMNS]], coefficients: &[f64; COLUMNS]) -> f64 {
    let error = |row: &[f64; COLUMNS]| 1.0 - row.iter().zip(coefficients).map(|(one, by)| one * by).sum::<f64>();
    rows.iter().map(|row| error(row).powi(2)).sum()
}

/// Without bounds, of these columns: the normal equations by elimination; `None` where the columns
/// cannot be told apart.
fn normal(rows: &[[f64; COLUMNS]], columns: &[usize]) -> Option<[f64; COLUMNS]> {
    // Columns of different units are brought to the same length first.
    let length = |column: usize| rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt();
    let lengths: Vec<f64> = columns.iter().map(|&column| length(column)).collect();
    if lengths.iter().any(|&length| length <= 0.0) {
        return None;
    }
    let of = |row: &[f64; COLUMNS], index: usize| row[columns[index]] / lengths[index];
    let count = columns.len();
    let mut matrix = vec![vec![0.0; count + 1]; count];
    for row in rows {
        for (i, sums) in matrix.iter_mut().enumerate() {
            // Each row of figures should give 1.
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum += of(row, i) * if j < count { of(row, j) } else { 1.0 };
            }
        }
    }
    for i in 0..count {
        let pivot = (i..count).max_by(|&one, &other| matrix[one][i].abs().total_cmp(&matrix[other][i].abs()))?;
        matrix.swap(i, pivot);
        if matrix[i][i].abs() < 1e-9 {
            return None;
        }
        let pivot_row = matrix[i].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = row[i] / pivot_row[i];
            row.iter_mut().zip(&pivot_row).for_each(|(value, pivot)| *value -= factor * pivot);
        }
    }
    let mut coefficients = [0.0; COLUMNS];
    for (index, &column) in columns.iter().enumerate() {
        coefficients[column] = matrix[index][count] / matrix[index][index] / lengths[index];
    }
    Some(coefficients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_that_made_the_rows_come_back() {
        // T(n) = 2 + 12 / n: 14, 8, 5. Rows are divided by T.
        let rows: Vec<[f64; 3]> =
            [1.0, 2.0, 4.0].map(|n: f64| (n, 2.0 + 12.0 / n)).map(|(n, t)| [1.0 / t, 1.0 / n / t, 0.0]).to_vec();
        let [serial, compute, memory] = solve(&rows, [true, true, false]);
        assert!((serial - 2.0).abs() < 1e-9 && (compute - 12.0).abs() < 1e-9 && memory == 0.0);
    }

    #[test]
    fn what_would_be_negative_is_zero_and_the_rest_is_fitted_again() {
        // Faster than linear: T = 10 / n - 1 would need a negative serial part.
        let rows: Vec<[f64; 3]> =
            [1.0, 2.0, 4.0].map(|n: f64| (n, 10.0 / n - 1.0)).map(|(n, t)| [1.0 / t, 1.0 / n / t, 0.0]).to_vec();
        let found = solve(&rows, [true, true, false]);
        let best = (1..2000).map(|step| 0.01 * f64::from(step)).map(|compute| squares(&rows, &[0.0, compute, 0.0]));
        assert!(found[0] == 0.0 && squares(&rows, &found) <= best.fold(f64::INFINITY, f64::min) + 1e-9, "{found:?}");
    }

    #[test]
    fn columns_that_cannot_be_told_apart_count_once() {
        let rows = [[1.0, 1.0, 2.0], [1.0, 1.0, 2.0]];
        let found = solve(&rows, [true; 3]);
        assert!(found.iter().filter(|&&one| one > 0.0).count() == 1 && squares(&rows, &found) < 1e-12, "{found:?}");
    }
}
