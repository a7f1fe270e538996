//! Sockets that are wider than a last-level cache, in the words of each stack.

use qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::emit::{Emission, Kind, emit};
use topology::read;
use vm::{Accelerator, VmSpec};

/// The text for a socket of 8 vCPUs on nodes of four caches of 4 cores, as one line.
fn text(kind: Kind, cpu: &str) -> String {
    let mut machine = read::from_synthetic("pack:2 [numa(memory=24GiB)] l3:4 core:4 pu:1").expect("a machine");
    machine.cpu_model = Some(cpu.to_owned());
    let spec = "name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\npolicy.cores_per_socket = 8\n";
    let spec = VmSpec::from_toml(spec, "vm.toml").expect("a spec");
    let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
    assert_eq!((plan.topology.sockets, plan.topology.dies_per_socket), (1, 2));
    let (boot, accelerator) = (BootFiles::default(), Accelerator::Kvm);
    let emission = Emission { machine: &machine, spec: &spec, plan: &plan, boot: &boot, accelerator: &accelerator };
    let text = emit(kind, &emission).expect("a text").replace('#', "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn dies_are_said_where_a_stack_has_words_for_them() {
    let says = [
        (Kind::Qemu, "sockets=1,dies=2,cores=4,threads=1"),
        (Kind::Libvirt, "<topology sockets=\"1\" dies=\"2\" cores=\"4\" threads=\"1\"/>"),
        (Kind::CloudHypervisor, "topology=1:4:2:1"),
        (Kind::Proxmox, "Proxmox has no word for dies: the plan has 2 in each socket"),
        (Kind::Nova, "Nova has no word for dies: the plan has 2 in each socket"),
        (Kind::Kubevirt, "KubeVirt has no word for dies: the plan has 2 in each socket"),
    ];
    for (kind, part) in says {
        let text = text(kind, "Xeon");
        assert!(text.contains(part), "{kind:?} lacks {part}:\n{text}");
    }
}

/// Without it a guest on AMD sees one last-level cache for all dies of a socket.
#[test]
fn dies_on_amd_come_with_their_cpuid_leaf() {
    let says = [
        (Kind::Qemu, "host,topoext=on"),
        (Kind::Libvirt, "<feature policy=\"require\" name=\"topoext\"/>"),
        (Kind::Kubevirt, "features: - name: topoext policy: require"),
    ];
    for (kind, part) in says {
        let (amd, intel) = (text(kind, "AMD EPYC 7742 64-Core Processor"), text(kind, "Xeon"));
        assert!(amd.contains(part), "{kind:?} lacks {part}:\n{amd}");
        assert!(!intel.contains("topoext"), "{kind:?}:\n{intel}");
    }
}
