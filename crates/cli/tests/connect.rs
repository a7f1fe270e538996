//! Other hosts: libvirt's capabilities as a machine, and `--connect` with libvirt's test driver, a
//! real libvirtd, and a real sshd between.

use crate::common;
use crate::common::libvirtd::Libvirtd;
use crate::common::sshd::Sshd;
use crate::common::{REAL_VIRSH, lacks, said_in, unique};
use serde_json::Value;

/// The driver of libvirt's own tests: two nodes of eight CPUs, one domain, no daemon.
const TEST: &str = "test:///default";

fn said(arguments: &[&str]) -> (Option<i32>, String, String) {
    let runtime = tempfile::tempdir().expect("a directory");
    said_in(runtime.path(), arguments)
}

/// What homenode prints as JSON; it must succeed.
fn json(arguments: &[&str]) -> Value {
    let (code, out, error) = said(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {error}");
    serde_json::from_str(&out).unwrap_or_else(|problem| panic!("{arguments:?}: {problem}: {out}"))
}

fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn golden(name: &str) -> String {
    format!("{}/../topology/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A small domain under emulation, without a disk: its firmware looks for one for ever.
fn domain(name: &str, vcpu: &str) -> String {
    format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>{vcpu}<os><type arch='x86_64' \
        machine='pc'>hvm</type></os></domain>"
    )
}

/// A CPU that this process may use, which need not be CPU 0, and its node.
fn a_cpu() -> (topology::CpuId, String) {
    let machine = topology::read::live().expect("this machine");
    let cpu = linux::sys::affinity(0).expect("an affinity").iter().next().expect("a CPU");
    (cpu, machine.thread(cpu).expect("a hardware thread").node.to_string())
}

fn socket(daemon: &Libvirtd) -> String {
    daemon.path().join("run/libvirt/libvirt-sock").display().to_string()
}

#[test]
fn capabilities_are_a_machine_for_on() {
    let machine = &json(&["topology", "--json", "--on", &golden("libvirt/two-llcs-a-node.xml")])["machine"];
    let theirs = &json(&["topology", "--json", "--on", &golden("xml/two-llcs-a-node.xml")])["machine"];
    assert_eq!(machine["threads"], theirs["threads"]);
    assert_eq!(machine["distances"], theirs["distances"]);
    let plan = json(&["plan", &example("wide.toml"), "--json", "--on", &golden("libvirt/two-llcs-a-node.xml")]);
    assert_eq!(plan["machine"], "two-llcs-a-node");
}

#[test]
fn other_xml_is_told_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |text: &str| {
        let path = directory.path().join("vm.xml");
        std::fs::write(&path, text).expect("a file");
        said(&["topology", "--on", path.to_str().expect("UTF-8")])
    };
    let (code, _, error) = file(&domain("a", "<vcpu>1</vcpu>"));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("a VM of libvirt, not a machine; `homenode check` judges it"), "{error}");
    let (code, _, error) =
        file("<capabilities><host>\n<topology><cells><cell id='x'/></cells></topology></host></capabilities>");
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("line 2: <cell>: id=\"x\": expected a number under"), "{error}");
}

#[test]
fn libvirts_test_driver_is_a_host() {
    if lacks("libvirts_test_driver_is_a_host", "virsh") {
        return;
    }
    let machine = &json(&["topology", "--connect", TEST, "--json"])["machine"];
    assert_eq!(
        (machine["threads"].as_array().map(Vec::len), machine["nodes"].as_array().map(Vec::len)),
        (Some(16), Some(2))
    );
    let (code, out, error) = said(&["topology", "--connect", TEST]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(out.contains("2 NUMA nodes, 16 cores"), "{out}");
    let top = json(&["top", "--connect", TEST, "--json", "--interval", "0.2"]);
    assert_eq!((&top["vms"][0]["name"], &top["source"]), (&"test".into(), &TEST.into()));
    assert_eq!(top["vms"][0]["state"], "running");
    // The driver says neither: unknown is not zero.
    for unknown in ["pid", "home", "chosen_nodes", "resident", "local", "cpu_used", "ready_percent"] {
        assert_eq!(top["vms"][0][unknown], Value::Null, "{unknown}");
    }
    let unseen = top["unseen"].as_array().expect("sentences").iter().filter_map(Value::as_str).collect::<String>();
    assert!(unseen.contains("libvirt does not say which node resident memory is on"), "{unseen}");
    let (code, out, error) = said(&["doctor", "test", "--connect", TEST]);
    assert_eq!(code, Some(1), "a VM larger than its host: {out}{error}");
    assert!(out.contains("NOT SEEN  libvirt does not say what the kernel is set to do"), "{out}");
    assert!(!out.contains("--fix"), "{out}");
    let (_, out, _) = said(&["why", "test", "--connect", TEST, "--interval", "0.2"]);
    assert!(out.contains("Not seen: libvirt does not say") && !out.contains("process 0"), "{out}");
    // A balancer's dry run of another host; its policy has the usual period of 2 s.
    let (code, out, error) = said(&["balance", "--dry-run", "--once", "--connect", TEST]);
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(out.contains("balancing 1 VM on 2 NUMA nodes") && out.contains("as far as can be seen"), "{out}");
    let (code, _, error) = said(&["balance", "--once", "--connect", TEST]);
    assert!(code == Some(2) && error.contains("--dry-run"), "{error}");
    // It says that 2 and 4 MiB are free: less than what each node keeps for others.
    let (code, _, error) = said(&["plan", &example("small.toml"), "--connect", TEST]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("0 B to give (node 0: 0 B, node 1: 0 B)"), "{error}");
    assert!(error.contains("does not say how much memory of test is resident"), "{error}");
}

#[test]
fn a_host_that_cannot_be_reached_is_told_in_plain_words() {
    let nowhere = tempfile::tempdir().expect("a directory");
    let mut without = common::homenode_in(nowhere.path(), &["topology", "--connect", TEST]);
    let output = without.env("PATH", nowhere.path()).output().expect("homenode");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("virsh cannot be started") && error.contains("libvirt-clients"), "{error}");
    if lacks("a_host_that_cannot_be_reached_is_told_in_plain_words", "virsh") {
        return;
    }
    let socket = nowhere.path().join("socket");
    let uri = format!("qemu+unix:///session?socket={}", socket.display());
    for command in [vec!["topology"], vec!["top", "--once"], vec!["plan", &example("small.toml")]] {
        let (code, out, error) = said(&[&command[..], &["--connect", &uri]].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{command:?}: {error}");
        assert!(error.contains("no libvirt answers"), "{command:?}: {error}");
    }
    let (code, _, error) = said(&["topology", "--connect", "qemu+carrier-pigeon:///system"]);
    assert_eq!(code, Some(2), "{error}");
    let (code, _, error) = said(&["topology", "--connect", TEST, "--on", "eight"]);
    assert_eq!(code, Some(2), "{error}");
}

#[test]
fn libvirt_says_of_this_host_what_sys_says() {
    let Some(daemon) = Libvirtd::start("libvirt_says_of_this_host_what_sys_says") else { return };
    let theirs = json(&["topology", "--json", "--connect", &daemon.uri()]);
    let ours = json(&["topology", "--json"]);
    let threads = |report: &Value| -> Vec<[Value; 4]> {
        let online = |thread: &&Value| thread["online"] == true;
        let threads = report["machine"]["threads"].as_array().expect("threads").iter().filter(online);
        threads.map(|thread| ["id", "core", "node", "socket"].map(|key| thread[key].clone())).collect()
    };
    assert_eq!(threads(&theirs), threads(&ours));
    assert_eq!(theirs["machine"]["distances"], ours["machine"]["distances"]);
    // libvirt knows caches of level 3 and above.
    if ours["machine"]["llcs"].as_array().is_some_and(|llcs| llcs.iter().all(|llc| llc["level"].as_u64() >= Some(3))) {
        assert_eq!(theirs["machine"]["llcs"], ours["machine"]["llcs"]);
    }
    // Where a balloon changed the memory, libvirt and /proc/meminfo differ, and homenode says so.
    let memory = |report: &Value| -> Vec<f64> {
        let nodes = report["machine"]["nodes"].as_array().expect("nodes");
        nodes.iter().map(|node| node["memory"].as_f64().expect("memory")).collect()
    };
    let noted = ours["machine"]["notes"].as_array().is_some_and(|notes| !notes.is_empty());
    let alike = |(one, other): (&f64, &f64)| noted || (one - other).abs() <= 0.02 * other;
    assert!(memory(&theirs).iter().zip(&memory(&ours)).all(alike), "{theirs}\n{ours}");
    assert!(theirs["machine"]["nodes"][0]["free"].as_u64() > Some(0), "{theirs}");
}

#[test]
fn domains_of_a_host_are_seen_and_counted() {
    let Some(daemon) = Libvirtd::start("domains_of_a_host_are_seen_and_counted") else { return };
    let uri = daemon.uri();
    let (cpu, node) = a_cpu();
    let held = |uri: &str| {
        let plan = json(&["plan", &example("small.toml"), "--json", "--connect", uri]);
        plan["occupancy"]["nodes"][&node]["vcpus"].as_u64().unwrap_or(0)
    };
    assert_eq!(held(&uri), 0);
    let pinned = format!(
        "<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='{cpu}'/><vcpupin vcpu='1' \
        cpuset='{cpu}'/></cputune><numatune><memory mode='strict' nodeset='{node}'/></numatune>"
    );
    // Names that look like something else: a number, and one with a quote.
    let (number, quoted) = (format!("7{}", std::process::id()), unique("it's"));
    daemon.create(&domain(&number, &pinned));
    daemon.create(&domain(&quoted, &format!("<vcpu cpuset='{cpu}' current='1'>3</vcpu>")));
    assert_eq!(held(&uri), 3);
    // A domain that libvirt is busy with at that moment says less of itself.
    let mut top = Value::Null;
    let told = |top: &Value| {
        let row = |row: &Value| row["resident"].is_u64() && row["cpu_used"].is_f64();
        top["vms"].as_array().is_some_and(|rows| rows.iter().all(row)) && top["nodes"][0]["cpu_used_percent"].is_f64()
    };
    assert!(
        common::within_seconds(120, || {
            top = json(&["top", "--connect", &uri, "--json", "--interval", "1"]);
            told(&top)
        }),
        "{top}"
    );
    let row = |name: &str| {
        let rows = top["vms"].as_array().expect("domains");
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {top}")).clone()
    };
    let (seven, its) = (row(&number), row(&quoted));
    assert_eq!((&seven["home"], &seven["chosen_nodes"]), (&node.as_str().into(), &node.as_str().into()));
    assert_eq!(seven["vcpus"], 2);
    assert_eq!((&its["chosen_nodes"], &its["vcpus"]), (&Value::Null, &1.into()));
    for row in [&seven, &its] {
        assert_eq!(row["state"], "running");
        assert!(row["cpu_used"].as_f64() >= Some(0.0), "{row}");
        assert!(row["resident"].as_u64() > Some(0), "{row}");
        assert_eq!(row["local"], Value::Null);
    }
    assert!(top["nodes"][0]["memory_free"].as_u64() > Some(0), "{top}");
    let busy = top["nodes"][0]["cpu_used_percent"].as_f64();
    assert!(busy >= Some(0.0) && busy <= Some(100.0), "{top}");
    let (code, out, error) = said(&["top", "--connect", &uri, "--once", "--interval", "0.2"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.lines().any(|line| line.starts_with(&quoted) && line.contains("64 MiB")), "{out}");
}

#[test]
fn a_look_is_one_run_of_virsh() {
    if lacks("a_look_is_one_run_of_virsh", "virsh") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let script = format!("echo run >> '{}'\n{REAL_VIRSH}", directory.path().join("runs").display());
    let path = common::path_with_virsh(directory.path(), &script);
    let mut top = common::homenode_in(directory.path(), &["top", "--connect", TEST, "--once", "--interval", "0.1"]);
    assert!(top.env("PATH", path).output().expect("homenode").status.success());
    let runs = std::fs::read_to_string(directory.path().join("runs")).expect("runs");
    // The machine; a first look, and the XML of the domain that it found; the second look.
    assert_eq!(runs.lines().count(), 4, "{runs}");
}

/// `virsh` starts the libvirt of an unprivileged user where it does not run (libvirt's
/// documentation of `virConnectOpen`).
#[test]
fn a_libvirt_that_nobody_named_is_started_for_a_vm_and_not_for_a_look() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = directory.path().join("said");
    let script = format!("echo \"${{LIBVIRT_AUTOSTART-as virsh does}}\" > '{}'\nexit 1", said.display());
    let path = common::path_with_virsh(directory.path(), &script);
    let autostart = |arguments: &[&str]| {
        let mut command = common::homenode_in(&directory.path().join("runtime"), arguments);
        let output = command.env("PATH", &path).env_remove("LIBVIRT_AUTOSTART").output().expect("homenode");
        assert!(!output.status.success(), "{arguments:?}");
        let text = std::fs::read_to_string(&said).unwrap_or_else(|problem| panic!("{arguments:?}: {problem}"));
        std::fs::remove_file(&said).expect("a file");
        text.trim().to_owned()
    };
    assert_eq!(autostart(&["check", "no-such-vm"]), "0");
    assert_eq!(autostart(&["run", &example("small.toml"), "--via", "libvirt"]), "as virsh does");
    assert_eq!(autostart(&["topology", "--connect", "qemu:///session"]), "as virsh does");
}

#[test]
fn a_host_behind_ssh_is_seen_as_without() {
    const TEST_NAME: &str = "a_host_behind_ssh_is_seen_as_without";
    let (Some(sshd), Some(daemon)) = (Sshd::start(TEST_NAME), Libvirtd::start(TEST_NAME)) else { return };
    let (cpu, node) = a_cpu();
    let name = unique("far");
    daemon.create(&domain(&name, &format!("<vcpu cpuset='{cpu}'>2</vcpu>")));
    let (near, far) = (daemon.uri(), sshd.uri(&socket(&daemon)));
    let machine = |uri: &str| {
        let mut machine = json(&["topology", "--json", "--connect", uri])["machine"].take();
        for node in machine["nodes"].as_array_mut().expect("nodes") {
            node["free"].take();
        }
        machine
    };
    assert_eq!(machine(&far), machine(&near));
    let top = json(&["top", "--connect", &far, "--json", "--interval", "0.5"]);
    assert_eq!((&top["vms"][0]["name"], &top["source"]), (&name.as_str().into(), &far.as_str().into()));
    let plan = json(&["plan", &example("small.toml"), "--json", "--connect", &far]);
    assert_eq!(plan["occupancy"]["nodes"][&node]["vcpus"], 2);
    let home = plan["plan"]["placement"]["clients"][0]["home"].as_str().expect("a home");
    let (code, out, error) = said(&["plan", &example("small.toml"), "--emit", "systemd", "--connect", &far]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains(&format!("AllowedMemoryNodes={home}")), "{out}");
    // What goes wrong on the way is told, and nobody is asked for a password.
    let cases = [
        (sshd.uri_of_stranger(&socket(&daemon)), "Host key verification failed"),
        (sshd.uri_with_strange_key(&socket(&daemon)), "Permission denied"),
        (sshd.uri("/nonexistent/libvirt-sock"), "no libvirt answers"),
    ];
    for (uri, words) in cases {
        let (code, out, error) = said(&["topology", "--connect", &uri]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{uri}: {error}");
        assert!(error.contains(words) && error.contains("homenode: libvirt at qemu+ssh://"), "{uri}: {error}");
    }
}

/// libvirt's test driver has one domain, `test`: 2 vCPUs and 8 GiB, of which its two nodes have 6.
#[test]
fn all_domains_of_another_host_are_judged_for_its_machine() {
    if lacks("all_domains_of_another_host_are_judged_for_its_machine", "virsh") {
        return;
    }
    let (code, out, error) = said(&["check", "--all", "--connect", TEST, "--json"]);
    assert_eq!(code, Some(1), "{error}");
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|problem| panic!("{problem}: {out}"));
    assert_eq!(report["nodes"].as_array().map(Vec::len), Some(2), "{report}");
    let vms = report["vms"].as_array().expect("VMs");
    assert_eq!((vms.len(), &vms[0]["source"], &vms[0]["vcpus"]), (1, &"test.xml".into(), &2.into()), "{report}");
    let first = &report["findings"][0];
    assert_eq!((&first["what"], &first["vm"]), (&"machine_too_small".into(), &"test".into()), "{report}");
}
