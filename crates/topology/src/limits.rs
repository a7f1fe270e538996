//! How much is read of what others say: a number that no VM and no host has is a mistake or an
//! attack, and never a reason to allocate.
//!
//! Whatever is read from a foreign command line, file or process is bounded by these before any
//! work is done on it (docs/security.md has the table). What people write in files has its limits
//! in [`crate::input`].

use std::time::Duration;

/// Most vCPUs of a VM: the most that any QEMU machine type takes (q35 since QEMU 9.0).
pub const MOST_VCPUS: u32 = 4096;
/// Most I/O threads of a VM: libvirt advises one or two for each CPU of the host, and a VM has use
/// for no more than vCPUs.
pub const MOST_IOTHREADS: u32 = MOST_VCPUS;
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

/// Time that one usual look spends on the monitors of all VMs together: a balancer looks every few
/// seconds, and decides nothing meanwhile.
pub const MONITORS_IN_A_LOOK: Duration = Duration::from_millis(100);
/// The same for a look that somebody asked for and waits for.
pub const MONITORS_IN_A_WHOLE_LOOK: Duration = Duration::from_secs(2);
/// Time for one monitor in a usual look: of QEMUs on a host with 13 runnable threads a CPU, half
/// have answered in 5 ms, nine of ten in this time.
pub const MONITOR_WITHIN: Duration = Duration::from_millis(50);
/// The same in a look that somebody asked for.
pub const MONITOR_WITHIN_WHOLE: Duration = Duration::from_millis(500);
/// Time for one monitor of a user who is trusted (root, libvirt's user, whoever looks), in any
/// look: his QEMU means no harm, and may be slow on a busy host.
pub const TRUSTED_MONITOR_WITHIN: Duration = Duration::from_secs(1);
/// The same for all of them together.
pub const TRUSTED_MONITORS_IN_A_LOOK: Duration = Duration::from_secs(2);
/// No monitor is asked for less: in so little time a good one may be late.
pub const LEAST_FOR_A_MONITOR: Duration = Duration::from_millis(10);
/// For so long a monitor that said nothing is not asked again, or as much less as it had less time
/// than others: a QEMU that hangs does so for longer than a moment.
pub const SILENT_MONITOR_RESTS: Duration = Duration::from_secs(60);
/// The same for one that is in use or not there: a VM that starts has its monitor soon.
pub const ABSENT_MONITOR_RESTS: Duration = Duration::from_secs(2);
/// With so many silent monitors no other of the same user is asked, as long as they rest. Root's
/// are.
pub const MOST_SILENT_MONITORS: usize = 3;
/// Longest line of a monitor in bytes: the longest that QEMU has to say names 4096 vCPUs, in some
/// 220 bytes each.
pub const LONGEST_MONITOR_LINE: usize = 1 << 20;
/// How much of the list of sockets (`/proc/net/unix`) is read in bytes: any user may have
/// thousands, and 4 MiB are some 40,000.
pub const LONGEST_SOCKET_LIST: u64 = 4 << 20;

/// Most VMs of one user that are watched, beside root, libvirt's user and the user who looks:
/// one host runs a few hundred VMs at most, and where it does, a manager has a user for them.
pub const MOST_VMS_OF_A_USER: usize = 256;
/// Most threads and virtual nodes of all of them together: a VM of 2048 vCPUs and its workers.
pub const MOST_THREADS_OF_A_USER: usize = 4096;
/// Milliseconds of CPU time that one look spends on the processes of one such user: twice what a
/// first look at 100 VMs of 8 vCPUs takes.
pub const MILLISECONDS_OF_A_USER: u64 = 100;
/// Page tables of one such user that one look walks (`numa_maps`), in bytes: those of 32 GiB in
/// small pages.
pub const MOST_PAGE_TABLES_OF_A_USER: u64 = 64 << 20;
/// Descriptors of a VM that are looked through for devices: a few for each disk and each queue of a
/// NIC.
pub const MOST_DESCRIPTORS: usize = 16384;
