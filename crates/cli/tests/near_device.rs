//! `policy.near_device` on a captured host: the network cards come from its files, a VM goes to the
//! node of the one that it is plugged into, and the plan says so.

use crate::common::said_in;
use std::path::Path;
use std::process::Command;

/// Eight nodes. The card eth0 is on node 1. On eth1, on node 6, stand a bond, a VLAN of it, and the
/// bridge br0, which has a VM's tap as a port too.
const CARDS: [(&str, &str); 8] = [
    ("eth0/device/numa_node", "1\n"),
    ("eth1/device/numa_node", "6\n"),
    ("bond0/lower_eth1/", ""),
    ("bond0.7/lower_bond0/", ""),
    ("br0/lower_bond0.7/", ""),
    ("br0/lower_tap0/", ""),
    ("br1/lower_tap1/", ""),
    ("usb0/device/numa_node", "-1\n"),
];

/// A directory with `sys` and `proc` of that host.
fn captured() -> tempfile::TempDir {
    let host = tempfile::tempdir().expect("a directory");
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topology/tests/golden/eight-sockets.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(host.path()).status();
    assert!(unpacked.expect("tar").success());
    for (path, text) in CARDS {
        let path = host.path().join("sys/class/net").join(path);
        let directory = if text.is_empty() { &path } else { path.parent().expect("a directory") };
        std::fs::create_dir_all(directory).expect("a directory");
        if !text.is_empty() {
            std::fs::write(&path, text).expect("a file");
        }
    }
    host
}

#[test]
fn a_vm_goes_to_the_node_of_the_card_that_it_is_plugged_into() {
    let (host, place) = (captured(), tempfile::tempdir().expect("a directory"));
    let planned = |near: bool, card: &str| {
        let spec = host.path().join("vm.toml");
        let text =
            format!("name = \"vm\"\nvcpus = 1\nmemory = \"8 MiB\"\npolicy.near_device = {near}\n[[network]]\n{card}\n");
        std::fs::write(&spec, text).expect("a file");
        let [spec, on] = [&spec, host.path()].map(|path| path.to_str().expect("UTF-8").to_owned());
        let said = |more: &[&str]| {
            let (code, said, errors) = said_in(place.path(), &[&["plan", &spec, "--on", &on], more].concat());
            assert_eq!(code, Some(0), "{said}{errors}");
            said
        };
        let json: serde_json::Value = serde_json::from_str(&said(&["--json"])).expect("JSON");
        (json["plan"]["placement"]["clients"][0]["home"].to_string(), said(&[]))
    };
    let (bridge, card) = ("kind = \"bridge\"\nbridge = \"br0\"", "kind = \"macvtap\"\ncard = \"eth0\"");
    let (without, text) = planned(false, bridge);
    assert_ne!(without, "\"6\"", "{text}");
    assert!(!text.contains("near_device"), "{text}");
    for (network, name, node) in [(bridge, "br0", "6"), (card, "eth0", "1")] {
        let (home, text) = planned(true, network);
        assert_eq!(home, format!("\"{node}\""), "{text}");
        assert!(text.contains(&format!("{name} is on node {node}; its home loses 0.000 CPUs")), "{text}");
    }
    // A bridge of taps alone, and a card that does not know its node: nowhere, and said.
    for (network, name) in
        [("kind = \"bridge\"\nbridge = \"br1\"", "br1"), ("kind = \"macvtap\"\ncard = \"usb0\"", "usb0")]
    {
        let (home, text) = planned(true, network);
        assert_eq!(home, without, "{text}");
        assert!(text.contains(&format!("nobody says which node {name} is on")), "{text}");
    }
}
