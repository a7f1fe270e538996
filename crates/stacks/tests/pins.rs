//! VMs whose vCPUs somebody bound, on machines with isolated CPUs, unlike cores, and nodes without
//! memory: what is found, and that cures keep what the pins were for.

use judge::{Finding, Severity};
use scheduler::Occupancy;
use stacks::check::{CheckedDomain, Definition};
use stacks::domain;
use topology::{Machine, read};

/// 8 cores: CPUs 0-7, and their siblings 8-15.
const SMT: &str = "sockets = 1\ncores_per_llc = 8\nthreads_per_core = 2\nmemory_per_node = \"64 GiB\"\n";
/// 8 P cores of two threads (CPUs 0-15), 16 E cores (16-31).
const HYBRID: &str = "sockets = 1\nmemory_per_node = \"64 GiB\"\ncpu_numbering = \"threads-first\"\n\
    [[llc]]\ncores = 8\nthreads_per_core = 2\n[[llc]]\ncores = 16\ncore_capacity = 672\n";

fn described(text: &str) -> Machine {
    read::from_toml(text, "m.toml").expect("a machine")
}

/// A domain with these pins, in order; `more` comes into `<cputune>`, `cpu` into `<cpu>`.
fn domain(pins: &[&str], more: &str, cpu: &str) -> String {
    let pin = |(vcpu, cpus): (usize, &&str)| format!("<vcpupin vcpu='{vcpu}' cpuset='{cpus}'/>");
    let all: String = pins.iter().enumerate().map(pin).collect();
    format!(
        "<domain><name>x</name><memory unit='GiB'>1</memory><vcpu>{}</vcpu><cputune>{all}{more}</cputune><cpu>{cpu}\
        </cpu></domain>",
        pins.len()
    )
}

fn topology(cores: u32, threads: u32) -> String {
    format!("<topology sockets='1' cores='{cores}' threads='{threads}'/>")
}

fn judged(text: &str, machine: &Machine) -> CheckedDomain {
    CheckedDomain::new(machine, &Occupancy::default(), text, "vm.xml").expect("a domain")
}

/// What is wrong, and the pins of the cured domain; what is cured must be right.
fn cured(text: &str, machine: &Machine) -> (Vec<&'static str>, Vec<String>) {
    let checked = judged(text, machine);
    let after = judged(&checked.cured, machine);
    assert!(after.wrong() == 0, "{}\n{:#?}", checked.cured, after.findings);
    assert_eq!(after.cured, checked.cured);
    let domain = domain::parse(&checked.cured, "cured").expect("a domain");
    (wrong(&checked.findings), domain.vcpu_pins.values().map(ToString::to_string).collect())
}

fn wrong(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().filter(|finding| finding.severity > Severity::Note).map(|finding| finding.what).collect()
}

fn of<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.what == what).unwrap_or_else(|| panic!("no {what}: {findings:#?}"))
}

#[test]
fn siblings_of_the_guest_on_other_cores_are_ordered_anew() {
    // Cores {3, 11} and {4, 12}; the guest takes vCPUs 0 and 1 for the threads of one.
    let text = domain(&["3", "4", "11", "12"], "", &topology(2, 2));
    let (found, pins) = cured(&text, &described(SMT));
    assert_eq!(found, ["threads_that_are_none"]);
    assert_eq!(pins, ["3", "11", "4", "12"]);
    // Four cores, told as two: another order mends nothing, and the pins stay.
    let apart = judged(&domain(&["0", "1", "2", "3"], "", &topology(2, 2)), &described(SMT));
    assert!(apart.wrong() == 0 && of(&apart.findings, "threads_that_are_none").severity == Severity::Note);
}

const FIFO: &str = "<emulatorpin cpuset='4'/><vcpusched vcpus='0-1' scheduler='fifo' priority='2'/>";

#[test]
fn two_real_time_vcpus_on_one_core_get_another_core_each_of_their_own() {
    let text = domain(&["2", "10"], FIFO, "");
    assert_eq!(cured(&text, &described(SMT)), (vec!["siblings"], vec!["2".to_owned(), "3".to_owned()]));
    // What is isolated stays so: of cores 2, 5 (and 6) the second is 5, however near 3 is.
    let isolated = described(&format!("{SMT}isolated_cpus = \"2,5-6,10,13-14\"\n"));
    assert_eq!(cured(&text, &isolated), (vec!["siblings"], vec!["2".to_owned(), "5".to_owned()]));
    // No other isolated core: nothing is let free, and that is said.
    let one = described(&format!("{SMT}isolated_cpus = \"2,10\"\n"));
    let checked = judged(&text, &one);
    assert_eq!(checked.cured, text);
}

#[test]
fn vcpus_of_one_cpu_get_one_each_and_the_others_keep_theirs() {
    let text = domain(&["0", "1", "2", "0"], "<emulatorpin cpuset='7'/>", &topology(4, 1));
    let (found, pins) = cured(&text, &described(SMT));
    assert_eq!((found, pins), (vec!["shared_hardware_thread"], ["0", "1", "2", "3"].map(str::to_owned).to_vec()));
}

#[test]
fn pins_of_another_machine_stay_one_to_one() {
    let (found, pins) = cured(&domain(&["48", "49"], "", &topology(2, 1)), &described(SMT));
    assert_eq!((found, pins), (vec!["no_such_cpu"], ["0", "1"].map(str::to_owned).to_vec()));
}

#[test]
fn other_threads_on_the_vcpus_cores_are_found_and_get_another_core() {
    let away = "<emulatorpin cpuset='8-9'/>";
    let text = domain(&["0", "1"], away, &topology(2, 1));
    let checked = judged(&text, &described(SMT));
    assert_eq!(wrong(&checked.findings), ["other_threads_on_vcpu_cores"]);
    let emulator = domain::parse(&checked.cured, "cured").expect("a domain").emulator_pin;
    assert_eq!(emulator, Some("2-7,10-15".parse().expect("a set")));
    // A core of their own among them is enough.
    assert_eq!(
        judged(&domain(&["0", "1"], "<emulatorpin cpuset='2,8'/>", &topology(2, 1)), &described(SMT)).wrong(),
        0
    );
}

#[test]
fn vcpus_on_every_core_go_two_to_a_core_where_other_threads_have_the_rest() {
    let all: Vec<String> = (8..16).map(|cpu: u32| cpu.to_string()).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let text = domain(&all, "<emulatorpin cpuset='0-3'/>", &topology(8, 1));
    let (found, pins) = cured(&text, &described(SMT));
    assert_eq!(found, ["other_threads_on_vcpu_cores"]);
    assert_eq!(pins, ["4", "12", "5", "13", "6", "14", "7", "15"]);
    let domain = domain::parse(&judged(&text, &described(SMT)).cured, "cured").expect("a domain");
    assert_eq!(
        (domain.guest.cores, domain.guest.threads, domain.emulator_pin.map(|set| set.to_string())),
        (4, 2, Some("0-3".to_owned()))
    );
}

#[test]
fn weaker_cores_are_no_other_cores_and_no_cure_mixes_kinds() {
    let hybrid = described(HYBRID);
    // Every thread of the P cores, told so: nothing is wrong.
    let p: Vec<String> = (0..16).map(|cpu: u32| cpu.to_string()).collect();
    let p: Vec<&str> = p.iter().map(String::as_str).collect();
    let checked = judged(&domain(&p, "<emulatorpin cpuset='16-17'/>", &topology(8, 2)), &hybrid);
    assert!(
        checked.wrong() == 0 && checked.findings.iter().all(|finding| finding.what != "siblings"),
        "{:#?}",
        checked.findings
    );
    // Two on one P core: another P core, not E core 16, which is as near.
    let (found, pins) = cured(&domain(&["14", "15"], "<emulatorpin cpuset='16'/>", &topology(2, 1)), &hybrid);
    assert_eq!((found, pins), (vec!["siblings"], ["14", "12"].map(str::to_owned).to_vec()));
}

#[test]
fn one_guest_over_two_kinds_is_found_and_its_pins_stay() {
    let text = domain(&["2", "4", "16", "17"], "<emulatorpin cpuset='0'/>", &topology(4, 1));
    let checked = judged(&text, &described(HYBRID));
    assert_eq!((wrong(&checked.findings), &checked.cured), (vec!["unlike_cores"], &text));
    let found = of(&checked.findings, "unlike_cores");
    assert!(
        found.seen.contains("vCPUs 0-1: cores of capacity 1024") && found.seen.contains("vCPUs 2-3"),
        "{}",
        found.seen
    );
    // A set that somebody chose: of one kind, here the P cores.
    let set = domain(&["12-19"; 4], "", &topology(4, 1));
    let (found, pins) = cured(&set, &described(HYBRID));
    assert_eq!((found, pins.first().map(String::as_str)), (vec!["unlike_cores"], Some("0,2,4,6,8,10,12,14")));
    // Floating vCPUs: a note.
    let floats =
        judged("<domain><name>x</name><memory unit='GiB'>1</memory><vcpu>4</vcpu></domain>", &described(HYBRID));
    assert_eq!((floats.wrong(), of(&floats.findings, "unlike_cores").severity), (0, Severity::Note));
}

#[test]
fn cores_of_the_other_threads_are_not_left() {
    // P cores 1 and 2 with both threads, E cores beside; P core 0 is the emulator's on a machine of
    // 3.
    let small = HYBRID.replace("cores = 8", "cores = 3").replace("cores = 16", "cores = 2");
    let text = domain(&["2", "3", "4", "5", "6"], "<emulatorpin cpuset='0-1,7'/>", &topology(5, 1));
    let checked = judged(&text, &described(&small));
    assert_eq!((wrong(&checked.findings), &checked.cured), (vec!["unlike_cores"], &text));
}

fn proxmox(text: &str, machine: &Machine) -> Vec<Finding> {
    let definition = Definition::read(text.to_owned(), "100.conf".to_owned()).expect("a configuration");
    definition.check(machine, &Occupancy::default()).expect("findings")
}

#[test]
fn a_set_of_p_cores_stays_one_with_a_thread_of_each() {
    let conf = "affinity: 0-7\ncores: 8\nmemory: 1024\nname: cachy\nsockets: 1\n";
    let findings = proxmox(conf, &described(HYBRID));
    assert_eq!(of(&findings, "siblings").cure.commands, ["qm set 100 --affinity 0,2,4,6,8,10,12,14"]);
    assert_eq!(wrong(&proxmox(&conf.replace("0-7", "0,2,4,6,8,10,12,14"), &described(HYBRID))), [""; 0]);
    // More than P cores: all of their threads.
    let conf = "affinity: 0-11\ncores: 12\nmemory: 1024\nname: cachy\nsockets: 1\n";
    assert_eq!(of(&proxmox(conf, &described(HYBRID)), "siblings").cure.commands, ["qm set 100 --affinity 0-15"]);
}

#[test]
fn a_set_of_isolated_cpus_becomes_one_for_each_vcpu() {
    let isolated = described(&format!("{SMT}isolated_cpus = \"3-6\"\n"));
    let text = "<domain><name>x</name><memory unit='GiB'>1</memory><vcpu cpuset='3-6'>4</vcpu></domain>";
    let (found, pins) = cured(text, &isolated);
    assert_eq!((found, pins), (vec!["isolated_unbalanced"], ["3", "4", "5", "6"].map(str::to_owned).to_vec()));
    let emulator = domain::parse(&judged(text, &isolated).cured, "cured").expect("a domain").emulator_pin;
    assert_eq!(emulator, Some("0-2,7-10,15".parse().expect("a set")), "on CPUs that the kernel balances");
    // More vCPUs than CPUs: nothing is let free.
    let more = text.replace(">4<", ">5<");
    let checked = judged(&more, &isolated);
    assert!(wrong(&checked.findings).contains(&"isolated_unbalanced") && checked.cured == more, "{}", checked.cured);
    // Proxmox binds no vCPU by itself, and no command makes it worse.
    let findings = proxmox("affinity: 3-6\ncores: 4\nmemory: 1024\nsockets: 1\n", &isolated);
    let found = of(&findings, "isolated_unbalanced");
    assert!(found.cure.commands.is_empty() && found.cure.advice.contains("hookscript"), "{found:#?}");
    // One CPU each is right, and one vCPU needs no more than it has.
    assert_eq!(judged(&domain(&["3", "4"], "", &topology(2, 1)), &isolated).wrong(), 0);
    assert_eq!(judged(&domain(&["3-6"], "", ""), &isolated).wrong(), 0);
}

#[test]
fn isolated_cpus_beside_others_are_never_used() {
    let isolated = described(&format!("{SMT}isolated_cpus = \"2-3\"\n"));
    // Four vCPUs on two CPUs, since 2 and 3 are out of the balancer.
    let (found, pins) = cured(&domain(&["0-3"; 4], "", &topology(4, 1)), &isolated);
    assert_eq!(found, ["shared_hardware_thread", "isolated_unused"]);
    assert!(pins.iter().all(|cpus| cpus == "0-1,4-15"), "{pins:?}");
    // The whole node, as it is written before anybody isolates: a note.
    let whole = judged(&domain(&["0-14"; 4], "", &topology(4, 1)), &isolated);
    assert_eq!(wrong(&whole.findings), ["isolated_unused"]);
    let text = "pack:2 [numa(memory=4GiB)] core:4 pu:1(isolated_cpus=1)";
    let two = read::from_synthetic(text).expect("a machine");
    let node = judged(&domain(&["0-3"; 2], "", &topology(2, 1)), &two);
    assert_eq!(of(&node.findings, "isolated_unused").severity, Severity::Note);
}

#[test]
fn a_node_whose_cpus_are_all_isolated_is_a_home_for_pins() {
    let two = read::from_synthetic("pack:2 [numa(memory=4GiB)] core:4 pu:1(isolated_cpus=4-7)").expect("a machine");
    let bound = "<numatune><memory mode='strict' nodeset='1'/></numatune><cpu>";
    let text = domain(&["4", "5", "6", "7"], "<emulatorpin cpuset='0-3'/>", &topology(4, 1)).replace("<cpu>", bound);
    let checked = judged(&text, &two);
    assert_eq!((wrong(&checked.findings), checked.cured), (Vec::new(), text));
}

#[test]
fn vcpus_on_a_node_without_memory_are_remote() {
    let text = "pack:2 [numa(memory=8GiB)] core:4 pu:1";
    let mut machine = read::from_synthetic(text).expect("a machine");
    machine.nodes[1].memory = topology::Bytes(0);
    let text = domain(&["4-7"; 4], "", &topology(4, 1));
    let checked = judged(&text, &machine);
    let found = of(&checked.findings, "home_without_memory");
    assert_eq!(found.severity, Severity::Problem);
    assert!(found.cost.is_some_and(|cost| cost.factor() > 1.9), "{:?}", found.cost);
    let (_, pins) = cured(&text, &machine);
    assert!(pins.iter().all(|cpus| cpus == "0-3"), "{pins:?}");
    // 1:1 pins go there as pins.
    let (found, pins) = cured(&domain(&["4", "5"], "", &topology(2, 1)), &machine);
    assert_eq!((found[0], pins), ("home_without_memory", ["0", "1"].map(str::to_owned).to_vec()));
    // Half of what floats over both is remote.
    let floats = judged("<domain><name>x</name><memory unit='GiB'>1</memory><vcpu>4</vcpu></domain>", &machine);
    assert_eq!(wrong(&floats.findings), ["floats"]);
}

#[test]
fn width_hides_no_place() {
    let machine = read::from_synthetic("pack:2 [numa(memory=96GiB)] l3:1 core:20 pu:2").expect("a machine");
    // 40 vCPUs are more than 20 cores; their memory is on one node, and they may run on both.
    let text = "<domain><name>x</name><memory unit='GiB'>80</memory><vcpu>40</vcpu><numatune><memory mode='strict' \
        nodeset='0'/></numatune></domain>";
    let checked = judged(text, &machine);
    assert_eq!(checked.findings.first().map(|finding| finding.what), Some("vcpus_leave_memory"));
    let (found, _) = cured(text, &machine);
    assert!(found.contains(&"wide_without_vnuma"), "{found:?}");
}

#[test]
fn vms_that_are_bound_to_the_same_cores_are_found() {
    let machine = described(SMT);
    let others = Occupancy { bound_cpus: "8".parse().expect("a set"), ..Occupancy::default() };
    let text = domain(&["0", "1"], "<emulatorpin cpuset='7'/>", &topology(2, 1));
    let checked = CheckedDomain::new(&machine, &others, &text, "vm.xml").expect("a domain");
    assert_eq!(wrong(&checked.findings), ["others_on_vcpu_cores"]);
    let pins = domain::parse(&checked.cured, "cured").expect("a domain").vcpu_pins;
    assert_eq!(pins.values().map(ToString::to_string).collect::<Vec<_>>(), ["2", "1"]);
}

#[test]
fn sockets_that_are_one_node_are_said() {
    let machine = read::from_synthetic("numa:1(memory=8GiB) pack:2 core:6 pu:2").expect("a machine");
    let one = judged("<domain><name>x</name><memory unit='GiB'>1</memory><vcpu>2</vcpu></domain>", &machine);
    assert_eq!((one.wrong(), of(&one.findings, "numa_off").severity), (0, Severity::Note));
    let cells = "<numa><cell cpus='0-3' memory='1' unit='GiB'/><cell cpus='4-7' memory='1' unit='GiB'/></numa>";
    let text = format!(
        "<domain><name>x</name><vcpu>8</vcpu><cpu><topology sockets='2' cores='4' threads='1'/>{cells}</cpu></domain>"
    );
    assert!(wrong(&judged(&text, &machine).findings).contains(&"numa_off"));
}
