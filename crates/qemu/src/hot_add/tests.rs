//! What a QEMU can do that its guest has taken over: nothing to others, and nothing for ever.

use super::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use topology::Bytes;
use vm::spec::Backing;
use vm::{Placement, VirtualNode, VirtualTopology};

/// A monitor that answers each command so, and says this all the time.
fn monitor(event: &'static str, answer: fn(&str, &Value) -> Value) -> Qmp {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let asked = BufReader::new(theirs.try_clone().unwrap());
    let (send, lines) = channel();
    // Either thread ends with the connection.
    std::thread::spawn(move || asked.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    std::thread::spawn(move || {
        let mut said = writeln!(theirs, "{}", json!({ "QMP": {} }));
        while said.is_ok() {
            let line = if event.is_empty() { lines.recv().ok() } else { lines.try_recv().ok() };
            said = match line {
                Some(line) => {
                    let asked: Value = serde_json::from_str(&line).unwrap();
                    let answer = answer(asked["execute"].as_str().unwrap(), &asked["arguments"]);
                    writeln!(theirs, "{}", json!({ "return": answer }))
                }
                None if event.is_empty() => return,
                None => writeln!(theirs, "{event}"),
            };
        }
    });
    Qmp::handshake("a", ours, Duration::from_secs(10)).unwrap()
}

/// One virtual node that has vCPU 0 and may get vCPU 1 and 1 GiB.
fn wanted() -> Resize {
    let node = VirtualNode {
        vcpus: vec![0, 1],
        absent: vec![1],
        memory: Bytes::GIB,
        growth: Bytes::GIB,
        ..VirtualNode::default()
    };
    let topology = VirtualTopology {
        exposed: false,
        nodes: vec![node],
        sockets: 1,
        cores_per_socket: 2,
        dies_per_socket: 1,
        threads_per_core: 1,
        distances: vec![vec![10]],
    };
    Resize {
        topology,
        placement: Placement { clients: Vec::new() },
        backing: Backing::default(),
        added: Added::default(),
        plug: Vec::new(),
        unplug: Vec::new(),
        memory: Default::default(),
        patience: Duration::from_millis(100),
    }
}

fn answer(command: &str, arguments: &Value) -> Value {
    let slot = |core: u32| json!({ "props": { "core-id": core }, "type": "x", "qom-path": "/" });
    match command {
        "query-hotpluggable-cpus" => json!([slot(1), slot(1), slot(0), slot(7)]),
        "query-status" => json!({ "running": true }),
        "query-cpus-fast" => json!([{ "cpu-index": 0, "thread-id": std::process::id() }]),
        "qom-list" if arguments["path"] == "/machine/peripheral" => json!([{ "name": "vcpu1" }]),
        "qom-list" | "query-memory-devices" => json!([]),
        "human-monitor-command" => json!("CR0=60000010"),
        _ => json!({}),
    }
}

fn work<'a>(qmp: &'a mut Qmp, resize: &'a Resize, done: &'a mut dyn FnMut(&Added)) -> Work<'a> {
    let resized = Resized { added: resize.added.clone(), ..Resized::default() };
    Work { qmp, pid: std::process::id(), resize, runs: true, resized, done }
}

/// Each event gave it 5 ms more: it hung until there was none for so long.
#[test]
fn a_qemu_that_does_not_stop_talking_is_out_of_time() {
    let mut qmp = monitor("{\"event\":\"RESET\"}", answer);
    let mut resize = wanted();
    (resize.added.vcpus, resize.unplug) = (vec![1], vec![1]);
    let mut done = |_: &Added| {};
    let mut work = work(&mut qmp, &resize, &mut done);
    let began = Instant::now();
    work.unplug_vcpus().unwrap();
    // Its patience is 100 ms.
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(work.resized.undone, ["VM a: vCPU 1 stays: its guest has not let it go within 0 s"]);
}

#[test]
fn a_guest_that_goes_to_and_fro_does_not_get_on() {
    let mut qmp = monitor("", answer);
    let resize = wanted();
    let mut done = |_: &Added| {};
    let mut work = work(&mut qmp, &resize, &mut done);
    let mut left = [3u64, 2, 3].into_iter().cycle();
    assert!(!work.wait(|_| Ok(left.next().unwrap_or_default())).unwrap());
    let mut left = (0..40u64).rev();
    assert!(work.wait(|_| Ok(left.next().unwrap_or_default())).unwrap());
}

/// They were written down as they were said, and the next QEMU's command line had them.
#[test]
fn devices_that_homenode_never_gave_a_vm_are_not_believed() {
    fn lies(command: &str, arguments: &Value) -> Value {
        let device = |id: &str, node: u64, size: u64| {
            let data =
                json!({ "id": id, "node": node, "max-size": 1 << 20, "requested-size": size, "size": 0, "memaddr": 0 });
            json!({ "type": "virtio-mem", "data": data })
        };
        match command {
            "query-memory-devices" => json!([
                device("vnode0-1,prealloc=on", 0, 1),
                device("vnode0-", 0, 1),
                device("vnode0-+1", 0, 1),
                device("vnode0-1", 1, 1),
                device("vnode9-1", 9, 1),
                device("vnode0-1", 1 << 40, 1),
                device("vnode0-2", 0, u64::MAX),
            ]),
            "qom-get" => json!([]),
            _ => answer(command, arguments),
        }
    }
    let added = there::read(&mut monitor("", lies), &wanted()).unwrap();
    assert_eq!(added.vcpus, [1], "each once, and none that there cannot be");
    let known: Vec<(&str, Bytes)> = added.memory.iter().map(|device| (device.id.as_str(), device.requested)).collect();
    assert_eq!(known, [("vnode0-2", Bytes::MIB)]);
}
