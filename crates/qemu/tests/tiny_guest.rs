//! The tiny guest under real QEMU, started by hand: what it sees, that it works, that it powers
//! off.

use qemu::{AgentError, AgentLink, TinyGuest};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use workloads::chase::ChaseJob;
use workloads::protocol::{FromAgent, Hello, PROTOCOL_VERSION, ToAgent};
use workloads::stream::{Stores, StreamJob};
use workloads::workload::{Pinning, Repetition, Threads, Verification};

/// Boots take 3 s on an idle machine and many times that on a busy one.
const PATIENCE: Duration = Duration::from_secs(120);

struct Vm {
    qemu: Child,
    directory: tempfile::TempDir,
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// What is missing for these tests, if anything is.
fn missing() -> Option<String> {
    if Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Some("there is no qemu-system-x86_64".into());
    }
    TinyGuest::locate(None).err().map(|error| error.to_string())
}

/// Two nodes of two CPUs each, 21 apart: `-numa` as QEMU's documentation has it.
const SHAPE: &str = "-m 512 -smp 4,sockets=2,cores=2,threads=1 \
    -object memory-backend-ram,id=m0,size=256M -numa node,nodeid=0,cpus=0-1,memdev=m0 \
    -object memory-backend-ram,id=m1,size=256M -numa node,nodeid=1,cpus=2-3,memdev=m1 \
    -numa dist,src=0,dst=1,val=21";
const AGENT: &str = "-device virtio-serial-pci -device virtserialport,chardev=agent,name=org.homenode.agent";

impl Vm {
    fn start(agent: &str) -> Vm {
        let guest = TinyGuest::locate(None).expect("the tiny guest");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str| directory.path().join(name);
        let shape = format!(
            "-nodefaults -no-user-config -display none -no-reboot -machine q35 -accel tcg -cpu max \
             -chardev socket,id=agent,path={},server=on,wait=off -serial file:{} \
             -qmp unix:{},server=on,wait=off {SHAPE} {agent}",
            file("agent").display(),
            file("console").display(),
            file("qmp").display(),
        );
        let qemu = Command::new("qemu-system-x86_64")
            .args(shape.split_whitespace())
            .arg("-kernel")
            .arg(guest.kernel())
            .arg("-initrd")
            .arg(guest.initramfs())
            .args(["-append", &guest.command_line(&qemu::accelerator(4))])
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts");
        Vm { qemu, directory }
    }

    fn socket(&self, name: &str) -> UnixStream {
        let path = self.directory.path().join(name);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(&path) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{}: {error}", path.display()),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn link(&self) -> AgentLink {
        let stream = self.socket("agent");
        AgentLink::over("the guest", stream.try_clone().expect("a pipe"), stream)
    }

    fn console(&self) -> String {
        let bytes = std::fs::read(Path::new(self.directory.path()).join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait_for_console(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.console().contains(text) {
            assert!(Instant::now() < deadline, "no `{text}` on the console:\n{}", self.console());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_for_power_off(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.qemu.try_wait().expect("a process") {
                assert!(status.success(), "{status}; console:\n{}", self.console());
                return;
            }
            assert!(Instant::now() < deadline, "the guest does not power off; console:\n{}", self.console());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn next(&self, link: &AgentLink) -> FromAgent {
        match link.receive(PATIENCE) {
            Ok(arrived) => arrived.message,
            Err(error) => panic!("{error}; console:\n{}", self.console()),
        }
    }

    fn hello(&self, link: &AgentLink) -> Hello {
        match self.next(link) {
            FromAgent::Hello(hello) => hello,
            other => panic!("{other:?} instead of hello"),
        }
    }

    /// Runs a job to its end: the figures of its repetitions and its last message.
    fn job(
        &self,
        link: &mut AgentLink,
        (job, workload, repetitions): (u64, &str, u32),
        parameters: &impl serde::Serialize,
    ) -> (Vec<Repetition>, FromAgent) {
        let parameters = serde_json::to_value(parameters).expect("a job");
        let workload = workload.to_owned();
        link.send(&ToAgent::Run { job, workload, repetitions, parameters }).expect("the agent listens");
        let mut all = Vec::new();
        loop {
            match self.next(link) {
                FromAgent::Ready { job, .. } => link.send(&ToAgent::Go { job }).expect("the agent listens"),
                FromAgent::Repetition { measured, .. } => all.push(measured),
                last => return (all, last),
            }
        }
    }
}

fn stream_job(memory_node: Option<u32>) -> StreamJob {
    let threads = Threads { count: 4, pinning: Pinning::Scatter, cpu_node: None, memory_node };
    StreamJob { elements: 400_000, stores: Stores::Ordinary, threads }
}

#[test]
fn a_guest_with_two_nodes_sees_them_works_on_them_and_powers_off() {
    if let Some(missing) = missing() {
        return eprintln!("SKIPPED a_guest_with_two_nodes_sees_them_works_on_them_and_powers_off: {missing}");
    }
    let mut vm = Vm::start(AGENT);
    let mut link = vm.link();

    let hello = vm.hello(&link);
    assert_eq!((hello.protocol, hello.guest), (PROTOCOL_VERSION, true));
    assert!(vm.console().contains("homenode-guest: init"), "{}", vm.console());
    let seen = &hello.machine;
    assert_eq!(seen.complaints, Vec::<String>::new());
    let nodes: Vec<_> = seen.nodes.iter().map(|node| (node.cpus.as_str(), node.distances.clone())).collect();
    assert_eq!(nodes, [("0-1", vec![10, 21]), ("2-3", vec![21, 10])]);
    assert_eq!((seen.online.as_str(), seen.sockets.as_slice()), ("0-3", &["0-1".to_owned(), "2-3".to_owned()][..]));

    // First touch: two threads on each node, so about half of the pages on each. 3 arrays x 400000
    // x 8 bytes = 2344 pages.
    let (repetitions, done) = vm.job(&mut link, (1, "stream", 3), &stream_job(None));
    assert_eq!(repetitions.len(), 3);
    let FromAgent::Done { job: 1, verification: Verification::Verified, thread_cpus, pages_by_node, .. } = done else {
        panic!("{done:?}")
    };
    assert_eq!(thread_cpus, ["0", "2", "1", "3"]);
    for node in 0..2 {
        let pages = pages_by_node.iter().find(|(found, _)| *found == node).map_or(0, |(_, pages)| *pages);
        assert!((1150..1250).contains(&pages), "{pages_by_node:?}");
    }

    // Bound memory is on its node only.
    let (_, done) = vm.job(&mut link, (2, "stream", 3), &stream_job(Some(1)));
    let FromAgent::Done { verification: Verification::Verified, pages_by_node, .. } = done else { panic!("{done:?}") };
    assert_eq!(pages_by_node.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [1]);

    let threads = Threads { count: 1, pinning: Pinning::None, cpu_node: Some(1), memory_node: Some(0) };
    let chase = ChaseJob { buffer_bytes: 4 << 20, loads: 20_000, threads };
    let (repetitions, done) = vm.job(&mut link, (3, "chase", 2), &chase);
    assert!(repetitions.len() == 2 && repetitions[0].figures[0].quantity == "latency", "{repetitions:?}");
    let FromAgent::Done { verification: Verification::Verified, thread_cpus, pages_by_node, .. } = done else {
        panic!("{done:?}")
    };
    assert_eq!((thread_cpus, pages_by_node[0].0), (vec!["2-3".to_owned()], 0));

    // More memory than there is: refused, and the guest lives on.
    let (_, failed) = vm.job(&mut link, (4, "stream", 3), &StreamJob { elements: 1 << 30, ..stream_job(None) });
    assert!(
        matches!(&failed, FromAgent::Failed { job: Some(4), message } if message.contains("elements")),
        "{failed:?}"
    );

    link.send(&ToAgent::Finish).unwrap();
    vm.wait_for_power_off();
    assert!(matches!(link.receive(PATIENCE), Err(AgentError::Closed { .. })));
}

#[test]
fn a_guest_whose_controller_is_gone_powers_off() {
    if let Some(missing) = missing() {
        return eprintln!("SKIPPED a_guest_whose_controller_is_gone_powers_off: {missing}");
    }
    let mut vm = Vm::start(AGENT);
    // Shut down rather than dropped: the link's reader thread keeps a copy of the stream.
    let stream = vm.socket("agent");
    let link = AgentLink::over("the guest", stream.try_clone().unwrap(), stream.try_clone().unwrap());
    vm.hello(&link);
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    vm.wait_for_power_off();
}

#[test]
fn a_guest_without_an_agent_port_shows_its_topology_and_heeds_the_power_button() {
    if let Some(missing) = missing() {
        return eprintln!(
            "SKIPPED a_guest_without_an_agent_port_shows_its_topology_and_heeds_the_power_button: {missing}"
        );
    }
    use std::io::Write;
    let mut vm = Vm::start("");
    vm.wait_for_console("commands: topology");
    assert!(vm.console().contains("node 1: CPUs 2-3"), "{}", vm.console());
    let mut qmp = vm.socket("qmp");
    qmp.write_all(b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"system_powerdown\"}\n").unwrap();
    vm.wait_for_power_off();
}
