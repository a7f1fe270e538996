//! A DIMM that is plugged in as large as the memory that is there: a real QEMU that waits.

use crate::common::no_qemu;
use crate::words::Vm;
use linux::vm::RunningVm;
use linux::{HostOptions, LinuxHost};
use qemu::monitor::FreeMonitors;
use scheduler::Observe;
use serde_json::json;
use std::path::Path;
use topology::Bytes;

const TWO: &str = "-m 256,slots=2,maxmem=1G -smp 2 -object memory-backend-ram,id=m0,size=128M -object \
    memory-backend-ram,id=m1,size=128M -numa node,cpus=0,memdev=m0 -numa node,cpus=1,memdev=m1";

/// A VM with these options and a monitor that is free; `None`: there is no QEMU.
fn start(test: &str, options: &str) -> Option<(Vm, tempfile::TempDir)> {
    if no_qemu(test) {
        return None;
    }
    let place = tempfile::tempdir().expect("a directory");
    let line =
        format!("-name {test},debug-threads=on -qmp unix:{}/qmp,server=on,wait=off {options}", place.path().display());
    Some((Vm::start(Path::new("qemu-system-x86_64"), place.path(), &line), place))
}

/// Plugs 128 MiB into a virtual node.
fn plug(vm: &mut Vm, node: u32) {
    vm.ask("object-add", &json!({ "qom-type": "memory-backend-ram", "id": "late", "size": 128_u64 << 20 }));
    vm.ask("device_add", &json!({ "driver": "pc-dimm", "id": "dimm", "memdev": "late", "node": node }));
}

/// The VM as the host sees it in its next look.
fn look(host: &mut LinuxHost, vm: &Vm) -> RunningVm {
    host.observe().expect("/proc");
    host.vms().find(|one| one.key.pid == vm.child.id()).expect("the VM").clone()
}

/// What is known of the memory of each client, in MiB, and where its first block begins.
fn memory(vm: &RunningVm) -> Vec<(Option<String>, u64, Option<u64>)> {
    let one = |client: &linux::vm::VmClient| {
        let whole = client.regions.iter().map(linux::vm::Region::size).sum::<Bytes>();
        (
            client.memory_unknown_because.clone(),
            whole.mib(),
            client.regions.first().map(|region| region.addresses.start),
        )
    };
    vm.clients.iter().map(one).collect()
}

#[test]
fn with_one_client_nothing_needs_telling_apart() {
    let Some((mut vm, _place)) = start("with_one_client", "-m 128,slots=2,maxmem=1G") else { return };
    plug(&mut vm, 0);
    let mut host = LinuxHost::new(HostOptions::default()).expect("a machine");
    let seen = memory(&look(&mut host, &vm));
    assert_eq!((seen.len(), &seen[0].0, seen[0].1), (1, &None, 256), "{seen:?}");
}

#[test]
fn what_an_earlier_look_knew_stays_known() {
    let Some((mut vm, _place)) = start("what_an_earlier_look_knew", TWO) else { return };
    let mut host = LinuxHost::new(HostOptions::default()).expect("a machine");
    let before = memory(&look(&mut host, &vm));
    assert!(before.iter().all(|(unknown, mib, _)| unknown.is_none() && *mib == 128), "{before:?}");
    plug(&mut vm, 1);
    let after = look(&mut host, &vm);
    assert_eq!(memory(&after), before);
    assert_eq!(after.unplaced.iter().map(linux::vm::Region::size).sum::<Bytes>().mib(), 128);
}

#[test]
fn a_monitor_tells_a_dimm_from_the_first_memory() {
    let Some((mut vm, _place)) = start("a_monitor_tells", TWO) else { return };
    let mut host = LinuxHost::new(HostOptions::default()).expect("a machine");
    let before = memory(&look(&mut host, &vm));
    plug(&mut vm, 1);
    let alone = look(&mut LinuxHost::new(HostOptions::default()).expect("a machine"), &vm);
    assert!(memory(&alone).iter().all(|(unknown, ..)| unknown.is_some()), "nobody tells: {alone:?}");
    let options = HostOptions { monitor: Some(Box::<FreeMonitors>::default()), ..HostOptions::default() };
    let mut host = LinuxHost::new(options).expect("a machine");
    let seen = memory(&look(&mut host, &vm));
    let sizes: Vec<u64> = seen.iter().map(|(_, mib, _)| *mib).collect();
    assert_eq!((sizes, seen[0].2, seen[1].2), (vec![128, 256], before[0].2, before[1].2), "{seen:?}");
}
