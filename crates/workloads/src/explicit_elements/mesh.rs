//! A cube of cubes, each of them filled by six tetrahedra that share its diagonal; its nodes are
//! moved a little, and numbered at random within their layer.

use super::element::{Element, Forces, Vector, volume};
use crate::WorkloadError;
use crate::crew::{Crew, cut};
use crate::kernel::{Random, memory_of};

pub(super) struct Mesh {
    pub(super) elements: Vec<Element>,
    pub(super) positions: Vec<Vector>,
    pub(super) masses: Vec<f64>,
    /// Where each node's entries end in `corners`; the next one's begin there.
    ends: Vec<u32>,
    /// The corners of elements that are this node: element times four, and which of the four.
    corners: Vec<u32>,
}

/// The six ways from a cube's corner along the three axes to the opposite corner.
const WAYS: [[usize; 3]; 6] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]];

impl Mesh {
    /// So many cubes along each side, of size 1; the density is 1.
    pub(super) fn new(side: usize, crew: &Crew) -> Result<Mesh, WorkloadError> {
        let layer = (side + 1) * (side + 1);
        let order = shuffled(layer, (side + 1) * layer);
        let number = |[x, y, z]: [usize; 3]| order[(z * (side + 1) + y) * (side + 1) + x];
        let element = |index: usize| -> Element {
            let (way, cube) = (WAYS[index % 6], index / 6);
            let mut corner = [cube % side, cube / side % side, cube / (side * side)];
            let mut element = [number(corner); 4];
            for (node, axis) in element[1..].iter_mut().zip(way) {
                corner[axis] += 1;
                *node = number(corner);
            }
            // A way that turns left has the volume of the other sign.
            if index % 6 >= 3 {
                element.swap(1, 2);
            }
            element
        };
        let elements = crew.array(&crew.shares(6 * side * side * side), element)?;
        let mut places = vec![0; order.len()];
        for (place, &node) in order.iter().enumerate() {
            places[node as usize] = place;
        }
        let nodes = crew.shares(order.len());
        let positions = crew.array(&nodes, |node| {
            let (place, mut random) = (places[node], Random::new(271_828_183).ahead(3 * node as u64));
            let cube = [place % (side + 1), place / (side + 1) % (side + 1), place / layer];
            cube.map(|at| at as f64 + 0.2 * (random.next() - 0.5))
        })?;
        let (starts, corners) = corners(&elements, order.len());
        let mut masses = crew.array(&nodes, |_| 0.0)?;
        crew.each(cut(&mut masses, &nodes), |thread, masses| {
            for (node, mass) in nodes[thread].clone().zip(masses) {
                for &corner in &corners[starts[node] as usize..starts[node + 1] as usize] {
                    let element = elements[corner as usize / 4];
                    *mass += volume(&element.map(|node| positions[node as usize])) / 4.0;
                }
            }
        });
        // Both tables again, first touched by the threads of their nodes.
        let ends = crew.array(&nodes, |node| starts[node + 1])?;
        let shares = nodes.iter().map(|share| starts[share.start] as usize..starts[share.end] as usize);
        let corners = crew.array(&shares.collect::<Vec<_>>(), |at| corners[at])?;
        Ok(Mesh { elements, positions, masses, ends, corners })
    }

    /// The sum of the forces on a node.
    #[inline(always)]
    pub(super) fn gather(&self, node: usize, forces: &[Forces]) -> Vector {
        let start = if node == 0 { 0 } else { self.ends[node - 1] as usize };
        let mut sum = [0.0; 3];
        for &corner in &self.corners[start..self.ends[node] as usize] {
            let force = &forces[corner as usize / 4][corner as usize % 4];
            sum = [sum[0] + force[0], sum[1] + force[1], sum[2] + force[2]];
        }
        sum
    }

    pub(super) fn memory(&self) -> [(*const u8, usize); 4] {
        [memory_of(&self.elements), memory_of(&self.positions), memory_of(&self.masses), memory_of(&self.corners)]
    }
}

/// The number of the node at each place: random within its layer.
fn shuffled(layer: usize, nodes: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..nodes as u32).collect();
    let mut random = Random::new(161_803_399);
    for layer in order.chunks_exact_mut(layer) {
        for at in (1..layer.len()).rev() {
            layer.swap(at, (random.next() * (at + 1) as f64) as usize);
        }
    }
    order
}

/// For each node the corners of elements that it is, in the order of elements.
fn corners(elements: &[Element], nodes: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0_u32; nodes + 1];
    for &node in elements.as_flattened() {
        starts[node as usize + 1] += 1;
    }
    for node in 0..nodes {
        starts[node + 1] += starts[node];
    }
    let (mut next, mut corners) = (starts.clone(), vec![0; 4 * elements.len()]);
    for (corner, &node) in elements.as_flattened().iter().enumerate() {
        corners[next[node as usize] as usize] = corner as u32;
        next[node as usize] += 1;
    }
    (starts, corners)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Anywhere, Placement};
    use std::sync::Arc;

    #[test]
    fn elements_fill_the_body_once() {
        let anywhere: Arc<dyn Placement> = Arc::new(Anywhere);
        let crew = Crew::start(2, &anywhere).unwrap();
        let mesh = Mesh::new(4, &crew).unwrap();
        let volumes = mesh.elements.iter().map(|element| volume(&element.map(|node| mesh.positions[node as usize])));
        assert!(volumes.clone().all(|volume| volume > 0.0));
        // Nodes are moved by at most 0.1, so the volume of 4 x 4 x 4 is kept within 0.2 a side.
        let (total, mass) = (volumes.sum::<f64>(), mesh.masses.iter().sum::<f64>());
        assert!((3.8_f64.powi(3)..4.2_f64.powi(3)).contains(&total), "{total}");
        assert!((mass - total).abs() < 1e-12 * total);
    }
}
