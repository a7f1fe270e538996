//! What a domain's XML says of the program that runs it, and that another one must agree on.

use crate::xml::{amount, child, children, kib, tree};
use qemu::agent::PORT_NAME;
use roxmltree::Node;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use topology::Bytes;
use vm::backend::ErrorKind;
use vm::manifest::{MemoryBlock, RunBy};
use vm::spec::{Disk, DiskFormat};
use vm::{BackendError, VmSpec};

/// CPUs of the guest's that are the host's own.
const OF_HOST: [&str; 2] = ["host-passthrough", "maximum"];

/// Reads the XML of a domain that runs, or that a file of libvirt's has.
///
/// # Errors
/// It is no domain, or one of the spec's disks cannot be read.
pub(crate) fn run_by(xml: &str, spec: &VmSpec, qemu: String) -> Result<RunBy, BackendError> {
    let document = tree(xml, &spec.name)?;
    let root = document.root_element();
    let hardware = root.attribute("type") == Some("kvm");
    let cpu = child(root, &["cpu"]);
    let mode = cpu.and_then(|cpu| cpu.attribute("mode")).unwrap_or_default();
    let model = cpu.and_then(|cpu| child(cpu, &["model"])).and_then(|model| model.text()).unwrap_or_default();
    let machine = child(root, &["os", "type"]).and_then(|it| it.attribute("machine")).unwrap_or_default();
    let of_host = hardware && OF_HOST.contains(&mode);
    let unreadable = |(index, error): (usize, std::io::Error)| {
        let path = spec.disks[index].path.display().to_string();
        BackendError::new(ErrorKind::Failed, format!("VM {}: disk[{index}].path {path}: {error}", spec.name))
    };
    let sizes = spec.disks.iter().enumerate().map(|(index, disk)| disk_size(disk).map_err(|error| (index, error)));
    Ok(RunBy {
        qemu,
        machine: machine.to_owned(),
        cpu_model: format!("{mode} {model}").trim().to_owned(),
        host_cpu: of_host.then(qemu::host_cpu),
        hardware,
        memory: blocks(root),
        // Its domain says where each is.
        places: Vec::new(),
        disk_sizes: sizes.collect::<Result<_, _>>().map_err(unreadable)?,
        // libvirt's own to compare.
        flash_sizes: Vec::new(),
        agent: root.descendants().any(|node| node.has_tag_name("target") && node.attribute("name") == Some(PORT_NAME)),
    })
}

/// Cells and memory devices, as libvirt names their backends.
fn blocks(root: Node<'_, '_>) -> Vec<MemoryBlock> {
    let cell = |(number, cell): (usize, Node<'_, '_>)| {
        let id = cell.attribute("id").map_or_else(|| number.to_string(), str::to_owned);
        Some(MemoryBlock { id: format!("ram-node{id}"), size: kib(cell, cell.attribute("memory")?)? })
    };
    let cells = children(child(root, &["cpu", "numa"]), "cell");
    let mut blocks: Vec<MemoryBlock> = cells.enumerate().filter_map(cell).collect();
    if blocks.is_empty() {
        let all = amount(root, &["memory"]);
        blocks.extend(all.map(|size| MemoryBlock { id: "pc.ram".to_owned(), size }));
    }
    let device = |device: Node<'_, '_>| {
        let id = format!("mem{}", child(device, &["alias"])?.attribute("name")?);
        Some(MemoryBlock { id, size: amount(device, &["target", "size"])? })
    };
    blocks.extend(children(child(root, &["devices"]), "memory").filter_map(device));
    blocks
}

/// What qcow2 begins with (QEMU, docs/interop/qcow2.txt): its magic, and at 24 its virtual size.
const QCOW2: [u8; 4] = *b"QFI\xfb";

/// Its size as the guest sees it.
fn disk_size(disk: &Disk) -> std::io::Result<Bytes> {
    let mut file = File::open(&disk.path)?;
    match disk.format {
        DiskFormat::Raw => file.seek(SeekFrom::End(0)).map(Bytes),
        DiskFormat::Qcow2 => {
            let mut head = [0u8; 32];
            file.read_exact(&mut head)?;
            let size: [u8; 8] = head[24..].try_into().unwrap_or_default();
            match head.starts_with(&QCOW2) {
                true => Ok(Bytes(u64::from_be_bytes(size))),
                false => Err(std::io::Error::other("it is no qcow2 image")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='qemu'><name>a</name><memory unit='KiB'>524288</memory>
        <os><type machine='pc-q35-7.2'>hvm</type></os><cpu mode='custom'><model>qemu64</model><numa>
        <cell id='0' memory='131072' unit='KiB'/><cell id='1' memory='131072' unit='KiB'/></numa></cpu>
        <devices><memory model='virtio-mem'><target><size unit='KiB'>393216</size><node>1</node></target>
        <alias name='ua-homenode-1-1'/></memory></devices></domain>";

    #[test]
    fn a_domains_machine_is_read() {
        let run_by = run_by(XML, &VmSpec::default(), "7.2.22".to_owned()).unwrap();
        assert_eq!((run_by.machine.as_str(), run_by.cpu_model.as_str()), ("pc-q35-7.2", "custom qemu64"));
        assert!(!run_by.hardware && run_by.host_cpu.is_none() && !run_by.agent);
        let blocks: Vec<(&str, u64)> = run_by.memory.iter().map(|it| (it.id.as_str(), it.size.mib())).collect();
        assert_eq!(blocks, [("ram-node0", 128), ("ram-node1", 128), ("memua-homenode-1-1", 384)]);
    }

    #[test]
    fn a_disk_has_the_size_that_the_guest_sees() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let mut image = [QCOW2.as_slice(), &[0; 20], &(5_u64 << 30).to_be_bytes()].concat();
        std::fs::write(&path, &image).unwrap();
        let disk = |format| Disk { path: path.clone(), format, snapshot: false, read_only: false };
        assert_eq!(disk_size(&disk(DiskFormat::Qcow2)).unwrap(), Bytes(5 << 30));
        assert_eq!(disk_size(&disk(DiskFormat::Raw)).unwrap(), Bytes(32));
        image[0] = 0;
        std::fs::write(&path, &image).unwrap();
        assert!(disk_size(&disk(DiskFormat::Qcow2)).is_err());
    }
}
