//! What only the monitor of a QEMU says that somebody else started: vCPU threads without names,
//! plugged memory, that it is paused.

use crate::common::no_qemu;
use linux::host::{AskMonitor, Heard, Questions, Said};
use linux::vm::RunningVm;
use linux::{HostOptions, LinuxHost};
use qemu::monitor::FreeMonitors;
use scheduler::{Observe, RunState, VmKey};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends with the value.
struct Vm(Child);

impl Drop for Vm {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first words on a new connection, when the monitor listens.
fn greeting(socket: &Path) -> (UnixStream, String) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
                let mut line = String::new();
                BufReader::new(stream.try_clone().expect("a copy")).read_line(&mut line).expect("a greeting");
                return (stream, line);
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a free monitor says that listens at `socket`, asked as that of a process of this user.
fn ask(pid: u32, socket: &Path, questions: Questions) -> Option<Said> {
    let vm = RunningVm {
        key: VmKey { pid, ..VmKey::default() },
        owner_uid: Some(linux::sys::effective_user_id()),
        monitor: Some(socket.to_owned()),
        ..RunningVm::default()
    };
    match FreeMonitors::default().ask(&vm, questions, Duration::from_millis(500)) {
        Heard::Said(said) => Some(said),
        Heard::Absent | Heard::Silent => None,
    }
}

/// A paused VM with a monitor, and where that is.
fn start(test: &str, more: &[&str]) -> Option<(Vm, PathBuf, tempfile::TempDir)> {
    if no_qemu(test) {
        return None;
    }
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("qmp");
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-S", "-accel", "tcg,thread=multi", "-display", "none", "-nodefaults"]).args(more);
    command.args(["-name", &format!("{test}-{}", std::process::id())]);
    command.args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some((Vm(command.spawn().expect("QEMU")), socket, place))
}

#[test]
fn a_free_monitor_says_which_thread_runs_which_vcpu_and_one_in_use_is_left_alone() {
    let Some((vm, socket, _place)) = start("a_free_monitor_says", &["-smp", "2", "-m", "32"]) else { return };
    let pid = vm.0.id();
    let ask = || -> Option<BTreeMap<u32, u32>> {
        ask(pid, &socket, Questions { vcpu_threads: true, ..Questions::default() })?.vcpu_threads
    };
    let (mut holder, words) = greeting(&socket);
    assert!(words.contains("QMP"), "{words}");
    assert_eq!(ask(), None, "somebody is at it");
    // Who has it goes on as if nothing had been.
    writeln!(holder, "{{\"execute\":\"qmp_capabilities\"}}").expect("a command");
    let mut answer = String::new();
    BufReader::new(holder.try_clone().expect("a copy")).read_line(&mut answer).expect("an answer");
    assert!(answer.contains("return"), "{answer}");
    drop(holder);
    let deadline = Instant::now() + Duration::from_secs(60);
    let threads = loop {
        match ask() {
            Some(threads) => break threads,
            None => assert!(Instant::now() < deadline, "it does not say"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(threads.keys().copied().collect::<Vec<_>>(), [0, 1]);
    let own = linux::process::threads(pid).expect("its threads");
    assert!(threads.values().all(|thread| own.iter().any(|known| known.id == *thread)), "{threads:?}");
    // A look that asks again has the rates of what was told before.
    let monitor: Option<Box<dyn AskMonitor>> = Some(Box::<FreeMonitors>::default());
    let mut host = LinuxHost::new(HostOptions { monitor, ..HostOptions::default() }).expect("a host");
    let told = |host: &LinuxHost| host.vms().any(|vm| vm.key.pid == pid && vm.clients[0].thread_ids.len() == 2);
    while !told(&host) {
        assert!(Instant::now() < deadline, "it does not say");
        host.observe().expect("a look");
    }
    std::thread::sleep(Duration::from_millis(20));
    let seen = host.examine().expect("a look at all");
    let vm = seen.vms.iter().find(|vm| vm.vm.pid == pid).expect("the VM");
    assert!(told(&host) && vm.clients[0].cpu_used.is_some(), "{vm:?}");
    // It is free again for whoever comes next.
    assert!(greeting(&socket).1.contains("QMP"));
}

/// Carries out commands at a monitor that nobody else is at.
fn tell(holder: &UnixStream, commands: &[&str]) {
    let mut answers = BufReader::new(holder.try_clone().expect("a copy")).lines();
    for command in commands {
        writeln!(&*holder, "{command}").expect("a command");
        let answer = answers.find(|line| !line.as_ref().expect("an answer").contains("\"event\""));
        assert!(answer.expect("an answer").expect("an answer").contains("return"), "{command}");
    }
}

#[test]
fn memory_that_is_plugged_in_belongs_to_the_client_of_its_virtual_node_and_a_paused_vm_is_seen_as_paused() {
    let backend = |id: &str| format!("memory-backend-ram,id={id},size=32M");
    let (one, two) = (backend("a"), backend("b"));
    let shape = ["-m", "64,slots=2,maxmem=1G", "-smp", "2", "-object", &one, "-object", &two];
    let nodes = ["-numa", "node,nodeid=0,cpus=0,memdev=a", "-numa", "node,nodeid=1,cpus=1,memdev=b"];
    let Some((vm, socket, _place)) = start("memory_that_is_plugged_in", &[&shape[..], &nodes[..]].concat()) else {
        return;
    };
    let pid = vm.0.id();
    let (holder, _) = greeting(&socket);
    tell(
        &holder,
        &[
            r#"{"execute":"qmp_capabilities"}"#,
            r#"{"execute":"object-add","arguments":{"qom-type":"memory-backend-ram","id":"late","size":134217728}}"#,
            r#"{"execute":"device_add","arguments":{"driver":"pc-dimm","id":"dimm9","memdev":"late","node":1}}"#,
        ],
    );
    let look = |monitor: Option<Box<dyn AskMonitor>>| {
        let mut host =
            LinuxHost::new(HostOptions { monitor, run_states: true, ..HostOptions::default() }).expect("a host");
        let examined = host.examine().expect("an observation");
        let seen = examined.vms.iter().find(|seen| seen.vm.pid == pid).expect("the VM");
        let sizes: Vec<u64> = seen.clients.iter().map(|client| client.memory_size.mib()).collect();
        let unplaced = examined.unseen.iter().any(|said| said.what.contains("128 MiB were plugged in later"));
        (sizes, unplaced, seen.state)
    };
    // Somebody is at the monitor; then nobody.
    let free = || -> Option<Box<dyn AskMonitor>> { Some(Box::<FreeMonitors>::default()) };
    assert_eq!(look(free()), (vec![32, 32], true, None));
    drop(holder);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match look(free()) {
            (sizes, false, Some(RunState::Paused)) if sizes == [32, 160] => break,
            seen => assert!(Instant::now() < deadline, "{seen:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(look(None), (vec![32, 32], true, None));
    // Another process with the path of this monitor on its command line.
    let qmp = format!("unix:{},server=on,wait=off", socket.display());
    let mut claims = Command::new("sh");
    claims.args(["-c", "read line", "qemu-system-x86_64", "-qmp", &qmp]).stdin(Stdio::piped());
    let claims = Vm(claims.spawn().expect("a shell"));
    let questions = Questions { run_state: true, ..Questions::default() };
    let state = |vm: &Vm| ask(vm.0.id(), &socket, questions).and_then(|said| said.run_state);
    assert_eq!((state(&vm), state(&claims)), (Some(RunState::Paused), None));
}

/// A device of 322 MiB, not of whole 128 MiB, that gave the guest nothing yet, as one of virtual
/// node 1; then a VM that has the same device from its start.
#[test]
fn a_virtio_mem_device_counts_what_its_guest_was_given_and_not_what_it_could_give() {
    let backend = |id: &str| format!("memory-backend-ram,id={id},size=32M");
    let (one, two) = (backend("a"), backend("b"));
    let nodes = ["-numa", "node,nodeid=0,cpus=0,memdev=a", "-numa", "node,nodeid=1,cpus=1,memdev=b"];
    let shape = ["-M", "q35", "-m", "64,maxmem=1G", "-smp", "2", "-object", &one, "-object", &two];
    let shape = [&shape[..], &nodes[..], &["-device", "pcie-root-port,id=plug,chassis=1"]].concat();
    let object = "memory-backend-ram,id=late,size=322M,reserve=off";
    let device = "virtio-mem-pci,id=mem,bus=plug,memdev=late,node=1,block-size=2M,requested-size=130M";
    let on_command_line = [&shape[..], &["-object", object, "-device", device]].concat();
    let Some((vm, socket, _place)) = start("virtio-mem", &shape) else { return };
    let (holder, _) = greeting(&socket);
    tell(
        &holder,
        &[
            r#"{"execute":"qmp_capabilities"}"#,
            r#"{"execute":"object-add","arguments":{"qom-type":"memory-backend-ram","id":"late","size":337641472,"reserve":false}}"#,
            r#"{"execute":"device_add","arguments":{"driver":"virtio-mem-pci","id":"mem","bus":"plug","memdev":"late","node":1,"block-size":2097152,"requested-size":136314880}}"#,
        ],
    );
    drop(holder);
    let Some((started, _, _place)) = start("virtio-mem-started", &on_command_line) else { return };
    for pid in [vm.0.id(), started.0.id()] {
        let look = || {
            let monitor: Option<Box<dyn AskMonitor>> = Some(Box::<FreeMonitors>::default());
            let mut host = LinuxHost::new(HostOptions { monitor, ..HostOptions::default() }).expect("a host");
            let examined = host.examine().expect("an observation");
            let seen = examined.vms.iter().find(|seen| seen.vm.pid == pid)?;
            let sizes: Vec<u64> = seen.clients.iter().map(|client| client.memory_size.mib()).collect();
            let known = host.vms().find(|vm| vm.key.pid == pid)?;
            let device = |region: &&linux::vm::Region| region.size().mib() == 322 && region.given().is_some();
            Some((sizes, known.unplaced.len(), known.clients.get(1)?.regions.iter().filter(device).count()))
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while look() != Some((vec![32, 32], 0, 1)) {
            assert!(Instant::now() < deadline, "{:?}", look());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
