//! What the firmware says that a node's memory carries: ACPI's HMAT, and CDAT for CXL, as Linux
//! shows them (Documentation/admin-guide/mm/numaperf.rst).

use super::sysfs::NODES;
use super::tree::Tree;
use crate::bandwidth::{Bandwidths, mb_per_s};
use crate::{Bytes, NodeId};

/// Classes of access, the one that is wanted first: by CPUs alone (Linux 5.11), by anything that
/// asks for memory.
const CLASSES: [&str; 2] = ["access1", "access0"];

/// Bandwidths of the nodes' memory, as far as the kernel shows them. It shows them for the nearest
/// CPUs only: of links it says nothing.
pub(super) fn read(tree: &Tree, nodes: &[NodeId]) -> Bandwidths {
    let memory = nodes.iter().filter_map(|&node| Some((node, of_node(tree, node)?))).collect();
    Bandwidths { memory, ..Bandwidths::default() }
}

fn of_node(tree: &Tree, node: NodeId) -> Option<Bytes> {
    // A file that says something else is as good as none: a machine is not refused for it.
    let read = |class: &str, file: &str| {
        let text = tree.read(&format!("{NODES}/node{node}/{class}/initiators/{file}"))?;
        mb_per_s(text.trim().parse::<u32>().ok()?.into())
    };
    // Reads and writes share a channel: the greater of both is what it carries together.
    let of_class = |class: &str| read(class, "read_bandwidth").max(read(class, "write_bandwidth"));
    CLASSES.into_iter().find_map(of_class)
}

#[cfg(test)]
mod tests {
    use crate::read::from_root;
    use crate::{Bytes, NodeId};
    use std::fs;

    #[test]
    fn the_firmwares_words_are_read_and_nonsense_is_unknown() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| {
            let path = directory.path().join("sys/devices/system").join(file);
            fs::create_dir_all(path.parent().expect("below")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("cpu/present", "0-1");
        write("cpu/online", "0-1");
        for node in 0..5 {
            write(&format!("node/node{node}/cpulist"), ["0", "1", "", "", ""][node]);
            write(&format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal: 1048576 kB\n"));
        }
        write("node/node0/access0/initiators/read_bandwidth", "99000\n");
        write("node/node0/access1/initiators/read_bandwidth", "204800\n");
        write("node/node0/access1/initiators/write_bandwidth", "102400\n");
        write("node/node1/access0/initiators/read_bandwidth", "30000\n");
        write("node/node2/access0/initiators/read_bandwidth", "0\n");
        write("node/node3/access0/initiators/read_bandwidth", "99999999999999999999\n");
        let machine = from_root(directory.path()).expect("a machine");
        let of = |node| machine.bandwidth.of_memory(NodeId(node));
        let known = [Some(Bytes(204_800_000_000)), Some(Bytes(30_000_000_000)), None, None, None];
        assert_eq!([0, 1, 2, 3, 4].map(of), known);
        assert_eq!(machine.bandwidth.of_link(NodeId(0), NodeId(1)), None);
    }
}
