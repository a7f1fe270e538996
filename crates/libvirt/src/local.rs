//! Which libvirt of this host has a process, proven by what the process's user cannot write.
//!
//! Anybody can start a program that is called QEMU, with the UUID of somebody else's domain on its
//! command line and a file open that looks like libvirt's. Whoever then asks libvirt to bind "the
//! VM with this UUID" moves somebody else's VM; whoever takes a socket's path from such a process
//! talks to a stranger's program.
//!
//! So a process is a domain's only where both hold:
//! 1. The libvirt's file `NAME.pid` holds its number; NAME is the name on its command line. None of
//!    the directories above that file is a link, and nobody but root and libvirt's user may write
//!    in them.
//! 2. That libvirt, asked for the UUID on the command line, answers with the same NAME
//!    ([`crate::affinity`] asks).
//!
//! The first ties the number to a name, the second the name to the UUID by which vCPUs are then
//! bound. A process chooses neither. Its descriptors, its user and whatever else it says prove
//! nothing, and what cannot be read is a no. A QEMU of libvirt's that was taken over could write
//! its own `NAME.pid`: it can so have its own domain bound, and no other.
//!
//! Only two libvirts are asked: the system's, and this user's own unless he is root. So no `virsh`
//! of root's talks to a socket of another user, and no user's silent libvirt makes others wait.
//!
//! Example: process 812 says `-name guest=web -uuid U`. `/run/libvirt/qemu/web.pid` holds `812`,
//! and `virsh domname U` says `web`: it is bound through `qemu:///system`. Process 999 of another
//! user says the same: `web.pid` does not hold `999`, and libvirt is not even asked.

use linux::sys::effective_user_id;
use linux::vm::RunningVm;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use topology::input;

/// Longest file `NAME.pid`: a number and the end of its line.
const LONGEST_PID_FILE: u64 = 32;

/// A libvirt of this host, and where it writes the numbers of its domains' processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalLibvirt {
    /// For `virsh --connect`.
    pub uri: String,
    /// The directory with a file `NAME.pid` for each domain that runs.
    pub pid_files: PathBuf,
    /// The user that it runs as.
    pub user: u32,
}

/// Why a process is not taken for a libvirt's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotItsProcess {
    #[error("{0} is no name of a domain")]
    Name(String),
    #[error("{file}: {source}")]
    Unreadable { file: String, source: io::Error },
    #[error("{file}: others may write there, or a part of the path is a link")]
    Shared { file: String },
    #[error("{file} holds another process's number")]
    Other { file: String },
}

impl LocalLibvirt {
    /// Those that are asked without being named: the system's, and this user's own where
    /// `XDG_RUNTIME_DIR` says where that is. As root, only the system's.
    pub fn of_this_user() -> Vec<Self> {
        let user = effective_user_id();
        let of = |uri: &str, pid_files: PathBuf, user| Self { uri: uri.to_owned(), pid_files, user };
        let system = of("qemu:///system", "/run/libvirt/qemu".into(), 0);
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| user != 0);
        let own = runtime.map(|runtime| of("qemu:///session", Path::new(&runtime).join("libvirt/qemu/run"), user));
        std::iter::once(system).chain(own).collect()
    }

    /// The first half of the proof: its file for the name that a VM goes by holds the VM's number.
    pub(crate) fn has(&self, vm: &RunningVm) -> Result<(), NotItsProcess> {
        let name = &vm.key.name;
        if name.contains('/') {
            return Err(NotItsProcess::Name(input::excerpt(name)));
        }
        let path = self.pid_files.join(format!("{name}.pid"));
        let file = || input::excerpt(&path.to_string_lossy());
        let unreadable = |source| NotItsProcess::Unreadable { file: file(), source };
        if !is_closed_to_others(&self.pid_files, self.user).map_err(unreadable)? {
            return Err(NotItsProcess::Shared { file: file() });
        }
        let text = input::text(&path, LONGEST_PID_FILE).map_err(unreadable)?;
        let is_its = text.trim().parse() == Ok(vm.key.pid);
        is_its.then_some(()).ok_or_else(|| NotItsProcess::Other { file: file() })
    }
}

/// Whether only root and this user can have put something into a directory, or have put another
/// directory in its place or in that of one above it.
fn is_closed_to_others(directory: &Path, user: u32) -> io::Result<bool> {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    /// Whoever may write to such a directory can still not rename what is another's there.
    const STICKY: u32 = 0o1000;
    for part in directory.ancestors() {
        let seen = part.symlink_metadata()?;
        let kept = seen.mode() & OTHERS_MAY_WRITE == 0 || (part != directory && seen.mode() & STICKY != 0);
        if !seen.is_dir() || ![0, user].contains(&seen.uid()) || !kept {
            return Ok(false);
        }
    }
    Ok(directory.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::VmKey;
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn vm(name: &str, pid: u32) -> RunningVm {
        RunningVm { key: VmKey { name: name.to_owned(), pid, started: 1 }, ..RunningVm::default() }
    }

    /// A libvirt whose files are in `run`, in a directory of the test's own.
    fn libvirt(directory: &Path) -> LocalLibvirt {
        let pid_files = directory.canonicalize().unwrap().join("run");
        LocalLibvirt { uri: "test:///default".to_owned(), pid_files, user: effective_user_id() }
    }

    #[test]
    fn a_number_is_believed_where_nobody_else_can_have_written_it() {
        let directory = tempfile::tempdir().unwrap();
        let libvirt = libvirt(directory.path());
        create_dir(&libvirt.pid_files).unwrap();
        let mode = |mode| set_permissions(&libvirt.pid_files, Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        write(libvirt.pid_files.join("web.pid"), "812\n").unwrap();
        libvirt.has(&vm("web", 812)).unwrap();
        let refused = |name: &str, pid: u32| libvirt.has(&vm(name, pid)).unwrap_err().to_string();
        assert!(refused("web", 81).ends_with("web.pid holds another process's number"));
        assert!(refused("db", 812).contains("No such file"));
        assert!(refused("../run/web", 812).contains("no name of a domain"));
        assert!(!refused("w\x1b]0;b", 812).contains('\x1b'));
        write(libvirt.pid_files.join("long.pid"), "8".repeat(40)).unwrap();
        assert!(refused("long", 812).contains("more than 32 B"));
        for open in [0o775, 0o757, 0o1777] {
            mode(open);
            assert!(refused("web", 812).contains("others may write there"), "{open:o}");
        }
    }

    #[test]
    fn no_part_of_the_path_is_a_link_or_another_users() {
        let directory = tempfile::tempdir().unwrap();
        let libvirt = libvirt(directory.path());
        let elsewhere = directory.path().join("elsewhere");
        create_dir(&elsewhere).unwrap();
        write(elsewhere.join("web.pid"), "812").unwrap();
        symlink(&elsewhere, &libvirt.pid_files).unwrap();
        assert!(libvirt.has(&vm("web", 812)).unwrap_err().to_string().contains("is a link"));
        let another = LocalLibvirt { pid_files: elsewhere.canonicalize().unwrap(), user: 65_533, ..libvirt };
        // Root's files are believed of every libvirt.
        assert_eq!(another.has(&vm("web", 812)).is_ok(), effective_user_id() == 0);
    }

    #[test]
    fn root_asks_the_system_alone() {
        let asked = LocalLibvirt::of_this_user();
        assert_eq!((asked[0].uri.as_str(), asked[0].user), ("qemu:///system", 0));
        assert!(asked[1..].iter().all(|own| own.uri == "qemu:///session" && own.user == effective_user_id()));
        assert!(effective_user_id() != 0 || asked.len() == 1);
    }
}
