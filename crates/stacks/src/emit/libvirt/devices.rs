//! Devices: those of `homenode run`, and nothing that libvirt adds unasked.

use super::super::common::disk_format;
use super::super::stated::stated;
use super::xml::Element;
use vm::spec::{Card, CardModel, Console, Disk, Network, Outlet, Vhost};
use vm::{Plan, Stated, VmSpec};

/// `iothreads`: how many I/O threads there are for the disks to share.
pub(super) fn devices(spec: &VmSpec, plan: &Plan, iothreads: usize) -> Element {
    let mut elements: Vec<Element> =
        spec.disks.iter().enumerate().map(|(index, disk)| self::disk(spec, index, disk, iothreads)).collect();
    elements.push(Element::new("controller").with("type", "usb").with("model", "none"));
    elements.extend(super::growth::ports(spec, plan));
    elements.extend(spec.networks.iter().enumerate().map(|(index, card)| network(&spec.name, index, card)));
    elements.extend(console(&spec.console, stated(spec)));
    elements.push(Element::new("memballoon").with("model", "none"));
    if spec.most_vcpus() >= super::IOMMU_FROM_VCPUS {
        let driver = Element::new("driver").with("intremap", "on").with("eim", "on");
        elements.push(Element::holding("iommu", [driver]).with("model", "intel"));
    }
    Element::holding("devices", elements)
}

/// Whether libvirt keeps the writes to it in a file of its own. It refuses that for a disk that
/// takes none.
pub(super) fn is_transient(disk: &Disk) -> bool {
    disk.snapshot && !disk.read_only
}

fn disk(spec: &VmSpec, index: usize, disk: &Disk, iothreads: usize) -> Element {
    let format = disk_format(disk.format);
    let driver = Element::new("driver").with("name", "qemu").with("type", format);
    let mut elements = vec![
        driver.with("iothread", index % iothreads.max(1) + 1),
        Element::new("source").with("file", disk.path.display()),
        Element::new("target").with("dev", disk_name(index)).with("bus", "virtio"),
    ];
    if disk.read_only {
        elements.push(Element::new("readonly"));
    }
    if is_transient(disk) {
        elements.push(Element::new("transient"));
    }
    if index == 0 && spec.boot.is_disk() {
        elements.push(Element::new("boot").with("order", 1));
    }
    Element::holding("disk", elements).with("type", "file").with("device", "disk")
}

/// `vda` to `vdz`, `vdaa`, ..., as Linux names them.
fn disk_name(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        letters.push(char::from(b'a' + ((rest - 1) % 26) as u8));
        rest = (rest - 1) / 26;
    }
    letters.push('d');
    letters.push('v');
    letters.iter().rev().collect()
}

/// Nothing boots from the network: without its boot ROM the firmware starts sooner.
fn network(vm: &str, index: usize, network: &Network) -> Element {
    let rom = Element::new("rom").with("enabled", "no");
    match network {
        Network::User { .. } => {
            let model = Element::new("model").with("type", "virtio");
            Element::holding("interface", [model, rom]).with("type", "user")
        }
        Network::Plugged { into, card } => {
            let source = Element::new("source");
            let (kind, source) = match into {
                Outlet::Switch(switch) => ("bridge", source.with("bridge", switch)),
                Outlet::Bridge(bridge) => ("bridge", source.with("bridge", bridge)),
                Outlet::LibvirtNetwork(network) => ("network", source.with("network", network)),
                Outlet::Macvtap(of_host) => ("direct", source.with("dev", of_host).with("mode", "bridge")),
            };
            let mac = card.address(vm, index).to_string().to_lowercase();
            let mut elements =
                vec![Element::new("mac").with("address", mac), source, Element::new("model").with("type", card.model)];
            elements.extend(driver(card));
            elements.push(rom);
            Element::holding("interface", elements).with("type", kind)
        }
    }
}

/// What serves a card, where that is not libvirt's choice.
fn driver(card: &Card) -> Option<Element> {
    let mut driver = Element::new("driver");
    match (card.model, card.vhost) {
        (CardModel::Virtio, Vhost::On) => driver = driver.with("name", "vhost"),
        (CardModel::Virtio, Vhost::Off) => driver = driver.with("name", "qemu"),
        _ if card.queues == 1 => return None,
        _ => {}
    }
    Some(if card.queues > 1 { driver.with("queues", card.queues) } else { driver })
}

/// The serial console: `virsh console` reaches it, and a file gets a copy where the spec says so.
/// Its name has the words for homenode's balancer.
fn console(console: &Console, stated: Option<Stated>) -> [Element; 2] {
    let log = match console {
        Console::Terminal => None,
        Console::File { path } => Some(Element::new("log").with("file", path.display()).with("append", "on")),
    };
    let port = |kind| Element::new("target").with("type", kind).with("port", 0);
    let alias = stated.map(|stated| Element::new("alias").with("name", stated.id(vm::stated::LIBVIRT_MARK)));
    let serial = log.into_iter().chain([port("isa-serial")]).chain(alias);
    [
        Element::holding("serial", serial).with("type", "pty"),
        Element::holding("console", [port("serial")]).with("type", "pty"),
    ]
}

#[cfg(test)]
mod tests {
    use super::disk_name;

    #[test]
    fn disks_are_named_as_linux_names_them() {
        let named = |index| disk_name(index);
        assert_eq!([named(0), named(25), named(26), named(701), named(702)], ["vda", "vdz", "vdaa", "vdzz", "vdaaa"]);
    }
}
