//! Processes that are called QEMU and are no VM: any user may have them.

use linux::{HostOptions, LinuxHost};
use scheduler::Observe;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A shell that says it is QEMU and waits; it ends with the value.
struct Fake(Child);

impl Fake {
    fn start(options: &str) -> Self {
        let mut command = Command::new("/bin/sh");
        command.arg0("qemu-system-x86_64").args(["-c", "read wait"]).args(options.split(' '));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.expect("a shell"))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_says_what_no_vm_has_is_one_line_and_costs_nothing() {
    let name = format!("hostile-{}", std::process::id());
    let nodes = "-numa node,cpus=0-4095 ".repeat(3000);
    let fakes: Vec<Fake> =
        ["-smp 4294967295", "-smp 60000000", "-smp 2,maxcpus=4000000000 -numa cpu,node-id=0", &nodes]
            .into_iter()
            .map(|options| Fake::start(&format!("-name {name} {}", options.trim_end())))
            .collect();
    let mut host = LinuxHost::new(HostOptions::default()).expect("this host");
    let begun = Instant::now();
    let seen = host.examine().expect("an observation");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(seen.vms.iter().all(|vm| vm.vm.name != name), "none of them is a VM");
    for fake in &fakes {
        let unseen = seen.unseen_of(None);
        let lines: Vec<&String> = unseen.iter().filter(|line| line.contains(&format!(" {} ", fake.0.id()))).collect();
        assert!(matches!(&lines[..], [line] if line.len() < 200), "{:?}", seen.unseen);
    }
    // Who was doubted is known, until another process has its number.
    assert!(host.observe().expect("another look").vms.iter().all(|vm| vm.vm.name != name));
}
