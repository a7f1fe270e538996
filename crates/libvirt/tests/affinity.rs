//! Binding the vCPUs of a real domain of a real libvirtd (session mode, under emulation): the
//! kernel and virsh must say the same.

use crate::libvirtd::Libvirtd;
use libvirt::LocalLibvirt;
use linux::{HostOptions, LinuxHost};
use scheduler::{Act, Action, ClientId, Done, Observe, VmKey};
use std::time::{Duration, Instant};
use topology::CpuSet;

/// One that no other run of the tests has, and no other test: `which` is hexadecimal.
pub(crate) fn uuid(which: &str) -> String {
    format!("5f0c3c46-7f7e-4b35-{which:0>4.4}-{:012x}", std::process::id())
}

/// How long a libvirt on a busy machine may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A domain that waits before its first instruction, with two vCPUs.
pub(crate) fn start(libvirtd: &Libvirtd, name: &str, uuid: &str) {
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>32</memory><vcpu>2</vcpu>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os>\
         <devices><controller type='usb' model='none'/><memballoon model='none'/></devices></domain>"
    );
    let path = libvirtd.path().join("paused.xml");
    std::fs::write(&path, xml).expect("a file");
    libvirtd.virsh(&["create", "--file", path.to_str().expect("UTF-8"), "--paused"]);
}

/// The test's libvirt, as one of those that are asked.
pub(crate) fn asked(libvirtd: &Libvirtd) -> Vec<LocalLibvirt> {
    vec![LocalLibvirt { uri: libvirtd.uri(), pid_files: libvirtd.pid_files(), user: libvirtd.user() }]
}

/// CPUs that virsh and the kernel say of each vCPU.
fn seen(libvirtd: &Libvirtd, host: &LinuxHost, vm: &VmKey) -> (Vec<CpuSet>, Vec<CpuSet>) {
    let deadline = Instant::now() + PATIENCE;
    let said = libvirtd.virsh(&["vcpupin", "--domain", &uuid("1"), "--live"]);
    let virsh: Vec<CpuSet> = said.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    let read = loop {
        // A libvirt that takes too long for its answer is left out.
        match libvirt::pins_of(&asked(libvirtd), host.vms()).remove(vm) {
            Some(pins) => break pins.into_values().collect::<Vec<CpuSet>>(),
            None => assert!(Instant::now() < deadline, "libvirt has no such VM"),
        }
    };
    assert_eq!(read, virsh, "{said}");
    let vm = host.vms().find(|known| known.key == *vm).expect("it runs");
    let kernel = vm.threads.vcpus.iter().map(|vcpu| linux::sys::affinity(vcpu.thread_id).expect("an affinity"));
    (virsh, kernel.collect())
}

#[test]
fn virsh_and_the_kernel_agree_and_without_libvirt_it_is_said() {
    let test = "virsh_and_the_kernel_agree_and_without_libvirt_it_is_said";
    let Some(mut libvirtd) = Libvirtd::start(test) else { return };
    let name = format!("affinity-{}", std::process::id());
    start(&libvirtd, &name, &uuid("1"));
    let asked = asked(&libvirtd);
    let through = |limit| {
        let affinity_manager = Some(libvirt::affinity_manager_of(asked.clone(), limit));
        LinuxHost::new(HostOptions { affinity_manager, ..HostOptions::default() }).unwrap()
    };
    let mut host = through(PATIENCE);
    let observation = host.observe().unwrap();
    let vm =
        observation.vms.into_iter().map(|seen| seen.vm).find(|vm| vm.name == name).expect("it is found by its name");
    let home = host.machine().node_ids();
    let all = seen(&libvirtd, &host, &vm).1.remove(0);
    let one: CpuSet = all.iter().take(1).collect();
    let bind = |host: &mut LinuxHost, cpus: &CpuSet| {
        let action = Action::Bind {
            vm: vm.clone(),
            client: ClientId(0),
            home: home.clone(),
            cpus: cpus.clone(),
            groups: Vec::new(),
        };
        host.carry_out(&action).unwrap()
    };
    let both = |cpus: &CpuSet| vec![cpus.clone(), cpus.clone()];

    assert_eq!(bind(&mut host, &one), Done::default());
    assert_eq!(seen(&libvirtd, &host, &vm), (both(&one), both(&one)));
    assert_eq!(bind(&mut host, &all), Done::default());
    assert_eq!(seen(&libvirtd, &host, &vm), (both(&all), both(&all)));

    // Bound past it, it still says what is true where it asks the kernel.
    let managed = host.vms().find(|known| known.key == vm).expect("it runs").clone();
    managed.threads.vcpus.iter().for_each(|vcpu| linux::sys::set_affinity(vcpu.thread_id, &one).expect("bound"));
    let said = libvirtd.virsh(&["vcpuinfo", "--domain", &uuid("1")]);
    let allowed = |line: &str| Some(line.strip_prefix("CPU Affinity:")?.matches('y').count());
    assert_eq!(said.lines().filter_map(allowed).collect::<Vec<_>>(), [1, 1], "{said}");

    // A libvirt that hangs is waited for once.
    libvirtd.stop_daemon();
    let mut hasty = through(Duration::from_secs(1));
    let because = bind(&mut hasty, &one).because.expect("no answer");
    assert!(because.contains("gave no answer within 1 s"), "{because}");
    let because = bind(&mut hasty, &all).because.expect("not asked");
    assert!(because.contains("did not answer in time within the last 60 s"), "{because}");

    libvirtd.end_daemon();
    let because = bind(&mut host, &one).because.expect("virsh does not know");
    assert!(because.starts_with("bound past its manager") && because.contains("does not answer"), "{because}");
    let vm = host.vms().find(|known| known.key == vm).expect("it runs on");
    assert!(vm.threads.vcpus.iter().all(|vcpu| linux::sys::affinity(vcpu.thread_id).is_ok_and(|cpus| cpus == one)));
}
