//! What is plugged into a domain that runs, as libvirt says it.

use crate::Connection;
use crate::xml::{amount, child, children, tree};
use roxmltree::Node;
use std::fmt::Write;
use topology::{Bytes, NodeSet};
use vm::{Added, BackendError, MemoryDevice, MemoryDeviceKind, VirtualTopology};

/// What is there of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    /// vCPUs that are there, in the order in which they came.
    pub(super) vcpus: Vec<u32>,
    /// vCPUs that it may have.
    pub(super) most_vcpus: u32,
    /// Whether memory can be plugged in.
    pub(super) has_max_memory: bool,
    /// Memory devices, in libvirt's order.
    pub(super) devices: Vec<Device>,
}

/// A memory device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) alias: String,
    pub(super) node: u32,
    pub(super) kind: MemoryDeviceKind,
    pub(super) size: Bytes,
    pub(super) requested: Bytes,
    /// What the guest has of it.
    pub(super) taken: Bytes,
    pub(super) bound_to: NodeSet,
}

impl Live {
    pub(super) fn of(connection: &Connection, uuid: &str, vm: &str) -> Result<Self, BackendError> {
        Self::read(&connection.domain_xml(uuid)?, vm)
    }

    fn read(xml: &str, vm: &str) -> Result<Self, BackendError> {
        let document = tree(xml, vm)?;
        let root = document.root_element();
        let most = child(root, &["vcpu"]).and_then(|vcpu| vcpu.text()?.trim().parse().ok()).unwrap_or(1);
        let number = |node: &Node<'_, '_>, name: &str| node.attribute(name)?.parse::<u32>().ok();
        let each = children(child(root, &["vcpus"]), "vcpu").filter(|it| it.attribute("enabled") == Some("yes"));
        // What came first has the lowest number; those of the start have some, too.
        let mut there: Vec<(u32, u32)> =
            each.filter_map(|it| Some((number(&it, "order").unwrap_or(0), number(&it, "id")?))).collect();
        there.sort_unstable();
        let vcpus: Vec<u32> = there.into_iter().map(|(_, id)| id).collect();
        Ok(Self {
            vcpus: if vcpus.is_empty() { (0..most).collect() } else { vcpus },
            most_vcpus: most,
            has_max_memory: child(root, &["maxMemory"]).is_some(),
            devices: children(child(root, &["devices"]), "memory").filter_map(device).collect(),
        })
    }

    /// What was plugged in since power-on.
    pub(super) fn added(&self, topology: &VirtualTopology) -> Added {
        let was_absent = |vcpu: &u32| topology.nodes.iter().any(|node| node.absent.contains(vcpu));
        let memory = self.devices.iter().map(|device| MemoryDevice {
            id: device.alias.clone(),
            virtual_node: device.node,
            kind: device.kind,
            size: device.size,
            requested: device.requested,
            bound_to: device.bound_to.clone(),
        });
        let vcpus = self.vcpus.iter().copied().filter(was_absent).collect();
        Added { vcpus, memory: memory.collect(), taken_away: 0 }
    }
}

fn device(element: Node<'_, '_>) -> Option<Device> {
    let kind = match element.attribute("model")? {
        "virtio-mem" => MemoryDeviceKind::VirtioMem,
        "dimm" => MemoryDeviceKind::Dimm,
        _ => return None,
    };
    let size = amount(element, &["target", "size"])?;
    let of = |path: &[&str]| amount(element, path).unwrap_or(size);
    let nodes = child(element, &["source", "nodemask"]).and_then(|nodes| nodes.text()?.trim().parse().ok());
    Some(Device {
        alias: child(element, &["alias"])?.attribute("name")?.to_owned(),
        node: child(element, &["target", "node"])?.text()?.trim().parse().ok()?,
        kind,
        size,
        requested: of(&["target", "requested"]),
        taken: of(&["target", "current"]),
        bound_to: nodes.unwrap_or_default(),
    })
}

impl Device {
    /// For `virsh attach-device`.
    pub(super) fn xml(&self, block: Bytes, huge_pages: Option<Bytes>) -> String {
        let kib = |bytes: Bytes| bytes.0 >> 10;
        let mut source = String::new();
        // Writing to a string cannot fail.
        if !self.bound_to.is_empty() {
            let _ = write!(source, "<nodemask>{}</nodemask>", self.bound_to);
        }
        if let Some(page) = huge_pages {
            let _ = write!(source, "<pagesize unit='KiB'>{}</pagesize>", kib(page));
        }
        let source = if source.is_empty() { source } else { format!("<source>{source}</source>") };
        format!(
            "<memory model='virtio-mem'>{source}<target><size unit='KiB'>{}</size><node>{}</node>\
             <block unit='KiB'>{}</block><requested unit='KiB'>{}</requested></target><alias name='{}'/></memory>",
            kib(self.size),
            self.node,
            kib(block),
            kib(self.requested),
            self.alias
        )
    }
}

/// The version of the daemon, where it is below `least`: of `Running against daemon: 8.0.0`.
pub(super) fn too_old(text: &str, least: u32) -> Option<String> {
    let version = text.lines().find_map(|line| line.strip_prefix("Running against daemon: "))?.trim();
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (major < least).then(|| version.to_owned())
}

/// Whether `virsh domstats --vcpu` says that a vCPU has used no time.
pub(super) fn never_ran(text: &str, vcpu: u32) -> bool {
    let key = format!("vcpu.{vcpu}.time=");
    text.lines().any(|line| line.trim().strip_prefix(key.as_str()).is_some_and(|time| time == "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What libvirt 9.0 prints, shortened.
    const XML: &str = "<domain type='qemu'><name>a</name><maxMemory slots='32' unit='KiB'>1048576</maxMemory>
        <vcpu placement='static' current='3'>4</vcpu><vcpus>
        <vcpu id='0' enabled='yes' hotpluggable='no' order='1'/><vcpu id='1' enabled='yes' hotpluggable='yes' \
        order='3'/>
        <vcpu id='2' enabled='yes' hotpluggable='yes' order='2'/><vcpu id='3' enabled='no' hotpluggable='yes'/></vcpus>
        <devices><memory model='virtio-mem'><source><nodemask>1</nodemask></source><target>
        <size unit='KiB'>393216</size><node>1</node><block unit='KiB'>2048</block>
        <requested unit='KiB'>131072</requested><current unit='KiB'>65536</current></target>
        <alias name='ua-homenode-1-1'/></memory></devices></domain>";

    #[test]
    fn what_is_there_is_read() {
        let live = Live::read(XML, "a").unwrap();
        assert_eq!((live.vcpus.as_slice(), live.most_vcpus, live.has_max_memory), ([0, 2, 1].as_slice(), 4, true));
        let device = &live.devices[0];
        assert_eq!((device.size.mib(), device.requested.mib(), device.taken.mib()), (384, 128, 64));
        let again =
            format!("<domain><name>a</name><devices>{}</devices></domain>", device.xml(Bytes::from_mib(2), None));
        let read = Live::read(&again, "a").unwrap();
        // Until libvirt says what the guest has of it, it is as good as all.
        let expected = Device { taken: device.size, ..device.clone() };
        assert_eq!((read.devices, read.vcpus), (vec![expected], vec![0]));
        assert!(!read.has_max_memory);
    }

    #[test]
    fn what_was_plugged_in_is_told_from_what_was_there() {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:4 pu:1").unwrap();
        let node = "{ vcpus = 1, memory = \"128 MiB\", max_vcpus = 2, max_memory = \"512 MiB\" }";
        let text = format!(
            "name = \"a\"\nvcpus = 2\nmax_vcpus = 4\nmemory = \"256 MiB\"\nmax_memory = \"1 GiB\"\n\
             policy.virtual_nodes = [{node}, {node}]\n"
        );
        let spec = vm::VmSpec::from_toml(&text, "a").unwrap();
        let plan = scheduler::plan(&machine, &scheduler::Occupancy::default(), &spec).unwrap();
        let added = Live::read(XML, "a").unwrap().added(&plan.topology);
        assert_eq!(added.vcpus, [1]);
        let sizes = added.sizes(&plan.topology);
        assert_eq!((sizes[0].vcpus.len(), sizes[1].memory.mib()), (2, 256));
    }

    #[test]
    fn versions_and_times_are_read() {
        let text = "Compiled against library: libvirt 9.0.0\nRunning against daemon: 8.0.0\n";
        assert_eq!((too_old(text, 9), too_old(text, 8)), (Some("8.0.0".to_owned()), None));
        let text = "Domain: 'a'\n  vcpu.1.time=0\n  vcpu.11.time=20000000\n";
        assert!(never_ran(text, 1) && !never_ran(text, 11) && !never_ran(text, 2));
    }
}
