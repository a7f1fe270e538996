//! What a VM is, as far as its words say: who manages it, and what QEMU's command line means. Pure:
//! text in, data out.

mod manager;
pub mod qemu;
pub mod qemu_user;

pub use manager::{Manager, Origin};
