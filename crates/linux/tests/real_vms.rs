//! Real, paused QEMU processes on this host: found, read, bound, and refused to those who may not.

use linux::vm::{RunningVm, VcpuEvidence};
use linux::{HostOptions, LinuxHost};
use scheduler::{Act, Action, ActionError, ClientId, Mobility, Observation, Observe, VmKey, VmObservation};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use topology::{Bytes, CpuSet, NodeId};

pub(crate) const TWO_NODES: &str = "-m 64 -smp 4 -object memory-backend-ram,id=m0,size=32M -object \
    memory-backend-ram,id=m1,size=32M,prealloc=on \
                         -numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1";

/// A VM that never runs an instruction; it ends with the test.
#[derive(Debug)]
pub(crate) struct Paused(pub(crate) Child);

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Paused {
    /// `None`, with a word about it, without QEMU.
    pub(crate) fn start(test: &str, accelerator: &str, more: &str) -> Option<Self> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-S", "-display", "none", "-nodefaults", "-no-user-config", "-machine", "q35"]);
        let name = format!("{test}-{}", std::process::id());
        command.args(["-name", &format!("{name},debug-threads=on"), "-accel", accelerator]);
        command.args(["-monitor", "none", "-serial", "none"]).args(more.split_whitespace());
        match command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                eprintln!("SKIPPED {test}: qemu-system-x86_64: {error}");
                None
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// This host, once it sees the VM with all vCPU threads and all its memory.
    pub(crate) fn seen(&self, ready: impl Fn(&RunningVm, &VmObservation) -> bool) -> (LinuxHost, VmObservation) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            // A host of its own each time: what is seen once is not looked at again at once.
            let mut host = LinuxHost::new(HostOptions::default()).expect("a machine");
            let observation = host.observe().expect("/proc");
            let vm = host.vms().find(|vm| vm.key.pid == self.pid()).cloned();
            if let (Some(vm), Some(observed)) = (vm, of(&observation, self.pid()))
                && ready(&vm, &observed)
            {
                return (host, observed);
            }
            assert!(Instant::now() < until, "the VM was not seen as it should be: {observation:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) fn of(observation: &Observation, pid: u32) -> Option<VmObservation> {
    observation.vms.iter().find(|vm| vm.vm.pid == pid).cloned()
}

fn mib(vm: &VmObservation, client: usize) -> u64 {
    let memory = vm.clients[client].memory.clone().unwrap_or_default();
    memory.values().copied().sum::<Bytes>().mib()
}

fn one_cpu() -> CpuSet {
    linux::sys::affinity(0).expect("an affinity").first().into_iter().collect()
}

fn bind(vm: &VmKey, client: u32, cpus: &CpuSet) -> Action {
    let home = std::iter::once(NodeId(0)).collect();
    Action::Bind { vm: vm.clone(), client: ClientId(client), home, cpus: cpus.clone(), groups: Vec::new() }
}

fn move_memory(vm: &VmKey) -> Action {
    let (from, to) = (NodeId(0), NodeId(0));
    Action::MoveMemory { vm: vm.clone(), client: ClientId(0), from, to, at_most: Bytes::MIB }
}

#[test]
fn vms_are_examined_a_few_at_a_look_and_memory_is_unknown_until_all_are() {
    let name = "vms_are_examined_a_few_at_a_look_and_memory_is_unknown_until_all_are";
    let started: Vec<Paused> = (0..3).filter_map(|_| Paused::start(name, "tcg", "-m 16 -smp 1")).collect();
    let [one, two, three] = &started[..] else { return };
    let three = [one, two, three].map(|vm| {
        vm.seen(|_, _| true);
        vm.pid()
    });
    // No time at all: one VM a look. Other tests' VMs are among them, and end meanwhile.
    let options = HostOptions { newcomers_within: Some(Duration::ZERO), ..HostOptions::default() };
    let mut host = LinuxHost::new(options).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut known = 0;
    loop {
        let observation = host.observe().unwrap();
        let free_is_known = observation.nodes.values().any(|node| node.memory_free.is_some());
        assert_eq!(free_is_known, host.unexamined() == 0, "{observation:?}");
        assert!(observation.vms.len() <= known + 1, "one a look");
        known = observation.vms.len();
        if three.iter().all(|&pid| of(&observation, pid).is_some()) && host.unexamined() == 0 {
            break;
        }
        assert!(Instant::now() < until, "not all were examined: {observation:?}");
    }
    // A balancer begins when it has seen all, and with rates that are not those of a moment.
    let options = HostOptions { newcomers_within: Some(Duration::ZERO), ..HostOptions::default() };
    let mut host = LinuxHost::new(options).unwrap();
    host.examine_all(Duration::from_millis(1)).unwrap();
    let observation = host.observe().unwrap();
    for pid in three {
        let seen = of(&observation, pid).unwrap();
        assert!(seen.clients.iter().all(|client| client.cpu_used.is_none()), "{seen:?}");
    }
    assert!(observation.nodes.values().all(|node| node.cpu_used.is_none()), "{observation:?}");
}

#[test]
fn clients_are_virtual_nodes_with_their_threads_and_their_memory() {
    let Some(vm) = Paused::start("clients_are_virtual_nodes", "tcg", TWO_NODES) else { return };
    let (host, observed) = vm.seen(|seen, vm| seen.threads.vcpus.len() == 4 && mib(vm, 1) == 32);
    assert_eq!(observed.clients.iter().map(|client| client.vcpus).collect::<Vec<_>>(), [2, 2]);
    // Only the second backend was filled: its pages are found in the mapping that was taken for it,
    // and in no other.
    assert_eq!((mib(&observed, 0), mib(&observed, 1)), (0, 32));
    assert!(observed.clients.iter().all(|client| client.memory_size == Bytes::from_mib(32)));
    let seen = host.vms().find(|seen| seen.key.pid == vm.pid()).unwrap();
    assert_eq!(seen.key.name, format!("clients_are_virtual_nodes-{}", std::process::id()));
    assert_eq!(seen.threads.evidence, VcpuEvidence::Names);
    assert_eq!(seen.clients[1].vcpus, [2, 3]);
}

#[test]
fn a_client_is_bound_and_the_other_is_not() {
    let Some(vm) = Paused::start("a_client_is_bound", "tcg", TWO_NODES) else { return };
    let (mut host, observed) = vm.seen(|seen, _| seen.threads.vcpus.len() == 4);
    let before = linux::sys::affinity(vm.pid()).unwrap();
    host.carry_out(&bind(&observed.vm, 1, &one_cpu())).unwrap();
    let clients = host.vms().find(|seen| seen.key.pid == vm.pid()).unwrap().clients.clone();
    for (client, cpus) in [(0, &before), (1, &one_cpu())] {
        for &thread in &clients[client].thread_ids {
            assert_eq!(&linux::sys::affinity(thread).unwrap(), cpus, "client {client}");
        }
    }
    let again = of(&host.observe().unwrap(), vm.pid()).unwrap();
    assert_eq!((&again.clients[0].cpus, &again.clients[1].cpus), (&before, &one_cpu()));
    // It is paused: once its threads have come up, they neither run nor wait.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let client = of(&host.observe().unwrap(), vm.pid()).unwrap().clients.swap_remove(0);
        if (client.cpu_used, client.cpu_waited) == (Some(0.0), Some(0.0)) {
            break;
        }
        assert!(Instant::now() < until, "a paused VM never rests: {client:?}");
    }
    // No such CPU: nothing is changed.
    let error = host.carry_out(&bind(&observed.vm, 0, &"4000".parse().unwrap())).unwrap_err();
    assert!(matches!(error, ActionError::Failed { .. }), "{error}");
    assert_eq!(linux::sys::affinity(clients[0].thread_ids[0]).unwrap(), before);
}

#[test]
fn a_vm_that_ended_is_gone_and_a_later_process_is_not_it() {
    let Some(mut vm) = Paused::start("a_vm_that_ended", "tcg", "-m 32") else { return };
    let (mut host, observed) = vm.seen(|seen, _| !seen.threads.vcpus.is_empty());
    let earlier = VmKey { started: observed.vm.started - 1, ..observed.vm.clone() };
    let gone = |host: &mut LinuxHost, key: &VmKey| {
        let error = host.carry_out(&bind(key, 0, &one_cpu())).unwrap_err();
        assert_eq!(error, ActionError::Gone { vm: key.name.clone() });
        assert!(matches!(host.carry_out(&move_memory(key)).unwrap_err(), ActionError::Gone { .. }));
    };
    gone(&mut host, &earlier);
    vm.0.kill().unwrap();
    vm.0.wait().unwrap();
    gone(&mut host, &observed.vm);
    assert!(of(&host.observe().unwrap(), vm.pid()).is_none());
}

#[test]
fn one_thread_for_all_vcpus_is_one_client() {
    let Some(vm) = Paused::start("one_thread", "tcg,thread=single", TWO_NODES) else { return };
    let (host, observed) = vm.seen(|seen, vm| seen.threads.vcpus.len() == 4 && mib(vm, 0) == 32);
    assert_eq!((observed.clients.len(), observed.clients[0].vcpus), (1, 4));
    let seen = host.vms().find(|seen| seen.key.pid == vm.pid()).unwrap();
    assert_eq!((seen.threads.evidence, seen.clients[0].regions.len()), (VcpuEvidence::OneForAll, 2));
}

#[test]
fn a_memory_file_is_found() {
    let backend = "-m 32 -object memory-backend-memfd,id=ram,size=32M,share=on,prealloc=on -machine memory-backend=ram";
    let Some(vm) = Paused::start("a_memory_file", "tcg", backend) else { return };
    let (_, observed) = vm.seen(|seen, vm| !seen.threads.vcpus.is_empty() && mib(vm, 0) == 32);
    assert_eq!(observed.mobility, Mobility::Movable);
}

#[test]
fn a_vm_that_was_seen_while_it_started_is_complete_soon() {
    let Some(vm) = Paused::start("a_vm_that_starts", "tcg", TWO_NODES) else { return };
    let mut host = LinuxHost::new(HostOptions::default()).unwrap();
    let complete = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        of(&host.observe().unwrap(), vm.pid())
            .is_some_and(|seen| seen.mobility == Mobility::Movable && mib(&seen, 1) == 32)
    });
    assert!(complete);
}

#[test]
fn a_captured_tree_is_looked_at_and_never_changed() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/stat", "cpu  1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1\n");
    write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
    write("proc/cpuinfo", "processor\t: 0\n");
    write("sys/devices/system/cpu/online", "0\n");
    write("sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
    write("proc/7/cmdline", "/usr/bin/kvm\0-name\0old,debug-threads=on\0-m\0\x316\0");
    write("proc/7/stat", &format!("7 (kvm) S {}", ["5"; 40].join(" ")));
    write("proc/7/task/7/comm", "kvm\n");
    write("proc/7/task/9/comm", "CPU 0/KVM\n");
    write("proc/7/task/9/schedstat", "100 20 3\n");
    write("proc/7/task/9/status", "Cpus_allowed_list:\t0\n");
    write("proc/7/maps", "7f0000000000-7f0001000000 rw-p 00000000 00:00 0 \n");
    let options = HostOptions { root: linux::Root::at(root.path()), ..HostOptions::default() };
    let mut host = LinuxHost::new(options).unwrap();
    let observed = host.observe().unwrap();
    let vm = of(&observed, 7).unwrap();
    assert_eq!((vm.vm.name.as_str(), vm.vm.started, vm.clients[0].cpus.to_string()), ("old", 5, "0".to_owned()));
    write("proc/7/task/9/schedstat", "1000000100 20 3\n");
    std::thread::sleep(Duration::from_millis(10));
    let used = of(&host.observe().unwrap(), 7).unwrap().clients[0].cpu_used.unwrap();
    assert!(used > 0.0, "{used}"); // a second of CPU time in a moment
    let error = host.carry_out(&bind(&vm.vm, 0, &one_cpu())).unwrap_err().to_string();
    assert!(error.contains("captured tree"), "{error}");
}

#[test]
fn a_cpuset_bounds_the_home_by_its_cpus_and_by_its_memory() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/stat", "cpu  1 1 1 1 1 1 1\n");
    write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
    write("proc/cpuinfo", "processor\t: 0\n");
    write("sys/devices/system/cpu/online", "0-3\n");
    write("sys/devices/system/node/online", "0-1\n");
    for node in 0..2 {
        let directory = format!("sys/devices/system/node/node{node}");
        write(&format!("{directory}/cpulist"), &format!("{}-{}\n", 2 * node, 2 * node + 1));
        write(&format!("{directory}/meminfo"), &format!("Node {node} MemTotal: 500 kB\nNode {node} MemFree: 400 kB\n"));
        write(&format!("{directory}/distance"), if node == 0 { "10 20\n" } else { "20 10\n" });
    }
    for cpu in 0..4 {
        write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), &format!("{cpu}\n"));
    }
    write("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n");
    write("sys/fs/cgroup/vm.scope/cgroup.procs", "7\n");
    write("sys/fs/cgroup/vm.scope/memory.max", "268435456\n");
    write("sys/fs/cgroup/vm.scope/cpu.max", "150000 100000\n");
    write("proc/7/cgroup", "0::/vm.scope\n");
    write("proc/7/cmdline", "/usr/bin/kvm\0-name\0old,debug-threads=on\0-m\0\x316\0");
    write("proc/7/stat", &format!("7 (kvm) S {}", ["5"; 40].join(" ")));
    write("proc/7/task/7/comm", "kvm\n");
    write("proc/7/task/9/comm", "CPU 0/KVM\n");
    write("proc/7/task/9/status", "Cpus_allowed_list:\t0-3\n");
    write("proc/7/maps", "7f0000000000-7f0001000000 rw-p 00000000 00:00 0 \n");
    let look = |cpus: &str, memory: &str| {
        write("sys/fs/cgroup/vm.scope/cpuset.cpus.effective", &format!("{cpus}\n"));
        write("proc/7/task/7/status", &format!("Mems_allowed_list:\t{memory}\n"));
        let options = HostOptions { root: linux::Root::at(root.path()), ..HostOptions::default() };
        of(&LinuxHost::new(options).unwrap().examine().unwrap(), 7).unwrap()
    };
    assert_eq!(look("0-3", "0-1").node_affinity, None);
    assert_eq!(look("2-3", "0-1").node_affinity, "1".parse().ok());
    assert_eq!(look("0-3", "1").node_affinity, "1".parse().ok());
    assert_eq!(look("2", "0-1").node_affinity, "1".parse().ok());
    let apart = look("0-1", "1");
    assert!(matches!(&apart.mobility, Mobility::Fixed { because } if because.contains("are apart")), "{apart:?}");
    let limits = apart.limits.unwrap();
    assert_eq!((limits.memory_max, limits.cpu_milli_max), (Some(Bytes::from_mib(256)), Some(1500)));
    assert!(limits.cgroup_is_its_own && limits.cgroup.as_deref() == Some("/vm.scope"));
}

#[test]
fn another_user_is_told_which_capability_is_missing() {
    let Some(vm) = Paused::start("another_user", "tcg", "-m 32") else { return };
    vm.seen(|seen, _| !seen.threads.vcpus.is_empty());
    if linux::sys::effective_user_id() != 0 {
        return eprintln!(
            "SKIPPED another_user_is_told_which_capability_is_missing: only root can become another user"
        );
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "real_vms::inner_without_rights", "--nocapture"]);
    let output = command.env("HOMENODE_TEST_VM", vm.pid().to_string()).output();
    let Ok(output) = output else {
        return eprintln!("SKIPPED another_user_is_told_which_capability_is_missing: no setpriv");
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if said.contains("Permission denied") && !said.contains("running 1 test") {
        return eprintln!("SKIPPED another_user_is_told_which_capability_is_missing: {said}");
    }
    assert!(output.status.success() && said.contains("inner: refused"), "{said}");
}

/// The other user's part of the test above.
#[test]
fn inner_without_rights() {
    let Some(pid) = std::env::var("HOMENODE_TEST_VM").ok().and_then(|pid| pid.parse().ok()) else { return };
    let mut host = LinuxHost::new(HostOptions::default()).unwrap();
    let vm = of(&host.observe().unwrap(), pid).unwrap();
    let Mobility::Fixed { because } = &vm.mobility else { panic!("{:?}", vm.mobility) };
    assert!(because.contains("CAP_SYS_NICE"), "{because}");
    assert_eq!(vm.clients[0].memory, None);
    assert!(vm.unverified && vm.mapped.is_some_and(|mapped| mapped >= Bytes::from_mib(32)), "{vm:?}");
    assert!(!vm.clients[0].cpus.is_empty());
    let needs = |result: Result<_, ActionError>| match result {
        Err(ActionError::Permission { needs, .. }) => needs,
        other => panic!("{other:?}"),
    };
    assert!(needs(host.carry_out(&bind(&vm.vm, 0, &one_cpu()))).contains("CAP_SYS_NICE"));
    let apart = Action::MoveMemory {
        vm: vm.vm.clone(),
        client: ClientId(0),
        from: NodeId(1),
        to: NodeId(0),
        at_most: Bytes::MIB,
    };
    assert!(needs(host.carry_out(&apart)).contains("CAP_SYS_PTRACE"));
    let confined = host.confine(&vm.vm, &"0".parse().unwrap());
    assert!(matches!(confined, Err(ActionError::Failed { .. })));
    assert!(host.examine().is_ok());
    println!("inner: refused");
}

#[test]
fn nodes_of_the_old_form_have_their_part_each_and_one_without_vcpus_uses_none() {
    let shape = "-machine pc-i440fx-5.0 -m 64 -mem-prealloc -smp 2 -numa node,mem=32,cpus=0-1 -numa node,mem=32";
    let Some(vm) = Paused::start("nodes_of_the_old_form", "tcg,thread=multi", shape) else { return };
    let (mut host, _) = vm.seen(|vm, seen| vm.threads.vcpus.len() == 2 && mib(seen, 0) == 32 && mib(seen, 1) == 32);
    std::thread::sleep(Duration::from_millis(20));
    let seen = of(&host.examine().expect("/proc"), vm.pid()).expect("seen");
    assert_eq!((mib(&seen, 0), mib(&seen, 1)), (32, 32), "{seen:?}");
    assert_eq!(seen.clients[1].cpu_used, Some(0.0));
    assert!(seen.clients[1].cpu_used.is_some_and(f64::is_sign_positive));
}
