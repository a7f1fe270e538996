//! The order in which libvirt writes elements (formatdomain, `virsh dumpxml`). Any order is valid
//! to its schema; people expect this one.

use super::edit::Step;
use roxmltree::Node;

/// Elements of `<domain>`.
const DOMAIN: &[&str] = &[
    "name",
    "uuid",
    "genid",
    "title",
    "description",
    "metadata",
    "maxMemory",
    "memory",
    "currentMemory",
    "memoryBacking",
    "vcpu",
    "vcpus",
    "iothreads",
    "iothreadids",
    "defaultiothread",
    "cputune",
    "blkiotune",
    "memtune",
    "numatune",
    "resource",
    "sysinfo",
    "bootloader",
    "bootloader_args",
    "os",
    "idmap",
    "features",
    "cpu",
    "clock",
    "on_poweroff",
    "on_reboot",
    "on_crash",
    "on_lockfailure",
    "pm",
    "perf",
    "devices",
    "seclabel",
    "keywrap",
    "launchSecurity",
];
const CPUTUNE: &[&str] = &[
    "shares",
    "period",
    "quota",
    "global_period",
    "global_quota",
    "emulator_period",
    "emulator_quota",
    "iothread_period",
    "iothread_quota",
    "vcpupin",
    "emulatorpin",
    "iothreadpin",
    "vcpusched",
    "iothreadsched",
    "emulatorsched",
    "cachetune",
    "memorytune",
];
const NUMATUNE: &[&str] = &["memory", "memnode"];
const MEMORY_BACKING: &[&str] = &["hugepages", "nosharepages", "locked", "source", "access", "allocation", "discard"];
const CPU: &[&str] = &["model", "vendor", "topology", "cache", "maxphysaddr", "feature", "numa"];
const NUMA: &[&str] = &["cell", "interconnects"];
const CELL: &[&str] = &["distances", "cache"];
const DEVICES: &[&str] = &[
    "emulator",
    "disk",
    "controller",
    "lease",
    "filesystem",
    "interface",
    "smartcard",
    "serial",
    "parallel",
    "console",
    "channel",
    "input",
    "tpm",
    "graphics",
    "sound",
    "audio",
    "video",
    "hostdev",
    "redirdev",
    "redirfilter",
    "hub",
    "watchdog",
    "memballoon",
    "rng",
    "nvram",
    "panic",
    "shmem",
    "memory",
    "iommu",
    "vsock",
    "crypto",
];

fn order_in(parent: &str) -> &'static [&'static str] {
    match parent {
        "domain" => DOMAIN,
        "cputune" => CPUTUNE,
        "numatune" => NUMATUNE,
        "memoryBacking" => MEMORY_BACKING,
        "cpu" => CPU,
        "numa" => NUMA,
        "cell" => CELL,
        "devices" => DEVICES,
        _ => &[],
    }
}

/// The sibling after which a new element goes; none: before all of them.
///
/// That is the last one that libvirt writes before it. One that libvirt does not write has no
/// place, and stays with what is before it.
pub(super) fn place_among<'a, 'i>(parent: Node<'a, 'i>, new: &Step) -> Option<Node<'a, 'i>> {
    let order = order_in(parent.tag_name().name());
    let rank = |name: &str| order.iter().position(|&known| known == name);
    let elements = || parent.children().filter(Node::is_element);
    let Some(own) = rank(&new.element) else {
        // Of unknown order: with those of its name by number, otherwise last.
        return last_below(parent, new).or_else(|| elements().next_back());
    };
    let known =
        |element: &Node<'_, '_>| rank(element.tag_name().name()).filter(|_| element.tag_name().namespace().is_none());
    let mut before = elements().filter(|element| match known(element) {
        Some(rank) if rank == own => number_of(*element, new).is_none_or(|(theirs, own)| theirs <= own),
        Some(rank) => rank < own,
        None => false,
    });
    before.next_back().or_else(|| {
        // All known ones come after it: it goes right before the first of them.
        let first = elements().find(|element| known(element).is_some());
        first.map_or_else(|| elements().next_back(), |first| first.prev_siblings().skip(1).find(Node::is_element))
    })
}

/// Whether the place after this sibling is one by the new one's number, where they have one name.
pub(super) fn is_in_order(before: Node<'_, '_>, new: &Step) -> bool {
    before.tag_name().name() != new.element || number_of(before, new).is_none_or(|(theirs, own)| theirs <= own)
}

fn last_below<'a, 'i>(parent: Node<'a, 'i>, new: &Step) -> Option<Node<'a, 'i>> {
    let same = || parent.children().filter(|child| child.is_element() && child.tag_name().name() == new.element);
    let below = |&child: &Node<'_, '_>| number_of(child, new).is_none_or(|(theirs, own)| theirs <= own);
    same().rfind(below).or_else(|| same().next_back())
}

/// The number in the key of a sibling of the same name, and the new one's own: `vcpu='3'`.
fn number_of(sibling: Node<'_, '_>, new: &Step) -> Option<(u64, u64)> {
    let (key, value) = new.key.as_ref()?;
    Some((sibling.attribute(key.as_str())?.trim().parse().ok()?, value.parse().ok()?))
}
