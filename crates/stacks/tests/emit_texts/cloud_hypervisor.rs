//! A cloud-hypervisor command, held against the grammar of its documentation (docs/cpu.md,
//! docs/memory.md) and what it validates at a start.

use super::cases::{Case, all, devices, everywhere, kernel, with_line_ends};
use stacks::emit::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use topology::{CpuSet, Id, IdSet, NodeId};

#[test]
fn shapes() {
    for (name, case) in all() {
        insta::assert_snapshot!(format!("cloud-hypervisor-{name}"), case.text(Kind::CloudHypervisor).expect("a text"));
    }
    insta::assert_snapshot!("cloud-hypervisor-devices", devices().text(Kind::CloudHypervisor).expect("a text"));
}

/// Options and their values, as `sh` hands them over; its `taskset` is one of ours, that prints
/// them.
fn options(text: &str) -> Vec<(String, String)> {
    let script = format!("taskset() {{ shift 3; printf '%s\\0' \"$@\"; }}\n{text}");
    let mut command = Command::new("sh");
    let output = command.arg("-c").arg(script).env("FIRMWARE", "/fw").output().expect("sh");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words = String::from_utf8(output.stdout).expect("UTF-8");
    let words: Vec<String> = words.split_terminator('\0').map(str::to_owned).collect();
    assert!(words.len().is_multiple_of(2), "{words:?}");
    words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Splits at commas outside of brackets and quotation marks.
fn split(text: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut parts) = (0u32, false, vec![String::new()]);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth = depth.checked_sub(1).expect("a bracket that was opened"),
            ',' if !quoted && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("a part").push(letter);
    }
    assert!(depth == 0 && !quoted, "{text}");
    parts
}

/// `key=value,...`, each key one of those documented and no more than once.
fn properties(text: &str, known: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for part in split(text) {
        let (key, value) = part.split_once('=').unwrap_or_else(|| panic!("{text}"));
        assert!(known.contains(&key) && !value.is_empty(), "{part} in {text}");
        assert!(found.insert(key.to_owned(), value.trim_matches('"').to_owned()).is_none(), "{key} twice in {text}");
    }
    found
}

fn list(text: &str) -> Vec<String> {
    split(text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or_else(|| panic!("{text}")))
}

fn set<T: Id>(text: &str) -> IdSet<T> {
    list(text).join(",").parse().unwrap_or_else(|_| panic!("{text}"))
}

const KNOWN: [&str; 10] = [
    "--cpus",
    "--memory",
    "--memory-zone",
    "--numa",
    "--disk",
    "--serial",
    "--console",
    "--kernel",
    "--initramfs",
    "--cmdline",
];

#[test]
fn the_arguments_are_as_documented_and_say_the_plan() {
    let shapes = all().into_iter().chain([("kernel", kernel())]).map(|(shape, case)| (shape.to_owned(), case));
    for (shape, case) in shapes.chain(everywhere()) {
        let options = options(&case.text(Kind::CloudHypervisor).expect("a text"));
        assert!(options.iter().all(|(option, _)| KNOWN.contains(&option.as_str())), "{shape}: {options:?}");
        let values = |name: &str| -> Vec<&str> {
            options.iter().filter(|(option, _)| option == name).map(|(_, value)| value.as_str()).collect()
        };
        check_processor(&case, values("--cpus")[0]);
        assert_eq!(values("--memory"), ["size=0"], "{shape}");
        let zones = zones(&case, &values("--memory-zone"));
        check_nodes(&case, &values("--numa"), &zones);
        assert_eq!((values("--serial"), values("--console")), (vec!["tty"], vec!["off"]), "{shape}");
        assert_eq!(values("--cmdline"), [case.boot.command_line.as_str()], "{shape}");
    }
}

fn check_processor(case: &Case, value: &str) {
    let cpus = properties(value, &["boot", "max", "topology", "affinity"]);
    assert_eq!(cpus["boot"], case.spec.vcpus.to_string());
    let topology: Vec<u32> = cpus["topology"].split(':').map(|part| part.parse().expect("a number")).collect();
    assert_eq!((topology.len(), topology.iter().product::<u32>()), (4, case.spec.vcpus));
    let mut bound = BTreeSet::new();
    for pair in list(&cpus["affinity"]) {
        let (vcpu, host) = pair.split_once('@').expect("vcpu@[cpus]");
        let vcpu: u32 = vcpu.parse().expect("a vCPU");
        let node = case.plan.topology.nodes.iter().find(|node| node.vcpus.contains(&vcpu)).expect("its node");
        let client = case.plan.placement.clients.iter().find(|client| client.virtual_nodes.contains(&node.id));
        assert_eq!(set::<topology::CpuId>(host), client.expect("its client").cpus_of(vcpu));
        assert!(bound.insert(vcpu), "vCPU {vcpu} twice");
    }
    assert_eq!(bound.len() as u32, case.spec.vcpus);
}

/// Zone by its name: MiB and host node.
fn zones(case: &Case, values: &[&str]) -> BTreeMap<String, (u64, Option<NodeId>)> {
    let mut zones = BTreeMap::new();
    for value in values {
        let zone = properties(value, &["id", "size", "host_numa_node", "prefault"]);
        let mib = zone["size"].strip_suffix('M').expect("MiB").parse().expect("a number");
        let host = zone.get("host_numa_node").map(|node| NodeId(node.parse().expect("a node")));
        assert!(mib > 0 && host.is_none_or(|node| case.machine.node(node).is_some()), "{value}");
        assert!(zones.insert(zone["id"].clone(), (mib, host)).is_none(), "{value}: twice");
    }
    assert_eq!(zones.values().map(|(mib, _)| mib).sum::<u64>(), case.spec.memory.mib());
    zones
}

fn check_nodes(case: &Case, values: &[&str], zones: &BTreeMap<String, (u64, Option<NodeId>)>) {
    let nodes = &case.plan.topology.nodes;
    assert_eq!(values.len(), if case.plan.topology.exposed { nodes.len() } else { 0 });
    for (value, node) in values.iter().zip(nodes) {
        let told = properties(value, &["guest_numa_id", "cpus", "distances", "memory_zones"]);
        assert_eq!(told["guest_numa_id"], node.id.to_string());
        let vcpus: CpuSet = node.vcpus.iter().map(|&vcpu| topology::CpuId(vcpu)).collect();
        assert_eq!(set::<topology::CpuId>(&told["cpus"]), vcpus);
        for pair in told.get("distances").map(|text| list(text)).unwrap_or_default() {
            let (to, distance) = pair.split_once('@').expect("node@distance");
            let to: usize = to.parse().expect("a node");
            assert_eq!(distance.parse(), Ok(case.plan.topology.distances[node.id as usize][to]));
        }
        let client = case.plan.placement.clients.iter().find(|client| client.virtual_nodes.contains(&node.id));
        let home = &client.expect("its client").home;
        let mine: Vec<_> = list(&told["memory_zones"]).iter().map(|zone| zones[zone]).collect();
        assert_eq!(mine.iter().map(|(mib, _)| mib).sum::<u64>(), node.memory.mib());
        assert!(mine.iter().filter_map(|(_, host)| *host).all(|host| home.contains(host)), "{value}");
    }
}

#[test]
fn memory_of_a_home_of_two_nodes_has_a_zone_on_each() {
    let case = all().into_iter().find(|(shape, _)| *shape == "interleaved").expect("the shape").1;
    let options = options(&case.text(Kind::CloudHypervisor).expect("a text"));
    let values: Vec<&str> =
        options.iter().filter(|(option, _)| option == "--memory-zone").map(|(_, value)| value.as_str()).collect();
    // 30 GiB, half on each of two nodes.
    assert_eq!(
        values,
        [
            "id=vnode0at0,size=15360M,host_numa_node=0,prefault=on",
            "id=vnode0at1,size=15360M,host_numa_node=1,prefault=on"
        ]
    );
}

#[test]
fn disks_and_firmware_keep_odd_names() {
    let options = options(&devices().text(Kind::CloudHypervisor).expect("a text"));
    let values: Vec<&str> =
        options.iter().filter(|(option, _)| option == "--disk").map(|(_, value)| value.as_str()).collect();
    assert_eq!(
        values,
        [
            "path=\"/images/100 % odd & 'it'.qcow2\",image_type=qcow2,backing_files=on",
            "path=/dev/vg/data,image_type=raw,readonly=on"
        ]
    );
    assert!(options.contains(&("--serial".to_owned(), "file=\"/var/log/it's web.log\"".to_owned())), "{options:?}");
    assert_eq!(options.last(), Some(&("--firmware".to_owned(), "/fw".to_owned())));
}

#[test]
fn what_cloud_hypervisor_cannot_be_told_is_refused_by_field() {
    let refusal = |case: &Case| case.text(Kind::CloudHypervisor).expect_err("a refusal");
    let mut snapshot = devices();
    snapshot.spec.disks[1].snapshot = true;
    assert!(refusal(&snapshot).starts_with("disk[1].snapshot = true: "), "{}", refusal(&snapshot));
    let mut quoted = devices();
    quoted.spec.disks[0].path = "/a\"b".into();
    assert!(refusal(&quoted).starts_with("disk[0].path = "), "{}", refusal(&quoted));
    for (field, case) in with_line_ends() {
        assert!(refusal(&case).starts_with(&format!("{field} = ")), "{}", refusal(&case));
    }
}
