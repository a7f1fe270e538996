//! Sockets that somebody else may own: nothing here ever waits.

use super::checked;
use std::fs::File;
use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Who listens at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process, as this one sees it; 0 where it does not.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// The process at the other end of a connection to a socket of the file system: the one that
/// listens there (`SO_PEERCRED`, unix(7)), and its user when it began to.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the descriptor is open; the kernel writes at most `length` bytes to `peer`, which is
    // so long, and then how many.
    let result =
        unsafe { libc::getsockopt(stream.as_raw_fd(), level, option, (&raw mut peer).cast(), &raw mut length) };
    checked(libc::c_long::from(result))?;
    Ok(Peer { pid: peer.pid as u32, uid: peer.uid })
}

/// Connects to a socket of the file system, or says at once why not: `WouldBlock` where as many
/// wait already as the other takes. UnixStream::connect would wait for that for ever.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    // SAFETY: socket takes three numbers and touches no memory.
    let descriptor =
        unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    checked(libc::c_long::from(descriptor))?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    let stream = unsafe { UnixStream::from_raw_fd(descriptor) };
    // SAFETY: the address of a socket is numbers only, of which each may be zero.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays zero. A path that begins with zero would be no file.
    if bytes.len() >= address.sun_path.len() || bytes.is_empty() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "its path is too long for a socket, or empty"));
    }
    address.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
    let length = (offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1) as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel reads `length` bytes of `address`, which has as
    // many.
    let result = unsafe { libc::connect(descriptor, (&raw const address).cast(), length) };
    checked(libc::c_long::from(result)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(error.kind(), "it does not answer, and others wait for it already"),
        _ => error,
    })?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A socket in the file system, held: another file that gets its name is not it.
#[derive(Debug)]
pub struct SocketFile {
    file: File,
    /// The user that the file belongs to.
    pub uid: u32,
}

impl SocketFile {
    /// The socket at a path, links in the path followed.
    ///
    /// Only what the kernel has at hand is found (`RESOLVE_CACHED` of openat2(2)), as it has all of
    /// the path of a socket at which somebody listens: no path makes this wait for a file system
    /// that does not answer. `/proc/PID/root` and its like are not followed.
    ///
    /// # Errors
    /// It is no socket, or not at hand.
    pub fn find(path: &Path) -> io::Result<Self> {
        let how = [(libc::O_PATH | libc::O_CLOEXEC) as u64, 0, RESOLVE_CACHED | RESOLVE_NO_MAGICLINKS];
        let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        // A directory that changes meanwhile is reason enough for the kernel to say no.
        let open = || {
            // SAFETY: `path` is a C string and `how` is open_how(2): three numbers of 64 bits, with
            // their size. The kernel reads both.
            let opened = unsafe {
                libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), how.as_ptr(), size_of_val(&how))
            };
            checked(opened)
        };
        let descriptor = open().or_else(|_| open()).or_else(|_| open())?;
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) });
        let metadata = file.metadata()?;
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket"));
        }
        Ok(Self { uid: metadata.uid(), file })
    }

    /// Connects to it, as [`connect_at_once`].
    pub fn connect(&self) -> io::Result<UnixStream> {
        connect_at_once(Path::new(&format!("/proc/self/fd/{}", self.file.as_raw_fd())))
    }
}

/// Flags of openat2(2).
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_CACHED: u64 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_at_which_too_many_wait_says_so_at_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        assert_eq!(connect_at_once(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: the descriptor is open, and the call touches no memory.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let first = connect_at_once(&path).unwrap();
        assert_eq!(peer(&first).unwrap(), Peer { pid: std::process::id(), uid: super::super::effective_user_id() });
        assert_eq!(connect_at_once(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(SocketFile::find(&path).unwrap().connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn only_a_socket_is_found_links_in_its_path_followed() {
        let place = tempfile::tempdir().unwrap();
        let (path, link) = (place.path().join("socket"), place.path().join("link"));
        let _listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        for path in [path.clone(), link.join("socket")] {
            let found = SocketFile::find(&path).unwrap();
            assert_eq!(found.uid, super::super::effective_user_id());
            found.connect().unwrap();
        }
        let around = Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap());
        for other in [place.path().to_owned(), place.path().join("none"), around] {
            assert!(SocketFile::find(&other).is_err(), "{}", other.display());
        }
        let long = place.path().join("x".repeat(120));
        assert_eq!(connect_at_once(&long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
