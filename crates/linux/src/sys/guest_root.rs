//! What the first process of a guest does to go on in a root file system on a disk, and for the
//! programs that run there.

use super::checked;
use std::ffi::{CStr, CString};
use std::io;

/// Mounts the ext4 file system of a disk on a directory.
///
/// # Errors
/// It has none, or this kernel knows no ext4.
pub fn mount_disk(device: &CStr, on: &CStr) -> io::Result<()> {
    mount(device, on, c"ext4", 0)
}

/// Shows what is in one directory in another one too.
///
/// # Errors
/// One of them is not there.
pub fn show_directory(from: &CStr, on: &CStr) -> io::Result<()> {
    mount(from, on, c"", libc::MS_BIND)
}

/// Makes the file system that is mounted on `directory` the root of this process and of all that
/// it starts. What is mounted on `moved`, names below the root, comes along.
///
/// # Errors
/// `directory` is no mount, or lacks one of the directories `moved`.
pub fn go_to_root(directory: &CStr, moved: &[&str]) -> io::Result<()> {
    for name in moved {
        let from = CString::new(format!("/{name}"))?;
        let onto = CString::new(format!("{}/{name}", directory.to_string_lossy()))?;
        mount(&from, &onto, c"", libc::MS_MOVE)?;
    }
    std::env::set_current_dir(std::path::Path::new(&*directory.to_string_lossy()))?;
    mount(c".", c"/", c"", libc::MS_MOVE)?;
    // SAFETY: the argument is a C string that lives through the call.
    checked(libc::c_long::from(unsafe { libc::chroot(c".".as_ptr()) }))?;
    std::env::set_current_dir("/")
}

fn mount(source: &CStr, on: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the three strings are C strings that live through the call, and no data is given.
    let result = unsafe { libc::mount(source.as_ptr(), on.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    checked(libc::c_long::from(result)).map(drop)
}

/// Gives this machine its name (sethostname(2)).
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the name has.
    let result = unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) };
    checked(libc::c_long::from(result)).map(drop)
}

/// Asks all processes but this one to end, if it is process 1; for any other process it does
/// nothing.
pub fn ask_all_to_end() {
    if std::process::id() == 1 {
        // SAFETY: kill takes two numbers. Nobody may be there: then nothing is to be done.
        let _ = unsafe { libc::kill(-1, libc::SIGTERM) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disk_is_not_mounted() {
        assert!(mount_disk(c"/dev/null", c"/no/such/directory").is_err());
    }

    #[test]
    fn a_directory_that_is_not_there_is_no_root() {
        assert!(go_to_root(c"/no/such/directory", &[]).is_err());
    }
}
