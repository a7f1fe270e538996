//! One test program: each further one would be linked with every crate below.

mod against_hwloc;
mod described;
mod golden;
mod hwloc_odd;
mod libvirt;
mod odd_hosts;
