//! What the flavor says is the plan.

use super::super::{Emission, Kind, emit};
use super::flavor::{Shape, properties};
use ::qemu::command_line::BootFiles;
use scheduler::Occupancy;
use std::collections::BTreeMap;
use topology::read;
use vm::spec::{Disk, DiskFormat};
use vm::{Accelerator, VmSpec};

fn with_emission<T>(spec: &VmSpec, judge: impl FnOnce(&Emission<'_>) -> T) -> T {
    let machine = read::from_synthetic("pack:2 [numa(memory=64GiB)] core:8 pu:1").expect("a machine");
    let plan = scheduler::plan(&machine, &Occupancy::default(), spec).expect("a plan");
    let (boot, accelerator) = (BootFiles::default(), Accelerator::Kvm);
    judge(&Emission { machine: &machine, spec, plan: &plan, boot: &boot, accelerator: &accelerator })
}

fn spec(lines: &str) -> VmSpec {
    VmSpec::from_toml(&format!("name = \"vm\"\n{lines}"), "vm.toml").expect("a spec")
}

fn flavor(lines: &str) -> (Shape, BTreeMap<String, String>) {
    with_emission(&spec(lines), |emission| {
        let shape = Shape::of(emission);
        (shape, properties(emission, shape).into_iter().collect())
    })
}

#[test]
fn one_home_is_one_node_whether_the_guest_is_told_or_not() {
    for told in ["", "[policy]\nvnuma = true\n", "[policy]\nvnuma = false\n"] {
        let (shape, flavor) = flavor(&format!("vcpus = 4\nmemory = \"4 GiB\"\n{told}"));
        assert_eq!((shape, flavor["hw:numa_nodes"].as_str()), (Shape::Nodes, "1"), "{told}");
    }
}

#[test]
fn uneven_nodes_are_said_node_by_node() {
    let nodes = "[policy]\nvirtual_nodes = [{ vcpus = 2, memory = \"1 GiB\" }, { vcpus = 4, memory = \"3 GiB\" }]\n";
    let (_, flavor) = flavor(&format!("vcpus = 6\nmemory = \"4 GiB\"\n{nodes}"));
    let said = |key: &str| flavor[key].as_str();
    assert_eq!((said("hw:numa_cpus.0"), said("hw:numa_cpus.1")), ("0-1", "2-5"));
    assert_eq!((said("hw:numa_mem.0"), said("hw:numa_mem.1")), ("1024", "3072"));
}

#[test]
fn memory_that_is_not_bound_has_no_nodes() {
    for lines in [
        "vcpus = 16\nmemory = \"4 GiB\"\n[policy]\nvnuma = false\n",
        "vcpus = 4\nmemory = \"4 GiB\"\n[policy]\nmemory = \"default\"\n",
        "vcpus = 16\nmemory = \"4 GiB\"\n[policy]\nvnuma = false\nvcpu_binding = \"core\"\n",
    ] {
        let (shape, flavor) = flavor(lines);
        assert_eq!(shape, Shape::Floating, "{lines}");
        // With dedicated CPUs Nova gives it one node.
        assert_eq!(flavor["hw:cpu_policy"], "shared", "{lines}");
        assert!(!flavor.keys().any(|key| key.contains("numa") || key.contains("page")), "{flavor:?}");
    }
}

#[test]
fn a_file_name_that_would_end_a_line_is_refused() {
    let mut spec = spec("vcpus = 1\nmemory = \"1 GiB\"\n");
    spec.disks.push(Disk { path: "/a\nrm".into(), format: DiskFormat::Raw, snapshot: false, read_only: false });
    let refused = with_emission(&spec, |emission| emit(Kind::Nova, emission).unwrap_err().to_string());
    assert!(refused.starts_with("disk[0].path = "), "{refused}");
}
