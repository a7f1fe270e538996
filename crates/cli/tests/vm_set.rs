//! `homenode vm set`: what is refused, what is written down, and, with the newer QEMU and
//! homenode's tiny guest, what the guest sees of it. Under emulation QEMU 7.2 hangs guests that get
//! vCPUs.

use crate::common::kept_vm::KeptVm;
use crate::common::{newer_qemu, tiny_guest, within_seconds};
use scheduler::{Act, Observe};
use serde_json::Value;
use std::io::{Read, Write};
use std::time::Duration;
use topology::CpuSet;
use vm::history::LifeEvent;

/// Two virtual nodes, each of one vCPU of three and 128 of 512 MiB.
fn growing() -> String {
    let node = r#"{ vcpus = 1, memory = "128 MiB", max_vcpus = 3, max_memory = "512 MiB" }"#;
    let sizes = "vcpus = 2\nmemory = \"256 MiB\"\nmax_vcpus = 6\nmax_memory = \"1 GiB\"";
    format!("{sizes}\npolicy.virtual_nodes = [{node}, {node}]")
}

impl KeptVm {
    /// MiB that each virtual node has, as whoever looks at this host sees it.
    fn memory_seen(&self) -> Vec<u64> {
        let seen: Value = serde_json::from_str(&self.ok(&["top", "--once", "--json"])).expect("JSON");
        let vm =
            seen["vms"].as_array().expect("VMs").iter().find(|vm| vm["name"] == self.name).expect("it runs").clone();
        let mib = |client: &Value| client["memory_size"].as_u64().map(|bytes| bytes >> 20);
        vm["clients"].as_array().expect("clients").iter().filter_map(mib).collect()
    }

    /// What each virtual node has, as is written down: vCPUs, MiB.
    fn sizes(&self) -> Vec<(usize, u64)> {
        self.record().sizes().iter().map(|size| (size.vcpus.len(), size.memory.mib())).collect()
    }
}

#[test]
fn a_vm_gets_more_while_it_is_paused_and_while_it_is_stopped() {
    const TEST: &str = "a_vm_gets_more_while_it_is_paused_and_while_it_is_stopped";
    let Some(vm) = KeptVm::new(TEST, "vm-set") else { return };
    vm.write_spec(&growing());
    vm.run();
    vm.vm_ok("pause", &[]);
    for (more, words) in [
        (&["--vcpus", "7"][..], "vcpus = 7: the VM may have 6 at most"),
        (&["--memory", "257 MiB"], "memory is plugged in blocks of 2 MiB"),
        (&["--memory", "2 GiB"], "memory = \"2 GiB\""),
        (&["--vcpus", "1"], "what the VM has at power-on stays"),
        (&["--vcpus", "3", "--nodes", "5"], "the VM has no virtual node 5"),
        (&["--memory", "1 GB"], "GiB"),
        (&[], "--vcpus"),
        (&["--nodes", "1"], "--vcpus <N>|--memory <SIZE>"),
    ] {
        let (code, said, errors) = vm.vm("set", more);
        assert!(code == Some(2) && errors.contains(words), "{more:?}: {said}{errors}");
    }
    assert_eq!(vm.sizes(), [(1, 128), (1, 128)]);
    let plan = vm.vm_ok("set", &["--vcpus", "4", "--memory", "384 MiB", "--dry-run"]);
    assert!(plan.contains("would have") && plan.contains("128 MiB -> 192 MiB"), "{plan}");
    assert_eq!(vm.sizes(), [(1, 128), (1, 128)]);

    let said = vm.vm_ok("set", &["--vcpus", "4", "--memory", "384 MiB"]);
    assert!(said.contains("0 -> 0-1") && said.contains("3 -> 3-4") && said.contains("vCPUs are stopped"), "{said}");
    assert_eq!(vm.sizes(), [(2, 192), (2, 192)]); // (384 - 256) / 2 = 64 more each
    let record = vm.record();
    assert_eq!((record.spec.vcpus, record.spec.memory.mib()), (4, 384));
    assert!(record.life.history.iter().any(|chapter| matches!(chapter.event, LifeEvent::Resized { .. })));
    // homenode was killed before it wrote anything down: nothing is plugged twice.
    let written = vm.place.runtime().join(".vms").join(&vm.name).join("placement.json");
    let mut text: Value = serde_json::from_slice(&std::fs::read(&written).expect("a file")).expect("JSON");
    text["added"] = serde_json::json!({ "vcpus": [], "memory": [] });
    std::fs::write(&written, text.to_string()).expect("written");
    assert_eq!(vm.sizes(), [(1, 128), (1, 128)]);
    vm.vm_ok("set", &["--vcpus", "5", "--memory", "384 MiB"]);
    assert_eq!(vm.sizes(), [(3, 192), (2, 192)]);
    let running = linux::examine_this_host().expect("/proc");
    let seen = running.vms.iter().find(|seen| seen.vm.name == vm.name).expect("it runs");
    assert_eq!(seen.clients.iter().map(|client| client.vcpus).collect::<Vec<_>>(), [3, 2]);

    for (to, words) in [
        (["--client", "0", "--to", "999"], "--to 999: no node"),
        (["--client", "7", "--to", "0"], "--client 7: it has 2 clients: 0, 1"),
    ] {
        let (code, said, errors) = vm.vm("move", &to);
        assert!(code == Some(2) && errors.contains(words), "{to:?}: {said}{errors}");
    }

    vm.vm_ok("stop", &["--force"]);
    vm.vm_ok("set", &["--vcpus", "6"]);
    let (code, said, errors) = vm.vm("set", &["--vcpus", "5"]);
    assert!(
        code == Some(2) && errors.contains("6 is the least: ") && errors.contains("resize-topology"),
        "{said}{errors}"
    );
    vm.vm_ok("start", &[]);
    assert_eq!(vm.sizes(), [(3, 192), (3, 192)]);
    let topology = vm.record().topology.expect("a topology");
    assert!(topology.nodes.iter().all(|node| node.absent.is_empty() && node.growth.mib() == 320)); // 512 - 192
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_guest_uses_what_it_gets_and_gives_it_back() {
    const TEST: &str = "a_guest_uses_what_it_gets_and_gives_it_back";
    let (Some(newer), Some(_)) = (newer_qemu(TEST), tiny_guest(TEST)) else { return };
    let Some(mut vm) = KeptVm::new(TEST, "vm-set-guest") else { return };
    vm.qemu = Some(newer);
    vm.write(&growing(), "");
    vm.run();
    assert!(within_seconds(120, || vm.console().contains("homenode>")), "{}", vm.console());
    assert_eq!(guest(&vm).0, ["0", "1"]);
    let (_, before) = guest(&vm);
    // A device may give up to 384 MiB; what it gave counts.
    for (mib, node, seen) in [(262, "0", [134, 128]), (386, "1", [134, 252]), (256, "0,1", [128, 128])] {
        vm.vm_ok("set", &["--memory", &format!("{mib} MiB"), "--nodes", node]);
        assert_eq!(vm.memory_seen(), seen);
    }

    let said = vm.vm_ok("set", &["--vcpus", "6", "--memory", "768 MiB"]);
    assert!(said.contains("0 -> 0-2") && said.contains("128 MiB -> 384 MiB"), "{said}");
    // A vCPU that runs the kernel is counted by it a moment later.
    let count =
        |cpus: &[String]| cpus.iter().map(|cpus| cpus.parse::<topology::CpuSet>().unwrap().len()).sum::<usize>();
    assert!(within_seconds(10, || count(&guest(&vm).0) == 6));
    let (cpus, after) = guest(&vm);
    assert_eq!(cpus.iter().map(|cpus| cpus.parse::<topology::CpuSet>().unwrap().len()).collect::<Vec<_>>(), [3, 3]);
    let grown: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    assert_eq!(grown, [256, 256]); // (768 - 256) / 2
    let shown: Value = serde_json::from_str(&vm.vm_ok("show", &["--json"])).expect("JSON");
    assert_eq!(shown["residence"]["at_home"], true, "{shown}");
    assert_eq!(shown["residence"]["vcpus"].as_array().map(Vec::len), Some(6));

    vm.vm_ok("set", &["--vcpus", "4", "--memory", "384 MiB"]);
    assert_eq!(vm.sizes(), [(2, 192), (2, 192)]);
    let (cpus, less) = guest(&vm);
    assert_eq!(cpus.iter().map(|cpus| cpus.parse::<topology::CpuSet>().unwrap().len()).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(after.iter().zip(&less).map(|(after, less)| after - less).collect::<Vec<_>>(), [192, 192]);

    // Emulated, QEMU ends at the seventh thread of a vCPU, where six may be.
    let (code, said, errors) = vm.vm("set", &["--vcpus", "6"]);
    assert!(code == Some(2) && errors.contains("it may have 4 vCPUs until its next power-on"), "{said}{errors}");
    assert_eq!(guest(&vm).0.len(), 2);
}

/// CPUs and MiB of each node, as the guest says on its console.
fn guest(vm: &KeptVm) -> (Vec<String>, Vec<u64>) {
    let directory = qemu::RuntimeDir::at(vm.place.runtime()).expect("a directory");
    let (mut console, _lock) = qemu::background::console(&directory, &vm.name).expect("a console").expect("free");
    console.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    console.write_all(b"topology\n").expect("typed");
    let (mut text, mut chunk) = (String::new(), [0; 4096]);
    while !(text.contains("node 1: CPUs") && text.trim_end().ends_with("homenode>")) {
        let count = console.read(&mut chunk).expect("an answer");
        text += &String::from_utf8_lossy(&chunk[..count]);
    }
    // `node 0: CPUs 0,2-3, 604 MiB, distances 10 20`
    let node = |line: &str| {
        let rest = line.trim().strip_prefix("node ")?.split_once(": CPUs ")?.1;
        let (cpus, rest) = rest.split_once(", ")?;
        let mut parts = rest.split(' ').collect::<Vec<_>>();
        let mut cpus = cpus.to_owned();
        // Lists of CPUs have commas without a space.
        if parts.first().is_some_and(|part| part.parse::<u64>().is_err()) {
            cpus += parts.remove(0);
        }
        Some((cpus, parts.first()?.parse::<u64>().ok()?))
    };
    text.lines().filter_map(node).unzip()
}

#[test]
fn whoever_looks_brings_a_main_thread_back_that_a_killed_homenode_left_on_a_client() {
    const TEST: &str = "whoever_looks_brings_a_main_thread_back_that_a_killed_homenode_left_on_a_client";
    let Some(vm) = KeptVm::new(TEST, "vm-set-main") else { return };
    let Some(last) = linux::sys::affinity(0).expect("CPUs").iter().last() else { return };
    vm.write_spec(&growing());
    vm.run();
    let pid = vm.pid().expect("it runs");
    let usual = linux::sys::affinity(pid).expect("CPUs");
    let only: CpuSet = [last].into_iter().collect();
    if usual == only {
        return eprintln!("SKIPPED {TEST}: one CPU");
    }
    // This host may have one node, where both clients have all CPUs: one gets a CPU of its own.
    let written = vm.place.runtime().join(".vms").join(&vm.name).join("placement.json");
    let mut text: Value = serde_json::from_slice(&std::fs::read(&written).expect("a file")).expect("JSON");
    text["placement"]["clients"][1]["cpus"] = serde_json::json!(only.to_string());
    std::fs::write(&written, text.to_string()).expect("written");
    let is_back = || linux::sys::affinity(pid).expect("CPUs") == usual;
    for command in [&["list"][..], &["show", &vm.name]] {
        linux::sys::set_affinity(pid, &only).expect("bound");
        assert!(!is_back());
        vm.ok(&[&["vm"], command].concat());
        assert!(is_back(), "vm {command:?}");
    }
    // A balancer, which knows no record.
    let mut host = linux::LinuxHost::new(linux::HostOptions::default()).expect("a host");
    let seen = host.observe().expect("/proc");
    let key = seen.vms.iter().find(|seen| seen.vm.name == vm.name).expect("it runs").vm.clone();
    let thread = host.vms().find(|seen| seen.key == key).expect("it runs").clients[1].thread_ids[0];
    assert_eq!(host.put_right(&key).expect("it may"), None);
    linux::sys::set_affinity(thread, &only).expect("bound");
    linux::sys::set_affinity(pid, &only).expect("bound");
    let what = host.put_right(&key).expect("it may").expect("something");
    assert!(what.contains("main thread") && is_back(), "{what}");
    assert_eq!(host.put_right(&key).expect("it may"), None);
}
