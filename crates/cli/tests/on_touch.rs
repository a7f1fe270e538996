//! Memory that a guest takes when it touches it, as `vm show`, `vm list` and `top` tell of it. What
//! `doctor` says of it, on several nodes: `lab/memory.sh`.

use crate::common::kept_vm::KeptVm;
use serde_json::Value;

const MIB: u64 = 1 << 20;

#[test]
fn what_was_promised_is_shown_with_what_of_it_is_there() {
    let Some(vm) = KeptVm::new("what_was_promised_is_shown_with_what_of_it_is_there", "on-touch") else { return };
    vm.write_spec("vcpus = 1\nmemory = \"96 MiB\"\nbacking.fill = \"on_touch\"");
    vm.run();
    // No more touches it now.
    vm.vm_ok("pause", &[]);
    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&vm.ok(arguments)).expect("JSON");
    let of = |listed: &Value| listed["vms"].as_array().expect("VMs").iter().find(|row| row["name"] == vm.name).cloned();

    let shown = json(&["vm", "show", &vm.name, "--json"])["taken"].as_u64().expect("known");
    assert!((MIB / 2..96 * MIB).contains(&shown), "{shown}");
    let text = vm.vm_ok("show", &[]);
    assert!(
        text.contains("Memory is taken when its guest touches it: ") && text.contains(" of 96 MiB so far."),
        "{text}"
    );

    let listed = of(&json(&["vm", "list", "--json"])).expect("it is listed");
    assert_eq!((listed["fill"].as_str(), listed["memory"].as_u64()), (Some("on_touch"), Some(96 * MIB)));
    let taken = listed["taken"].as_u64().expect("known");
    // A look asks samples of the pages.
    assert!(taken.abs_diff(shown) < 4 * MIB, "{taken} {shown}");
    let text = vm.ok(&["vm", "list"]);
    let row = text.lines().find(|line| line.starts_with(&vm.name)).expect("it is listed");
    assert!(text.contains("Memory taken") && row.ends_with(" of 96 MiB"), "{text}");

    let top = json(&["top", "--once", "--interval", "0.1", "--json"]);
    let row = of(&top).expect("it runs");
    let resident = row["resident"].as_u64().expect("known");
    assert!(row["memory_size"] == 96 * MIB && taken.abs_diff(resident) < 4 * MIB, "{row}");
    let promised = |node: &Value| node["promised"].as_u64();
    let promised: u64 = top["nodes"].as_array().expect("nodes").iter().filter_map(promised).sum();
    assert!(promised >= 96 * MIB, "{promised}");

    vm.vm_ok("stop", &["--force"]);
    assert!(!vm.vm_ok("show", &[]).contains("so far."));
    assert!(of(&json(&["vm", "list", "--json"])).expect("it is kept").get("taken").is_none());
}
