//! VMs that may grow, for stacks that can be told so and for those that cannot.

use qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::emit::{Emission, Kind, emit};
use vm::{Accelerator, Plan, Shape, VmSpec};

const KINDS: [Kind; 7] =
    [Kind::Qemu, Kind::Libvirt, Kind::Proxmox, Kind::Nova, Kind::Kubevirt, Kind::CloudHypervisor, Kind::Systemd];

fn spec() -> VmSpec {
    let text = "name = \"db\"\nvcpus = 4\nmax_vcpus = 12\nmemory = \"8 GiB\"\nmax_memory = \"24 GiB\"\n";
    VmSpec::from_toml(text, "vm.toml").expect("valid")
}

fn machine() -> topology::Machine {
    topology::read::from_synthetic("pack:2 [numa(memory=32GiB)] l3:1 core:8 pu:1").expect("a machine")
}

/// The text for a plan of this shape; two nodes of 8 cores and 32 GiB.
fn text(kind: Kind, shape: &Shape) -> (Plan, Result<String, String>) {
    let machine = machine();
    let plan = scheduler::plan(&machine, &Occupancy::default(), shape).expect("a plan");
    let (spec, boot) = (spec(), BootFiles { kernel: Some("/boot/vmlinuz".into()), ..BootFiles::default() });
    let emission =
        Emission { machine: &machine, spec: &spec, plan: &plan, boot: &boot, accelerator: &Accelerator::Kvm };
    let text = emit(kind, &emission).map_err(|error| error.to_string());
    (plan, text)
}

#[test]
fn a_stack_that_cannot_be_told_gets_the_vm_as_it_starts_and_says_what_is_lost() {
    for kind in KINDS.into_iter().filter(|kind| !kind.carries_growth()) {
        let (_, refused) = text(kind, &spec().shape);
        assert!(refused.expect_err("it would start with all 12").starts_with("max_vcpus, max_memory: "), "{kind:?}");
        let (plan, text) = text(kind, &spec().without_growth());
        assert_eq!((plan.topology.vcpus(), plan.topology.max_vcpus()), (4, 4));
        let text = text.expect("a text");
        let lost = "The VM may grow to 12 vCPUs and 24 GiB (max_vcpus, max_memory): growth is not carried over.";
        assert!(text.contains(lost), "{kind:?}: {text}");
    }
}

#[test]
fn a_stack_that_can_be_told_is() {
    for (kind, said) in [
        (Kind::Qemu, ["maxcpus=12", "slots=32,maxmem="].as_slice()),
        (Kind::Libvirt, &["current=\"4\">12</vcpu>", "<maxMemory unit=\"KiB\" slots=\"32\">25165824</maxMemory>"]),
        (Kind::Systemd, &["(vCPUs 2-5 and 8 GiB later)"]),
    ] {
        let text = text(kind, &spec().shape).1.expect("a text");
        assert!(said.iter().all(|said| text.contains(said)), "{kind:?}: {text}");
        assert!(!text.contains("growth is not carried over"), "{text}");
    }
}

/// Each of two virtual nodes starts with 2 of 6 vCPUs, or of 20, for which no node has the CPUs.
#[test]
fn check_reads_of_a_domain_what_is_there_at_power_on_and_what_may_come() {
    for most in [12, 40] {
        let shape = Shape { max_vcpus: Some(most), ..spec().shape };
        let (plan, text) = text(Kind::Libvirt, &shape);
        let text = text.expect("a text");
        let domain = stacks::domain::parse(&text, "vm.xml").expect("our own text");
        let absent = plan.topology.nodes.iter().flat_map(|node| &node.absent).map(|&vcpu| topology::CpuId(vcpu));
        assert_eq!((domain.vcpus, &domain.absent), (most, &absent.collect()));
        let vm = stacks::check::shaped(&domain, &text);
        assert_eq!(vm.present(), 4);
        let findings = judge::definition(&machine(), &Occupancy::default(), &vm).findings;
        assert_eq!(judge::wrong(&findings), 0, "{findings:#?}");
    }
}

#[test]
fn without_a_list_the_first_vcpus_are_there() {
    let absent = |vcpu: &str| {
        let text = format!("<domain><name>a</name><memory unit='MiB'>64</memory>{vcpu}</domain>");
        stacks::domain::parse(&text, "vm.xml")
            .map(|domain| domain.absent.to_string())
            .map_err(|error| error.to_string())
    };
    assert_eq!(absent("<vcpu current='2'>4</vcpu>").as_deref(), Ok("2-3"));
    assert_eq!(absent("<vcpu>4</vcpu>").as_deref(), Ok(""));
    let listed = "<vcpus><vcpu id='0' enabled='yes'/><vcpu id='1' enabled='no'/><vcpu id='2' enabled='yes'/></vcpus>";
    assert_eq!(absent(&format!("<vcpu current='2'>4</vcpu>{listed}")).as_deref(), Ok("1,3"));
    for wrong in ["<vcpu current='5'>4</vcpu>", "<vcpu current='0'>4</vcpu>"] {
        assert!(absent(wrong).expect_err(wrong).contains("domain/vcpu: current="), "{wrong}");
    }
}
