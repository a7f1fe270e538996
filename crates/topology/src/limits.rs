//! How much is read of what others say: a number that no VM and no host has is a mistake or an
//! attack, and never a reason to allocate.
//!
//! Whatever is read from a foreign command line, file or process is bounded by these before any
//! work is done on it (docs/security.md has the table). What people write in files has its limits
//! in [`crate::input`].

use std::time::Duration;

/// Most vCPUs of a VM: the most that any QEMU machine type takes (q35 since QEMU 9.0).
pub const MOST_VCPUS: u32 = 4096;
/// Most virtual nodes of a VM: QEMU's `MAX_NODES`.
pub const MOST_VIRTUAL_NODES: usize = 128;
/// Nodes of a host: the largest `NODES_SHIFT` that Linux is built with (10).
pub const MOST_NODES: u32 = 1024;
/// Most memory backends, and most devices that are passed through, of one VM: QEMU has 256 slots
/// for memory devices beside its nodes.
pub const MOST_OBJECTS: usize = 1024;
/// Longest command line in bytes: the longest of libvirt's own examples has 20 kB; Linux takes 6
/// MiB.
pub const LONGEST_COMMAND_LINE: u64 = 1 << 20;
/// Most threads of a VM: its vCPUs, and as many workers and I/O threads.
pub const MOST_THREADS: usize = 2 * MOST_VCPUS as usize;

/// How long libvirt has to bind the vCPUs of one client: on a busy host it needs a second or two.
/// It may itself wait for up to 30 s for whoever else changes the domain.
pub const LIBVIRT_ANSWER: Duration = Duration::from_secs(10);
/// For how long a libvirt that did not answer in time is not asked again: so whoever keeps it from
/// answering costs the balancer at most a seventh of its time.
pub const LIBVIRT_REST: Duration = Duration::from_secs(60);
/// Most characters of a message of libvirt's that are shown: with QEMU's last words in it, one has
/// some 500.
pub const LONGEST_MESSAGE: usize = 2000;
