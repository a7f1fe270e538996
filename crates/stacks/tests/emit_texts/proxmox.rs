//! Lines of a Proxmox VM, held against what qemu-server (9.2) documents of each option and refuses
//! at a start.

use super::cases::{Case, all, devices, everywhere, kernel, shipped, synthetic, with_line_ends, without_comments};
use stacks::emit::Kind;
use std::collections::BTreeMap;
use topology::{Id, IdSet, NodeId, NodeSet};

#[test]
fn shapes() {
    for (name, case) in all() {
        insta::assert_snapshot!(format!("proxmox-{name}"), case.text(Kind::Proxmox).expect("a text"));
    }
    insta::assert_snapshot!("proxmox-devices", devices().text(Kind::Proxmox).expect("a text"));
    insta::assert_snapshot!("proxmox-kernel", kernel().text(Kind::Proxmox).expect("a text"));
}

/// `id[-id];...`, whose members must not repeat.
fn set<T: Id>(text: &str) -> IdSet<T> {
    assert!(text.chars().all(|letter| letter.is_ascii_digit() || "-;".contains(letter)), "{text}");
    text.replace(';', ",").parse().expect("a set")
}

/// `key=value,...`.
fn properties(text: &str) -> BTreeMap<&str, &str> {
    text.split(',').map(|property| property.split_once('=').expect("key=value")).collect()
}

/// Checks one line against the documented form of its option; returns its key.
fn check_line(line: &str) -> (&str, &str) {
    let (key, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
    let name = key.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
    match name {
        "name" => {
            assert!(value.chars().all(|letter| letter.is_ascii_alphanumeric() || "-.".contains(letter)), "{line}")
        }
        "ostype" => assert_eq!(value, "l26"),
        "machine" => assert_eq!(value, "q35"),
        "cpu" => assert_eq!(value, "host"),
        "sockets" | "cores" => assert!(number(value) >= 1, "{line}"),
        "memory" => assert!(number(value) >= 16, "{line}"),
        "balloon" => assert_eq!(number(value), 0),
        "numa" if key == "numa" => assert_eq!(value, "1"),
        "numa" => assert!(number(&key[4..]) < 8, "{line}"),
        "affinity" => assert!(value.parse::<topology::CpuSet>().is_ok_and(|set| !set.is_empty()), "{line}"),
        "boot" => assert_eq!(value, "order=virtio0"),
        "serial" => assert!(number(&key[6..]) < 4 && value == "socket", "{line}"),
        "vga" => assert_eq!(value, "serial0"),
        "net" => assert!(number(&key[3..]) < 32 && is_mac(value.strip_prefix("virtio=").expect("a model")), "{line}"),
        "virtio" => {
            let (volume, rest) = value.split_once(',').expect("options");
            assert!(number(&key[6..]) < 16 && volume.starts_with("/dev/") && !properties(rest).is_empty(), "{line}");
        }
        "args" => {}
        _ => panic!("{key} is no option that is documented here: {line}"),
    }
    (key, value)
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let bytes: Vec<u8> = parts.iter().filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    // Not a group's address.
    parts.len() == 6 && bytes.len() == 6 && bytes[0] & 1 == 0
}

/// What `PVE::QemuServer::Memory::config` and `config_to_command` die of.
fn check_start(case: &Case, lines: &BTreeMap<&str, &str>) {
    let number = |key: &str| lines[key].parse::<u64>().expect("a number");
    let (mut total, mut vcpus) = (0, topology::CpuSet::new());
    for node in 0..8 {
        let Some(value) = lines.get(format!("numa{node}").as_str()) else { continue };
        let properties = properties(value);
        total += properties["memory"].parse::<u64>().expect("MiB");
        vcpus = vcpus.union(&set(properties["cpus"]));
        if let Some(home) = properties.get("hostnodes") {
            let home: NodeSet = set(home);
            let clients = &case.plan.placement.clients;
            let client = clients.iter().find(|client| client.virtual_nodes.contains(&node)).expect("a client");
            assert_eq!(home, client.home);
            assert!(["bind", "interleave"].contains(&properties["policy"]), "{value}");
        }
    }
    assert_eq!(total, number("memory"), "total memory for NUMA nodes must be equal to vm static memory");
    let count = number("sockets") * number("cores");
    let all: topology::CpuSet = (0..count as u32).map(topology::CpuId).collect();
    assert_eq!(vcpus, all);
    assert!(case.machine.threads.len() as u64 >= count);
}

#[test]
fn every_line_is_as_documented_and_the_vm_would_start() {
    let shapes = all().into_iter().chain([("devices", devices()), ("kernel", kernel())]);
    let shapes = shapes.map(|(shape, case)| (shape.to_owned(), case));
    for (shape, case) in shapes.chain(everywhere()) {
        let text = match case.text(Kind::Proxmox) {
            Ok(text) => text,
            Err(refusal) => {
                let wide = case.spec.vcpus as usize > case.machine.threads.len() || case.plan.topology.nodes.len() > 8;
                assert!(wide, "{shape}: {refusal}");
                continue;
            }
        };
        let lines: Vec<(&str, &str)> = without_comments(&text).into_iter().map(check_line).collect();
        let by_key: BTreeMap<&str, &str> = lines.iter().copied().collect();
        assert_eq!(by_key.len(), lines.len(), "{shape}: an option twice");
        check_start(&case, &by_key);
    }
}

#[test]
fn custom_arguments_are_words_of_a_shell() {
    let text = kernel().text(Kind::Proxmox).expect("a text");
    let line = text.lines().find_map(|line| line.strip_prefix("args: ")).expect("args");
    // Proxmox splits them by the rules of Perl's shellwords, which for single quotes are those of
    // sh.
    let script = format!("printf '%s\\n' {line}");
    let output = std::process::Command::new("sh").arg("-c").arg(script).output().expect("sh");
    let words = String::from_utf8(output.stdout).expect("UTF-8");
    let expected = "-kernel\n/boot/my kernel\n-initrd\n/boot/i,1\n-append\nconsole=ttyS0 root=/dev/vda \"x y\" 'it' \
        $HOME `id` 50%\n";
    assert_eq!(words, expected);
}

#[test]
fn a_home_with_a_gap_is_said_and_not_written() {
    let mut case = all().swap_remove(1).1;
    case.plan.placement.clients[0].home = [NodeId(0), NodeId(2)].into_iter().collect();
    let text = case.text(Kind::Proxmox).expect("a text");
    assert!(
        text.contains("numa0: cpus=0-3,memory=8192\n") && text.contains("the home 0,2 of virtual node 0 has a gap"),
        "{text}"
    );
}

#[test]
fn what_proxmox_cannot_be_told_is_refused_by_field() {
    let refusal = |case: &Case| case.text(Kind::Proxmox).expect_err("a refusal");
    let wide = "name = \"a\"\nvcpus = 9\nmemory = \"9 GiB\"\n[policy]\nmax_vcpus_per_node = 1\n";
    let nine = Case::new(shipped("xeon-8480-2s"), wide);
    assert!(
        refusal(&nine).starts_with("policy: the plan has 9 virtual nodes, but Proxmox takes at most 8"),
        "{}",
        refusal(&nine)
    );
    let small = synthetic("numa:1(memory=4GiB) core:4 pu:1");
    let over = Case::new(small.clone(), "name = \"a\"\nvcpus = 5\nmemory = \"1 GiB\"\n");
    assert!(refusal(&over).starts_with("vcpus = 5: ") && refusal(&over).contains("4 on "), "{}", refusal(&over));
    let tiny = Case::new(small, "name = \"a\"\nvcpus = 1\nmemory = \"8 MiB\"\n");
    assert_eq!(refusal(&tiny), "memory = \"8 MiB\": Proxmox takes at least 16 MiB");
    let mut comma = devices();
    comma.spec.disks[1].path = "/dev/a,ro=0".into();
    assert!(refusal(&comma).starts_with("disk[1].path = \"/dev/a,ro=0\""), "{}", refusal(&comma));
    let mut many = devices();
    many.spec.disks = vec![many.spec.disks[1].clone(); 17];
    assert!(refusal(&many).starts_with("disk: 17 disks"), "{}", refusal(&many));
    for (field, case) in with_line_ends() {
        assert!(refusal(&case).starts_with(&format!("{field} = ")), "{}", refusal(&case));
    }
}
