//! What the first process of a guest must do, and the allocator setting that first-touch placement
//! relies on.

use super::checked;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Mounts a pseudo file system, such as `proc`, on a directory (mount(2)).
pub fn mount(kind: &CStr, on: &CStr) -> io::Result<()> {
    // SAFETY: the three strings are C strings that live through the call, and such file systems
    // take no data.
    let result = unsafe { libc::mount(kind.as_ptr(), on.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    checked(libc::c_long::from(result)).map(drop)
}

/// Loads a kernel module (finit_module(2)); one that is loaded already is no error.
pub fn load_module(module: &File) -> io::Result<()> {
    let parameters = c"";
    // SAFETY: the descriptor is open for the whole call and `parameters` is a C string.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), parameters.as_ptr(), 0) };
    match checked(result) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        result => result.map(drop),
    }
}

/// Writes out file systems and powers the machine off (reboot(2)). Returns only if that is not
/// possible.
pub fn power_off() -> io::Error {
    // SAFETY: neither call touches memory of ours.
    unsafe {
        libc::sync();
        libc::reboot(libc::LINUX_REBOOT_CMD_POWER_OFF);
    }
    io::Error::last_os_error()
}

/// Every allocation of `bytes` or more gets fresh pages of its own and gives them back at once
/// (mallopt(3)). Without it glibc keeps freed memory, whose pages lie where their former user
/// touched them.
pub fn map_allocations_of(bytes: usize) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: mallopt takes two numbers; glibc locks its own state.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_module_is_refused() {
        let program = File::open("/proc/self/exe").unwrap();
        // ENOEXEC as root, EPERM otherwise: never loaded.
        assert!(load_module(&program).is_err());
    }

    #[test]
    fn a_place_that_is_not_there_cannot_be_mounted_on() {
        assert!(mount(c"proc", c"/no/such/directory").is_err());
    }
}
