//! Open files that one process hands to another over a socket between them (unix(7),
//! `SCM_RIGHTS`).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Room for the header of one descriptor and the descriptor, with what the kernel aligns it to.
const ROOM: usize = 64;

/// A buffer that control messages may lie in: aligned as they are.
#[repr(C, align(8))]
struct Control([u8; ROOM]);

fn header(bytes: &mut libc::iovec, control: &mut Control, length: usize) -> libc::msghdr {
    // SAFETY: a message's header is numbers and pointers, of which each may be zero.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = length as _;
    message
}

/// Writes bytes, and with the first of them a descriptor. Says how many were written: never none.
///
/// # Errors
/// The other end has gone, or the kernel refuses.
pub fn send_descriptor(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut control = Control([0; ROOM]);
    let mut io = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: CMSG_SPACE computes a number.
    let space = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
    let message = header(&mut io, &mut control, space);
    // SAFETY: `control` has room for one header and one descriptor (64 bytes; they take 24), so
    // that CMSG_FIRSTHDR points into it and the writes stay inside.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
    }
    // SAFETY: everything that the message points to lives through the call; the kernel only reads.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    super::checked(sent as libc::c_long).map(|sent| sent as usize)
}

/// Waits for one byte and the descriptor that comes with it; `None` where the other end closed, or
/// sent a byte alone.
///
/// # Errors
/// The socket is broken, or the time that was set for reading is over.
pub fn receive_descriptor(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let (mut control, mut byte) = (Control([0; ROOM]), [0u8; 1]);
    let mut io = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: CMSG_SPACE computes a number. Room for one: the kernel closes what does not fit.
    let space = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
    let mut message = header(&mut io, &mut control, space);
    // SAFETY: everything that the message points to lives through the call and is as long as it
    // says.
    let got = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if super::checked(got as libc::c_long)? == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel wrote the headers; CMSG_FIRSTHDR is null where there is none. A header of
    // this kind and length is followed by one descriptor, which nobody else owns.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        let length = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        if first.is_null() || (*first).cmsg_level != libc::SOL_SOCKET || (*first).cmsg_type != libc::SCM_RIGHTS {
            return Ok(None);
        }
        if (*first).cmsg_len as usize != length {
            return Ok(None);
        }
        Ok(Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned())))
    }
}

/// Lets go of standard input and standard output: what they were is closed where nobody else has
/// it.
pub fn close_standard_streams() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: both are numbers of open descriptors or of none; dup2 touches no memory. Nothing
        // in this program owns the standard streams but the standard library, which uses whatever
        // they are.
        super::checked(libc::c_long::from(unsafe { libc::dup2(null.as_raw_fd(), stream) }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_arrives_with_the_first_byte_and_the_rest_follows() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(send_descriptor(&here, b"x", theirs.as_fd()).unwrap(), 1);
        drop(theirs);
        let mut arrived = UnixStream::from(receive_descriptor(&there).unwrap().unwrap());
        arrived.write_all(b"hello").unwrap();
        drop(arrived);
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        (&here).write_all(b"y").unwrap();
        assert!(receive_descriptor(&there).unwrap().is_none(), "a byte alone");
        drop(here);
        assert!(receive_descriptor(&there).unwrap().is_none(), "the end");
    }
}
