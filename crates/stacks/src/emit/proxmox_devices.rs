//! Disks, networks and the console of a Proxmox VM.

use super::common::{CardWord, cards_as_usual, disk_format, path, switch_of_ours};
use super::{Emission, EmitError, Loss};
use topology::words::quoted;
use vm::spec::{Console, Disk, Firmware, MacAddress, Network, Outlet};

/// qemu-server's `$MAX_VIRTIO_DISKS` and `$MAX_NETS`.
const MOST_DISKS: usize = 16;
const MOST_NETWORKS: usize = 32;

/// What the devices add to the text.
#[derive(Default)]
pub(super) struct Devices {
    /// Lines of the configuration.
    pub(super) lines: Vec<String>,
    /// Sentences for the comments: commands to run by hand.
    pub(super) usage: Vec<String>,
    pub(super) losses: Vec<Loss>,
}

/// The devices of a VM.
///
/// # Errors
/// Too many, or a path that Proxmox's options cannot hold.
pub(super) fn devices(emission: &Emission<'_>) -> Result<Devices, EmitError> {
    let spec = emission.spec;
    if spec.disks.len() > MOST_DISKS {
        return Err(EmitError(format!(
            "disk: {} disks, but Proxmox takes at most {MOST_DISKS} virtio disks",
            spec.disks.len()
        )));
    }
    if spec.networks.len() > MOST_NETWORKS {
        let count = spec.networks.len();
        return Err(EmitError(format!("network: {count} cards, but Proxmox takes at most {MOST_NETWORKS}")));
    }
    let mut devices = Devices::default();
    if spec.boot.is_disk() {
        devices.lines.push("boot: order=virtio0".to_owned());
    }
    if spec.boot.firmware() == Firmware::Uefi {
        add_firmware(&mut devices);
    }
    for (index, disk) in spec.disks.iter().enumerate() {
        add_disk(&mut devices, index, disk)?;
    }
    devices.losses.extend(cards_as_usual("Proxmox", &spec.networks, &[CardWord::Vhost]));
    for (index, network) in spec.networks.iter().enumerate() {
        devices.lines.push(card(&spec.name, index, network));
        devices.losses.extend(unknown_to_it(network));
        let forward = network.forwards();
        if !forward.is_empty() {
            let ports: Vec<String> = forward.iter().map(|port| port.host.to_string()).collect();
            devices.losses.push(Loss::new(
                format!("Proxmox's network without a bridge forwards no port (network[{index}].forward)."),
                format!(
                    "Nothing listens on port {} of the host: add `bridge=vmbr0` to net{index}, and reach the guest \
                    by its own address.",
                    ports.join(", ")
                ),
            ));
        }
    }
    devices.lines.extend(["serial0: socket", "vga: serial0"].map(str::to_owned));
    if let Console::File { path: log } = &spec.console {
        devices.losses.push(Loss::new(
            format!(
                "Proxmox's serial console is a socket, not the file {} (console.path).",
                path("console.path", log)?
            ),
            "Nothing is written to that file: `qm terminal ID` shows the console.",
        ));
    }
    Ok(devices)
}

/// The disk of the variables is a volume too, which Proxmox makes of its own template.
fn add_firmware(devices: &mut Devices) {
    devices.lines.push("bios: ovmf".to_owned());
    devices.usage.push(
        "Make the disk of UEFI's variables (STORAGE is a name of yours): qm set ID --efidisk0 \
         STORAGE:1,efitype=4m,pre-enrolled-keys=0"
            .to_owned(),
    );
    devices.losses.push(Loss::new(
        "A Proxmox configuration names volumes of a storage, and UEFI's variables are one.",
        "Until the `qm set` above has made it, what the guest tells its firmware is lost when the VM ends.",
    ));
}

fn card(vm: &str, index: usize, network: &Network) -> String {
    let own = MacAddress::of_card(vm, index);
    match network {
        Network::User { .. } => format!("net{index}: virtio={own}"),
        Network::Plugged { into, card } => {
            let queues = if card.queues > 1 { format!(",queues={}", card.queues) } else { String::new() };
            let bridge = match into {
                Outlet::Switch(switch) => format!(",bridge={switch}"),
                Outlet::Bridge(bridge) => format!(",bridge={bridge}"),
                Outlet::LibvirtNetwork(_) | Outlet::Macvtap(_) => ",bridge=vmbr0".to_owned(),
            };
            format!("net{index}: {}={}{bridge}{queues}", card.model, card.address(vm, index))
        }
    }
}

fn unknown_to_it(network: &Network) -> Option<Loss> {
    let Network::Plugged { into, .. } = network else { return None };
    match into {
        Outlet::Bridge(_) => None,
        Outlet::Switch(switch) => Some(switch_of_ours("Proxmox", switch)),
        Outlet::LibvirtNetwork(network) => Some(Loss::new(
            format!("Proxmox has no networks of libvirt ({network})."),
            "The card is on the bridge vmbr0, which Proxmox's installer made; write another one there.",
        )),
        Outlet::Macvtap(card) => Some(Loss::new(
            format!("Proxmox makes no macvtap device on a card of the host ({card})."),
            "The card is on the bridge vmbr0, which Proxmox's installer made: see that it has that card as a port.",
        )),
    }
}

/// A block device is used where it is; a file must be imported into a storage, since a
/// configuration names volumes, not files.
fn add_disk(devices: &mut Devices, index: usize, disk: &Disk) -> Result<(), EmitError> {
    let field = format!("disk[{index}].path");
    let file = path(&field, &disk.path)?;
    if file.contains(',') {
        return Err(EmitError(format!(
            "{field} = {file:?}: in Proxmox's options a comma ends a value: rename the file"
        )));
    }
    let mut flags = String::new();
    if disk.snapshot {
        flags += ",snapshot=1";
    }
    if disk.read_only {
        flags += ",ro=1";
    }
    if file.starts_with("/dev/") {
        let format = disk_format(disk.format);
        devices.lines.push(format!("virtio{index}: {file},format={format}{flags}"));
        return Ok(());
    }
    let value = quoted(&format!("STORAGE:0,import-from={file}{flags}"));
    devices.usage.push(format!("Import disk {index} (STORAGE is a name of yours): qm set ID --virtio{index} {value}"));
    devices.losses.push(Loss::new(
        format!("A Proxmox configuration names volumes of a storage, not files such as {file} (disk[{index}].path)."),
        "The VM has no such disk until the `qm set` above has copied it; what the VM writes then is not in that file.",
    ));
    Ok(())
}
