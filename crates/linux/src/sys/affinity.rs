//! Which CPUs a thread may run on.

use super::checked;
use super::mask::Mask;
use std::io;
use topology::{CpuId, CpuSet};

/// CPUs that the kernel can number: a query with fewer bits than the kernel has fails.
const QUERY_BITS: usize = 65_536;

/// The CPUs that a thread may run on (sched_getaffinity(2)). Thread 0 is the caller.
pub fn affinity(thread_id: u32) -> io::Result<CpuSet> {
    let mut mask = Mask::empty(QUERY_BITS);
    let (bytes, pointer) = (mask.bytes(), mask.as_mut_ptr());
    // SAFETY: `pointer` is valid for writes of `bytes` bytes, and the kernel writes at most that many.
    checked(unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread_id as libc::pid_t, bytes, pointer) })?;
    Ok(mask.to_set())
}

/// Lets a thread run on `cpus` only (sched_setaffinity(2)). Thread 0 is the caller. The kernel takes away CPUs that the thread's cpuset
/// forbids, silently: read it back with [`affinity`].
pub fn set_affinity(thread_id: u32, cpus: &CpuSet) -> io::Result<()> {
    let mask = Mask::of(cpus);
    // SAFETY: the pointer is valid for reads of `mask.bytes()` bytes, and the kernel only reads them.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread_id as libc::pid_t, mask.bytes(), mask.as_ptr()) };
    checked(result).map(drop)
}

/// The kernel's id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: gettid takes no argument and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// The CPU that the calling thread runs on at this moment.
pub fn current_cpu() -> io::Result<CpuId> {
    // SAFETY: sched_getcpu takes no argument and touches no memory of ours.
    let cpu = checked(libc::c_long::from(unsafe { libc::sched_getcpu() }))?;
    Ok(CpuId(cpu as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_live_thread_is_bound_from_outside_and_read_back() {
        let (tell, told) = mpsc::channel();
        let (release, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            let _ = wait.recv();
            current_cpu().unwrap()
        });
        let tid = told.recv().unwrap();
        let one: CpuSet = affinity(tid).unwrap().first().into_iter().collect();
        set_affinity(tid, &one).unwrap();
        assert_eq!(affinity(tid).unwrap(), one);
        drop(release);
        assert!(one.contains(thread.join().unwrap()));
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        let error = affinity(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        assert_eq!(set_affinity(0, &CpuSet::new()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
