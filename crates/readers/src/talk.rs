//! What other programs answer: agents in guests, monitors, virsh.

use crate::{printed, same_from_json, text};
use libvirt::answers;
use linux::host::{Heard, Questions};
use linux::vm::RunningVm;
use qemu::guest_check::differences;
use qemu::monitor::heard;
use qemu::{AgentError, AgentLink};
use scheduler::{Occupancy, VmKey};
use std::io::{Cursor, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;
use topology::limits::MOST_OBJECTS;
use vm::{Plan, VmSpec};
use workloads::protocol::FromAgent;

/// Longer than any input takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of an agent: each message is as it was when it is written again, and what the guest sees
/// is compared with a plan.
pub(crate) fn agent(input: &[u8]) {
    let link = AgentLink::over("guest", Cursor::new(input.to_vec()), std::io::sink());
    loop {
        match link.receive(PATIENCE) {
            Ok(arrived) => {
                same_from_json(&arrived.message);
                if let FromAgent::Hello(hello) = arrived.message {
                    differences(plan(), &hello.machine).iter().for_each(|sentence| printed(sentence));
                }
            }
            Err(AgentError::Closed { .. }) => return,
            Err(error @ AgentError::Garbled { .. }) => printed(&error),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Lines of a monitor that is asked everything, whatever it answers to.
pub(crate) fn monitor(input: &[u8]) {
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may hang up before all is said. What it is asked stays unread.
            let _all_said = theirs.write_all(input);
            let _hung_up = theirs.shutdown(Shutdown::Write);
            let _nothing_more = theirs.read_to_end(&mut Vec::new());
        });
        let key = VmKey { name: "a".to_owned(), pid: std::process::id(), started: 0 };
        let vm = RunningVm { key, ..RunningVm::default() };
        let questions = Questions { run_state: true, vcpu_threads: true, plugged_memory: true };
        if let Heard::Said(said) = heard(ours, &vm, questions, PATIENCE) {
            let blocks = said.plugged_memory.unwrap_or_default();
            assert!(blocks.len() <= MOST_OBJECTS, "{} blocks", blocks.len());
        }
    });
}

/// An answer of virsh to any of its questions.
pub(crate) fn virsh(input: &[u8]) {
    let text = text(input);
    answers::domstats(&text);
    answers::cpu_times(&text);
    answers::free_memory(&text);
    answers::free_pages(&text);
    answers::cached(&text);
}

/// A VM of two virtual nodes.
fn plan() -> &'static Plan {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    PLAN.get_or_init(|| {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=8GiB)] core:4 pu:1").expect("a machine");
        let spec = VmSpec::from_toml("name = \"a\"\nvcpus = 8\nmemory = \"12 GiB\"\n", "a.toml").expect("a spec");
        scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan")
    })
}
