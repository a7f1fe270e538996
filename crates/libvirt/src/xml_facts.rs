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
        let clusters = first(root, &["cpu", "topology"]).and_then(|node| node.attribute("clusters"));
        Self {
            kernel: text(&["os", "kernel"]).map(PathBuf::from),
            initrd: text(&["os", "initrd"]).map(PathBuf::from),
            command_line: text(&["os", "cmdline"]).unwrap_or_default(),
            uefi,
            disks: of_kind("disk").filter_map(disk).collect(),
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

fn disk(node: Node<'_, '_>) -> Option<Disk> {
    if !matches!(node.attribute("device"), None | Some("disk")) {
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
