//! One test program: each further one would be linked with every crate below.

mod backing;
mod common;
mod dimms_alike;
mod hostile_monitors;
mod hot_add;
mod lifecycle;
mod migration;
mod monitor;
mod quoting;
mod saved;
mod tiny_guest;
mod uefi;
mod words;
