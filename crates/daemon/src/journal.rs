//! The actions that a balancer has begun since its state was written: a line of JSON each, written
//! before the action begins.

use crate::record::Followers;
use scheduler::VcpuGroup;
use scheduler::balance::Decision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use topology::CpuSet;

/// An action that begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// The boot of the host.
    pub(crate) boot: String,
    /// CPUs that the client may run on before it; `None` where it binds nothing.
    pub(crate) before: Option<CpuSet>,
    /// Groups of its vCPUs that may use fewer before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) before_groups: Vec<VcpuGroup>,
    /// Threads that go along with a bind, and the CPUs that each may use before it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) followers: Followers,
    /// What, and why.
    pub(crate) decision: Decision,
}

/// Appends a line, in one system call. Nothing is forced to the disk: the kernel keeps it when the
/// process is killed, and bindings do not survive the host either.
pub(crate) fn append(path: &Path, begun: &Begun) -> io::Result<()> {
    let mut line = serde_json::to_vec(begun)?;
    line.push(b'\n');
    linux::named_file::append(path, &crate::saved::believed())?.write_all(&line)
}

/// What was begun in this boot. A line that cannot be understood ends it: that action had not
/// begun.
pub(crate) fn read(path: &Path, boot: &str) -> Vec<Begun> {
    let text = crate::saved::read(path).unwrap_or_default();
    let whole = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let begun = whole.map_while(|line| serde_json::from_slice::<Begun>(line).ok());
    begun.filter(|begun| begun.boot == boot).collect()
}
