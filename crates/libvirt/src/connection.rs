//! One libvirt, by its URI.

use crate::LibvirtError;
use std::process::{Command, Stdio};

/// One libvirt, by its URI; without one, what `virsh` takes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    uri: Option<String>,
}

impl Connection {
    /// Nothing is asked before the first call.
    pub fn new(uri: Option<&str>) -> Self {
        Self { uri: uri.map(str::to_owned) }
    }

    /// What `virsh` prints for these arguments.
    ///
    /// # Errors
    /// There is no `virsh`, or it fails.
    pub fn ask(&self, arguments: &[&str]) -> Result<String, LibvirtError> {
        let mut command = Command::new("virsh");
        command.arg("--quiet").env("LC_ALL", "C").stdin(Stdio::null());
        if let Some(uri) = &self.uri {
            command.args(["--connect", uri]);
        }
        let output =
            command.args(arguments).output().map_err(|error| LibvirtError::NoVirsh { reason: error.to_string() })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(LibvirtError::Refused {
            uri: self.uri.clone(),
            operation: arguments.join(" "),
            words: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}
