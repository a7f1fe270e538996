//! What a spec says of how its VM is to live reaches the balancer: with a QEMU that homenode
//! started, whatever becomes of the spec, and after a suspension and a migration too.

use crate::common::kept_vm::KeptVm;
use crate::common::kept_vm::{DISK, two_nodes};
use crate::migrate::Hosts;
use serde_json::{Value, json};

/// On every host there is a node 0.
const POLICY: &str = "policy.placement = \"apart\"\npolicy.bandwidth = \"12 GB/s\"\n\
                      policy.node_affinity = \"0\"\npolicy.latency_sensitive = true";

/// What `why` says of the VM by the policy file of these lines.
fn said(vm: &KeptVm, policy: &str) -> Value {
    let file = vm.place.path("balance.toml");
    std::fs::write(&file, policy).expect("a policy");
    let arguments = ["why", &vm.name, "--json", "--interval", "0.1", "--policy", file.to_str().expect("text")];
    serde_json::from_str::<Value>(&vm.ok(&arguments)).expect("JSON")["said"].clone()
}

fn by_spec() -> Value {
    json!([
        "placement = \"apart\", as its spec says (policy.placement)",
        "bandwidth = \"12000 MB/s\", as its spec says (policy.bandwidth)",
        "node_affinity = \"0\", as its spec says (policy.node_affinity)",
    ])
}

#[test]
fn a_running_vm_keeps_what_its_spec_said_and_a_rule_overrules_it() {
    let test = "a_running_vm_keeps_what_its_spec_said_and_a_rule_overrules_it";
    let Some(vm) = KeptVm::new(test, "stated") else { return };
    vm.write_spec(&format!("vcpus = 1\nmemory = \"64 MiB\"\n{POLICY}"));
    vm.run();
    // The spec says something else now, then is gone: the VM is what it was started as.
    vm.write_spec("vcpus = 1\nmemory = \"64 MiB\"\npolicy.placement = \"together\"");
    assert_eq!(said(&vm, ""), by_spec());
    std::fs::remove_file(vm.place.path("vm.toml")).expect("a spec");
    assert_eq!(said(&vm, ""), by_spec());
    let rule = format!("[[vm]]\nname = \"{}\"\nplacement = \"auto\"\nbandwidth = \"low\"\n", vm.name);
    let by_rule = json!([
        "placement = \"auto\", as its administrator says (rule 1 of the policy)",
        "bandwidth = \"low\", as its administrator says (rule 1 of the policy)",
        "node_affinity = \"0\", as its spec says (policy.node_affinity)",
    ]);
    assert_eq!(said(&vm, &rule), by_rule);
    // The balancer sees the same, and writes down what it saw.
    let recording = vm.place.path("seen.jsonl");
    vm.ok(&["balance", "--once", "--dry-run", "--record", recording.to_str().expect("text")]);
    let text = std::fs::read_to_string(&recording).expect("a recording");
    let name = Value::from(vm.name.as_str());
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let all: Vec<Value> = lines.flat_map(|line| vms_of(&line)).filter(|seen| seen["vm"]["name"] == name).collect();
    assert!(!all.is_empty(), "{text}");
    for seen in all {
        assert_eq!((&seen["placement"], &seen["bandwidth"]), (&json!("apart"), &json!("12000 MB/s")), "{seen}");
        assert_eq!(seen["latency_sensitive"], json!("it was started so (policy.latency_sensitive)"), "{seen}");
    }
}

/// The VMs of the observation of a line, if it has one.
fn vms_of(line: &Value) -> Vec<Value> {
    let of = |value: &Value| value["observation"]["vms"].as_array().cloned();
    of(line).or_else(|| line.as_object()?.values().find_map(of)).unwrap_or_default()
}

#[test]
fn it_goes_with_the_vm_into_another_qemu() {
    let Some(vm) = KeptVm::new("it_goes_with_the_vm_into_another_qemu", "stated-moved") else { return };
    let hosts = Hosts::of(vm);
    let vm = &hosts.0;
    vm.write(&format!("{}\n{POLICY}", two_nodes(32)), &format!("boot.from = \"disk\"\n{DISK}"));
    vm.run();
    assert_eq!(said(vm, ""), by_spec());
    vm.vm_ok("migrate", &["--to", "unix:"]);
    assert_eq!(said(vm, ""), by_spec());
    vm.vm_ok("suspend", &[]);
    vm.vm_ok("resume", &[]);
    assert_eq!(said(vm, ""), by_spec());
}

#[test]
fn a_vm_of_which_nobody_said_anything_has_nothing_said() {
    let Some(vm) = KeptVm::new("a_vm_of_which_nobody_said_anything_has_nothing_said", "unstated") else { return };
    vm.write_spec("vcpus = 1\nmemory = \"64 MiB\"");
    vm.run();
    assert_eq!(said(&vm, ""), Value::Null);
}
