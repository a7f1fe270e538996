//! `homenode vm adopt` and `homenode vm forget` as a user meets them, with a real libvirtd and a
//! real QEMU.

use crate::common::unique;
use crate::libvirt_run::{Place, stderr, stdout};

/// A domain that somebody else made, with two cells; it waits in its firmware.
fn foreign_domain(name: &str, place: &Place) -> String {
    let disk = place.libvirtd.path().join("foreign.raw");
    std::fs::write(&disk, vec![0_u8; 1 << 20]).expect("an image");
    let pins = "<vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='0'/>";
    let cells = "<cell id='0' cpus='0' memory='64' unit='MiB'/><cell id='1' cpus='1' memory='64' unit='MiB'/>";
    format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>128</memory><vcpu>2</vcpu><cputune>{pins}</cputune>
        <numatune><memnode cellid='0' mode='strict' nodeset='0'/></numatune>
        <os><type machine='q35'>hvm</type></os><features><acpi/></features>
        <cpu><topology sockets='2' cores='1' threads='1'/><numa>{cells}</numa></cpu>
        <devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>
        <source file='{}'/><target dev='vda' bus='virtio'/><readonly/></disk>
        <watchdog model='i6300esb' action='reset'/><memballoon model='none'/></devices></domain>",
        disk.display()
    )
}

#[test]
fn a_domain_that_somebody_else_made_is_listed_and_adopted_as_it_is() {
    let test = "a_domain_that_somebody_else_made_is_listed_and_adopted_as_it_is";
    let Some(place) = Place::new(test) else { return };
    let (name, libvirtd, uri) = (unique("hnlv-foreign"), &place.libvirtd, place.libvirtd.uri());
    let xml = foreign_domain(&name, &place);
    let file = libvirtd.path().join("foreign.xml");
    let define = |xml: &str| {
        std::fs::write(&file, xml).expect("a file");
        libvirtd.virsh(&["define", file.to_str().expect("UTF-8")]);
    };
    let said = |arguments: &[&str]| {
        let output = place.homenode(arguments).output().expect("homenode");
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let adopt = || said(&["vm", "adopt", &name, "--connect", &uri]);

    // What a record cannot say exactly is refused, and nothing is kept.
    define(&xml.replace("<numa><cell", "<numa><!-- --><cell").replace("mode='strict'", "mode='restrictive'"));
    let (code, _, words) = adopt();
    assert!(code == Some(2) && words.contains("<numatune>") && words.contains("restrictive"), "{words}");
    assert_eq!(place.listed(&name), serde_json::Value::Null);
    libvirtd.virsh(&["undefine", &name]);
    define(&xml);
    libvirtd.virsh(&["start", &name]);
    let own = libvirtd.qemus();

    // As libvirt's own: what it is, and where the kernel has it.
    let (_, listed, _) = said(&["vm", "list", "--json", "--connect", &uri]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let row = listed["vms"].as_array().expect("rows").iter().find(|row| row["name"] == *name).expect("a row").clone();
    assert_eq!((row["state"].as_str(), row["kept"].as_bool()), (Some("running"), Some(false)), "{row}");
    assert_eq!((row["backend"].as_str(), row["vcpus"].as_u64()), (Some("libvirt"), Some(2)), "{row}");
    assert_eq!((row["home"].as_str(), row["qemu"]["pid"].as_u64()), (Some("0"), Some(u64::from(own[0]))), "{row}");
    let (_, text, _) = said(&["vm", "list", "--connect", &uri]);
    assert!(text.contains("libvirt's own: 2 vCPUs, 128 MiB"), "{text}");
    for command in ["stop", "pause", "show", "console"] {
        let (code, _, words) = said(&["vm", command, &name]);
        let way = format!("virsh shutdown {name}");
        assert!(code == Some(2) && words.contains(&way) && words.contains("vm adopt"), "{command}: {words}");
    }

    // Adopted, nothing of it has changed.
    let live = libvirtd.virsh(&["dumpxml", &name]);
    let (code, kept, words) = adopt();
    assert!(code == Some(0) && kept.contains("2 x 1 vCPU, 2 x 64 MiB"), "{kept}{words}");
    assert_eq!((libvirtd.virsh(&["dumpxml", &name]), libvirtd.qemus()), (live, own));
    let record = place.record(&name);
    let topology = record.topology.clone().expect("a topology");
    assert!(topology.exposed && topology.nodes.len() == 2 && topology.sockets == 2, "{topology:?}");
    let clients = record.placement.expect("a placement").placement.clients;
    assert_eq!((clients[0].home.to_string(), clients[0].cpus.to_string()), ("0".to_owned(), "0".to_owned()));
    assert_eq!(clients[0].memory_policy, vm::MemoryPolicy::Bind);
    let (code, _, words) = adopt();
    assert!(code == Some(2) && words.contains("already"), "{words}");
    assert!(place.vm("show", &name, &[]).contains("made known"));

    // It starts again with its own devices, at a home that was planned.
    place.vm("pause", &name, &[]);
    place.vm("stop", &name, &["--force"]);
    place.vm("start", &name, &[]);
    let now = libvirtd.virsh(&["dumpxml", "--inactive", &name]);
    assert!(now.contains("<watchdog model='i6300esb'") && now.contains("<memnode cellid='1' "), "{now}");
    assert_eq!(place.record(&name).topology.as_ref(), Some(&topology));

    // Undefined, it cannot start: homenode did not write its definition.
    place.vm("stop", &name, &["--force"]);
    libvirtd.virsh(&["undefine", &name]);
    let (code, _, words) = said(&["vm", "start", &name]);
    assert!(code == Some(2) && words.contains("no definition of it any more"), "{words}");
    assert_eq!(place.listed(&name)["state"], "stopped");
    // Forgotten, it runs on as libvirt's own; `delete` says how, and what ends it says so.
    define(&now);
    place.vm("start", &name, &[]);
    let (code, _, words) = said(&["vm", "delete", &name]);
    let way = format!("`homenode vm forget {name}` leaves it running");
    assert!(code == Some(2) && words.contains(&way) && words.contains("--force` ends it"), "{words}");
    let (own, live) = (libvirtd.qemus(), libvirtd.virsh(&["dumpxml", &name]));
    assert!(place.vm("forget", &name, &[]).contains("it is running as before, its definition"));
    assert_eq!((libvirtd.qemus(), libvirtd.virsh(&["dumpxml", &name])), (own, live));
    assert_eq!(place.listed(&name), serde_json::Value::Null);
    let (code, _, words) = adopt();
    assert_eq!(code, Some(0), "{words}");
    assert!(place.vm("delete", &name, &["--force"]).contains("was ended and is forgotten; its definition"));
    assert_eq!(libvirtd.virsh(&["list", "--all", "--name"]).trim(), name);
    assert_eq!((place.listed(&name), libvirtd.qemus()), (serde_json::Value::Null, Vec::new()));
}

#[test]
fn a_domain_whose_disk_is_on_a_network_is_adopted_and_forgotten() {
    let test = "a_domain_whose_disk_is_on_a_network_is_adopted_and_forgotten";
    let Some(place) = Place::new(test) else { return };
    let (name, libvirtd, uri) = (unique("hnlv-rbd"), &place.libvirtd, place.libvirtd.uri());
    let file_disk = foreign_domain(&name, &place);
    let (before, rest) = file_disk.split_once("<disk ").expect("a disk");
    let (_, after) = rest.split_once("</disk>").expect("its end");
    let xml = format!(
        "{before}<disk type='network' device='disk'><driver name='qemu' type='raw'/><source protocol='rbd' \
        name='vms/web'><host name='127.0.0.1' port='6789'/></source><target dev='vda' bus='virtio'/></disk>{after}"
    );
    let path = libvirtd.path().join("rbd.xml");
    std::fs::write(&path, xml).expect("a file");
    libvirtd.virsh(&["define", path.to_str().expect("UTF-8")]);
    let defined = libvirtd.virsh(&["dumpxml", &name]);
    let output = place.homenode(&["vm", "adopt", &name, "--connect", &uri]).output().expect("homenode");
    assert!(output.status.success() && stderr(&output).contains("vda (rbd vms/web)"), "{}", stderr(&output));
    let record = place.record(&name);
    assert!(record.spec.boot == vm::spec::Boot::Definition && record.spec.disks.is_empty(), "{:?}", record.spec);
    assert!(place.vm("show", &name, &[]).contains("2 x 1 vCPU"));
    assert!(place.vm("forget", &name, &[]).contains("its definition"));
    assert_eq!(libvirtd.virsh(&["dumpxml", &name]), defined);
    assert_eq!(place.listed(&name), serde_json::Value::Null);
}
