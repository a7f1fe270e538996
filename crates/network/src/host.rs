//! Cards of VMs in the host's own network: on a bridge that is there, or on a card of the host.
//!
//! **Rule.** QEMU gets an open descriptor, and no right over the network. A tap device on a bridge
//! goes with it. A macvtap device does not: so QEMU also holds a lock on a file of its name, and
//! whoever finds that lock free takes the device away ([`sweep`]).

use crate::NetworkError;
use crate::kernel::{self, Interface};
use linux::sys::{ChildSetup, Tie, receive_descriptor};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vm::Tap;
use vm::spec::{InterfaceName, MacAddress};

/// Where distributions have QEMU's helper.
const HELPERS: [&str; 3] =
    ["/usr/lib/qemu/qemu-bridge-helper", "/usr/libexec/qemu-bridge-helper", "/usr/lib/qemu-bridge-helper"];
/// Begins what our devices say of themselves (their alias): `homenode:VM/CARD`.
const OURS: &str = "homenode:";
/// How long udev may take to make a file of a device.
const DEVICE_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Whose card it is.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The VM.
    pub vm: &'a str,
    /// Which of its cards, from 0.
    pub card: usize,
    /// The address that its guest sees.
    pub mac: MacAddress,
    /// Pairs of queues.
    pub queues: u32,
}

impl Owner<'_> {
    pub(crate) fn port(&self) -> String {
        format!("{}/{}", self.vm, self.card)
    }

    fn alias(&self) -> String {
        format!("{OURS}{}", self.port())
    }
}

/// Who made a tap device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeBy {
    /// This process, which may.
    Us,
    /// QEMU's helper, at that path.
    Helper(&'static str),
}

/// Plugs a card into a bridge of this network namespace.
///
/// # Errors
/// There is no such bridge, or this user may not: neither itself nor by QEMU's helper.
pub fn on_bridge(bridge: &InterfaceName, owner: Owner<'_>) -> Result<(Tap, MadeBy), NetworkError> {
    let found = bridge_of_host(bridge)?;
    match linux::sys::tap("hntap%d", owner.queues) {
        Ok(tap) => {
            let (name, mtu) = (&tap.name, found.mtu);
            // A bridge takes the lowest address of its ports: never that of a VM's tap.
            let address = above_all(owner.mac);
            let (port, alias) = (owner.port(), owner.alias());
            let lines = format!(
                "link set dev {name} alias {alias} address {address} mtu {mtu} addrgenmode none master {bridge} up\n"
            );
            kernel::batch("ip", &lines).map_err(|error| NetworkError::Unplugged { port, why: error.to_string() })?;
            Ok((tap.queues.into(), MadeBy::Us))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => by_helper(bridge, owner),
        Err(source) => Err(NetworkError::no_tap(owner.port(), source)),
    }
}

/// A bridge of the kernel in this network namespace.
pub(crate) fn bridge_of_host(name: &InterfaceName) -> Result<Interface, NetworkError> {
    let mut bridges = kernel::of_kind("bridge")?;
    match bridges.iter().position(|known| known.ifname == name.as_ref()) {
        Some(index) => Ok(bridges.swap_remove(index)),
        None if kernel::is_of_open_vswitch(name.as_ref()) => {
            Err(NetworkError::OpenVswitch { bridge: name.to_string() })
        }
        None => {
            let there: Vec<&str> = bridges.iter().map(|bridge| bridge.ifname.as_str()).collect();
            let name = name.to_string();
            Err(NetworkError::NoSuchInterface { what: "bridge", name, there: or_none(&there) })
        }
    }
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The same address with a first byte that is higher than any vendor's.
pub(crate) fn above_all(mac: MacAddress) -> String {
    format!("fe{}", &mac.to_string()[2..])
}

/// QEMU's helper, where it is installed.
pub(crate) fn helper() -> Option<&'static str> {
    HELPERS.into_iter().find(|path| Path::new(path).exists())
}

/// Asks QEMU's helper, which is root's (setuid) where an administrator lets users plug VMs in.
fn by_helper(bridge: &InterfaceName, owner: Owner<'_>) -> Result<(Tap, MadeBy), NetworkError> {
    let refused = |said: &str| NetworkError::NoBridgeRight {
        port: owner.port(),
        bridge: bridge.to_string(),
        said: said.trim().replace('\n', "; "),
    };
    let Some(helper) = helper() else {
        return Err(refused("there is no qemu-bridge-helper here"));
    };
    if owner.queues > 1 {
        return Err(refused(&format!("{helper} makes one queue, and the card has {}", owner.queues)));
    }
    let told = |error: io::Error| refused(&format!("{helper}: {error}"));
    let (ours, theirs) = UnixStream::pair().map_err(told)?;
    let mut command = Command::new(helper);
    command.args(["--use-vnet", &format!("--br={bridge}"), &format!("--fd={}", theirs.as_raw_fd())]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: vec![theirs.into()], cpus: None, user: None };
    let mut child = linux::sys::spawn(command, setup).map_err(told)?;
    // Its end of the pair closes with it, so this ends.
    let tap = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut said);
    }
    let status = child.wait().map_err(told)?;
    match tap {
        Ok(Some(tap)) if status.success() => Ok((vec![tap].into(), MadeBy::Helper(helper))),
        _ => Err(refused(&format!("{helper} says: {said}"))),
    }
}

/// Plugs a card into a card of the host: a macvtap device on it (mode bridge). VMs on that card
/// and others outside reach each other; the host itself does not reach them over it. `places`: a
/// directory for the locks.
///
/// # Errors
/// There is no such card, or this user may not.
pub fn on_card(places: &Path, card: &InterfaceName, owner: Owner<'_>) -> Result<Tap, NetworkError> {
    let cards = kernel::interfaces()?;
    if !cards.iter().any(|known| known.ifname == card.as_ref()) {
        let there: Vec<&str> = cards.iter().map(|card| card.ifname.as_str()).filter(|name| *name != "lo").collect();
        let name = card.to_string();
        return Err(NetworkError::NoSuchInterface { what: "card", name, there: or_none(&there) });
    }
    let (name, lock) = locked(places, owner)?;
    let made = macvtap(&name, card, owner);
    if made.is_err() {
        // It may not have come to be.
        let _ = take_away(&places.join(&name), &name);
    }
    made.map(|device| Tap { lock: Some(std::sync::Arc::new(lock.into())), ..vec![device].into() })
}

/// A name for a device that no other has, and the lock that says that it is used.
fn locked(places: &Path, owner: Owner<'_>) -> Result<(String, File), NetworkError> {
    let failed = |error: io::Error| NetworkError::NoPlace { place: places.to_owned(), source: error };
    match DirBuilder::new().mode(0o700).create(places) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // Names of the host's interfaces: 15 letters. The number of this process and one more.
    for number in 0..10_000 {
        let name = format!("hm{}-{number}", std::process::id());
        let path = places.join(&name);
        let file = match File::options().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            opened => opened.map_err(failed)?,
        };
        // Whoever sweeps at this moment may take the new file for one of somebody who died.
        let mine = linux::sys::try_lock(&file).map_err(failed)? && is_at(&file, &path);
        if mine {
            return Ok((name, file));
        }
    }
    Err(NetworkError::NoPlace {
        place: places.to_owned(),
        source: io::Error::other(format!("no name is free for a device of {}", owner.port())),
    })
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

fn macvtap(name: &str, card: &InterfaceName, owner: Owner<'_>) -> Result<OwnedFd, NetworkError> {
    let port = owner.port();
    let lines = format!(
        "link add link {card} name {name} address {} type macvtap mode bridge\n\
         link set dev {name} alias {} addrgenmode none up\n",
        owner.mac,
        owner.alias()
    );
    let why = |error: NetworkError| NetworkError::Unplugged { port: port.clone(), why: error.to_string() };
    kernel::batch("ip", &lines).map_err(why)?;
    let device = kernel::interfaces()?.into_iter().find(|known| known.ifname == name);
    let gone = || NetworkError::Unplugged { port: port.clone(), why: format!("{name} has gone again") };
    let path = PathBuf::from(format!("/dev/tap{}", device.ok_or_else(gone)?.ifindex));
    let end = Instant::now() + DEVICE_PATIENCE;
    let opened = loop {
        match File::options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
            opened => break opened,
        }
    };
    let unopened = |error: io::Error| NetworkError::Unplugged {
        port: port.clone(),
        why: format!("{}: {error}. udev makes it, on a host or in a container that has it", path.display()),
    };
    let opened: OwnedFd = opened.map_err(unopened)?.into();
    // Another network namespace may have a device of this number.
    match linux::sys::tap_name(&opened) {
        Ok(seen) if seen == name => Ok(opened),
        Ok(seen) => Err(unopened(io::Error::other(format!("it is of {seen}, in another network namespace")))),
        Err(error) => Err(unopened(error)),
    }
}

/// Takes away the devices whose VM has ended, however it did, and says of which VM they were.
///
/// # Errors
/// This user may not, or the directory cannot be read.
pub fn sweep(places: &Path) -> Result<Vec<String>, NetworkError> {
    let failed = |source: io::Error| NetworkError::NoPlace { place: places.to_owned(), source };
    let entries = match fs::read_dir(places) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut of = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let file = match File::open(entry.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.map_err(failed)?,
        };
        if linux::sys::try_lock(&file).map_err(failed)? && is_at(&file, &entry.path()) {
            of.extend(take_away(&entry.path(), &name)?);
        }
    }
    Ok(of)
}

/// Removes a device of ours, and then its file: who is killed between leaves a file, which the next
/// one removes.
fn take_away(path: &Path, name: &str) -> Result<Option<String>, NetworkError> {
    let ours = |known: &Interface| Some(known.ifalias.as_deref()?.strip_prefix(OURS)?.to_owned());
    let mut of = None;
    // One without a name of a VM was made by somebody who died before he said so.
    if let Some(known) = kernel::of_kind("macvtap")?.iter().find(|known| known.ifname == name) {
        of = Some(ours(known).unwrap_or_else(|| name.to_owned()));
        kernel::batch("ip", &format!("link delete dev {name}\n"))?;
    }
    match fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(NetworkError::NoPlace { place: path.to_owned(), source })
        }
        _ => Ok(of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_has_an_address_above_those_of_real_cards() {
        assert_eq!(above_all("52:54:00:00:00:01".parse().unwrap()), "fe:54:00:00:00:01");
    }

    #[test]
    fn a_file_whose_lock_is_held_is_left_and_one_of_the_dead_goes() {
        let places = std::env::temp_dir().join(format!("homenode-macvtaps-{}", std::process::id()));
        let owner = Owner { vm: "vm", card: 0, mac: MacAddress::of_card("vm", 0), queues: 1 };
        let (name, lock) = locked(&places, owner).unwrap();
        let (other, _lock) = locked(&places, owner).unwrap();
        assert_ne!(name, other);
        assert_eq!(sweep(&places).unwrap(), Vec::<String>::new());
        assert!(places.join(&name).exists(), "it is used");
        drop(lock);
        sweep(&places).unwrap();
        assert!(!places.join(&name).exists() && places.join(&other).exists());
        fs::remove_dir_all(&places).unwrap();
    }
}
