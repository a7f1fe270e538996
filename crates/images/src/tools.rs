//! The programs that build images and run what is in them.

use crate::ImagesError;
use linux::sys::{ChildSetup, Tie};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Where `mke2fs` is on a distribution whose users do not look there.
const ALSO: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where programs are looked for.
#[derive(Clone, Debug)]
pub struct Tools {
    path: OsString,
}

impl Tools {
    /// Programs of this process's `PATH`, and those of the administrator.
    pub fn of_this_user() -> Self {
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        for directory in ALSO {
            path.push(":");
            path.push(directory);
        }
        Self { path }
    }

    /// Programs of these directories alone, as in `PATH`.
    pub fn at(path: impl Into<OsString>) -> Self {
        Self { path: path.into() }
    }

    /// Fails where a program is not there. `package`: what brings it.
    pub(crate) fn need(&self, program: &'static str, package: &'static str) -> Result<(), ImagesError> {
        let is_there = |directory: std::path::PathBuf| directory.join(program).is_file();
        if std::env::split_paths(&self.path).any(is_there) {
            return Ok(());
        }
        Err(ImagesError::NoTool { program, package })
    }

    /// A command that speaks English and finds its own helpers.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.path).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }

    /// What a program prints that ends soon.
    pub(crate) fn ask(&self, program: &'static str, arguments: &[&str]) -> Result<Output, ImagesError> {
        self.command(program).args(arguments).output().map_err(|source| cannot_start(program, source))
    }

    /// Runs a program that may take long and that the kernel asks to end when this process does.
    /// What it says goes into `log`; whether it did what it should.
    pub(crate) fn work(&self, program: &'static str, arguments: &[OsString], log: &Path) -> Result<bool, ImagesError> {
        let open = || File::options().create(true).append(true).open(log);
        let (output, errors) =
            (|| Ok((open()?, open()?)))().map_err(ImagesError::io(format!("write {}", log.display())))?;
        let mut command = self.command(program);
        command.args(arguments).stdout(output).stderr(errors);
        let setup = ChildSetup { tie: Tie::EndsWithUs, inherited: Vec::new(), cpus: None, user: None };
        let mut child = linux::sys::spawn(command, setup).map_err(|source| cannot_start(program, source))?;
        let status = child.wait().map_err(ImagesError::io(format!("wait for {program}")))?;
        Ok(status.success())
    }
}

fn cannot_start(program: &'static str, source: io::Error) -> ImagesError {
    match source.kind() {
        ErrorKind::NotFound => ImagesError::NoTool { program, package: program },
        _ => ImagesError::Io { action: format!("start {program}"), source },
    }
}
