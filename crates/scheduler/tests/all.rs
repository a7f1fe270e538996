//! One test program: each further one would be linked with every crate below.

mod balance;
mod brute_force;
mod claims;
mod fleet;
mod properties;
mod random;
mod rehome;
mod spec_errors;
mod worked_examples;
