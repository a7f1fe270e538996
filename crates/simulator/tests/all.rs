//! One test program: each further one would be linked with every crate below.

mod application_properties;
mod balancing;
mod caches;
mod events;
mod faults;
mod first_homes;
mod host;
mod latency;
mod modelled;
mod networks;
mod properties;
mod reference;
mod shipped_machines;
mod storm;
mod worked_examples;
