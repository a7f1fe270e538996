//! One test program: each further one would be linked with every crate below.

mod hostile;
mod memory_shapes;
mod real_vms;
mod who_is_qemu;
