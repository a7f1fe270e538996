//! How a guest comes in: a program of homenode's that ssh has started beside the first one gives
//! its connection to the one that waits for it.
//!
//! **Problem.** QEMU is to be given a connected socket, and may open nothing itself; ssh starts a
//! program for each connection, with pipes or with a socket.
//!
//! **Rule.** Who waits listens on a socket in the directory of the VM, which is its owner's alone
//! ([`Door`]); the program that ssh started connects there and gives its own socket away, or one
//! end of a pair whose other end it copies to and from its pipes ([`pass_on`]).

use crate::MigrationError;
use crate::link::Link;
use crate::protocol::{FromDestination, FromSource};
use linux::sys::{receive_descriptor, send_descriptor};
use qemu::RuntimeDir;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use vm::spec::name_problem;

/// How long the program that comes with the guest may take to come.
const COMES: Duration = Duration::from_secs(60);
/// How often is looked for what the other side says.
const LOOK: Duration = Duration::from_millis(5);

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
        while Instant::now() < deadline {
            if let Ok((stream, _)) = self.listener.accept() {
                let take = || {
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(COMES))?;
                    receive_descriptor(&stream)
                };
                let given = take().map_err(MigrationError::io("take the guest's connection"))?;
                if let Some(socket) = given {
                    return Ok((socket, stream));
                }
            }
            link.keep_alive(&FromDestination::Alive)?;
            match link.hear(LOOK)? {
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
    if let Some(problem) = name_problem(vm) {
        return Err(MigrationError::BadInput(format!("--data {vm:?}: {problem}")));
    }
    let path = directory.door(vm);
    let stream = UnixStream::connect(&path).map_err(MigrationError::io(format!("connect to {}", path.display())))?;
    let give = || {
        if is_one_socket(&input, &output)? {
            send_descriptor(&stream, b"x", input.as_fd())?;
            drop((input, output));
            return close();
        }
        let (ours, theirs) = UnixStream::pair()?;
        send_descriptor(&stream, b"x", theirs.as_fd())?;
        drop(theirs);
        carry(ours, input, output)
    };
    give().map_err(MigrationError::io("pass the guest on"))?;
    // Until the other homenode closes it.
    let _ = (&stream).read(&mut [0u8; 1]);
    Ok(())
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
