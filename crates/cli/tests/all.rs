//! The tests of the program, as one test program: each further one would be linked with every
//! crate.

mod advise;
mod architecture;
mod calibrate;
mod check;
mod claims;
mod closed_reader;
mod common;
mod connect;
mod disk;
mod emit_clouds;
mod emit_libvirt;
mod emit_qemu;
mod evaluate;
mod libvirt_run;
mod look;
mod machine;
mod plan;
mod run;
mod run_as;
mod run_starts;
mod service_unit;
mod shown;
mod topology;
mod unseen;
mod validate;
