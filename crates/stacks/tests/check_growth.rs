//! Domains that may grow, as KubeVirt, CloudStack, OpenNebula and oVirt write them: what runs
//! decides where they live, what may come is a note, and no memory is where no vCPU runs.

use judge::{Finding, Severity};
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use stacks::domain::{self, Domain};
use topology::{Bytes, Machine, read};

/// Two nodes of 24 cores with two hardware threads, and 128 GiB each.
fn two_nodes() -> Machine {
    read::from_synthetic("pack:2 [numa(memory=128GiB)] l3:1 core:24 pu:2").expect("a machine")
}

fn judged(text: &str, machine: &Machine) -> CheckedDomain {
    CheckedDomain::new(machine, &Occupancy::default(), text, "vm.xml").expect("a domain")
}

/// The domain once cured: nothing is left to do, a second cure changes nothing, and it has the
/// vCPUs and the memory that it had.
fn cured(text: &str, machine: &Machine) -> Domain {
    let checked = judged(text, machine);
    let left = judged(&checked.cured, machine);
    assert_eq!(left.wrong(), 0, "{}\n{:#?}", checked.cured, left.findings);
    assert_eq!(left.cured, checked.cured);
    assert_eq!((left.vm.vcpus, left.vm.present()), (checked.vm.vcpus, checked.vm.present()), "{}", checked.cured);
    assert_eq!(left.vm.present_memory(), checked.vm.present_memory(), "{}", checked.cured);
    domain::parse(&checked.cured, "cured").expect("a domain")
}

/// Memory of virtual nodes in which no vCPU is that is there at the start.
fn memory_without_vcpus(domain: &Domain) -> Bytes {
    let idle = domain.cells.iter().filter(|cell| cell.vcpus.difference(&domain.absent).is_empty());
    idle.map(|cell| cell.memory).sum()
}

fn named(findings: &[Finding], what: &str) -> Option<Severity> {
    findings.iter().find(|finding| finding.what == what).map(|finding| finding.severity)
}

fn domain_of(vcpu: &str, memory: &str, cpu: &str) -> String {
    format!("<domain type='kvm'><name>grows</name>{memory}{vcpu}<cpu mode='host-model'>{cpu}</cpu></domain>")
}

/// `<vcpus>` as libvirt and CloudStack write it.
fn each(present: u32, most: u32) -> String {
    let vcpu = |id: u32| match id {
        0 => "<vcpu id='0' enabled='yes' hotpluggable='no' order='1'/>".to_owned(),
        _ if id < present => format!("<vcpu id='{id}' enabled='yes' hotpluggable='yes' order='{}'/>", id + 1),
        _ => format!("<vcpu id='{id}' enabled='no' hotpluggable='yes'/>"),
    };
    let all: String = (0..most).map(vcpu).collect();
    format!("<vcpu placement='static' current='{present}'>{most}</vcpu><vcpus>{all}</vcpus>")
}

#[test]
fn what_runs_decides_and_what_may_come_is_a_note() {
    let one_cell = |vcpus: u32| format!("<numa><cell id='0' cpus='0-{}' memory='4' unit='GiB'/></numa>", vcpus - 1);
    let gib = |gib: u32| format!("<memory unit='GiB'>{gib}</memory>");
    let topology = |sockets: u32, cores: u32| format!("<topology sockets='{sockets}' cores='{cores}' threads='1'/>");
    for (manager, text) in [
        ("CloudStack", domain_of(&each(4, 64), &gib(4), &one_cell(64))),
        ("CloudStack without states", domain_of("<vcpu current='4'>64</vcpu>", &gib(4), &one_cell(64))),
        ("KubeVirt", domain_of("<vcpu current='8'>32</vcpu>", &gib(8), &(topology(4, 8) + &one_cell(32)))),
        ("KubeVirt, more than cores", domain_of("<vcpu current='4'>40</vcpu>", &gib(4), &topology(10, 4))),
        ("OpenNebula", domain_of("<vcpu current='2'>240</vcpu>", &gib(2), "")),
    ] {
        let machine = two_nodes();
        let domain = cured(&text, &machine);
        assert!(domain.cells.len() <= 1, "{manager}: cut into {:?}", domain.cells);
        assert_eq!(memory_without_vcpus(&domain), Bytes(0), "{manager}");
        let home = domain.vcpu_cpuset.clone().expect(manager);
        assert!(["0-47", "48-95"].contains(&&*home.to_string()), "{home}");
        let bound =
            domain.memory_tune.iter().chain(domain.memory_nodes.values()).filter_map(|tune| tune.nodeset.clone());
        let bound: Vec<usize> = bound.map(|nodes| nodes.len()).collect();
        assert!(!bound.is_empty() && bound.iter().all(|&nodes| nodes == 1), "{manager}: {bound:?}");
        let findings = judged(&text, &machine).findings;
        let many = domain.vcpus > 24;
        assert_eq!(named(&findings, "vcpus_outgrow_node"), many.then_some(Severity::Note), "{manager}");
        for wrong in ["node_too_large", "wide_without_vnuma", "over_several"] {
            assert_eq!(named(&findings, wrong), None, "{manager}");
        }
    }
}

#[test]
fn memory_that_may_come_is_a_note() {
    let memory = "<maxMemory slots='16' unit='GiB'>192</maxMemory><memory unit='GiB'>8</memory>";
    let cell = "<numa><cell id='0' cpus='0-15' memory='8' unit='GiB'/></numa>";
    let text = domain_of("<vcpu current='4'>16</vcpu>", memory, cell);
    let findings = judged(&text, &two_nodes()).findings;
    assert_eq!(named(&findings, "outgrows_its_node"), Some(Severity::Note), "{findings:#?}");
    let domain = cured(&text, &two_nodes());
    assert_eq!((domain.cells.len(), memory_without_vcpus(&domain)), (1, Bytes(0)));
}

/// What is too wide with the vCPUs that it starts with is cut anew for its largest size, and starts
/// with vCPUs of each virtual node.
#[test]
fn a_vm_that_is_wide_already_starts_with_vcpus_of_each_virtual_node() {
    let sockets = "<topology sockets='8' cores='8' threads='1'/>";
    for vcpu in ["<vcpu current='32'>64</vcpu>".to_owned(), each(32, 64)] {
        let text = domain_of(&vcpu, "<memory unit='GiB'>64</memory>", sockets);
        let findings = judged(&text, &two_nodes()).findings;
        assert_eq!(named(&findings, "wide_without_vnuma"), Some(Severity::Warning), "{findings:#?}");
        let domain = cured(&text, &two_nodes());
        let there: Vec<usize> = domain.cells.iter().map(|cell| cell.vcpus.difference(&domain.absent).len()).collect();
        assert_eq!((there, memory_without_vcpus(&domain)), (vec![16, 16], Bytes(0)));
    }
}

/// Cells that somebody chose are kept; those in which no vCPU is at the start get one.
#[test]
fn cells_of_which_no_vcpu_is_there_get_some_of_them() {
    let cell = |id: u32, cpus: &str| format!("<cell id='{id}' cpus='{cpus}' memory='32' unit='GiB'/>");
    let cells = format!("<numa>{}{}</numa>", cell(0, "0-31"), cell(1, "32-63"));
    let text = domain_of("<vcpu current='4'>64</vcpu>", "<memory unit='GiB'>64</memory>", &cells);
    let findings = judged(&text, &two_nodes()).findings;
    assert_eq!(named(&findings, "memory_without_vcpus"), Some(Severity::Warning), "{findings:#?}");
    let domain = cured(&text, &two_nodes());
    let there: Vec<String> =
        domain.cells.iter().map(|cell| cell.vcpus.difference(&domain.absent).to_string()).collect();
    assert_eq!(there, ["0-1", "32-33"]);

    // Bound to a node where nothing of it runs that costs at once.
    let pins: String = (0..64)
        .map(|vcpu| {
            let cpus = if vcpu < 32 { "0-47" } else { "48-95" };
            format!("<vcpupin vcpu='{vcpu}' cpuset='{cpus}'/>")
        })
        .collect();
    let tune = "<numatune><memnode cellid='0' mode='strict' nodeset='0'/><memnode cellid='1' mode='strict' \
                nodeset='1'/></numatune>";
    let bound = text.replace("<cpu ", &format!("<cputune>{pins}</cputune>{tune}<cpu "));
    let findings = judged(&bound, &two_nodes()).findings;
    let found = findings.iter().find(|finding| finding.what == "memory_without_vcpus").expect("the finding");
    assert_eq!(found.severity, Severity::Problem);
    assert!(
        matches!(found.cost, Some(judge::Cost::MemoryLatency { remote_share, .. }) if remote_share == 0.5),
        "{found:?}"
    );
    let domain = cured(&bound, &two_nodes());
    let homes: Vec<String> =
        domain.memory_nodes.values().filter_map(|tune| tune.nodeset.as_ref()).map(ToString::to_string).collect();
    assert_eq!((homes, memory_without_vcpus(&domain)), (vec!["0".to_owned(), "1".to_owned()], Bytes(0)));
}

/// vCPUs that are not there yet need no pin of their own for the others to be bound.
#[test]
fn only_the_vcpus_that_are_there_need_pins() {
    let pins: String = (0..4).map(|vcpu| format!("<vcpupin vcpu='{vcpu}' cpuset='48-95'/>")).collect();
    let tune = "<emulatorpin cpuset='48-95'/></cputune><numatune><memory mode='strict' nodeset='1'/></numatune>";
    let text = domain_of("<vcpu current='4'>16</vcpu>", "<memory unit='GiB'>8</memory>", "")
        .replace("<cpu ", &format!("<cputune>{pins}{tune}<cpu "));
    let checked = judged(&text, &two_nodes());
    assert_eq!((checked.wrong(), checked.cured == text), (0, true), "{:#?}", checked.findings);
}
