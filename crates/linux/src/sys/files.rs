//! Files that exist only in memory, locks, and waiting for bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use topology::Bytes;

/// A file that lives in memory and ends with its last descriptor (memfd_create(2)), holding
/// `content`. Closed in programs that are started, unless [`super::ChildSetup`] hands it on.
pub fn memory_file(name: &std::ffi::CStr, content: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a C string that lives through the call.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    super::checked(libc::c_long::from(descriptor))?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(content)?;
    Ok(file.into())
}

/// Flag for opening a file: fails where the last part of its name is a link (open(2)).
pub const OPEN_NO_LINK: i32 = libc::O_NOFOLLOW;

/// Flag for opening a file: waits for nobody at the other end of a pipe (open(2)).
pub const OPEN_NO_WAIT: i32 = libc::O_NONBLOCK;

/// Finds a file as a process sees it whose root directory is `root`: links in the path never lead
/// out of that, and `/proc/PID/root` and its like are not followed (`RESOLVE_IN_ROOT` of
/// openat2(2), Linux 5.6). With `at_hand` only what the kernel knows without asking a file system
/// (`RESOLVE_CACHED`, Linux 5.12): no path makes this wait.
///
/// # Errors
/// There is none, or it is not at hand.
pub fn find_in(root: &Path, path: &Path, at_hand: bool) -> io::Result<File> {
    const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
    const RESOLVE_IN_ROOT: u64 = 0x10;
    const RESOLVE_CACHED: u64 = 0x20;
    let root = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
    let resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | if at_hand { RESOLVE_CACHED } else { 0 };
    let how = [(libc::O_PATH | libc::O_CLOEXEC) as u64, 0, resolve];
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a C string and `how` is open_how(2): three numbers of 64 bits, with their
    // size. The kernel reads both.
    let found =
        unsafe { libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), how.as_ptr(), size_of_val(&how)) };
    super::checked(found)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(found as i32) }))
}

/// Opens what was found for reading. A pipe or a device is never opened.
///
/// # Errors
/// It is no regular file, or may not be read.
pub fn open_regular(found: &File) -> io::Result<File> {
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::options().read(true).custom_flags(OPEN_NO_WAIT).open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Major and minor number of a device, from the number that stat(2) gives.
pub fn device_numbers(device: u64) -> (u32, u32) {
    (libc::major(device), libc::minor(device))
}

fn flock(file: &impl AsFd, operation: libc::c_int) -> io::Result<()> {
    // SAFETY: flock takes an open descriptor, which the borrow guarantees, and touches no memory.
    let result = unsafe { libc::flock(file.as_fd().as_raw_fd(), operation) };
    super::checked(libc::c_long::from(result)).map(drop)
}

/// Takes the exclusive lock on an open file or directory (flock(2)); false if somebody has it. It
/// ends when every copy of the descriptor is closed, copies in programs that were started included.
///
/// # Errors
/// Other users may open it, and so hold its lock for ever (see [`crate::lock_file`]).
pub fn try_lock(file: &File) -> io::Result<bool> {
    crate::lock_file::check_lock_is_private(&file.metadata()?)?;
    match flock(file, libc::LOCK_EX | libc::LOCK_NB) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Lets this process have as many files open as it may without asking anybody (the hard limit, and
/// never more than `most`), and says how many that are (setrlimit(2)).
pub fn raise_open_files(most: usize) -> io::Result<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`, which lives through the call.
    super::checked(libc::c_long::from(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }))?;
    let wanted = limit.rlim_max.min(most as libc::rlim_t);
    if wanted > limit.rlim_cur {
        limit.rlim_cur = wanted;
        // SAFETY: the kernel reads one `rlimit`, which lives through the call.
        super::checked(libc::c_long::from(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }))?;
    }
    Ok(limit.rlim_cur as usize)
}

/// A pipe that takes a MiB before whoever writes waits: the end to read from, and the one to write
/// to. Where the user may not have one so wide it is as wide as pipes are.
pub fn wide_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    const WIDE: libc::c_int = 1 << 20;
    let (read, write) = io::pipe()?;
    // SAFETY: fcntl takes numbers here; the descriptor is open.
    let _ = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, WIDE) };
    Ok((read.into(), write.into()))
}

/// Bytes that this process may still write to the file system of a file (fstatvfs(3)): root has
/// more than others.
pub fn free_space(file: &impl AsFd) -> io::Result<Bytes> {
    // SAFETY: statvfs is numbers only, of which each may be zero.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open; the kernel writes one `statvfs`, which lives through the
    // call.
    super::checked(libc::c_long::from(unsafe { libc::fstatvfs(file.as_fd().as_raw_fd(), &raw mut found) }))?;
    let blocks = if super::effective_user_id() == 0 { found.f_bfree } else { found.f_bavail };
    Ok(Bytes(blocks.saturating_mul(found.f_frsize)))
}

/// Waits until a descriptor has bytes to read or is at its end; false when `timeout` passed first.
pub fn wait_readable(file: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: file.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `poll` is one valid entry for the whole call.
    let ready = super::checked(libc::c_long::from(unsafe { libc::poll(&raw mut poll, 1, milliseconds) }))?;
    Ok(ready > 0)
}

/// Writes back to disks all that waits in memory to be written (sync(2)).
pub fn write_back_all() {
    // SAFETY: sync takes no argument, touches no memory of ours and cannot fail.
    unsafe { libc::sync() };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_memory_file_is_read_through_proc() {
        let file = memory_file(c"test", b"inside").unwrap();
        let mut text = String::new();
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }

    #[test]
    fn a_lock_is_held_until_the_last_descriptor_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let first = open();
        assert!(try_lock(&first).unwrap());
        let second = open();
        assert!(!try_lock(&second).unwrap());
        let copy = first.try_clone().unwrap();
        drop(first);
        assert!(!try_lock(&second).unwrap());
        drop(copy);
        assert!(try_lock(&second).unwrap());
    }
}
