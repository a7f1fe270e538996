//! The balancer: worked examples for every kind of move and every guard, and what holds for every
//! host.

mod answers;
mod bandwidth;
mod caches;
mod choices;
mod communication;
mod devices;
mod fairness;
mod homes;
mod level;
mod memory;
mod moves;
mod prefer_ht;
mod properties;
mod spread;
mod told;
pub(crate) mod toy;
mod trouble;
mod why;
mod wide;
