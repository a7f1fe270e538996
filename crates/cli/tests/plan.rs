//! `homenode plan` as a process: its text, its JSON, and what it says about bad input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two sockets of 4 cores and 8 hardware threads, 24 GiB each: the shape of the HP DL380 G6.
const MACHINE: &str = "pack:2 [numa(memory=24GiB)] l3:1 core:4 pu:2";

fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode")).args(arguments).output().expect("homenode starts")
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

/// A spec file in a directory of its own, which must outlive the file's use.
fn spec(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("vm.toml");
    fs::write(&path, lines).expect("a spec file");
    (directory, path)
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn plan_of(lines: &str) -> Output {
    let (_directory, path) = spec(lines);
    homenode(&["plan", &path.display().to_string(), "--on", MACHINE])
}

#[test]
fn a_wide_vm_is_shown_with_its_nodes_and_reasons() {
    insta::assert_snapshot!(printed(&plan_of("name = \"stream\"\nvcpus = 8\nmemory = \"16 GiB\"\n")));
}

#[test]
fn hardware_threads_keep_the_same_vm_on_one_node() {
    let lines = "name = \"stream\"\nvcpus = 8\nmemory = \"16 GiB\"\n[policy]\nprefer_ht = true\n";
    insta::assert_snapshot!(printed(&plan_of(lines)));
}

#[test]
fn a_vm_that_is_too_wide_is_planned_with_a_warning() {
    insta::assert_snapshot!(printed(&plan_of("name = \"huge\"\nvcpus = 40\nmemory = \"46 GiB\"\n")));
}

#[test]
fn json_has_a_format_and_the_whole_plan() {
    let text = printed(&homenode(&["plan", &example("eight-nodes.toml"), "--on", MACHINE, "--json"]));
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((report["format"].as_str(), report["version"].as_u64()), (Some("homenode.plan"), Some(1)));
    let nodes = report["plan"]["topology"]["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 8);
    assert!(nodes.iter().all(|node| node["memory"] == 512 << 20 && node["vcpus"].as_array().map(Vec::len) == Some(8)));
    assert_eq!(report["plan"]["placement"]["clients"].as_array().map(Vec::len), Some(8));
    let plan: vm::Plan = serde_json::from_value(report["plan"].clone()).expect("a plan reads back");
    assert_eq!(plan.vm, "eight-nodes");
}

#[test]
fn every_example_can_be_planned() {
    for name in ["small.toml", "wide.toml", "eight-nodes.toml", "disk.toml"] {
        printed(&homenode(&["plan", &example(name), "--on", MACHINE]));
    }
}

#[test]
fn bad_input_exits_with_2_and_names_file_field_and_value() {
    let cases = [
        ("name = \"vm\"\nvcpus = 8\nmemory = \"4 GB\"\n", "vm.toml:3: memory = \"4 GB\""),
        ("name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\ncpus = 3\n", "vm.toml:4: cpus = 3: unknown field"),
        (
            "name = \"vm\"\nvcpus = 2\nmemory = \"4 GiB\"\n[policy]\nnode_affinity = \"5\"\n",
            "no usable node 5; usable are \"0-1\"",
        ),
    ];
    for (lines, expected) in cases {
        let output = plan_of(lines);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected) && output.stdout.is_empty(), "{error}");
    }
    let missing = homenode(&["plan", "no-such.toml", "--on", MACHINE]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such.toml: cannot read the VM spec"));
}

#[test]
fn a_machine_without_the_memory_exits_with_1_and_says_what_is_free() {
    let output = plan_of("name = \"vm\"\nvcpus = 2\nmemory = \"64 GiB\"\n");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    // 24 GiB less 1/64 for others, and for QEMU 96 + 2 + 64 x 4 MiB.
    assert!(error.contains("needs 64 GiB") && error.contains("node 0: 23.3 GiB, node 1: 23.3 GiB"), "{error}");
    assert!(error.contains("What QEMU itself takes beside the guest"), "{error}");
}

#[test]
fn several_vms_are_planned_together_on_several_machines() {
    let place = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).expect("a file");
    for (name, gib) in [("large", 20), ("middle", 16), ("small", 10), ("huge", 64)] {
        write(&format!("{name}.toml"), &format!("name = \"{name}\"\nvcpus = 2\nmemory = \"{gib} GiB\"\n"));
    }
    let specs = place.path().display().to_string();
    const HOST: &str = "pack:1 [numa(memory=32GiB)] core:8 pu:1";
    let arguments = ["plan", &specs, "--on", HOST, "--on", HOST, "--json"];
    let output = homenode(&arguments);
    assert_eq!(output.status.code(), Some(1), "64 GiB fit nowhere");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["format"], "homenode.plan.fleet");
    let vms = report["vms"].as_array().expect("VMs");
    let places: Vec<_> = vms.iter().map(|vm| (vm["vm"].as_str().unwrap_or(""), vm["machine"].as_u64())).collect();
    // By name of file. The largest chooses first: 20 GiB on the first host; 16 do not fit beside
    // it; 10 fit both, and leave less there.
    assert_eq!(places, [("huge", None), ("large", Some(0)), ("middle", Some(1)), ("small", Some(0))]);
    // 512 MiB for others; for the QEMUs 2 x (96 + 2) + 20 x 4 + 10 x 4 MiB.
    assert_eq!(report["machines"][0]["nodes"]["0"]["memory_kept"], (512 + 196 + 120) << 20);
    assert_eq!(report["machines"][0]["nodes"]["0"]["memory_free"], (2048 - 828) << 20); // 32 - 20 - 10 GiB
    assert_eq!(report["vms"][1]["remote_permille"], 0);
    let output = homenode(&arguments[..6]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("3 fit, 1 fit nowhere") && said.contains("huge does not fit on pack:1"), "{said}");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(complained.contains("1 of 4 VMs fit nowhere"), "{complained}");
    let output = homenode(&["plan", &specs, "--on", HOST, "--emit", "qemu"]);
    assert_eq!(output.status.code(), Some(2), "one plan, one text");
    assert!(String::from_utf8_lossy(&output.stderr).contains("add --into DIRECTORY"));
}

#[test]
fn all_fit_only_with_what_run_keeps() {
    // 2 x 16 GiB of 32 GiB would leave nothing for QEMU and the host.
    let (_directory, file) = spec("name = \"half\"\nvcpus = 1\nmemory = \"16 GiB\"\n");
    let file = file.display().to_string();
    let output = homenode(&["plan", &file, &file, "--on", "pack:1 [numa(memory=32GiB)] core:8 pu:1"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 fit, 1 fit nowhere") && said.contains("kept: for QEMU itself"), "{said}");
    // All of a node is not given either.
    let output = plan_of("name = \"all\"\nvcpus = 1\nmemory = \"48 GiB\"\n");
    assert_eq!(output.status.code(), Some(1));
}

/// Where each text of a directory binds its VM's memory (`nodeset` of a domain), by its path.
fn bound(directory: &Path) -> Vec<(String, String)> {
    let mut bound = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            bound.extend(self::bound(&path));
            continue;
        }
        let text = fs::read_to_string(&path).expect("a text");
        let node = text.split("nodeset=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("none");
        bound.push((path.display().to_string(), node.to_owned()));
    }
    bound.sort();
    bound
}

#[test]
fn texts_of_a_fleet_are_written_together_and_no_node_is_promised_twice() {
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name).display().to_string();
    fs::create_dir(at("specs")).expect("a directory");
    // 40 VMs of 4 GiB: two nodes of 96 GiB hold 23 each beside what is kept.
    for index in 0..40 {
        let text = format!(
            "name = \"vm{index}\"\nvcpus = 2\nmemory = \"4 GiB\"\nboot = {{ from = \"disk\" }}\n\
            [[disk]]\npath = \"/images/vm{index}.qcow2\"\nformat = \"qcow2\"\n"
        );
        fs::write(at(&format!("specs/vm{index:02}.toml")), text).expect("a file");
    }
    const HOST: &str = "pack:2 [numa(memory=96GiB)] core:32 pu:2";
    let into = |directory: &str, more: &[&str]| {
        let mut arguments = vec!["plan", "", "--on", HOST, "--emit", "libvirt", "--into", directory];
        let specs = at("specs");
        arguments[1] = &specs;
        arguments.extend(more);
        homenode(&arguments)
    };
    let said = printed(&into(&at("texts"), &[]));
    assert!(said.contains("40 VMs on 1 machine, planned together: all fit") && said.contains("40 texts"), "{said}");
    let bound_to = bound(&place.path().join("texts"));
    assert_eq!(bound_to.len(), 40);
    for node in ["0", "1"] {
        let promised = bound_to.iter().filter(|(_, bound)| bound == node).count() * 4;
        assert!(promised > 0 && promised < 96, "{promised} GiB of node {node}\n{bound_to:?}");
    }
    // Checked together, as they are: nothing is wrong with them.
    let output = homenode(&["check", &at("texts"), "--on", HOST]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    // Nothing is written over, and nothing where one fits nowhere.
    let output = into(&at("texts"), &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("there are files in it"), "{error}");
    fs::write(at("specs/huge.toml"), "name = \"huge\"\nvcpus = 1\nmemory = \"1 TiB\"\n").expect("a file");
    let output = into(&at("others"), &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("nothing was written"), "{error}");
    fs::write(at("specs/huge.toml"), "name = \"huge\"\nvcpus = 0\nmemory = \"1 GiB\"\n").expect("a file");
    assert_eq!(into(&at("others"), &[]).status.code(), Some(2));
    assert!(!Path::new(&at("others")).exists());
    fs::remove_file(at("specs/huge.toml")).expect("a file");
    // Of several machines each has a directory; VMs of one kind are numbered.
    let one = at("specs/vm00.toml");
    let more = ["--on", HOST];
    let mut arguments = vec!["plan", &one, &one, "--on", HOST, "--emit", "libvirt", "--into"];
    let two = at("two");
    arguments.push(&two);
    arguments.extend(more);
    printed(&homenode(&arguments));
    let paths: Vec<String> = bound(Path::new(&two)).into_iter().map(|(path, _)| path.replace(&two, "")).collect();
    assert!(paths.iter().all(|path| path.ends_with("/vm0-1.xml") || path.ends_with("/vm0-2.xml")), "{paths:?}");
    assert!(paths.len() == 2 && paths[0].starts_with("/pack-2--numa-memory-96GiB---core-32-pu-2-"), "{paths:?}");
}

#[test]
fn what_runs_on_a_machine_that_is_not_here_comes_from_a_file() {
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name).display().to_string();
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).expect("a file");
    let domain = |name: &str, node: u32| {
        format!(
            "<domain type='kvm'><name>{name}</name><memory unit='GiB'>16</memory><vcpu \
            cpuset='{}'>4</vcpu><numatune><memory mode='strict' nodeset='{node}'/></numatune></domain>\n",
            ["0-3,8-11", "4-7,12-15"][node as usize]
        )
    };
    // As `virsh dumpxml` prints one after the other.
    write("runs.xml", &(domain("a", 0) + &domain("b", 0).replace("16</memory>", "4</memory>")));
    let plan =
        |occupied: &str| homenode(&["plan", &example("small.toml"), "--on", MACHINE, "--json", "--occupied", occupied]);
    let report: serde_json::Value = serde_json::from_str(&printed(&plan(&at("runs.xml")))).expect("JSON");
    // 16 and 4 of node 0's 24 GiB, and all of its four cores twice over: the VM goes to node 1.
    assert_eq!(report["occupancy"]["nodes"]["0"]["memory"], 20_u64 << 30);
    assert_eq!(report["plan"]["placement"]["clients"][0]["home"], "1");
    let refused = |name: &str, text: &str, words: &str| {
        write(name, text);
        let output = plan(&at(name));
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && complained.contains(words), "{name}: {complained}");
    };
    refused("empty.xml", "<domains/>", "no <domain> is in it");
    refused(
        "other.json",
        "{\"format\": \"homenode.why\", \"version\": 1, \"observation\": {\"at\": 0, \"nodes\": {}, \"vms\": [], \"reserved\": {}}}",
        "homenode.why of version 1",
    );
    refused("text.json", "VM  Process", "homenode top --json");
    let output =
        homenode(&["plan", &example("small.toml"), "--on", MACHINE, "--on", MACHINE, "--occupied", &at("runs.xml")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 file for 2 machines"));
}

#[test]
fn what_top_prints_of_this_host_is_understood_where_it_is_planned_for() {
    let place = tempfile::tempdir().expect("a directory");
    let (capture, runs) = (place.path().join("here.tar.gz"), place.path().join("here.json"));
    let shown = |path: &Path| path.display().to_string();
    printed(&homenode(&["topology", "--capture", &shown(&capture)]));
    let top = printed(&homenode(&["top", "--json", "--interval", "0.1"]));
    fs::write(&runs, &top).expect("a file");
    let (on, occupied) = (shown(&capture), shown(&runs));
    let plan = printed(&homenode(&["plan", &example("small.toml"), "--on", &on, "--occupied", &occupied, "--json"]));
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let top: serde_json::Value = serde_json::from_str(&top).expect("JSON");
    let vcpus: u64 = top["vms"].as_array().expect("VMs").iter().filter_map(|vm| vm["vcpus"].as_u64()).sum();
    let nodes = plan["occupancy"]["nodes"].as_object().expect("nodes");
    assert_eq!(nodes.values().filter_map(|node| node["vcpus"].as_u64()).sum::<u64>(), vcpus);
}

/// The homes of `plan` and the cures of `check` are the same.
#[test]
fn a_vm_that_proxmox_has_is_planned_from_its_configuration() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("101.conf");
    fs::write(&path, "cores: 4\nmemory: 4096\nname: db\nsockets: 1\n").expect("a configuration");
    let path = path.display().to_string();
    let text = printed(&homenode(&["plan", &path, "--on", MACHINE, "--emit", "proxmox"]));
    assert!(
        text.ends_with("\nnuma: 1\nnuma0: cpus=0-3,hostnodes=0,memory=4096,policy=bind\naffinity: 0-7\n"),
        "{text}"
    );
    let checked = homenode(&["check", &path, "--on", MACHINE, "--json"]);
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let cure = checked["findings"][0]["cure"]["commands"][0].as_str().expect("a command");
    assert!(text.contains(&format!("# {cure}\n")), "{text}{cure}");
    let refused = |arguments: &[&str], word: &str| {
        let output = homenode(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    };
    refused(&["plan", &path, "--on", MACHINE], "--emit proxmox");
    refused(&["plan", &path, "--on", MACHINE, "--emit", "libvirt"], "--emit proxmox");
    refused(&["plan", &path, &example("small.toml"), "--on", MACHINE, "--emit", "proxmox"], "give it alone");
    refused(&["plan", "4000000000", "--emit", "proxmox"], "/etc/pve/qemu-server/4000000000.conf");
    refused(&["plan", &path, "--on", MACHINE, "--on", MACHINE, "--emit", "proxmox"], "give one machine");
}

/// 24 GiB and 8 hardware threads in each of two nodes; the files are of machines with other nodes,
/// other CPUs and another memory.
#[test]
fn what_runs_on_another_machine_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("runs.json").display().to_string();
    let top = |nodes: serde_json::Value| {
        let observation = serde_json::json!({"at": 0, "nodes": {}, "vms": [], "reserved": {}});
        let top =
            serde_json::json!({"format": "homenode.top", "version": 1, "nodes": nodes, "observation": observation});
        fs::write(&path, top.to_string()).expect("a file");
        homenode(&["plan", &example("small.toml"), "--on", MACHINE, "--occupied", &path])
    };
    let node = |node: u32, cpus: &str, gib: u64| serde_json::json!({"node": node, "cpus": cpus, "memory": gib << 30});
    // The machine's description says 24 GiB; its kernel leaves a little less.
    printed(&top(serde_json::json!([node(0, "0-7", 23), node(1, "8-15", 23)])));
    let refused = |nodes: serde_json::Value, words: &[&str]| {
        let output = top(nodes);
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{complained}");
        for word in words {
            assert!(complained.contains(word), "{word}: {complained}");
        }
    };
    let one =
        ["runs.json: it is of another machine: 1 node (0), 8 CPUs, 24 GiB there, 2 nodes (0-1), 16 CPUs, 48 GiB on"];
    refused(serde_json::json!([node(0, "0-7", 24)]), &one);
    refused(serde_json::json!([node(0, "0-3", 24), node(1, "4-7", 24)]), &["there node 0 has CPUs 0-3 and 24 GiB"]);
    refused(serde_json::json!([node(0, "0-7", 24), node(1, "8-15", 64)]), &["there node 1 has CPUs 8-15 and 64 GiB"]);
    let domain = "<domain type='kvm'><name>a</name><memory unit='GiB'>1</memory><vcpu cpuset='40-47'>4</vcpu></domain>";
    let xml = place.path().join("runs.xml").display().to_string();
    fs::write(&xml, domain).expect("a file");
    let output = homenode(&["plan", &example("small.toml"), "--on", MACHINE, "--occupied", &xml]);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complained}");
    assert!(
        complained.contains("domain a is bound to CPUs 40-47") && complained.contains("has CPUs 0-15"),
        "{complained}"
    );
}

#[test]
fn one_file_given_twice_is_two_vms_and_two_files_have_two_names() {
    let small = example("small.toml");
    let text = printed(&homenode(&["plan", &small, &small, "--on", MACHINE, "--on", MACHINE]));
    assert!(text.contains("\nsmall #1 ") && text.contains("\nsmall #2 "), "{text}");
    assert!(text.contains("core:4 pu:2 #2"), "two machines of one kind are told apart: {text}");
    let (_directory, path) = spec("name = \"small\"\nvcpus = 1\nmemory = \"1 GiB\"\n");
    let output = homenode(&["plan", &small, &path.display().to_string(), "--on", MACHINE]);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complained}");
    assert!(complained.contains("vm.toml: name = \"small\": so is the VM in"), "{complained}");
}

#[test]
fn a_plan_warns_of_full_memory_only_where_the_vm_takes_some() {
    // One vCPU and 32 GiB: node 0 becomes full, and of node 1 enough is left.
    let text = printed(&plan_of("name = \"vm\"\nvcpus = 1\nmemory = \"32 GiB\"\n"));
    assert!(text.contains("Warning: the VM lies on several machine nodes: 29.2 % of its memory is remote"), "{text}");
    assert!(text.contains("1 virtual socket of 1 vCPU\n"), "{text}");
}
