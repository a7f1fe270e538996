//! The agent's virtio-serial port in a guest.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use workloads::protocol::PORT_NAME;

/// How long the driver of a console device that is there may take to announce its ports. A large
/// guest under TCG is slow.
const PORTS_WITHIN: Duration = Duration::from_secs(20);
/// virtio's number for a console device (virtio 1.2, section 5).
const CONSOLE_DEVICE: &str = "0x0003";

/// The port's device file. `None` if this machine has no such port.
pub(crate) fn find() -> Option<PathBuf> {
    let deadline = Instant::now() + PORTS_WITHIN;
    loop {
        if let Some(port) = named_port(Path::new("/sys/class/virtio-ports")) {
            return Some(port);
        }
        if !has_console_device(Path::new("/sys/bus/virtio/devices")) || Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn named_port(class: &Path) -> Option<PathBuf> {
    let mut ports = std::fs::read_dir(class).ok()?.flatten();
    let port =
        ports.find(|port| std::fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == PORT_NAME));
    port.map(|port| Path::new("/dev").join(port.file_name()))
}

fn has_console_device(devices: &Path) -> bool {
    let is_console =
        |path: PathBuf| std::fs::read_to_string(path.join("device")).is_ok_and(|kind| kind.trim() == CONSOLE_DEVICE);
    std::fs::read_dir(devices).is_ok_and(|devices| devices.flatten().any(|device| is_console(device.path())))
}

/// The two directions of an open port. A write waits until somebody has opened the host's end, and
/// from then on a read that returns nothing means that the host's end is closed
/// (drivers/char/virtio_console.c): greet first, then read.
pub(crate) fn open(path: &Path) -> std::io::Result<(File, File)> {
    let port = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((port.try_clone()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let class = directory.path().join("ports");
        for (port, name) in [("vport0p1", "org.qemu.guest_agent.0"), ("vport0p2", "org.homenode.agent")] {
            std::fs::create_dir_all(class.join(port)).unwrap();
            std::fs::write(class.join(port).join("name"), format!("{name}\n")).unwrap();
        }
        assert_eq!(named_port(&class), Some(PathBuf::from("/dev/vport0p2")));
        std::fs::remove_dir_all(&class).unwrap();
        assert_eq!(named_port(&class), None);
    }
}
