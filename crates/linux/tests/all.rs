//! One test program: each further one would be linked with every crate below.

mod real_vms;
