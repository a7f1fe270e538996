//! One test program: each further one would be linked with every crate below.

mod affinity;
mod attack;
mod domains;
#[path = "../../cli/tests/common/libvirtd.rs"]
mod libvirtd;
mod life;
mod virsh;
