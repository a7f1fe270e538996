//! Asking the monitor of a QEMU that somebody else started, where nobody has it.

use crate::at_home::host_address;
use crate::qmp::Qmp;
use linux::host::{AskMonitor, PluggedMemory};
use scheduler::{RunState, VmKey};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vm::{Manager, Origin};

/// How long a monitor may take for its greeting, and for an answer. One that takes longer is not
/// asked.
const PATIENCE: Duration = Duration::from_millis(500);
/// Sockets that listen, in the flags of `/proc/net/unix` (`__SO_ACCEPTCON`).
const LISTENS: u32 = 0x1_0000;

/// Asks only a monitor of `-qmp unix:PATH,server,nowait` at which nobody is, of a VM that no
/// manager has: QEMU serves one at a time, and a manager expects its monitor for itself. One that
/// does not answer at once, or is another process's, says nothing.
#[derive(Clone, Copy, Debug)]
pub struct FreeMonitors;

impl AskMonitor for FreeMonitors {
    /// `None` also where it names threads that are not the process's.
    fn vcpu_threads(&self, vm: &VmKey) -> Option<BTreeMap<u32, u32>> {
        let said = open(vm.pid)?.vcpu_threads().ok()?;
        let own = linux::process::threads(vm.pid).ok()?;
        let is_own = |thread: u32| own.iter().any(|known| known.id == thread);
        let all_own = !said.is_empty() && said.iter().all(|vcpu| is_own(vcpu.thread_id));
        all_own.then(|| said.iter().map(|vcpu| (vcpu.index, vcpu.thread_id)).collect())
    }

    fn plugged_memory(&self, vm: &VmKey) -> Option<Vec<PluggedMemory>> {
        let mut monitor = open(vm.pid)?;
        let devices = monitor.execute("query-memory-devices", &json!({})).ok()?;
        let mut block = |device: &serde_json::Value| {
            let data = &device["data"];
            let guest = data["addr"].as_u64().or_else(|| data["memaddr"].as_u64())?;
            let virtual_node = u32::try_from(data["node"].as_u64()?).ok()?;
            let address = host_address(&monitor.human(&format!("gpa2hva {guest:#x}")).ok()?)?;
            Some(PluggedMemory { virtual_node, address })
        };
        Some(devices.as_array()?.iter().filter_map(&mut block).collect())
    }

    fn run_state(&self, vm: &VmKey) -> Option<RunState> {
        let status = open(vm.pid)?.execute("query-status", &json!({})).ok()?;
        Some(if status["running"].as_bool()? { RunState::Running } else { RunState::Paused })
    }
}

/// The monitor of a process, where it may be asked.
fn open(pid: u32) -> Option<Qmp> {
    let arguments = linux::process::command_line(pid).ok()?;
    if Origin::parse(&arguments).manager != Manager::Unknown {
        return None;
    }
    let path = monitor_of(&arguments)?;
    let sockets = std::fs::read_to_string("/proc/net/unix").ok()?;
    if !is_free(&sockets, &path) {
        return None;
    }
    let stream = UnixStream::connect(&path).ok()?;
    // Anybody may write the path of somebody else's monitor on a command line.
    if linux::sys::peer_process(&stream).ok()? != pid {
        return None;
    }
    Qmp::handshake_within(&format!("pid {pid}"), stream, PATIENCE, PATIENCE).ok()
}

/// The socket of the first `-qmp unix:PATH,server,nowait`, in each way to write that, with an
/// absolute path.
fn monitor_of(arguments: &[String]) -> Option<PathBuf> {
    let is_qmp = |option: &str| matches!(option, "-qmp" | "--qmp" | "-qmp-pretty" | "--qmp-pretty");
    arguments.windows(2).filter(|pair| is_qmp(&pair[0])).find_map(|pair| {
        let mut parts = pair[1].strip_prefix("unix:")?.split(',');
        let path = Path::new(parts.next()?);
        let rest: Vec<&str> = parts.collect();
        let says = |words: &[&str]| rest.iter().any(|part| words.contains(part));
        // A doubled comma is part of the path: left alone, as is a QEMU that waits for its first
        // visitor.
        let plain = path.is_absolute() && !rest.contains(&"");
        (plain && says(&["server", "server=on"]) && says(&["nowait", "wait=off"])).then(|| path.to_owned())
    })
}

/// Whether somebody listens at `path` and nobody is connected or waits to be, from the text of
/// `/proc/net/unix`: its columns are `Num RefCount Protocol Flags Type St Inode Path`, and the
/// accepted side of a connection has the path too.
fn is_free(sockets: &str, path: &Path) -> bool {
    let of_path = sockets.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, _, flags, _, _, _, name] = columns[..] else { return None };
        (Path::new(name) == path).then(|| u32::from_str_radix(flags, 16).unwrap_or_default())
    });
    let flags: Vec<u32> = of_path.collect();
    matches!(flags[..], [flags] if flags & LISTENS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(arguments: &str) -> Option<PathBuf> {
        monitor_of(&arguments.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn only_a_plain_listening_socket_is_a_monitor_to_ask() {
        let socket = Some(PathBuf::from("/run/a.qmp"));
        assert_eq!(monitor("qemu -qmp unix:/run/a.qmp,server,nowait -S"), socket);
        assert_eq!(monitor("qemu -qmp unix:/run/a.qmp,server=on,wait=off"), socket);
        for other in [
            "qemu -qmp unix:/run/a.qmp,server",
            "qemu -qmp unix:a.qmp,server,nowait",
            "qemu -qmp unix:/run/a,,b,server,nowait",
            "qemu -qmp stdio",
            "qemu -chardev socket,id=m,path=/run/a.qmp,server=on,wait=off -mon chardev=m,mode=control",
        ] {
            assert_eq!(monitor(other), None, "{other}");
        }
    }

    #[test]
    fn a_monitor_is_free_while_nobody_is_connected_to_it() {
        let head = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let listens = "0000000000000000: 00000002 00000000 00010000 0001 01 101 /run/a.qmp\n";
        let has_it = "0000000000000000: 00000003 00000000 00000000 0001 03 102 /run/a.qmp\n";
        let other = "0000000000000000: 00000003 00000000 00000000 0001 03 103 /run/b.qmp\n";
        let path = Path::new("/run/a.qmp");
        assert!(is_free(&format!("{head}{listens}{other}"), path));
        assert!(!is_free(&format!("{head}{listens}{has_it}"), path));
        assert!(!is_free(&format!("{head}{other}"), path));
    }
}
