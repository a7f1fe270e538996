//! Programs of an image that run on the host: the same bytes as in a guest, without the guest.
//!
//! **Rule.** `bubblewrap` gives them a mount namespace (where there is no root, in a user
//! namespace) whose root is the image's tree, read-only. The host's `/proc`, `/sys` and devices are
//! there, since a program that is measured looks at the machine; `/tmp`, `/run` and `/dev/shm` are
//! new and empty, and go with the program. CPUs, memory policy and cgroup stay the caller's.

use crate::{Image, ImagesError, Tools};
use linux::GUEST_ENVIRONMENT;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

impl Image {
    /// A command that runs `arguments` in this image, on the host. `bound`: files of the host and
    /// where they are seen in there, read-only. It ends with whoever starts it.
    ///
    /// # Errors
    /// `bubblewrap` is not installed.
    pub fn native(
        &self,
        tools: &Tools,
        bound: &[(PathBuf, PathBuf)],
        arguments: &[OsString],
    ) -> Result<Command, ImagesError> {
        tools.need("bwrap", "bubblewrap")?;
        let mut command = tools.command("bwrap");
        command.arg("--die-with-parent").arg("--ro-bind").arg(self.tree()).arg("/");
        for (at, arguments) in
            [("/dev", ["--dev-bind", "/dev"]), ("/proc", ["--bind", "/proc"]), ("/sys", ["--ro-bind", "/sys"])]
        {
            command.args(arguments).arg(at);
        }
        for new in ["/tmp", "/run", "/dev/shm"] {
            command.arg("--tmpfs").arg(new);
        }
        for (from, to) in bound {
            command.arg("--ro-bind").arg(from).arg(to);
        }
        command.args(["--dir", "/run/work", "--chdir", "/run/work", "--clearenv"]);
        for (name, value) in GUEST_ENVIRONMENT {
            command.args(["--setenv", name, value]);
        }
        command.arg("--").args(arguments);
        Ok(command)
    }
}
