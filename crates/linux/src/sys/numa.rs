//! Where memory is, and where it must be: mbind(2), set_mempolicy(2), get_mempolicy(2),
//! move_pages(2).

use super::checked;
use super::mask::Mask;
use std::ffi::c_void;
use std::io;
use topology::{NodeId, NodeSet};

/// Nodes that a query asks for: more than the kernel can number (1024), and no more than a page of
/// bits, which it refuses.
const QUERY_BITS: usize = 4096;
/// Moves pages that are there already (include/uapi/linux/mempolicy.h); the libc crate lacks it.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// A memory policy of the kernel (Documentation/admin-guide/mm/numa_memory_policy.rst).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryBinding {
    /// On the node of the CPU that touches it first.
    Default,
    /// On this node if it has room.
    Preferred(NodeId),
    /// On these nodes and nowhere else.
    Bind(NodeSet),
    /// Page by page over these nodes.
    Interleave(NodeSet),
}

impl MemoryBinding {
    fn mode_and_nodes(&self) -> (libc::c_int, NodeSet) {
        match self {
            Self::Default => (libc::MPOL_DEFAULT, NodeSet::new()),
            Self::Preferred(node) => (libc::MPOL_PREFERRED, std::iter::once(*node).collect()),
            Self::Bind(nodes) => (libc::MPOL_BIND, nodes.clone()),
            Self::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes.clone()),
        }
    }
}

/// The mask pointer and its length as the calls take them: the kernel reads one bit less than it is
/// told (mm/mempolicy.c, `get_nodes`), and refuses a mask where a policy takes none.
fn mask_arguments(mask: &Mask, nodes: &NodeSet) -> (*const u64, usize) {
    if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), mask.bits() + 1) }
}

/// Binds the pages of `region` that are touched from now on, and moves those that this process
/// alone has touched already. `region` must begin on a page boundary.
pub fn bind_memory<T>(region: &[T], binding: &MemoryBinding) -> io::Result<()> {
    let (mode, nodes) = binding.mode_and_nodes();
    let mask = Mask::of(&nodes);
    let (pointer, bits) = mask_arguments(&mask, &nodes);
    let (address, bytes) = (region.as_ptr(), size_of_val(region));
    // SAFETY: mbind changes where the pages of the borrowed region live, never what they hold; the
    // mask is valid for reads of `bits` bits for the whole call.
    let result = unsafe { libc::syscall(libc::SYS_mbind, address, bytes, mode, pointer, bits, MPOL_MF_MOVE) };
    checked(result).map(drop)
}

/// Sets the policy of the calling thread for memory without a policy of its own.
pub fn set_thread_memory(binding: &MemoryBinding) -> io::Result<()> {
    let (mode, nodes) = binding.mode_and_nodes();
    let mask = Mask::of(&nodes);
    let (pointer, bits) = mask_arguments(&mask, &nodes);
    // SAFETY: the mask is valid for reads of `bits` bits for the whole call; nothing else of ours
    // is touched.
    checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) }).map(drop)
}

/// The policy of the calling thread, read back. A policy that this program never sets reads as an
/// error.
pub fn thread_memory() -> io::Result<MemoryBinding> {
    let mut mode: libc::c_int = 0;
    let mut mask = Mask::empty(QUERY_BITS);
    let (bits, pointer) = (mask.bits(), mask.as_mut_ptr());
    let no_address = std::ptr::null::<c_void>();
    // SAFETY: `mode` and the mask are valid for writes of an int and of `bits` bits; no address is
    // asked for.
    checked(unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, pointer, bits, no_address, 0) })?;
    let nodes: NodeSet = mask.to_set();
    match (mode, nodes.first()) {
        (libc::MPOL_DEFAULT, _) => Ok(MemoryBinding::Default),
        (libc::MPOL_PREFERRED, Some(node)) => Ok(MemoryBinding::Preferred(node)),
        (libc::MPOL_BIND, Some(_)) => Ok(MemoryBinding::Bind(nodes)),
        (libc::MPOL_INTERLEAVE, Some(_)) => Ok(MemoryBinding::Interleave(nodes)),
        _ => Err(io::Error::other(format!("memory policy {mode} over nodes `{nodes}` is none that homenode sets"))),
    }
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLocation {
    /// On this node.
    Node(NodeId),
    /// Nowhere yet: not touched, or swapped out.
    Absent,
    /// The kernel does not say: not a mapping of the process, or a page that is shared in a way it
    /// does not follow.
    Unknown,
}

/// Asks where pages of a process are (move_pages(2) without a destination). Process 0 is the
/// caller. `addresses` are any addresses within the pages.
pub fn locate_pages(pid: u32, addresses: &[u64]) -> io::Result<Vec<PageLocation>> {
    let mut status = vec![0i32; addresses.len()];
    let none = std::ptr::null::<libc::c_int>();
    // SAFETY: both arrays hold `addresses.len()` entries (pointers and u64 have the same size on
    // the 64-bit targets that this crate builds for) and live through the call; with no nodes given
    // the kernel moves nothing and writes only `status`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addresses.len(),
            addresses.as_ptr(),
            none,
            status.as_mut_ptr(),
            0,
        )
    };
    checked(result)?;
    let location = |status: i32| match u32::try_from(status) {
        Ok(node) => PageLocation::Node(NodeId(node)),
        Err(_) if status == -libc::ENOENT => PageLocation::Absent,
        Err(_) => PageLocation::Unknown,
    };
    Ok(status.into_iter().map(location).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_a_thread_is_read_back() {
        let node: NodeSet = "0".parse().unwrap();
        let set = |binding: &MemoryBinding| set_thread_memory(binding);
        if let Err(error) = set(&MemoryBinding::Bind(node.clone())) {
            eprintln!("SKIPPED the_policy_of_a_thread_is_read_back: set_mempolicy: {error}");
            return;
        }
        assert_eq!(thread_memory().unwrap(), MemoryBinding::Bind(node.clone()));
        set(&MemoryBinding::Interleave(node.clone())).unwrap();
        assert_eq!(thread_memory().unwrap(), MemoryBinding::Interleave(node));
        set(&MemoryBinding::Default).unwrap();
        assert_eq!(thread_memory().unwrap(), MemoryBinding::Default);
    }

    #[test]
    fn touched_pages_are_found_and_untouched_ones_are_not() {
        let page = 4096;
        let buffer = vec![0u8; 64 * page]; // zeroed by the kernel: no page of it is touched yet, except perhaps the ends
        let base = buffer.as_ptr() as u64;
        let middle = base + 32 * page as u64;
        match locate_pages(0, &[middle]) {
            Ok(_) => {}
            Err(error) => return eprintln!("SKIPPED touched_pages_are_found_and_untouched_ones_are_not: {error}"),
        }
        let mut touched = buffer;
        touched.iter_mut().for_each(|byte| *byte = 1);
        let found = locate_pages(0, &[middle]).unwrap();
        assert!(matches!(found[0], PageLocation::Node(_)), "{found:?}");
    }

    #[test]
    fn memory_is_bound_to_a_node_that_exists_and_not_to_one_that_does_not() {
        let memory = vec![0u8; 1 << 20];
        let start = memory.as_ptr().align_offset(4096);
        let region = &memory[start..start + (1 << 19)];
        if let Err(error) = bind_memory(region, &MemoryBinding::Bind("0".parse().unwrap())) {
            eprintln!("SKIPPED memory_is_bound_to_a_node_that_exists_and_not_to_one_that_does_not: mbind: {error}");
            return;
        }
        assert!(bind_memory(region, &MemoryBinding::Bind("1023".parse().unwrap())).is_err());
    }
}
