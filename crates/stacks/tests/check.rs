//! Domains as people and programs write them, judged on machines that homenode knows: findings and
//! patches are compared with snapshots that a person has read, and what is cured must be right.

use judge::{Finding, Severity};
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use stacks::domain;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use topology::{Machine, read};

fn machine(name: &str) -> Machine {
    read::shipped(name).expect(name).expect(name)
}

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check-domains").join(format!("{name}.xml"));
    fs::read_to_string(path).expect(name)
}

fn judged(text: &str, machine: &Machine) -> CheckedDomain {
    CheckedDomain::new(machine, &Occupancy::default(), text, "vm.xml").expect("a domain")
}

fn described(finding: &Finding) -> String {
    let mut text = format!("{:?} {} ({:?}): {}\n", finding.severity, finding.what, finding.harm, finding.sentence);
    let spots: Vec<String> = finding.spots.iter().map(ToString::to_string).collect();
    for (head, words) in [("seen", finding.seen.clone()), ("at", spots.join(", "))] {
        if !words.is_empty() {
            let _ = writeln!(text, "  {head}: {words}");
        }
    }
    if let Some(cost) = &finding.cost {
        let _ = writeln!(text, "  costs: {cost}");
    }
    let restart = if finding.cure.restart { " (restart)" } else { "" };
    if !finding.cure.advice.is_empty() {
        let _ = writeln!(text, "  cure{restart}: {}", finding.cure.advice);
    }
    for command in &finding.cure.commands {
        let _ = writeln!(text, "  $ {command}");
    }
    text + finding.cure.patch.as_deref().unwrap_or_default()
}

/// Findings of the domain, then those that are left in the cured one.
fn report(name: &str, on: &str) -> String {
    let machine = machine(on);
    let checked = judged(&text(name), &machine);
    let mut report: String = checked.findings.iter().map(described).collect();
    let left = judged(&checked.cured, &machine);
    let names: Vec<&str> = left.findings.iter().map(|finding| finding.what).collect();
    assert_eq!(left.wrong(), 0, "{name} on {on}, cured:\n{}\n{:#?}", checked.cured, left.findings);
    let _ = writeln!(report, "cured: {} notes {names:?}", names.len());
    report
}

macro_rules! golden {
    ($($test:ident: $name:literal on $machine:literal),* $(,)?) => {
        /// Every domain and the machine that it is judged on.
        const CORPUS: &[(&str, &str)] = &[$(($name, $machine)),*];
        $(
            #[test]
            fn $test() {
                insta::assert_snapshot!($name, report($name, $machine));
            }
        )*
    };
}

golden! {
    virt_manager_leaves_it_floating: "virt-manager-default" on "hp-dl380-g6",
    virt_install_binds_memory_only: "virt-install-numatune" on "hp-dl380-g6",
    nova_tells_no_distances: "nova-dedicated" on "epyc-7742-2s-nps1",
    a_guide_pins_siblings: "guide-siblings" on "xeon-8480-2s-snc4",
    a_guide_that_tells_of_threads_means_it: "guide-threads" on "xeon-8480-2s-snc4",
    memory_away: "memory-away" on "hp-dl380-g6",
    a_memory_device_away_from_its_cell: "memory-devices" on "hp-dl380-g6",
    proxmox_gives_nodes_no_home: "proxmox-numa-1" on "hp-dl380-g6",
    one_socket_over_two_cells: "one-socket-two-cells" on "hp-dl380-g6",
    automatic_memory_with_memnode: "auto-with-memnode" on "hp-dl380-g6",
    automatic_vcpus_with_cells: "auto-with-cells" on "hp-dl380-g6",
    other_threads_on_vcpus_and_away: "emulator-on-vcpus" on "xeon-8480-2s-snc4",
    distances_of_another_machine: "wrong-distances" on "hp-dl980-g7",
    a_cell_larger_than_a_node: "cell-too-large" on "hp-dl380-g6",
    wide_and_told_of_one_node: "wide-without-cells" on "hp-dl980-g7",
    written_for_another_host: "from-another-host" on "hp-dl380-g6",
    interleaved_without_need: "interleaved" on "hp-dl380-g6",
    cells_of_even_and_odd_vcpus: "scattered-cells" on "hp-dl380-g6",
    four_vcpus_on_two_hardware_threads: "crowded" on "hp-dl380-g6",
    nothing_is_wrong: "right" on "hp-dl380-g6",
    another_length_back: "asymmetric" on "hp-dl380-g6",
    caches_smaller_than_a_node: "ccx" on "epyc-7742-2s-nps1",
}

#[test]
fn every_domain_cures_on_machines_of_all_kinds_and_a_second_cure_changes_nothing() {
    let machines = ["hp-dl380-g6", "hp-dl980-g7", "epyc-7742-2s-nps4", "altra-max-2s"];
    for (name, _) in CORPUS {
        for on in &machines {
            let machine = machine(on);
            let checked = judged(&text(name), &machine);
            let left = judged(&checked.cured, &machine);
            // What no edit mends is there before and after; everything else is gone.
            let mended = |finding: &&Finding| finding.severity > Severity::Note && !finding.cure.changes.is_empty();
            let found: Vec<&Finding> = left.findings.iter().filter(mended).collect();
            assert!(found.is_empty(), "{name} on {on}:\n{}\n{found:#?}", checked.cured);
            assert_eq!(left.cured, checked.cured, "{name} on {on}");
            if checked.wrong() == 0 {
                assert_eq!(checked.cured, text(name), "{name} on {on}: nothing to cure, and yet it changed");
            }
        }
    }
}

#[test]
fn a_cure_keeps_everything_that_it_does_not_name() {
    let before = text("virt-install-numatune");
    let cured = judged(&before, &machine("hp-dl380-g6")).cured;
    // Only <vcpu> is changed: it is where CPUs of a VM with one home are written.
    let others =
        |text: &str| text.lines().filter(|line| !line.contains("<vcpu")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(others(&cured), others(&before));
    assert!(cured.contains("<!-- made by virt-install, kept as it was -->"));
    let domain = domain::parse(&cured, "cured").expect("a domain");
    assert_eq!(domain.vcpu_cpuset, Some("0-3,8-11".parse().expect("a set")));
}

#[test]
fn shared_memory_of_cells_stays_shared_when_cells_are_added() {
    let before = text("nova-dedicated");
    // A machine of nodes with 4 cores each: two cells of 8 vCPUs are too large, four are needed.
    let machine = read::from_synthetic("pack:8 [numa(memory=64GB)] l3:1 core:4 pu:1").expect("a machine");
    let checked = judged(&before, &machine);
    let domain = domain::parse(&checked.cured, "cured").expect("a domain");
    assert_eq!(domain.cells.len(), 4, "{}", checked.cured);
    assert_eq!(checked.cured.matches(r#"memAccess="shared""#).count(), 4, "{}", checked.cured);
    assert_eq!(judged(&checked.cured, &machine).wrong(), 0, "{}", checked.cured);
}

#[test]
fn cells_that_other_devices_name_are_not_cut_anew() {
    let device = "<devices>\n    <memory model='dimm'>\n      <target>\n        <size \
        unit='GiB'>1</size>\n        <node>0</node>\n      </target>\n    </memory>\n  </devices>\n</domain>";
    let before = text("wide-without-cells").replace("</domain>", device);
    let checked = judged(&before, &machine("hp-dl980-g7"));
    // libvirt takes no device without <maxMemory>, and that not without a cell.
    let wide = checked.findings.iter().find(|finding| finding.what == "node_too_large").expect("the finding");
    assert!(wide.cure.advice.contains("<memory> of <devices> names virtual nodes"), "{}", wide.cure.advice);
    assert_eq!(checked.cured.matches("<cell").count(), 1, "{}", checked.cured);
}

#[test]
fn findings_come_worst_first() {
    for (name, on) in CORPUS {
        let checked = judged(&text(name), &machine(on));
        let ranks: Vec<_> =
            checked.findings.iter().map(|finding| (finding.severity == Severity::Note, finding.harm)).collect();
        assert!(ranks.is_sorted(), "{name}: {ranks:?}");
    }
}

/// libvirt refuses a pin of an iothread that there is not.
#[test]
fn iothreads_are_pinned_by_their_own_numbers() {
    let ids = "<iothreadids>\n    <iothread id='4'/>\n    <iothread id='6'/>\n  </iothreadids>\n  <cputune>\n";
    let before = text("emulator-on-vcpus").replacen("<cputune>\n", ids, 1);
    let before = before.lines().filter(|line| !line.contains("iothreadpin") && !line.contains("<iothreads>"));
    let before = before.map(|line| format!("{line}\n")).collect::<String>();
    let checked = judged(&before, &machine("xeon-8480-2s-snc4"));
    let floats = checked.findings.iter().find(|finding| finding.what == "other_threads_float").expect("the finding");
    assert!(floats.sentence.starts_with("iothread 4 and iothread 6 "), "{}", floats.sentence);
    let pins = domain::parse(&checked.cured, "cured").expect("a domain").iothread_pins;
    assert_eq!(pins.keys().copied().collect::<Vec<_>>(), [4, 6], "{}", checked.cured);
}

/// sockets × dies × clusters × modules × cores × threads is the number of vCPUs, or libvirt refuses
/// the domain.
#[test]
fn a_cured_topology_has_as_many_vcpus_as_the_domain() {
    for groups in ["clusters='2'", "modules='2'"] {
        let topology = format!("<topology sockets='1' dies='2' {groups} cores='2' threads='1'/>");
        let cells = "<numa><cell id='0' cpus='0-1,4-5' memory='1' unit='GiB'/><cell id='1' cpus='2-3,6-7' memory='1' \
            unit='GiB'/></numa>";
        let before = format!(
            "<domain><name>x</name><memory unit='GiB'>2</memory><vcpu>8</vcpu><cpu>{topology}<cache \
            mode='disable'/>{cells}</cpu></domain>"
        );
        for on in ["hp-dl380-g6", "altra-max-2s"] {
            let cured = judged(&before, &machine(on)).cured;
            let told = domain::parse(&cured, "cured").expect("a domain").guest;
            assert_eq!(told.sockets * told.dies * told.cores * told.threads, 8, "{on}: {cured}");
            assert_ne!(cured, before);
        }
    }
}

#[test]
fn sockets_are_advised_only_where_they_fit_into_the_virtual_nodes() {
    let advice = |cells: &[(&str, u32)]| {
        let cells: String =
            cells.iter().map(|(cpus, gib)| format!("<cell cpus='{cpus}' memory='{gib}' unit='GiB'/>")).collect();
        let text = format!("<domain><name>x</name><vcpu>12</vcpu><cpu><numa>{cells}</numa></cpu></domain>");
        let findings = judged(&text, &machine("xeon-8480-2s")).findings;
        let sockets = findings.into_iter().find(|finding| finding.what == "a_socket_for_each_vcpu");
        sockets.expect("the finding").cure.advice
    };
    assert_eq!(advice(&[("0-11", 2)]), "tell it of one socket");
    assert_eq!(advice(&[("0-5", 1), ("6-11", 1)]), "tell it of 2 sockets, one for each virtual node");
    let thirds = "tell it of 3 sockets of 4 cores: none then lies in two virtual nodes";
    assert_eq!(advice(&[("0-3", 1), ("4-11", 1)]), thirds);
    assert!(advice(&[("0-4", 1), ("5-11", 1)]).starts_with("sockets are all alike"));
}

/// libvirt refuses a `<memnode>` of another mode beside a restrictive `<memory>`.
#[test]
fn restrictive_memory_stays_restrictive_node_by_node() {
    let cells = "<cell cpus='0-3' memory='1' unit='GiB'/><cell cpus='4-7' memory='1' unit='GiB'/>";
    for nodes in ["placement='auto'", "nodeset='0-1'"] {
        let text = format!(
            "<domain><name>x</name><vcpu>8</vcpu><numatune><memory mode='restrictive' \
            {nodes}/></numatune><cpu><numa>{cells}</numa></cpu></domain>"
        );
        let cured = judged(&text, &machine("hp-dl380-g6")).cured;
        let domain = domain::parse(&cured, "cured").expect("a domain");
        let modes: Vec<&str> = domain.memory_nodes.values().map(|tune| tune.mode.as_str()).collect();
        assert_eq!(modes, ["restrictive", "restrictive"], "{cured}");
    }
}

/// libvirt refuses `placement='static'` without nodes.
#[test]
fn memory_that_numad_placed_gets_nodes_with_the_pins() {
    let pins: String = (0..4).map(|vcpu| format!("<vcpupin vcpu='{vcpu}' cpuset='2'/>")).collect();
    let text = format!(
        "<domain><name>x</name><memory unit='GiB'>1</memory><vcpu>4</vcpu><cputune>{pins}</cputune><numatune><memory \
        mode='preferred' placement='auto'/></numatune></domain>"
    );
    let cured = judged(&text, &machine("hp-dl380-g6")).cured;
    let tune = domain::parse(&cured, "cured").expect("a domain").memory_tune.expect("a policy");
    // Four vCPUs on one CPU stay pinned, each on a core.
    assert!(["0", "1", "2", "3"].iter().all(|cpu| cured.contains(&format!("cpuset='{cpu}'"))), "{cured}");
    assert_eq!(
        (tune.mode.as_str(), tune.auto, tune.nodeset),
        ("preferred", false, Some("0".parse().expect("a set"))),
        "{cured}"
    );
}

#[test]
fn elements_of_other_namespaces_are_not_where_something_is_written() {
    let text = "<domain><name>x</name>\n<o:vcpu xmlns:o='other:ns'>64</o:vcpu>\n<vcpu>2</vcpu>\n<memory \
        unit='GiB'>1</memory></domain>";
    let findings = judged(text, &machine("hp-dl380-g6")).findings;
    let floats = findings.iter().find(|finding| finding.what == "floats").expect("the finding");
    assert_eq!(floats.spots.iter().map(ToString::to_string).collect::<Vec<_>>(), ["vcpu (line 3)"]);
}

/// QEMU 9.1 and later refuses a part of a huge page as memory of a virtual node.
#[test]
fn memory_of_huge_pages_is_cut_into_whole_pages() {
    for (gib, shares) in [(31, [15, 16]), (30, [15, 15])] {
        let pages = "<memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>";
        let text = format!("<domain><name>x</name><memory unit='GiB'>{gib}</memory><vcpu>8</vcpu>{pages}</domain>");
        let checked = judged(&text, &machine("hp-dl380-g6"));
        let cells = domain::parse(&checked.cured, "cured").expect("a domain").cells;
        let memory: Vec<u64> = cells.iter().map(|cell| cell.memory.mib()).collect();
        assert_eq!(memory, shares.map(|share| share * 1024), "{}", checked.cured);
        assert_eq!(judged(&checked.cured, &machine("hp-dl380-g6")).wrong(), 0, "{}", checked.cured);
    }
}

/// A cache of the host is larger than a die here, and no die lies in two virtual nodes.
#[test]
fn caches_of_the_host_are_kept_within_virtual_nodes_of_several_dies() {
    for cells in [["0-7", "8-15"], ["0-3,8-11", "4-7,12-15"]] {
        let cells = cells.map(|cpus| format!("<cell cpus='{cpus}' memory='2' unit='GiB'/>")).concat();
        let cpu = "<topology sockets='1' dies='4' cores='4' threads='1'/><cache mode='passthrough'/>";
        let text = format!(
            "<domain><name>x</name><vcpu>16</vcpu><cpu \
             mode='host-passthrough'>{cpu}<numa>{cells}</numa></cpu></domain>"
        );
        let machine = machine("hp-dl980-g7");
        let checked = judged(&text, &machine);
        assert!(checked.findings.iter().any(|finding| finding.what == "cache_over_nodes"), "{:#?}", checked.findings);
        let left = judged(&checked.cured, &machine);
        assert_eq!(left.wrong(), 0, "{}\n{:#?}", checked.cured, left.findings);
        assert_eq!(left.cured, checked.cured);
    }
}

/// A domain without `<vcpu>` has one. A cure that makes the element for its CPUs alone makes a
/// domain that libvirt refuses.
#[test]
fn a_domain_that_does_not_say_its_vcpus_is_cured_by_a_pin() {
    let text = "<domain type='kvm'>\n  <name>one</name>\n  <memory unit='GiB'>1</memory>\n</domain>\n";
    let machine = machine("hp-dl380-g6");
    let checked = judged(text, &machine);
    assert!(checked.wrong() > 0 && checked.cured.contains("<vcpupin vcpu='0' "), "{}", checked.cured);
    assert_eq!(judged(&checked.cured, &machine).wrong(), 0, "{}", checked.cured);
}

/// Nodes of 8 GiB hold 5 and 9 of 14 GiB only if 1 GiB lies beside: memory on two nodes does not
/// make the vCPUs live on both.
#[test]
fn vcpus_stay_at_home_where_a_part_of_the_memory_lies_beside() {
    let machine = read::from_synthetic("pack:2 [numa(memory=8GiB)] core:4 pu:2").expect("a machine");
    let cell = |id: u32, cpus: &str, gib: u64| format!("<cell id='{id}' cpus='{cpus}' memory='{gib}' unit='GiB'/>");
    let text = format!(
        "<domain type='kvm'><name>beside</name><memory \
        unit='GiB'>14</memory><vcpu>20</vcpu><cpu><numa>{}{}</numa></cpu></domain>",
        cell(0, "0-5", 5),
        cell(1, "6-19", 9)
    );
    let checked = judged(&text, &machine);
    let left = judged(&checked.cured, &machine);
    assert_eq!(left.cured, checked.cured, "{:#?}", left.findings);
}

/// A domain of two cells of 2 vCPUs and 4 GiB, each at home; cell 0 has a device of so many GiB, of
/// which 2 are requested.
fn growing(device_gib: u32, most_gib: u32, node: u32) -> String {
    let cell = |id: u32| format!("<cell id='{id}' cpus='{}-{}' memory='4' unit='GiB'/>", 2 * id, 2 * id + 1);
    let pin = |vcpu: u32| format!("<vcpupin vcpu='{vcpu}' cpuset='{}'/>", if vcpu < 2 { "0-3" } else { "4-7" });
    let pins: String = (0..4).map(pin).collect();
    let memnode = |id: u32| format!("<memnode cellid='{id}' mode='strict' nodeset='{id}'/>");
    let device = format!(
        "<memory model='virtio-mem'><target><size unit='GiB'>{device_gib}</size><node>{node}</node>\
         <block unit='MiB'>2</block><requested unit='GiB'>2</requested></target></memory>"
    );
    format!(
        "<domain type='kvm'><name>web</name><maxMemory slots='8' unit='GiB'>{most_gib}</maxMemory>\
         <memory unit='GiB'>16</memory><vcpu>4</vcpu><cputune>{pins}<emulatorpin cpuset='0-7'/></cputune>\
         <numatune>{}{}</numatune><cpu><topology sockets='2' cores='2' threads='1'/><numa>{}{}</numa></cpu>\
         <devices>{device}</devices></domain>",
        memnode(0),
        memnode(1),
        cell(0),
        cell(1)
    )
}

#[test]
fn memory_that_may_be_plugged_in_is_judged_too() {
    let machine = read::from_synthetic("pack:2 [numa(memory=16GiB)] l3:1 core:4 pu:1").expect("a machine");
    let said = |device: u32, most: u32| -> Vec<(&str, String)> {
        let found = judged(&growing(device, most, 0), &machine).findings;
        let about =
            |what: &str| ["node_too_large", "outgrows_its_node", "grows_beyond_machine", "no_room"].contains(&what);
        found.into_iter().filter(|found| about(found.what)).map(|found| (found.what, found.sentence)).collect()
    };
    let domain = domain::parse(&growing(8, 20, 0), "vm.xml").expect("a domain");
    let vm = stacks::check::shaped(&domain, &growing(8, 20, 0));
    // 2 x 4 + 2, and what it may have.
    assert_eq!((vm.present_memory().mib() >> 10, vm.most_memory().mib() >> 10), (10, 20));
    // (20 - 10 - 6) / 2 = 2 more each: 4 + 8 + 2 = 14 of 16.
    assert_eq!(said(8, 20), []);
    // (28 - 10 - 6) / 2 = 6 more each: 4 + 8 + 6 = 18.
    let outgrows = "virtual node 0 may grow to 18 GiB, and nodes of";
    assert!(
        matches!(&said(8, 28)[..], [("outgrows_its_node", said)] if said.starts_with(outgrows)),
        "{:?}",
        said(8, 28)
    );
    let beyond = said(8, 64);
    assert!(
        matches!(&beyond[..], [("grows_beyond_machine", said)] if said.contains("may grow to 64 GiB")),
        "{beyond:?}"
    );
    // 4 + 14 = 18: the device may give more than a node has, and gives 2 when it starts.
    assert!(matches!(&said(14, 24)[..], [("outgrows_its_node", _)]), "{:?}", said(14, 24));

    let refused = |text: &str| domain::parse(text, "vm.xml").expect_err(text).to_string();
    let says = refused(&growing(8, 20, 3));
    assert!(says.ends_with("domain/devices/memory/target/node: there is no cell 3: the domain has 2"), "{says}");
    let says = refused(&growing(1, 20, 0));
    assert!(says.contains("2 GiB are requested of a device of 1 GiB"), "{says}");
    let says = refused(&growing(8, 12, 0));
    assert!(says.contains("domain/maxMemory: it is 12 GiB, and the domain has 16 GiB"), "{says}");
}

/// A Windows of 16 vCPUs in 16 sockets, with cells of so many vCPUs.
fn windows(told: &str, cells: &[u32], vcpu: &str) -> String {
    let mut next = 0;
    let cell = |vcpus: &u32| {
        let first = next;
        next += vcpus;
        format!("<cell cpus='{first}-{}' memory='2' unit='GiB'/>", next - 1)
    };
    let cells: String = cells.iter().map(cell).collect();
    let numa = if cells.is_empty() { String::new() } else { format!("<numa>{cells}</numa>") };
    format!(
        "<domain type='kvm'><name>win</name><memory unit='GiB'>8</memory>{vcpu}<features><hyperv><relaxed state='on'/>\
         </hyperv></features><cpu>{told}{numa}</cpu></domain>"
    )
}

/// Case: a desktop Windows works with two of the sockets that it is told of.
#[test]
fn a_windows_is_told_of_no_more_sockets_than_it_uses() {
    let machine = read::from_synthetic("pack:4 [numa(memory=32GiB)] l3:1 core:16 pu:2").expect("a machine");
    let sixteen = "<vcpu>16</vcpu>";
    for (told, cells, sockets, cores) in [
        ("", &[][..], 1, 16),
        ("<topology sockets='16' cores='1' threads='1'/>", &[], 1, 16),
        ("<topology sockets='4' cores='2' threads='2'/>", &[], 1, 8),
        ("", &[8, 8], 2, 8),
        ("<topology sockets='4' cores='4' threads='1'/>", &[4, 4, 4, 4], 2, 4),
    ] {
        let text = windows(told, cells, sixteen);
        let checked = judged(&text, &machine);
        let found = checked.findings.iter().find(|finding| finding.what == "sockets_unused").expect(told);
        assert_eq!(found.severity, Severity::Warning, "{found:#?}");
        assert!(found.cure.patch.is_some(), "{found:#?}");
        let guest = domain::parse(&checked.cured, "cured").expect("a domain").guest;
        assert_eq!((guest.sockets, guest.cores), (sockets, cores), "{}", checked.cured);
        assert_eq!(guest.sockets * guest.dies * guest.cores * guest.threads, 16, "{}", checked.cured);
        let left = judged(&checked.cured, &machine);
        assert!(left.wrong() == 0 && left.cured == checked.cured, "{}\n{:#?}", checked.cured, left.findings);
    }
    let kinds = |text: &str| -> Vec<(&str, Severity)> {
        let found = judged(text, &machine).findings.into_iter();
        found.map(|one| (one.what, one.severity)).filter(|(what, _)| what.contains("socket")).collect()
    };
    // A server uses 64; two sockets are two; vCPUs that are not there yet may come into others.
    let server = windows("", &[], sixteen).replace(
        "<memory",
        "<metadata><o:libosinfo xmlns:o='http://libosinfo.org/xmlns/libvirt/domain/1.0'><o:os \
         id='http://microsoft.com/win/2k22'/></o:libosinfo></metadata><memory",
    );
    assert_eq!(kinds(&server), [("a_socket_for_each_vcpu", Severity::Note)]);
    assert_eq!(kinds(&windows("<topology sockets='2' cores='8' threads='1'/>", &[], sixteen)), []);
    let growing = windows("<topology sockets='4' cores='4' threads='1'/>", &[], "<vcpu current='4'>16</vcpu>");
    assert_eq!(kinds(&growing), [("sockets_unused", Severity::Note)]);
}
