//! An elastic body that flies and shakes: explicit finite elements in time steps by central
//! differences (Belytschko, Liu and Moran, "Nonlinear Finite Elements for Continua and Structures",
//! 2000), with tetrahedra of constant strain and lumped masses.
//!
//! For each element the displacements of its nodes are gathered, its forces are computed and
//! scattered to its nodes, all by tables; nodes are numbered at random within layers, as meshes
//! that come from elsewhere are. It stands for fma3d of SPEC OMP.
//!
//! Each element writes its own forces, and each node adds up those of its elements, in the order of
//! elements: so no thread waits for another's node, and results do not depend on their number.

mod element;
mod mesh;

use crate::WorkloadError;
use crate::crew::{Crew, cut};
use crate::kernel::{Class, Demand, Description, Kernel, Random, Verification, memory_of};
use element::{Forces, Vector, forces};
use mesh::Mesh;
use std::ops::Range;

pub(crate) const DESCRIPTION: Description =
    Description { name: "explicit_elements", stands_for: "fma3d (SPEC OMP)", demand, start };

/// Steps of a run: waves cross some 20 elements.
const STEPS: u32 = 100;
/// Seconds of a step; waves need about 0.5 to cross an element of size 1.
const DT: f64 = 0.1;
/// The body's mean velocity.
const FLIGHT: Vector = [0.3, -0.2, 0.1];

/// Cubes along each side of the body; six tetrahedra fill each.
fn size(class: Class) -> usize {
    match class {
        Class::S => 6,
        Class::W => 20,
        Class::A => 50,
        Class::B => 100,
        Class::C => 160,
    }
}

struct ExplicitElements {
    mesh: Mesh,
    /// Elements and nodes of each thread.
    elements: Vec<Range<usize>>,
    nodes: Vec<Range<usize>>,
    displacement: Vec<Vector>,
    velocity: Vec<Vector>,
    forces: Vec<Forces>,
    done: u32,
    energy_at_start: f64,
}

fn demand(class: Class) -> Demand {
    let (elements, nodes) = (6 * size(class).pow(3), (size(class) + 1).pow(3));
    // Of an element its forces, nodes and corners, which are there twice while they are made; of a
    // node three vectors, its mass and some numbers.
    Demand::of(12 * elements + 6 * elements + 13 * nodes, operations(elements, nodes))
}

/// Counted: 210 for each element, and 3 for each force that a node adds up, 12 for each node.
fn operations(elements: usize, nodes: usize) -> f64 {
    f64::from(STEPS) * (210.0 * elements as f64 + 12.0 * elements as f64 + 12.0 * nodes as f64)
}

fn start(class: Class, crew: &Crew) -> Result<Box<dyn Kernel>, WorkloadError> {
    let mesh = Mesh::new(size(class), crew)?;
    let (elements, nodes) = (crew.shares(mesh.elements.len()), crew.shares(mesh.positions.len()));
    let vectors = || crew.array(&nodes, |_| [0.0; 3]);
    let (displacement, velocity) = (vectors()?, vectors()?);
    let forces = crew.array(&elements, |_| [[0.0; 3]; 4])?;
    let (done, energy_at_start) = (0, 0.0);
    Ok(Box::new(ExplicitElements { mesh, elements, nodes, displacement, velocity, forces, done, energy_at_start }))
}

/// The sums over all nodes that are verified.
#[derive(Clone, Copy, Default)]
struct Sums {
    mass: f64,
    momentum: Vector,
    moment: Vector,
    kinetic: f64,
    elastic: f64,
}

impl Kernel for ExplicitElements {
    fn steps(&self) -> u32 {
        STEPS
    }

    fn operations(&self) -> f64 {
        operations(self.mesh.elements.len(), self.mesh.positions.len())
    }

    /// Undeformed, with random velocities about the mean one.
    fn reset(&mut self, crew: &Crew) {
        crew.each(cut(&mut self.displacement, &self.nodes), |_, part| part.fill([0.0; 3]));
        let nodes = &self.nodes;
        crew.each(cut(&mut self.velocity, nodes), |thread, part| {
            for (node, velocity) in nodes[thread].clone().zip(part) {
                let mut random = Random::new(314_159_265).ahead(3 * node as u64);
                *velocity = FLIGHT.map(|mean| mean + 0.02 * (random.next() - 0.5));
            }
        });
        self.done = 0;
        self.find_forces(crew);
        let sums = self.sums(crew);
        self.energy_at_start = sums.kinetic + sums.elastic;
    }

    fn step(&mut self, crew: &Crew) {
        self.find_forces(crew);
        self.advance(crew);
        self.done += 1;
    }

    fn verify(&mut self, crew: &Crew) -> Vec<Verification> {
        self.find_forces(crew);
        let sums = self.sums(crew);
        let seconds = DT * f64::from(self.done);
        let flown = sums.moment[0] / sums.momentum[0];
        let shaking = sums.kinetic + sums.elastic - self.energy_of_flight(sums);
        let start = self.energy_at_start;
        let verification = |quantity, value, expected, tolerance| Verification { quantity, value, expected, tolerance };
        vec![
            // Forces within an element cancel: what is left is rounding.
            verification("seconds flown", flown, seconds, 1e-10),
            // Central differences conserve this energy of a linear body exactly.
            verification("energy", sums.kinetic + sums.elastic, start, 1e-10),
            // Of the energy of what shakes, half is elastic in the mean. That of one moment
            // differs, the more the smaller the body.
            verification("elastic share", sums.elastic / shaking, 0.5, 0.3),
        ]
    }

    fn memory(&self) -> Vec<(*const u8, usize)> {
        let own = [memory_of(&self.displacement), memory_of(&self.velocity), memory_of(&self.forces)];
        own.into_iter().chain(self.mesh.memory()).collect()
    }
}

impl ExplicitElements {
    fn find_forces(&mut self, crew: &Crew) {
        let Self { mesh, elements, displacement, forces: all, .. } = self;
        crew.each(cut(all, elements), |thread, part| {
            forces(&mesh.elements[elements[thread].clone()], &mesh.positions, displacement, part);
        });
    }

    fn advance(&mut self, crew: &Crew) {
        let Self { mesh, nodes, displacement, velocity, forces, .. } = self;
        let parts = cut(velocity, nodes).into_iter().zip(cut(displacement, nodes));
        crew.each(parts, |thread, (velocity, displacement)| {
            for ((node, velocity), displacement) in nodes[thread].clone().zip(velocity).zip(displacement) {
                let force = mesh.gather(node, forces);
                let factor = DT / mesh.masses[node];
                for axis in 0..3 {
                    velocity[axis] += factor * force[axis];
                    displacement[axis] += DT * velocity[axis];
                }
            }
        });
    }

    /// Velocities stand half a step before displacements. The kinetic energy is the product of the
    /// velocities half a step before and behind, with which the whole is conserved exactly.
    fn sums(&self, crew: &Crew) -> Sums {
        let Self { mesh, nodes, displacement, velocity, forces, .. } = self;
        let parts = crew.each(nodes.iter().cloned(), |_, share| {
            let mut sums = Sums::default();
            for node in share {
                let (mass, force) = (mesh.masses[node], mesh.gather(node, forces));
                sums.mass += mass;
                for axis in 0..3 {
                    let (before, moved) = (velocity[node][axis], displacement[node][axis]);
                    let behind = before + DT / mass * force[axis];
                    sums.momentum[axis] += mass * before;
                    sums.moment[axis] += mass * moved;
                    sums.kinetic += 0.5 * mass * before * behind;
                    sums.elastic -= 0.5 * moved * force[axis];
                }
            }
            sums
        });
        parts.into_iter().fold(Sums::default(), |sum, part| Sums {
            mass: sum.mass + part.mass,
            momentum: std::array::from_fn(|axis| sum.momentum[axis] + part.momentum[axis]),
            moment: std::array::from_fn(|axis| sum.moment[axis] + part.moment[axis]),
            kinetic: sum.kinetic + part.kinetic,
            elastic: sum.elastic + part.elastic,
        })
    }

    /// The kinetic energy of the body's mean motion.
    fn energy_of_flight(&self, sums: Sums) -> f64 {
        sums.momentum.iter().map(|momentum| momentum * momentum).sum::<f64>() / (2.0 * sums.mass)
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::Class;
    use crate::kernel::tests::verifies;

    #[test]
    fn momentum_and_energy_are_conserved_while_the_body_shakes() {
        verifies("explicit_elements", Class::S, &[1, 2]);
    }
}
