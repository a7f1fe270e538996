//! Where the memory of real, paused QEMU processes is, whatever else they have mapped: by their
//! monitors' own words.

use crate::real_vms::{Paused, TWO_NODES, of};
use linux::vm::RunningVm;
use linux::{HostOptions, LinuxHost};
use scheduler::{Mobility, Observe, VmObservation};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use topology::Bytes;

/// A paused VM whose monitor can be asked.
struct Shape {
    vm: Paused,
    directory: tempfile::TempDir,
}

impl Shape {
    fn start(test: &str, more: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("qmp");
        let shared = directory.path().join("shared");
        let more = more.replace("SHARED", shared.to_str().expect("UTF-8"));
        let monitor = format!("-qmp unix:{},server=on,wait=off {more}", socket.display());
        Some(Self { vm: Paused::start(&format!("{test}-{}", std::process::id()), "tcg", &monitor)?, directory })
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("qmp")
    }

    /// Carries commands out, each when the one before is done.
    fn ask(&self, commands: &[Value]) -> Vec<Value> {
        let until = Instant::now() + Duration::from_secs(30);
        let stream = loop {
            match UnixStream::connect(self.socket()) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
        let mut answer = move || -> Value {
            loop {
                let line = lines.next().expect("an answer").expect("an answer");
                let value: Value = serde_json::from_str(&line).expect("JSON");
                assert!(value.get("error").is_none(), "{value}");
                if value.get("event").is_none() {
                    return value;
                }
            }
        };
        answer();
        let greeting = [json!({"execute": "qmp_capabilities"})];
        let ask = |command: &Value| {
            writeln!(&stream, "{command}").expect("a socket");
            answer()["return"].clone()
        };
        greeting.iter().chain(commands).map(ask).skip(1).collect()
    }

    /// Where the guest's memory from this address on is in QEMU's address space.
    fn host_address(&self, guest: u64) -> u64 {
        let line = format!("gpa2hva {guest:#x}");
        let said = self.ask(&[json!({"execute": "human-monitor-command", "arguments": {"command-line": line}})]);
        let said = said[0].as_str().expect("a text");
        let digits = said.trim().rsplit_once(" is 0x").unwrap_or_else(|| panic!("{said}")).1;
        u64::from_str_radix(digits, 16).expect("a number")
    }

    /// Plugs a block of 128 MiB in.
    fn plug(&self) {
        let object = json!({"qom-type": "memory-backend-ram", "id": "late", "size": 128 << 20, "prealloc": true});
        let device = json!({"driver": "pc-dimm", "id": "dimm9", "memdev": "late"});
        self.ask(&[
            json!({"execute": "object-add", "arguments": object}),
            json!({"execute": "device_add", "arguments": device}),
        ]);
    }

    fn seen(&self) -> (RunningVm, VmObservation) {
        let complete = |vm: &RunningVm, _: &VmObservation| !vm.threads.vcpus.is_empty();
        let (host, observed) = self.vm.seen(complete);
        let vm = host.vms().find(|vm| vm.key.pid == self.vm.pid()).expect("it runs").clone();
        (vm, observed)
    }
}

fn starts(vm: &RunningVm) -> Vec<(u64, u64)> {
    let regions = vm.clients.iter().flat_map(|client| &client.regions);
    regions.map(|region| (region.addresses.start, region.size().mib())).collect()
}

/// What stands beside `-m`, in MiB the memory that the guest has, and the addresses that the guest
/// sees its blocks at.
fn check(test: &str, more: &str, memory_mib: u64, guest: &[u64]) {
    let Some(shape) = Shape::start(test, more) else { return };
    let (vm, observed) = shape.seen();
    assert_eq!(observed.mobility, Mobility::Movable, "{more}");
    assert_eq!(observed.clients[0].memory_size, Bytes::from_mib(memory_mib), "{more}");
    assert_eq!(observed.clients[0].memory_unknown_because, None);
    let mut expected: Vec<u64> = guest.iter().map(|&address| shape.host_address(address)).collect();
    let mut found: Vec<u64> = starts(&vm).into_iter().map(|(start, _)| start).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{more}");
}

/// Where memory devices begin on q35, for so little memory.
const PLUGGED: u64 = 4 << 30;

#[test]
fn memory_that_is_shared_with_others_is_none_of_the_guests() {
    let ivshmem =
        "-m 64 -object memory-backend-file,id=shm,share=on,mem-path=SHARED,size=4M -device ivshmem-plain,memdev=shm";
    check("ivshmem", ivshmem, 64, &[0]);
    check("unused", "-m 64 -object memory-backend-ram,id=nobodys,size=16M", 64, &[0]);
    check("unused-alike", "-m 64 -object memory-backend-ram,id=nobodys,size=64M", 64, &[0]);
}

#[test]
fn memory_in_a_file_is_moved_only_where_the_vm_may_write_the_file() {
    // All of the guest's memory, as `share` says; the file is there before, and has pages of
    // others.
    let start = |share: &str| {
        let test = format!("file-{share}-{}", std::process::id());
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("image");
        std::fs::write(&file, vec![1_u8; 32 << 20]).expect("a file");
        let backend = format!("memory-backend-file,id=ram,share={share},mem-path={},size=32M", file.display());
        Some((Paused::start(&test, "tcg", &format!("-m 32 -machine memory-backend=ram -object {backend}"))?, directory))
    };
    let Some((shared, _directory)) = start("on") else { return };
    let complete = |vm: &RunningVm, _: &VmObservation| !vm.threads.vcpus.is_empty();
    assert_eq!(shared.seen(complete).1.mobility, Mobility::Movable);
    let Some((private, directory)) = start("off") else { return };
    let (host, observed) = private.seen(complete);
    let because = format!(
        "backend ram (32 MiB) is a private mapping of {}/image: what it has not written there is shared with everybody \
        who reads that file, so that none of it is moved",
        directory.path().display()
    );
    assert_eq!(observed.mobility, Mobility::MemoryFixed { because: because.clone() });
    let client = &observed.clients[0];
    assert_eq!((&client.memory, client.memory_unknown_because.as_ref()), (&None, Some(&because)));
    assert!(host.vms().find(|vm| vm.key.pid == private.pid()).expect("it runs").clients[0].regions.is_empty());
}

#[test]
fn memory_devices_belong_to_the_vm() {
    let dimm = |mib: u32| {
        format!(
            "-m {mib},slots=2,maxmem=1G -object memory-backend-ram,id=d0,size=128M -device pc-dimm,id=dimm0,memdev=d0"
        )
    };
    check("cold-dimm", &dimm(64), 192, &[0, PLUGGED]);
    check("cold-dimm-alike", &dimm(128), 256, &[0, PLUGGED]);
}

#[test]
fn a_block_that_is_plugged_in_later_is_learnt() {
    let Some(shape) = Shape::start("hot-dimm", "-m 64,slots=2,maxmem=1G") else { return };
    shape.seen();
    let mut host = LinuxHost::new(HostOptions::default()).unwrap();
    let mut look = || of(&host.observe().unwrap(), shape.vm.pid()).unwrap();
    assert_eq!(look().clients[0].memory_size, Bytes::from_mib(64));
    shape.plug();
    let until = Instant::now() + Duration::from_secs(60);
    let seen = loop {
        let seen = look();
        assert_eq!(seen.mobility, Mobility::Movable);
        if seen.clients[0].memory_size == Bytes::from_mib(192) {
            break seen;
        }
        assert!(Instant::now() < until, "{seen:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    // The block that was plugged in was filled; the other was not touched. An estimate from 1024 of
    // its pages.
    let resident: Bytes = seen.memory().into_values().sum();
    assert!(resident.mib().abs_diff(128) <= 6, "{resident}");
    let mut expected = vec![shape.host_address(0), shape.host_address(PLUGGED)];
    expected.sort_unstable();
    let mut found: Vec<u64> = starts(&shape.seen().0).into_iter().map(|(start, _)| start).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn a_vm_of_two_nodes_stays_known_when_a_block_is_plugged_in() {
    let wide = TWO_NODES.replacen("-m 64", "-m 64,slots=2,maxmem=1G", 1);
    let Some(shape) = Shape::start("hot-dimm-wide", &wide) else { return };
    shape.seen();
    shape.plug();
    let examined = LinuxHost::new(HostOptions::default()).unwrap().examine().unwrap();
    let seen = of(&examined, shape.vm.pid()).unwrap();
    assert_eq!(seen.mobility, Mobility::Movable);
    let sizes: Vec<u64> = seen.clients.iter().map(|client| client.memory_size.mib()).collect();
    assert_eq!(sizes, [32, 32]);
    let name = &seen.vm.name;
    let unseen = examined.unseen_of(Some(&seen.vm));
    let said = format!("{name}: 128 MiB were plugged in later; which virtual node");
    assert!(unseen.iter().any(|line| line.starts_with(&said)), "{:?}", examined.unseen);
}

/// The nice value of this process, which the VMs that it starts have too: field 19 of `stat`
/// (proc(5)).
fn own_nice() -> Option<i32> {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.parse().ok()
}

#[test]
fn a_strict_policy_of_somebody_is_a_choice_and_everything_is_examined() {
    let bound = "-m 32 -object memory-backend-ram,id=ram,size=32M,host-nodes=0,policy=bind,prealloc=on -machine \
        memory-backend=ram";
    let Some(shape) = Shape::start("chosen", bound) else { return };
    shape.seen();
    let examined = LinuxHost::new(HostOptions::default()).unwrap().examine().unwrap();
    let seen = of(&examined, shape.vm.pid()).unwrap();
    let client = &seen.clients[0];
    assert_eq!(client.chosen_nodes, "0".parse().ok());
    let policies = client.policies.as_ref().expect("this kernel has numa_maps");
    assert!(
        policies.iter().all(|policy| policy.policy == "bind:0" && policy.nodes == "0".parse().ok()),
        "{policies:?}"
    );
    assert_eq!(client.memory.clone().unwrap_or_default().into_values().sum::<Bytes>(), Bytes::from_mib(32));
    assert_eq!(client.vcpu_cpus.keys().copied().collect::<Vec<_>>(), [0]);
    assert!(seen.other_threads.iter().any(|thread| thread.kind == scheduler::OtherThreadKind::Main), "{seen:?}");
    assert_eq!(seen.limits.as_ref().and_then(|limits| limits.nice), own_nice());
    assert!(examined.settings.is_some());
    assert_eq!(seen.owner_uid, Some(linux::sys::effective_user_id()));
    assert!(!seen.unverified);
    assert_eq!(seen.guest.as_ref().map(|guest| (guest.cpus.sockets, guest.cpus.cores)), Some((1, 1)));
}

#[test]
fn a_vm_that_goes_to_the_background_is_one_vm() {
    let directory = tempfile::tempdir().unwrap();
    let pid_file = directory.path().join("pid");
    let name = format!("background-{}", std::process::id());
    let mut command = Command::new("qemu-system-x86_64");
    command.args([
        "-S",
        "-display",
        "none",
        "-nodefaults",
        "-no-user-config",
        "-accel",
        "tcg",
        "-daemonize",
        "-m",
        "64",
    ]);
    // Filling it takes a while, during which both processes are there.
    command.args(["-object", "memory-backend-ram,id=ram,size=64M,prealloc=on", "-machine", "q35,memory-backend=ram"]);
    command.args(["-name", &format!("{name},debug-threads=on")]).arg("-pidfile").arg(&pid_file);
    let Ok(mut starter) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return eprintln!("SKIPPED a_vm_that_goes_to_the_background_is_one_vm: no qemu-system-x86_64");
    };
    let mut host = LinuxHost::new(HostOptions::default()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let until = Instant::now() + Duration::from_secs(60);
    let mut after = 0;
    while after < 3 {
        let observation = host.observe().unwrap();
        seen.extend(observation.vms.iter().filter(|vm| vm.vm.name == name).map(|vm| vm.vm.pid));
        after += u32::from(starter.try_wait().unwrap().is_some() && !seen.is_empty());
        assert!(Instant::now() < until, "it was not seen");
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid: u32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    linux::sys::send_signal(pid, 9).unwrap();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [pid]);
}
