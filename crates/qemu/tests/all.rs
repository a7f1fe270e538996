//! One test program: each further one would be linked with every crate below.

mod hostile_monitors;
mod lifecycle;
mod monitor;
mod tiny_guest;
