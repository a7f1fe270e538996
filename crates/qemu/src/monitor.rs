//! Asking the monitor of a QEMU that somebody else started, where nobody has it.
//!
//! Anybody may write any path on a command line, and listen at it in any way. So:
//!
//! - The socket must be one at which somebody listens and nobody is: QEMU serves one visitor at a
//!   time, and who manages the VM may come at any moment.
//! - It must belong to the VM's user, and the process that listens there must be the VM's, run by
//!   that user. Nobody is made to visit the sockets of others. The command lines of homenode's VMs
//!   name none: theirs is the one of that name that they have open, and its file may be root's.
//! - Nothing waits: neither for the file system nor for a place in the queue of the socket; and all
//!   answers together come in the time that [`AskMonitor::ask`] is given.
//! - What it says counts for its own process only: threads of others are not taken for its vCPUs.

use crate::QemuError;
use crate::at_home::host_address;
use crate::qmp::Qmp;
use crate::runtime_dir::MONITOR;
use linux::host::{AskMonitor, Heard, Questions, Said};
use linux::sys::{Peer, SocketFile, peer};
use linux::vm::{PluggedMemory, RunningVm};
use scheduler::RunState;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use topology::Bytes;
use topology::limits::{LONGEST_SOCKET_LIST, MOST_OBJECTS};
use vm::Manager;

/// Sockets that listen, in the flags of `/proc/net/unix` (`__SO_ACCEPTCON`).
const LISTENS: u32 = 0x1_0000;
const ROOT: u32 = 0;
/// So long the list of sockets is believed: to read it can take longer than to ask.
const LIST_IS_NEW: Duration = Duration::from_millis(100);

/// Asks only a monitor at which nobody is.
#[derive(Debug, Default)]
pub struct FreeMonitors {
    sockets: Option<(Instant, Sockets)>,
}

impl AskMonitor for FreeMonitors {
    fn ask(&mut self, vm: &RunningVm, questions: Questions, within: Duration) -> Heard {
        let end = Instant::now() + within;
        let Some(socket) = self.socket_of(vm).filter(|socket| self.is_free(socket)) else { return Heard::Absent };
        let stream = match connect(vm, &socket) {
            Ok(Some(stream)) => stream,
            // As many visitors wait as it takes.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Silent,
            Ok(None) | Err(_) => return Heard::Absent,
        };
        heard(stream, vm, questions, end.saturating_duration_since(Instant::now()))
    }
}

/// What the monitor of a VM says on a connection to it.
pub fn heard(stream: UnixStream, vm: &RunningVm, questions: Questions, within: Duration) -> Heard {
    let said = Qmp::handshake_within(&vm.key.name, stream, within).and_then(|mut qmp| said(&mut qmp, vm, questions));
    match said {
        Ok(said) if said != Said::default() => Heard::Said(said),
        _ => Heard::Silent,
    }
}

impl FreeMonitors {
    /// Where the VM's monitor is: of homenode's VMs the socket of that name that they listen at.
    fn socket_of(&mut self, vm: &RunningVm) -> Option<PathBuf> {
        if vm.monitor.is_some() || vm.origin.manager != Manager::Homenode {
            return vm.monitor.clone();
        }
        let open = std::fs::read_dir(format!("/proc/{}/fd", vm.key.pid)).ok()?;
        let links = open.take(MOST_OBJECTS).filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        let inodes: Vec<u64> = links.filter_map(|link| inode(link.to_str()?)).collect();
        let sockets = self.sockets();
        inodes.iter().filter_map(|inode| sockets.listening.get(inode)).find(|path| path.ends_with(MONITOR)).cloned()
    }

    /// Whether somebody listens at a path, and nobody is there.
    fn is_free(&mut self, path: &Path) -> bool {
        self.sockets().is_free(path)
    }

    fn sockets(&mut self) -> &Sockets {
        if self.sockets.as_ref().is_none_or(|(read, _)| read.elapsed() > LIST_IS_NEW) {
            let mut text = Vec::new();
            let list = std::fs::File::open("/proc/net/unix");
            let read = list.and_then(|list| list.take(LONGEST_SOCKET_LIST).read_to_end(&mut text));
            let sockets = Sockets::parse(if read.is_ok() { &text } else { &[] });
            self.sockets = Some((Instant::now(), sockets));
        }
        &self.sockets.get_or_insert_with(|| (Instant::now(), Sockets::default())).1
    }
}

/// Of a link to an open socket: `socket:[4711]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The sockets of this host that have a path.
#[derive(Debug, Default)]
struct Sockets {
    /// How many there are of each path, and the flags of the last.
    of: HashMap<String, (u32, u32)>,
    /// The paths of those that listen, by inode.
    listening: HashMap<u64, PathBuf>,
}

impl Sockets {
    /// Reads `/proc/net/unix`: its columns are `Num RefCount Protocol Flags Type St Inode Path`,
    /// and the accepted side of a connection has the path too, as has one that waits to be
    /// accepted.
    fn parse(text: &[u8]) -> Self {
        let (mut of, mut listening) = (HashMap::<String, (u32, u32)>::new(), HashMap::new());
        for line in String::from_utf8_lossy(text).lines().skip(1) {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            if let [_, _, _, flags, _, _, inode, path] = columns[..] {
                let flags = u32::from_str_radix(flags, 16).unwrap_or_default();
                let (count, last) = of.entry(path.to_owned()).or_default();
                (*count, *last) = (*count + 1, flags);
                if let (true, Ok(inode)) = (flags & LISTENS != 0, inode.parse()) {
                    listening.insert(inode, PathBuf::from(path));
                }
            }
        }
        Self { of, listening }
    }

    fn is_free(&self, path: &Path) -> bool {
        let of_path = path.to_str().and_then(|path| self.of.get(path));
        of_path.is_some_and(|&(count, flags)| count == 1 && flags & LISTENS != 0)
    }
}

/// A connection to the monitor of a VM; `None` where it is not the VM's.
fn connect(vm: &RunningVm, socket: &Path) -> io::Result<Option<UnixStream>> {
    let Some(uid) = vm.owner_uid else { return Ok(None) };
    let file = SocketFile::find(socket)?;
    let from_homenode = vm.monitor.is_none();
    if file.uid != uid && !(from_homenode && file.uid == ROOT) {
        return Ok(None);
    }
    let stream = file.connect()?;
    Ok((peer(&stream)? == Peer { pid: vm.key.pid, uid }).then_some(stream))
}

/// Its answers. What QEMU refuses to say stays unknown.
fn said(qmp: &mut Qmp, vm: &RunningVm, questions: Questions) -> Result<Said, QemuError> {
    let mut said = Said::default();
    if questions.run_state {
        let status = unless_refused(qmp.execute("query-status", &json!({})))?;
        let running = status.and_then(|status| status["running"].as_bool());
        said.run_state = running.map(|runs| if runs { RunState::Running } else { RunState::Paused });
    }
    if questions.vcpu_threads {
        let threads = unless_refused(qmp.vcpu_threads(vm.key.pid))?.filter(|threads| !threads.is_empty());
        said.vcpu_threads = threads.map(|threads| threads.iter().map(|vcpu| (vcpu.index, vcpu.thread_id)).collect());
    }
    if questions.plugged_memory
        && let Some(devices) = unless_refused(qmp.execute("query-memory-devices", &json!({})))?
    {
        let blocks = devices.as_array().map(Vec::as_slice).unwrap_or_default();
        let blocks = blocks.iter().take(MOST_OBJECTS).map(|device| block(qmp, &device["data"]));
        let blocks: Vec<Option<PluggedMemory>> = blocks.collect::<Result<_, QemuError>>()?;
        said.plugged_memory = Some(blocks.into_iter().flatten().collect());
    }
    Ok(said)
}

/// Where a memory device is in QEMU's address space, and how much of it the guest has: of
/// virtio-mem `size` of `max-size`, of a DIMM all.
fn block(qmp: &mut Qmp, data: &Value) -> Result<Option<PluggedMemory>, QemuError> {
    let guest = data["addr"].as_u64().or_else(|| data["memaddr"].as_u64());
    let virtual_node = data["node"].as_u64().and_then(|node| u32::try_from(node).ok());
    let given = data["size"].as_u64().map(Bytes);
    let (Some(guest), Some(virtual_node), Some(given)) = (guest, virtual_node, given) else { return Ok(None) };
    let size = data["max-size"].as_u64().map_or(given, Bytes);
    let answer = unless_refused(qmp.human(&format!("gpa2hva {guest:#x}")))?;
    let address = answer.and_then(|answer| host_address(&answer));
    // A path in QEMU's tree of objects: `/objects/ID`.
    let backend = data["memdev"].as_str().and_then(|path| path.rsplit_once('/')).map(|(_, id)| id.to_owned());
    Ok(address.map(|address| PluggedMemory { backend, virtual_node, address, size, given }))
}

fn unless_refused<T>(answer: Result<T, QemuError>) -> Result<Option<T>, QemuError> {
    match answer {
        Err(QemuError::Refused { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_is_free_while_nobody_is_connected_to_it() {
        let head = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let listens = "0000000000000000: 00000002 00000000 00010000 0001 01 101 /run/a.qmp\n";
        let has_it = "0000000000000000: 00000003 00000000 00000000 0001 03 102 /run/a.qmp\n";
        let other = "0000000000000000: 00000003 00000000 00000000 0001 03 103 /run/b.qmp\n";
        let is_free = |text: String| Sockets::parse(text.as_bytes()).is_free(Path::new("/run/a.qmp"));
        assert!(is_free(format!("{head}{listens}{other}")));
        assert!(!is_free(format!("{head}{listens}{has_it}")));
        assert!(!is_free(format!("{head}{other}")));
    }
}
