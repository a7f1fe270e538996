//! What is wrong with a VM for a machine, worst first, each with its cure. Pure: the VM is what its XML or its process says.

mod vm;

pub use vm::ShapedVm;
