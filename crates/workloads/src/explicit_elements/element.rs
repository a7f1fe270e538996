//! Tetrahedra of constant strain.

use multiversion::multiversion;

pub(super) type Vector = [f64; 3];
/// The nodes of an element.
pub(super) type Element = [u32; 4];
/// The force of an element on each of its nodes.
pub(super) type Forces = [Vector; 4];

/// Lame's constants, for a density of 1: waves of pressure run at `root(LAMBDA + 2 MU)`, which is
/// 2.
const LAMBDA: f64 = 2.0;
const MU: f64 = 1.0;

/// The forces of some elements on their nodes.
#[multiversion(targets = "simd")]
pub(super) fn forces(elements: &[Element], positions: &[Vector], displacement: &[Vector], to: &mut [Forces]) {
    for (element, to) in elements.iter().zip(to) {
        let at = element.map(|node| positions[node as usize]);
        let moved = element.map(|node| displacement[node as usize]);
        *to = one(&at, &moved);
    }
}

/// An element's forces: minus the derivative of its elastic energy, `volume (LAMBDA / 2 (tr e)^2 +
/// MU e:e)` with the strain `e`.
#[inline(always)]
fn one(at: &[Vector; 4], moved: &[Vector; 4]) -> Forces {
    let [a, b, c] = [1, 2, 3].map(|node| difference(&at[node], &at[0]));
    // The rows are six times the volume times the gradients of the shape functions.
    let areas = [cross(&b, &c), cross(&c, &a), cross(&a, &b)];
    let six_volumes = a[0] * areas[0][0] + a[1] * areas[0][1] + a[2] * areas[0][2];
    let by_volume = 1.0 / six_volumes;
    let stretch = [1, 2, 3].map(|node| difference(&moved[node], &moved[0]));
    // The displacement's gradient: row by component, column by direction.
    let gradient: [Vector; 3] = std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            by_volume * (stretch[0][i] * areas[0][j] + stretch[1][i] * areas[1][j] + stretch[2][i] * areas[2][j])
        })
    });
    let pressure = LAMBDA * (gradient[0][0] + gradient[1][1] + gradient[2][2]);
    let stress: [Vector; 3] = std::array::from_fn(|i| {
        std::array::from_fn(|j| MU * (gradient[i][j] + gradient[j][i]) + if i == j { pressure } else { 0.0 })
    });
    let force = |area: &Vector| -> Vector {
        std::array::from_fn(|i| {
            (stress[i][0] * area[0] + stress[i][1] * area[1] + stress[i][2] * area[2]) * (-1.0 / 6.0)
        })
    };
    let [f1, f2, f3] = [force(&areas[0]), force(&areas[1]), force(&areas[2])];
    // Forces within an element cancel.
    [std::array::from_fn(|i| -(f1[i] + f2[i] + f3[i])), f1, f2, f3]
}

#[inline(always)]
fn difference(a: &Vector, b: &Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

#[inline(always)]
fn cross(a: &Vector, b: &Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// The volume of a tetrahedron.
pub(super) fn volume(at: &[Vector; 4]) -> f64 {
    let [a, b, c] = [1, 2, 3].map(|node| difference(&at[node], &at[0]));
    let area = cross(&b, &c);
    (a[0] * area[0] + a[1] * area[1] + a[2] * area[2]) / 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORNER: [Vector; 4] = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

    #[test]
    fn a_stretched_corner_is_worked_by_hand() {
        assert_eq!(volume(&CORNER), 1.0 / 6.0);
        // Stretched by 0.01 along x: stress (LAMBDA + 2 MU) * 0.01 = 0.04 along x, LAMBDA * 0.01 =
        // 0.02 along y and z. Each face that looks along an axis has area 1/2, a third for each of
        // its nodes: node 1 is pulled back by 0.04 / 6, nodes 2 and 3 by 0.02 / 6.
        let mut moved = [[0.0; 3]; 4];
        moved[1][0] = 0.01;
        let forces = one(&CORNER, &moved);
        let right = [[0.04, 0.02, 0.02], [-0.04, 0.0, 0.0], [0.0, -0.02, 0.0], [0.0, 0.0, -0.02]];
        for (force, right) in forces.iter().flatten().zip(right.iter().flatten()) {
            assert!((force - right / 6.0).abs() < 1e-16, "{forces:?}");
        }
    }

    #[test]
    fn a_turn_strains_nothing() {
        // A small turn about z: (x, y) moves by (-y, x) times the angle.
        let moved = CORNER.map(|[x, y, _]| [-1e-3 * y, 1e-3 * x, 0.0]);
        assert!(one(&CORNER, &moved).iter().flatten().all(|force| force.abs() < 1e-18));
    }
}
