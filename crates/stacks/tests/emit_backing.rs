//! Huge pages, memory that is taken on touch, a preferred node and one CPU for each vCPU, in the
//! words of each stack.

use qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::emit::{Emission, Kind, emit};
use topology::{Bytes, HugePages, read};
use vm::{Accelerator, VmSpec};

/// The text for 8 vCPUs and 4 GiB on two nodes of 4 cores, each with a pool of 2 GiB of each size.
fn text(kind: Kind, lines: &str) -> String {
    let mut machine = read::from_synthetic("pack:2 [numa(memory=24GiB)] core:4 pu:2").expect("a machine");
    for node in &mut machine.nodes {
        let pool = |page: Bytes| HugePages { page_size: page, total: (2 << 30) / page.0, free: (2 << 30) / page.0 };
        node.huge_pages = vm::spec::HUGE_PAGE_SIZES.map(pool).to_vec();
    }
    let spec = VmSpec::from_toml(&format!("name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\n{lines}"), "vm.toml");
    let spec = spec.expect(lines);
    let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
    let (boot, accelerator) = (BootFiles::default(), Accelerator::Kvm);
    emit(kind, &Emission { machine: &machine, spec: &spec, plan: &plan, boot: &boot, accelerator: &accelerator })
        .expect("a text")
}

/// What each stack says, and what none but others say.
fn says(lines: &str, parts: &[(Kind, &[&str])]) {
    let plain = |kind| text(kind, "");
    for &(kind, parts) in parts {
        let text = text(kind, lines);
        for part in parts {
            assert!(text.contains(part), "{kind:?} lacks {part}:\n{text}");
            assert!(!plain(kind).contains(part), "{kind:?} says {part} of every VM");
        }
    }
}

#[test]
fn huge_pages_are_asked_for_in_the_words_of_each_stack() {
    says(
        "[backing]\nhuge_pages = \"1 GiB\"\n",
        &[
            (Kind::Qemu, &["memory-backend-memfd,hugetlb=on,id=vnode1,size=2048M,hugetlbsize=1024M,host-nodes=1"]),
            (Kind::Libvirt, &["<page size=\"1048576\" unit=\"KiB\"/>", "<source type=\"memfd\"/>"]),
            (Kind::Proxmox, &["\nhugepages: 1024\n"]),
            (Kind::Nova, &["hw:mem_page_size=1GB"]),
            (Kind::CloudHypervisor, &["size=2048M,host_numa_node=1,hugepages=on,hugepage_size=1024M,prefault=on"]),
        ],
    );
    // KubeVirt takes 1 GiB by itself where the pools hold it: the spec may want the smaller ones.
    says("[backing]\nhuge_pages = \"2 MiB\"\n", &[(Kind::Kubevirt, &["pageSize: 2Mi"])]);
}

#[test]
fn memory_that_is_taken_on_touch_is_not_filled_at_the_start() {
    let lazy = "[backing]\nfill = \"on_touch\"\n";
    let filled = [
        (Kind::Qemu, "prealloc"),
        (Kind::Libvirt, "allocation"),
        (Kind::CloudHypervisor, "prefault"),
        (Kind::Proxmox, "fills the memory at the start only with huge pages"),
    ];
    for (kind, word) in filled {
        assert!(text(kind, "").contains(word) && !text(kind, lazy).contains(word), "{kind:?}");
    }
    says(
        lazy,
        &[
            (Kind::Qemu, &["host-nodes=1,policy=preferred", "memory is taken when the guest touches it"]),
            (Kind::Libvirt, &["mode=\"preferred\""]),
            (Kind::Proxmox, &["hostnodes=1,memory=2048,policy=preferred"]),
            (Kind::Nova, &["no more of a node's memory than it has"]),
            (Kind::Kubevirt, &["no memory is overcommitted"]),
            (Kind::CloudHypervisor, &["bound to its host node strictly"]),
        ],
    );
    // A slice's nodes are a limit, not a preference.
    assert!(text(Kind::Systemd, "").contains("AllowedMemoryNodes=0-1"));
    assert!(!text(Kind::Systemd, lazy).contains("\nAllowedMemoryNodes="));
}

#[test]
fn what_a_balancer_is_told_is_a_mark_or_its_loss_is_said() {
    let lines = "policy.placement = \"apart\"\npolicy.bandwidth = \"12 GB/s\"\npolicy.latency_sensitive = true\n";
    let words = "policy--placement-apart--bandwidth-12000000000--latency_sensitive";
    for (kind, mark) in [
        (Kind::Qemu, format!("null,id={words}")),
        (Kind::Proxmox, format!("-chardev null,id={words}")),
        (Kind::Libvirt, format!("<alias name=\"ua-{words}\"/>")),
    ] {
        assert!(text(kind, lines).contains(&mark), "{mark}");
        assert!(!text(kind, "").contains("policy--"), "{mark}");
    }
    let rule = "placement = \"apart\", bandwidth = \"12000 MB/s\", latency_sensitive = true";
    for (kind, name) in
        [(Kind::Nova, "Nova"), (Kind::Kubevirt, "KubeVirt"), (Kind::CloudHypervisor, "cloud-hypervisor")]
    {
        let lost = format!("{name} has no word for what homenode's balancer is told of a VM");
        assert!(text(kind, lines).contains(&format!("{lost}: {rule}.")), "{name}");
        assert!(!text(kind, "").contains(&lost), "{name}");
    }
    // Where the stack binds each vCPU, the balancer sees what it is.
    let core = "policy.vcpu_binding = \"core\"\n";
    assert!(!text(Kind::Libvirt, core).contains("count as busy"));
    assert!(text(Kind::Proxmox, core).contains("Proxmox binds no vCPU, so that homenode's balancer does not see"));
}

#[test]
fn one_cpu_for_each_vcpu_is_said_or_lost() {
    // Cores {0, 1} to {6, 7} of node 0 and {8, 9} to {14, 15} of node 1: the first thread of each.
    says(
        "policy.vcpu_binding = \"core\"\n",
        &[
            (Kind::Qemu, &["if [ \"$vcpu\" -eq 3 ]; then cpus=6; fi", "if [ \"$vcpu\" -eq 4 ]; then cpus=8; fi"]),
            (Kind::Libvirt, &["<vcpupin vcpu=\"3\" cpuset=\"6\"/>", "<vcpupin vcpu=\"4\" cpuset=\"8\"/>"]),
            (Kind::Proxmox, &["affinity: 0,2,4,6,8,10,12,14", "binds no vCPU to one CPU"]),
            (
                Kind::Nova,
                &[
                    "hw:cpu_policy=dedicated \\",
                    "cpu_dedicated_set, and cpu_shared_set for QEMU's own threads\n#   compute",
                ],
            ),
            (Kind::Kubevirt, &["a CPU that the kubelet chooses, siblings of one core first"]),
            (Kind::CloudHypervisor, &["3@[6],4@[8]"]),
            (Kind::Systemd, &["AllowedCPUs=0,2,4,6,8,10,12,14", "binds no single thread"]),
        ],
    );
}
