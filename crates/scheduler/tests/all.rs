//! One test program: each further one would be linked with every crate below.

mod backing;
mod balance;
mod bandwidth;
mod beside_a_balancer;
mod brute_force;
mod caches;
mod claims;
mod far;
mod fleet;
mod growing;
mod latency;
mod near_device;
mod properties;
mod random;
mod rehome;
mod worked_examples;
