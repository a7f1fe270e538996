//! What a domain's XML says beside NUMA, as far as a VM's spec can say it.

use roxmltree::{Document, Node};
use std::path::PathBuf;
use vm::spec::{Disk, DiskFormat};

/// What it boots, its disks, and how its memory is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kernel: Option<PathBuf>,
    pub(crate) initrd: Option<PathBuf>,
    pub(crate) command_line: String,
    /// Whether UEFI boots its disk: libvirt was told to choose such firmware, or was given flash.
    pub(crate) uefi: bool,
    /// Those that are files or devices of this host, in formats that a spec has.
    pub(crate) disks: Vec<Disk>,
    /// The others, each as `vda (rbd pool/image)`: on a network, in a pool of libvirt's, of another
    /// format.
    pub(crate) other_disks: Vec<String>,
    /// Whether its first disk is one of `disks`.
    pub(crate) boots_listed_disk: bool,
    /// `<memoryBacking><allocation mode='immediate'>`.
    pub(crate) filled_at_start: bool,
    pub(crate) may_grow_in_memory: bool,
    /// Of `<devices>`.
    pub(crate) memory_devices: usize,
    /// Clusters of a die; 1 where nothing is said.
    pub(crate) clusters: u32,
}

impl Facts {
    /// Those of an XML; none where it cannot be read.
    pub(crate) fn of(xml: &str) -> Self {
        let Ok(document) = Document::parse(xml) else { return Self::default() };
        let root = document.root_element();
        let text = |path: &[&str]| {
            first(root, path)
                .and_then(|node| node.text())
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        let devices = first(root, &["devices"]);
        let of_kind = |kind: &'static str| {
            devices
                .into_iter()
                .flat_map(move |devices| devices.children().filter(move |child| child.has_tag_name(kind)))
        };
        let allocation = first(root, &["memoryBacking", "allocation"]);
        let attribute = |path: &[&str], name: &str| first(root, path).and_then(|node| node.attribute(name));
        let uefi =
            attribute(&["os"], "firmware") == Some("efi") || attribute(&["os", "loader"], "type") == Some("pflash");
        let is_disk = |node: &Node<'_, '_>| matches!(node.attribute("device"), None | Some("disk" | "lun"));
        let disks: Vec<(Node<'_, '_>, Option<Disk>)> =
            of_kind("disk").filter(is_disk).map(|node| (node, disk(node))).collect();
        let clusters = first(root, &["cpu", "topology"]).and_then(|node| node.attribute("clusters"));
        Self {
            kernel: text(&["os", "kernel"]).map(PathBuf::from),
            initrd: text(&["os", "initrd"]).map(PathBuf::from),
            command_line: text(&["os", "cmdline"]).unwrap_or_default(),
            uefi,
            boots_listed_disk: disks.first().is_some_and(|(_, disk)| disk.is_some()),
            other_disks: disks.iter().filter(|(_, disk)| disk.is_none()).map(|(node, _)| called(*node)).collect(),
            disks: disks.into_iter().filter_map(|(_, disk)| disk).collect(),
            filled_at_start: allocation.is_some_and(|node| node.attribute("mode") == Some("immediate")),
            may_grow_in_memory: first(root, &["maxMemory"]).is_some(),
            memory_devices: of_kind("memory").count(),
            clusters: clusters.and_then(|text| text.parse().ok()).unwrap_or(1),
        }
    }
}

fn first<'a, 'i>(root: Node<'a, 'i>, path: &[&str]) -> Option<Node<'a, 'i>> {
    path.iter().try_fold(root, |node, name| node.children().find(|child| child.has_tag_name(*name)))
}

/// A disk that a spec has no words for: its place in the guest, and what it is by libvirt's words
/// for sources (formatdomain, "Hard drives, floppy disks, CDROMs").
fn called(node: Node<'_, '_>) -> String {
    let source = first(node, &["source"]);
    let said = |name: &str| source.and_then(|source| source.attribute(name));
    let kind = said("protocol").or(node.attribute("type")).unwrap_or("disk");
    // A pool and a volume of it, else the one word that names the source.
    let named = match (said("pool"), said("volume")) {
        (Some(pool), Some(volume)) => Some(format!("{pool}/{volume}")),
        _ => ["name", "file", "dev", "dir"].into_iter().find_map(said).map(str::to_owned),
    };
    let target = first(node, &["target"]).and_then(|target| target.attribute("dev")).unwrap_or("one");
    match named {
        Some(named) => format!("{target} ({kind} {named})"),
        None => format!("{target} ({kind})"),
    }
}

fn disk(node: Node<'_, '_>) -> Option<Disk> {
    if node.attribute("device") == Some("lun") || node.attribute("type") == Some("network") {
        return None;
    }
    let source = first(node, &["source"])?;
    let path = source.attribute("file").or_else(|| source.attribute("dev"))?;
    let format = match first(node, &["driver"])?.attribute("type")? {
        "qcow2" => DiskFormat::Qcow2,
        "raw" => DiskFormat::Raw,
        _ => return None,
    };
    let has = |name: &str| first(node, &[name]).is_some();
    Some(Disk { path: path.into(), format, snapshot: has("transient"), read_only: has("readonly") })
}
