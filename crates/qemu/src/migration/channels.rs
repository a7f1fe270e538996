//! Connections that a QEMU makes itself, where several carry one guest (multifd).
//!
//! **Problem.** One connection QEMU is given (`fd:`). More than one it makes by itself, to a path
//! or at one; and a QEMU that root starts has a user of its own, who reaches no path in the
//! directory of its VM.
//!
//! **Rule.** In the directory of the VM is one for these connections. QEMU is given it open
//! (`add-fd`), and reaches the socket in it through that: `unix:/proc/self/fd/N/guest`. At the
//! source homenode listens there, and QEMU connects; at the destination QEMU listens, and homenode
//! connects. So nothing listens on a network, and nobody else reaches the socket. It goes once all
//! are connected.
//!
//! **Order.** The first connection is the one for all that is no memory. QEMU before 8.0 knows it
//! by nothing but that; so it is the first at both ends.
//!
//! **Example.** `--connections 3`: QEMU makes 4, the first of them for what is no memory.

use super::{Status, look};
use crate::QemuError;
use crate::qmp::Qmp;
use crate::runtime_dir::{CHANNELS, CHANNELS_SOCKET};
use linux::sys::{connect_at_once, peer};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vm::BackendError;
use vm::backend::ErrorKind;
use vm::sending::Tuning;

/// How long QEMU may take to make all of its connections, to a socket on its own host.
const CONNECTS: Duration = Duration::from_secs(10);
/// How often is looked for the next one.
const LOOK: Duration = Duration::from_millis(1);

/// The directory of a socket, removed with the value.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    open: File,
}

impl Place {
    /// In the directory of a VM, which is its owner's alone. `user`: whom QEMU runs as, where it
    /// makes the socket.
    fn make(of_vm: &Path, user: Option<u32>) -> io::Result<Self> {
        let path = of_vm.join(CHANNELS);
        // What a homenode left that was killed.
        remove(&path)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        let place = Self { open: File::open(&path)?, path };
        // QEMU comes through the descriptor; all others have to pass the VM's own directory.
        std::fs::set_permissions(&place.path, Permissions::from_mode(0o711))?;
        user.map(|user| chown(&place.path, Some(user), None)).transpose()?;
        Ok(place)
    }

    /// Short enough for a socket, wherever the directory is.
    fn socket(&self) -> PathBuf {
        through(self.open.as_raw_fd() as u64)
    }

    /// Gives it to QEMU, which closes it with the connection to its monitor: as what it is to
    /// migrate to or from.
    fn uri(&self, qmp: &mut Qmp) -> Result<String, QemuError> {
        let descriptor = qmp.lend(self.open.as_fd())?;
        Ok(format!("unix:{}", through(descriptor).display()))
    }
}

/// The socket, for the process that has its directory open.
fn through(descriptor: u64) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}/{CHANNELS_SOCKET}"))
}

impl Drop for Place {
    fn drop(&mut self) {
        // What stays is removed with the VM's directory.
        let _ = remove(&self.path);
    }
}

/// Removes a directory of this kind with its socket, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    gone(std::fs::remove_file(path.join(CHANNELS_SOCKET)))?;
    gone(std::fs::remove_dir(path))
}

/// The source's end: QEMU connects.
#[derive(Debug)]
pub(crate) struct Leaving {
    place: Place,
    listener: UnixListener,
}

impl Leaving {
    /// Listens in the directory of a VM.
    pub(crate) fn listen(vm: &str, of_vm: &Path) -> Result<Self, QemuError> {
        let listen = || {
            let place = Place::make(of_vm, None)?;
            let listener = UnixListener::bind(place.socket())?;
            listener.set_nonblocking(true)?;
            std::fs::set_permissions(place.socket(), Permissions::from_mode(0o666))?;
            Ok(Self { place, listener })
        };
        listen().map_err(QemuError::io(vm, "listen for its connections"))
    }

    /// What QEMU is to migrate to.
    pub(super) fn uri(&self, qmp: &mut Qmp) -> Result<String, QemuError> {
        self.place.uri(qmp)
    }

    /// The connections that QEMU has begun to make, the first one first; `None` where it gave up.
    pub(super) fn all(self, qmp: &mut Qmp, tuning: &Tuning) -> Result<Option<Vec<OwnedFd>>, QemuError> {
        let mut all = Vec::new();
        let deadline = Instant::now() + CONNECTS;
        while all.len() < of(tuning) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let blocks = stream.set_nonblocking(false);
                    blocks.map_err(QemuError::io(qmp.vm(), "take its connections"))?;
                    all.push(stream.into());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() > deadline || matches!(look(qmp)?.status, Status::Failed | Status::Cancelled) {
                        return Ok(None);
                    }
                    sleep(LOOK);
                }
                Err(error) => return Err(QemuError::io(qmp.vm(), "take its connections")(error)),
            }
        }
        Ok(Some(all))
    }
}

/// The oldest major version of QEMU's that is sent over several connections.
const OLDEST: u32 = 10;

/// That this QEMU sends a guest over so many connections. 7.2 was seen to stand still for good, and
/// its guest with it, where one of several was cut: `multifd_send_sync_main` waits, with the lock
/// that all of QEMU needs, for a thread that has ended (2 of some 20 cuts on a busy machine). 10.0
/// was not; those between were not tried.
///
/// # Errors
/// It is older.
pub fn check(vm: &str, version: &str, tuning: &Tuning) -> Result<(), BackendError> {
    let major = version.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    if tuning.connections <= 1 || major.is_some_and(|major: u32| major >= OLDEST) {
        return Ok(());
    }
    let problem = format!(
        "--connections {}: VM {vm} is in QEMU {version}. Where one of several connections is cut, an old QEMU may \
        stand still for good, with its guest (seen with 7.2); QEMU {OLDEST} or newer is needed. Leave --connections \
        out",
        tuning.connections
    );
    Err(BackendError::new(ErrorKind::BadInput, problem))
}

/// How many QEMU makes for a guest that goes so.
pub fn of(tuning: &Tuning) -> usize {
    match tuning.connections {
        0 | 1 => 1,
        several => several as usize + 1,
    }
}

/// The destination's end: QEMU listens.
#[derive(Debug)]
pub struct Arriving {
    vm: String,
    place: Place,
    pid: u32,
}

impl Arriving {
    /// Has QEMU listen in the directory of the VM that it is built for. `user`: whom it runs as.
    pub(super) fn listen(qmp: &mut Qmp, (of_vm, pid): (&Path, u32), user: Option<u32>) -> Result<Self, QemuError> {
        let vm = qmp.vm().to_owned();
        let place = Place::make(of_vm, user).map_err(QemuError::io(&vm, "make a directory for its connections"))?;
        let uri = place.uri(qmp)?;
        qmp.execute("migrate-incoming", &serde_json::json!({ "uri": uri }))?;
        Ok(Self { vm, place, pid })
    }

    /// Another connection to QEMU; the first one is for what is no memory.
    ///
    /// # Errors
    /// QEMU does not listen any more, or somebody else does.
    pub fn connect(&self) -> Result<UnixStream, QemuError> {
        let connect = || {
            let stream = connect_at_once(&self.place.socket())?;
            // The directory is QEMU's own.
            match peer(&stream)?.pid == self.pid {
                true => Ok(stream),
                false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "somebody else listens there")),
            }
        };
        connect().map_err(QemuError::io(&self.vm, "connect to its QEMU, which waits for it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QEMU 7.2 stood still for good where one of several connections was cut.
    #[test]
    fn an_old_qemu_sends_over_one_connection() {
        let check = |version, connections| check("web", version, &Tuning { connections, ..Tuning::default() });
        assert!(check("7.2.22 (Debian 1:7.2+dfsg-7)", 1).is_ok());
        for version in ["10.0.2 (Debian 1:10.0.2+ds-2)", "10.0", "11.1.0"] {
            assert!(check(version, 8).is_ok(), "{version}");
        }
        for version in ["7.2.22 (Debian 1:7.2+dfsg-7)", "9.2.0", "(version unknown)", ""] {
            assert!(check(version, 2).is_err_and(|error| error.is_bad_input()), "{version}");
        }
    }
}
