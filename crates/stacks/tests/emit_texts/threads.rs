//! Hardware threads of a virtual core, and isolated CPUs: each stack is told, or what is lost is
//! said.

use super::cases::{Case, synthetic};
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use stacks::emit::Kind;

/// 76 vCPUs on two nodes of 20 cores, siblings 0 and 1, 2 and 3, ...
fn hana() -> Case {
    let spec = "name = \"hana\"\nvcpus = 76\nmemory = \"64 GiB\"\nboot.from = \"disk\"\n[policy]\nprefer_ht = true\n\
        vcpu_binding = \"core\"\nspare_cores = 1\n[[disk]]\npath = \"/images/hana.qcow2\"\nformat = \"qcow2\"\n";
    Case::new(synthetic("pack:2 [numa(memory=768GiB)] core:20 pu:2"), spec)
}

#[test]
fn each_stack_tells_of_threads_or_says_what_is_lost() {
    let case = hana();
    let text = |kind| case.text(kind).expect("a text");
    let libvirt = text(Kind::Libvirt);
    assert!(libvirt.contains(r#"<topology sockets="2" dies="1" cores="19" threads="2"/>"#), "{libvirt}");
    // Pairs in a row, and QEMU on the core of each node that is kept.
    for pin in [r#"vcpu="0" cpuset="2""#, r#"vcpu="1" cpuset="3""#, r#"vcpu="38" cpuset="42""#] {
        assert!(libvirt.contains(pin), "{pin}: {libvirt}");
    }
    assert!(libvirt.contains(r#"<emulatorpin cpuset="0-1,40-41"/>"#), "{libvirt}");
    assert!(libvirt.contains(r#"<iothreadpin iothread="1" cpuset="0-1,40-41"/>"#), "{libvirt}");
    let checked = CheckedDomain::new(&case.machine, &Occupancy::default(), &libvirt, "hana.xml").expect("a domain");
    assert_eq!(checked.wrong(), 0, "{:#?}", checked.findings);
    let qemu = text(Kind::Qemu);
    assert!(qemu.contains("sockets=2,dies=1,cores=19,threads=2") || qemu.contains("cores=19,threads=2"), "{qemu}");
    assert!(qemu.contains("taskset -c 0-1,40-41"), "{qemu}");
    let proxmox = text(Kind::Proxmox);
    assert!(
        proxmox.contains("cores: 38\n") && proxmox.contains("Proxmox has no word for hardware threads"),
        "{proxmox}"
    );
    let cloud = text(Kind::CloudHypervisor);
    assert!(cloud.contains("topology=2:19:1:2"), "{cloud}");
    let slice = text(Kind::Systemd);
    assert!(slice.contains("AllowedCPUs=0-79"), "{slice}");
}

#[test]
fn proxmox_says_what_isolated_cpus_need() {
    let spec = "name = \"rt\"\nvcpus = 3\nmemory = \"1 GiB\"\n[policy]\nlatency_sensitive = true\n\
        vcpu_binding = \"core\"\n";
    let case = Case::new(synthetic("numa:1(memory=8GiB) core:4 pu:1(isolated_cpus=1-3)"), spec);
    let proxmox = case.text(Kind::Proxmox).expect("a text");
    assert!(proxmox.contains("CPUs 1-3 are isolated") && proxmox.contains("hookscript"), "{proxmox}");
    let libvirt = case.text(Kind::Libvirt).expect("a text");
    assert!(libvirt.contains(r#"<vcpupin vcpu="0" cpuset="1"/>"#), "{libvirt}");
    assert!(libvirt.contains(r#"<emulatorpin cpuset="0"/>"#), "{libvirt}");
}
