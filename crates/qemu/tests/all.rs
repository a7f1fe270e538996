//! One test program: each further one would be linked with every crate below.

mod lifecycle;
mod monitor;
mod tiny_guest;
