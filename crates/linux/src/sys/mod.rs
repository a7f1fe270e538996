//! Safe wrappers over system calls. Unsafe code of this crate lives here, each block with the
//! invariant that it relies on.

mod accounts;
mod affinity;
mod clock;
mod descriptors;
mod files;
mod guest_root;
mod init;
mod mask;
mod move_pages;
mod network;
mod numa;
mod perf;
#[cfg(test)]
mod pinned;
mod reap;
mod signals;
mod sockets;
mod spawn;
mod terminal;
mod total_memory;
mod user;

pub use accounts::{Account, account_named, account_of, group_exists, groups_of};
pub use affinity::{AffinityOfThreads, affinity, set_affinity, thread_id};
pub use clock::{since_boot_ns, thread_cpu_ns};
pub use descriptors::{close_standard_streams, receive_descriptor, send_descriptor};
pub use files::{
    OPEN_NO_LINK, OPEN_NO_WAIT, device_numbers, find_in, free_space, memory_file, open_regular, raise_open_files,
    try_lock, wait_readable, wide_pipe, write_back_all,
};
pub use guest_root::{ask_all_to_end, go_to_root, mount_disk, set_host_name, show_directory};
pub use init::{load_module, map_allocations_of, mount, power_off};
pub use move_pages::{MoveOutcome, Sharing, move_pages};
pub use network::{
    TapDevice, bring_up_loopback, enter_network, leave_network, own_network, set_address, tap, tap_name,
};
pub use numa::{MemoryBinding, PageLocation, bind_memory, locate_pages, set_thread_memory, thread_memory};
pub use perf::{CounterEvent, CounterGroup, GroupCount, MOST_EVENTS};
#[cfg(test)]
pub(crate) use pinned::pin;
pub use reap::{Reaped, adopt_orphans, wait_for_any_child};
pub use signals::{ProcessHandle, send_signal};
pub use sockets::{Peer, SocketFile, connect_at_once, peer};
pub use spawn::{ChildSetup, Tie, spawn};
pub use terminal::{CtrlC, RawTerminal};
pub use total_memory::total_memory;
pub use user::{Credentials, opens_as};

use std::io;

/// Turns the C convention (negative: look at `errno`) into a result.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// User id of this process, as files are created with it.
pub fn effective_user_id() -> u32 {
    // SAFETY: geteuid takes no argument, touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// The group that this process acts as.
pub fn effective_group_id() -> u32 {
    // SAFETY: getegid takes no argument, touches no memory and cannot fail.
    unsafe { libc::getegid() }
}

/// Clock ticks in a second: the unit of the times in `/proc/PID/stat`.
pub fn clock_ticks_per_second() -> u64 {
    // SAFETY: sysconf reads a constant; it touches no memory of ours.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|&ticks| ticks > 0).unwrap_or(100)
}
