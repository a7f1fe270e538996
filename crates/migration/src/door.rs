//! How a guest comes in: a program of homenode's that ssh has started beside the first one gives
//! its connection to the one that waits for it.
//!
//! **Problem.** QEMU is to be given a connected socket, and may open nothing itself; ssh starts a
//! program for each connection, with pipes or with a socket.
//!
//! **Rule.** Who waits listens on a socket in the directory of the VM, which is its owner's alone
//! ([`Door`]); the program that ssh started connects there and gives its own socket away, or one
//! end of a pair whose other end it copies to and from its pipes ([`pass_on`]). On one host no
//! program is needed: the source itself gives one end of a pair away ([`give_here`]).

use crate::MigrationError;
use crate::link::Link;
use crate::protocol::{FromDestination, FromSource};
use linux::sys::{receive_descriptor, send_descriptor, wait_readable};
use qemu::RuntimeDir;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use vm::spec::name_problem;

/// How long the program that comes with the guest may take to come.
pub(crate) const COMES: Duration = Duration::from_secs(60);
/// How often is looked for what the other side says.
const LOOK: Duration = Duration::from_millis(20);

/// A socket at which the program comes in that comes with the guest.
pub(crate) struct Door {
    path: PathBuf,
    listener: UnixListener,
}

impl Door {
    /// In the directory of the VM, which is its owner's alone.
    pub(crate) fn open(path: PathBuf) -> Result<Self, MigrationError> {
        let open = || {
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = open().map_err(MigrationError::io(format!("listen on {}", path.display())))?;
        Ok(Self { path, listener })
    }

    /// The guest's connection, and the one to the program that carries it, which ends with it.
    pub(crate) fn wait(self, link: &mut Link<FromSource>) -> Result<(OwnedFd, UnixStream), MigrationError> {
        let deadline = Instant::now() + COMES;
        loop {
            let stream = self.next(link, deadline)?;
            let given = receive_descriptor(&stream).map_err(MigrationError::io("take the guest's connection"))?;
            if let Some(socket) = given {
                return Ok((socket, stream));
            }
        }
    }

    /// The next program that comes in, waited for until then.
    pub(crate) fn next(&self, link: &mut Link<FromSource>, deadline: Instant) -> Result<UnixStream, MigrationError> {
        while Instant::now() < deadline {
            wait_readable(&self.listener, LOOK).map_err(MigrationError::io("wait for the guest's connection"))?;
            if let Ok((stream, _)) = self.listener.accept() {
                let ready = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(COMES)));
                return ready.map(|()| stream).map_err(MigrationError::io("take the guest's connection"));
            }
            link.keep_alive(&FromDestination::Alive)?;
            match link.hear(Duration::ZERO)? {
                None | Some(FromSource::Alive) => {}
                Some(FromSource::Never) => return Err(MigrationError::called_off(&link.host)),
                Some(_) => return Err(MigrationError::out_of_turn(&link.host)),
            }
        }
        Err(MigrationError::Link { host: link.host.clone(), because: "no connection brought the guest".to_owned() })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Gives what waits for a guest on this host one end of a pair of sockets; the other is returned.
///
/// # Errors
/// Nobody waits for it.
pub(crate) fn give_here(directory: &RuntimeDir, vm: &str) -> Result<OwnedFd, MigrationError> {
    let (ours, theirs) = UnixStream::pair().map_err(MigrationError::io("make a socket pair"))?;
    // What was given is there for whoever waits, also after this connection is closed.
    give(directory, vm, theirs.as_fd()).map(|_| ours.into())
}

/// Gives a socket to who waits for a guest; returns the connection to it.
fn give(directory: &RuntimeDir, vm: &str, socket: BorrowedFd<'_>) -> Result<UnixStream, MigrationError> {
    let stream = at_door(directory, vm)?;
    send_descriptor(&stream, b"x", socket).map_err(MigrationError::io("pass the guest on"))?;
    Ok(stream)
}

/// `vm receive --data`: gives what comes with the guest to the homenode that waits for it, and
/// stays until that has it all. Where standard input and output are one socket, that is given away;
/// else the bytes are passed on.
///
/// # Errors
/// Nobody waits for it.
pub fn pass_on(
    directory: &RuntimeDir,
    vm: &str,
    input: OwnedFd,
    output: OwnedFd,
    close: impl FnOnce() -> std::io::Result<()>,
) -> Result<(), MigrationError> {
    let failed = || MigrationError::io("pass the guest on");
    let stream = if is_one_socket(&input, &output).map_err(failed())? {
        let stream = give(directory, vm, input.as_fd())?;
        drop((input, output));
        close().map_err(failed())?;
        stream
    } else {
        let (ours, theirs) = UnixStream::pair().map_err(failed())?;
        let stream = give(directory, vm, theirs.as_fd())?;
        drop(theirs);
        carry(ours, input, output).map_err(failed())?;
        stream
    };
    // Until the other homenode closes it.
    let _ = (&stream).read(&mut [0u8; 1]);
    Ok(())
}

/// A connection to the homenode that waits for a VM.
pub(crate) fn at_door(directory: &RuntimeDir, vm: &str) -> Result<UnixStream, MigrationError> {
    if let Some(problem) = name_problem(vm) {
        return Err(MigrationError::BadInput(format!("--data {vm:?}: {problem}")));
    }
    let path = directory.door(vm);
    UnixStream::connect(&path).map_err(MigrationError::io(format!("connect to {}", path.display())))
}

/// Copies between a socket and two pipes until both ways are at their end.
pub(crate) fn carry(mut socket: UnixStream, input: OwnedFd, output: OwnedFd) -> std::io::Result<()> {
    let mut copy = socket.try_clone()?;
    let back = thread::spawn(move || copy_bytes(&mut copy, &mut fs::File::from(output)));
    copy_bytes(&mut fs::File::from(input), &mut socket)?;
    socket.shutdown(std::net::Shutdown::Write)?;
    // Its end is the guest's.
    let _ = back.join();
    Ok(())
}

/// Copies until the end. Not [`std::io::copy`], which splices: sshd was seen to wait for ever in a
/// read of a pipe that had been spliced into, and so passed nothing on.
fn copy_bytes(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut chunk = vec![0u8; 256 << 10];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return to.flush(),
            Ok(count) => to.write_all(&chunk[..count])?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_one_socket(input: &OwnedFd, output: &OwnedFd) -> std::io::Result<bool> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let about = |descriptor: &OwnedFd| descriptor.try_clone().and_then(|copy| fs::File::from(copy).metadata());
    let (input, output) = (about(input)?, about(output)?);
    Ok(input.file_type().is_socket() && (input.dev(), input.ino()) == (output.dev(), output.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    /// It took one more start of homenode, which gave the socket that it was given away.
    #[test]
    fn on_one_host_the_source_itself_brings_the_guest() {
        let place = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::at(place.path().join("run")).unwrap();
        assert!(give_here(&directory, "web").is_err(), "nobody waits for it");
        fs::create_dir_all(directory.door("web").parent().unwrap()).unwrap();
        let door = Door::open(directory.door("web")).unwrap();
        let ours = give_here(&directory, "web").unwrap();
        UnixStream::from(ours).write_all(b"guest").unwrap();
        let (_source, there) = UnixStream::pair().unwrap();
        let mut link = Link::over("a", there.try_clone().unwrap(), there, protocol::from_source);
        let (socket, _) = door.wait(&mut link).unwrap();
        let mut came = String::new();
        UnixStream::from(socket).read_to_string(&mut came).unwrap();
        assert_eq!((came.as_str(), directory.door("web").exists()), ("guest", false));
    }
}
