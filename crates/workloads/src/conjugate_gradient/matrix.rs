//! NPB's sparse matrix: the weighted sum of the outer products of random sparse vectors with
//! themselves.
//!
//! `A = sum over i of w^i v_i v_i' + (0.1 - shift) I` with `w = 0.1^(1/n)`, where vector `v_i` has
//! `nonzeros` random elements, and 0.5 at place `i`. So row `j` is made of those vectors that have
//! an element at place `j`, and each thread can make its own rows.

use crate::crew::Crew;
use crate::kernel::Random;
use std::ops::Range;

/// NPB's condition number, by which the smallest eigenvalue is bounded.
const CONDITION: f64 = 0.1;

/// Some consecutive rows, compressed.
pub(super) struct Rows {
    /// Where each row begins among the elements, and where the last one ends.
    pub(super) starts: Vec<u32>,
    pub(super) columns: Vec<u32>,
    pub(super) values: Vec<f64>,
}

/// One of the random vectors: places and elements.
type Sparse = Vec<(u32, f64)>;

/// The rows of each thread, made by that thread.
pub(super) fn rows(order: usize, nonzeros: usize, shift: f64, shares: &[Range<usize>], crew: &Crew) -> Vec<Rows> {
    let vectors = vectors(order, nonzeros);
    let weight = CONDITION.powf(1.0 / order as f64);
    crew.each(shares.iter().cloned(), |_, share| {
        let mut found: Vec<Vec<u32>> = vec![Vec::new(); share.len()];
        for (index, vector) in vectors.iter().enumerate() {
            for &(place, _) in vector.iter().filter(|(place, _)| share.contains(&(*place as usize))) {
                found[place as usize - share.start].push(index as u32);
            }
        }
        let most = found.iter().flatten().map(|&index| vectors[index as usize].len()).sum();
        let mut rows = Rows { starts: vec![0], columns: Vec::with_capacity(most), values: Vec::with_capacity(most) };
        for (row, found) in share.zip(&found) {
            add_row(&mut rows, row, found, &vectors, weight, CONDITION - shift);
        }
        rows
    })
}

/// The random vectors, in NPB's order of random numbers.
fn vectors(order: usize, nonzeros: usize) -> Vec<Sparse> {
    let mut random = Random::new(314_159_265).ahead(1);
    let places = order.next_power_of_two() as f64;
    let vector = |index: usize| {
        let mut vector = Sparse::with_capacity(nonzeros + 1);
        while vector.len() < nonzeros {
            let element = random.next();
            let place = (places * random.next()) as u32;
            if (place as usize) < order && vector.iter().all(|&(other, _)| other != place) {
                vector.push((place, element));
            }
        }
        match vector.iter_mut().find(|(place, _)| *place as usize == index) {
            Some((_, element)) => *element = 0.5,
            None => vector.push((index as u32, 0.5)),
        }
        vector
    };
    (0..order).map(vector).collect()
}

fn add_row(rows: &mut Rows, row: usize, found: &[u32], vectors: &[Sparse], weight: f64, diagonal: f64) {
    let mut elements = vec![(row as u32, diagonal)];
    for &index in found {
        let vector = &vectors[index as usize];
        let here = vector.iter().find(|(place, _)| *place as usize == row).map_or(0.0, |(_, element)| *element);
        let scale = weight.powi(index as i32) * here;
        elements.extend(vector.iter().map(|&(column, element)| (column, scale * element)));
    }
    elements.sort_by_key(|&(column, _)| column);
    for same in elements.chunk_by(|a, b| a.0 == b.0) {
        rows.columns.push(same[0].0);
        rows.values.push(same.iter().map(|(_, value)| value).sum());
    }
    rows.starts.push(rows.columns.len() as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Anywhere, Placement};
    use std::sync::Arc;

    #[test]
    fn the_matrix_is_symmetric_whoever_makes_its_rows() {
        let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
        let mut all = Vec::new();
        for threads in [1, 3] {
            let crew = Crew::start(threads, &anywhere).unwrap();
            let mut triples = std::collections::BTreeMap::new();
            let mut row = 0;
            for rows in rows(200, 5, 10.0, &crew.shares(200), &crew) {
                for ends in rows.starts.windows(2) {
                    for at in ends[0] as usize..ends[1] as usize {
                        assert!(triples.insert((row, rows.columns[at]), rows.values[at]).is_none());
                    }
                    row += 1;
                }
            }
            assert_eq!(row, 200);
            for (&(row, column), value) in &triples {
                assert!((triples[&(column, row)] - value).abs() < 1e-15);
            }
            all.push(triples);
        }
        assert_eq!(all[0], all[1]);
    }
}
