//! Memory pinned for long, as a device driver pins a guest's: for tests.

use super::checked;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const IO_URING_REGISTER_BUFFERS: libc::c_uint = 0;

/// Pins the pages of `memory` until the result is dropped (io_uring_register(2) pins the buffers
/// that it is given).
pub(crate) fn pin(memory: &[u8]) -> io::Result<OwnedFd> {
    // The kernel's struct io_uring_params: 120 bytes, zeros ask for nothing.
    let mut parameters = [0u64; 15];
    // SAFETY: `parameters` is as large as the kernel's struct and valid for reads and writes.
    let ring = checked(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) })?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    let ring = unsafe { OwnedFd::from_raw_fd(ring as i32) };
    let buffers: Vec<libc::iovec> = memory
        .chunks(1 << 30)
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
        .collect();
    // SAFETY: the kernel reads the iovecs and pins the pages that they name; nothing is ever read
    // or written through the ring.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            IO_URING_REGISTER_BUFFERS,
            buffers.as_ptr(),
            buffers.len(),
        )
    };
    checked(result)?;
    Ok(ring)
}
