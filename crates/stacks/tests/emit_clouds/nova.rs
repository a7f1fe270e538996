//! Nova's own code: the flavor's schema, the validators of extra specs, their reading, and the fit
//! onto the machine of the plan; and snapshots.

use super::cases::{CASES, Case};
use super::judges::{judge, said};
use serde_json::{Value, json};
use stacks::emit::Kind;
use std::process::Command;
use topology::Machine;
use vm::VirtualNode;

#[test]
fn flavors_of_every_shape() {
    for (name, machine, spec) in CASES {
        insta::assert_snapshot!(format!("nova-{name}"), Case::new(machine, spec).text(Kind::Nova));
    }
}

/// The words of every `openstack` command, as a shell reads them; those of a comment too.
fn commands(text: &str) -> Vec<Vec<String>> {
    let uncommented = text.replace("\n# openstack flavor set ", "\nopenstack flavor set ");
    let script = format!("openstack() {{ printf '%s\\0' \"$#\" \"$@\"; }}\n{uncommented}");
    let shell = said(&mut Command::new("sh"), &script);
    assert!(shell.status.success(), "{}\n{text}", String::from_utf8_lossy(&shell.stderr));
    let printed = String::from_utf8(shell.stdout).expect("UTF-8");
    let mut words = printed.split_terminator('\0');
    let mut commands = Vec::new();
    while let Some(count) = words.next() {
        let count: usize = count.parse().expect("a count");
        commands.push(words.by_ref().take(count).map(str::to_owned).collect());
    }
    commands
}

/// The machine as Nova's host sees it.
fn host(machine: &Machine) -> Value {
    let node = |node: &topology::Node| {
        let cpus: Vec<u32> = machine.usable_cpus(node.id).iter().map(|cpu| cpu.0).collect();
        let threads = machine.usable_threads().filter(|thread| thread.node == node.id);
        let mut siblings = std::collections::BTreeMap::<u32, Vec<u32>>::new();
        threads.for_each(|thread| siblings.entry(thread.core.0).or_default().push(thread.id.0));
        let siblings: Vec<Vec<u32>> = siblings.into_values().collect();
        json!({ "cpus": cpus, "siblings": siblings, "memory": node.memory.mib() })
    };
    machine.nodes.iter().map(node).collect()
}

fn case(case: &Case) -> Value {
    json!({ "commands": commands(&case.text(Kind::Nova)), "host": host(&case.machine) })
}

/// Nova's answers, in the order of the cases. `None`: there is no Nova here.
fn judged(test: &str, cases: Vec<Value>) -> Option<Vec<Value>> {
    let python = judge(test, "nova")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/validators/nova/judge.py");
    let answer = said(Command::new(python).arg(script), &Value::Array(cases).to_string());
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    Some(serde_json::from_slice(&answer.stdout).expect("JSON"))
}

/// What Nova must not take, made from what it takes: the third case.
const WRONG: [(&str, &str); 3] = [
    ("hw:numa_mem.1=4096", "hw:numa_mem.1=4095"),
    ("hw:numa_nodes=", "hw:numa_node="),
    ("hw:numa_cpus.1=2-5", "hw:numa_cpus.1=1-5"),
];

fn wrong(right: &Value, from: &str, to: &str) -> Value {
    let text = right.to_string();
    assert!(text.contains(from), "{from} is not in {text}");
    serde_json::from_str(&text.replace(from, to)).expect("JSON")
}

/// One test, since Nova takes seconds to load.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn nova_reads_the_plan_out_of_them_and_refuses_what_is_wrong() {
    let planned: Vec<Case> = CASES.iter().map(|(_, machine, spec)| Case::new(machine, spec)).collect();
    let mut cases: Vec<Value> = planned.iter().map(case).collect();
    cases.extend(WRONG.map(|(from, to)| wrong(&cases[2], from, to)));
    let Some(answers) = judged("nova_reads_the_plan_out_of_them_and_refuses_what_is_wrong", cases) else { return };
    assert_eq!(answers.len(), CASES.len() + WRONG.len());
    for (((name, ..), case), answer) in CASES.iter().zip(&planned).zip(&answers) {
        check(name, case, answer);
    }
    for ((_, to), answer) in WRONG.iter().zip(&answers[CASES.len()..]) {
        assert!(answer["refused"].is_string(), "{to} was taken: {answer}");
    }
}

/// Nova's reading of the flavor, and of the one with CPUs of its own, against the plan; and that
/// the plan's machine takes both.
fn check(name: &str, case: &Case, answer: &Value) {
    assert_eq!(answer.get("refused"), None, "{name}");
    let flavors = answer["flavors"].as_array().expect("flavors");
    let topology = &case.plan.topology;
    let floats = name == "interleave";
    assert_eq!(flavors.len(), if floats { 1 } else { 2 }, "{name}");
    for (flavor, pinned) in flavors.iter().zip([false, true]) {
        let shape = [&flavor["sockets"], &flavor["cores"], &flavor["threads"]].map(Value::as_u64);
        let planned = [topology.sockets, topology.cores_per_socket, topology.threads_per_core];
        assert_eq!(shape, planned.map(|count| Some(u64::from(count))), "{name}");
        // -1 stands for small pages.
        let node = |node: &VirtualNode| json!({ "cpus": node.vcpus, "memory": node.memory.mib(), "pinned": pinned, "page": -1 });
        let nodes = if floats { Value::Null } else { topology.nodes.iter().map(node).collect() };
        assert_eq!(flavor["nodes"], nodes, "{name}");
        assert_eq!(flavor["homes"].as_array().map(Vec::len), (!floats).then_some(topology.nodes.len()), "{name}");
    }
}

#[test]
fn the_shell_reads_names_as_they_are() {
    let (_, machine, spec) = CASES.iter().find(|(name, ..)| *name == "devices").expect("devices");
    let commands = commands(&Case::new(machine, spec).text(Kind::Nova));
    let image = commands.iter().find(|words| words[0] == "image").expect("an image");
    assert!(image.contains(&"/images/100 % odd & 'it' $HOME.qcow2".to_owned()), "{image:?}");
    assert_eq!(image.last().map(String::as_str), Some("Web_Server.1"));
}
