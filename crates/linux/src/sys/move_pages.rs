//! Moving pages of a process that runs: move_pages(2) with a destination.

use super::checked;
use std::io;
use topology::NodeId;

/// Only pages that this process alone maps (include/uapi/linux/mempolicy.h); the libc crate lacks
/// both.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;
/// Pages that other processes map too; needs `CAP_SYS_NICE`.
const MPOL_MF_MOVE_ALL: libc::c_int = 1 << 2;

/// Which pages may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Those that only this process maps.
    Private,
    /// Those that other processes map too.
    Shared,
}

/// What the kernel says about one page that was asked to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// It is on this node now.
    Node(NodeId),
    /// The kernel says nothing: it gave up before, or does not tell pages that failed apart.
    Unsaid,
    /// It was refused with this `errno`: `EBUSY` (in use), `EACCES` (mapped by others), `ENOENT`
    /// (absent), `EFAULT` (not mapped), ...
    Refused(i32),
}

/// Asks the kernel to move pages of a process to a node. `addresses` are any addresses in the
/// pages. `Ok` says that the request was understood, not that pages moved: a page that is pinned
/// stays, and is [`MoveOutcome::Unsaid`] on some kernels and refused on others.
///
/// # Errors
/// `EPERM` without the right to look into the process, `ESRCH` if it ended, `EACCES` if its cpuset
/// forbids the node, `ENODEV` if the node is not online, `ENOMEM`.
pub fn move_pages(pid: u32, addresses: &[u64], to: NodeId, sharing: Sharing) -> io::Result<Vec<MoveOutcome>> {
    const UNSAID: i32 = i32::MIN;
    let mut status = vec![UNSAID; addresses.len()];
    let nodes = vec![to.0 as libc::c_int; addresses.len()];
    let flags = match sharing {
        Sharing::Private => MPOL_MF_MOVE,
        Sharing::Shared => MPOL_MF_MOVE_ALL,
    };
    // SAFETY: all three arrays hold `addresses.len()` entries and live through the call; the kernel
    // reads two and writes `status`. Where pages of a process are changes nothing that its program
    // can see.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addresses.len(),
            addresses.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            flags,
        )
    };
    checked(result)?;
    let outcome = |status: i32| match status {
        UNSAID => MoveOutcome::Unsaid,
        node if node >= 0 => MoveOutcome::Node(NodeId(node as u32)),
        error => MoveOutcome::Refused(-error),
    };
    Ok(status.into_iter().map(outcome).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{PageLocation, locate_pages};

    #[test]
    fn a_page_moves_to_a_node_that_exists_and_to_no_other() {
        let page = vec![1u8; 8192];
        let address = page.as_ptr() as u64 + 4096;
        let Ok(found) = locate_pages(0, &[address]) else {
            return eprintln!("SKIPPED a_page_moves_to_a_node_that_exists_and_to_no_other: move_pages is not there");
        };
        let PageLocation::Node(node) = found[0] else { panic!("{found:?}") };
        let pid = std::process::id();
        assert_eq!(move_pages(pid, &[address], node, Sharing::Private).unwrap(), [MoveOutcome::Node(node)]);
        let error = move_pages(pid, &[address], NodeId(1000), Sharing::Private).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(page[4096], 1);
    }
}
