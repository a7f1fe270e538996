//! `homenode run --check`: does the guest see the machine that was planned?

use crate::output;
use crate::text::count;
use anyhow::{Context, anyhow, bail};
use qemu::{AgentLink, guest_check};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use topology::Bytes;
use vm::spec::{Boot, GuestRoot};
use vm::{Plan, Vm, VmSpec};
use workloads::protocol::{FromAgent, Hello, ToAgent};

/// A guest that has not said hello by now hangs: the slowest boot we know (128 vCPUs under TCG)
/// takes 80 s.
const BOOT: Duration = Duration::from_secs(180);
/// How long the tiny guest may take to power off.
pub(crate) const POWER_OFF: Duration = Duration::from_secs(10);
/// Lines of the console that are shown of a guest that hangs.
const CONSOLE_LINES: usize = 20;

/// The spec's own system has no agent: the tiny guest stands in for it, without its disks. A guest
/// on its first disk has one.
pub(crate) fn boot_tiny_guest(spec: &mut VmSpec) {
    if matches!(spec.boot, Boot::TinyGuest { root: GuestRoot::FirstDisk, .. }) {
        return;
    }
    if !matches!(spec.boot, Boot::TinyGuest { .. }) {
        spec.boot = Boot::default();
    }
    spec.disks.clear();
}

/// Waits for the guest's report, compares it with the plan, prints both.
pub(crate) fn check(mut vm: Box<dyn Vm>, plan: &Plan) -> anyhow::Result<()> {
    let stream = UnixStream::from(vm.agent()?.context("the VM has no agent port")?);
    let report = hello(plan, stream).map_err(|error| match vm.exited() {
        Some(words) => anyhow!("{words}\nThe guest's last lines:\n{}", console(vm.as_ref())),
        None => anyhow!("{error}. Its console's last lines:\n{}", console(vm.as_ref())),
    })?;
    report.print(plan)?;
    vm.stop(POWER_OFF)?;
    report.verdict(plan)
}

/// What a guest said of itself.
pub(crate) struct Report {
    hello: Hello,
    seconds: f64,
}

impl Report {
    /// Prints what was planned and what the guest sees.
    pub(crate) fn print(&self, plan: &Plan) -> anyhow::Result<()> {
        output::print(report(plan, &self.hello))?;
        output::line(format_args!("kernel {}, first word after {:.1} s", self.hello.kernel, self.seconds))
    }

    /// Says that it is as planned, or fails with the differences.
    pub(crate) fn verdict(&self, plan: &Plan) -> anyhow::Result<()> {
        let differences = guest_check::differences(plan, &self.hello.machine);
        if differences.is_empty() {
            return output::line(format_args!("VM {}: the guest sees the planned machine", plan.vm));
        }
        bail!("VM {}: the guest does not see the planned machine:\n  {}", plan.vm, differences.join("\n  "))
    }
}

/// Waits for the first word of the guest, and tells it to power off.
pub(crate) fn hello(plan: &Plan, agent: UnixStream) -> anyhow::Result<Report> {
    let started = Instant::now();
    let writer = agent.try_clone().context("cannot copy the agent's socket")?;
    let mut link = AgentLink::over(&plan.vm, agent, writer);
    match link.receive(BOOT) {
        Ok(arrived) => match arrived.message {
            FromAgent::Hello(hello) => {
                // A guest that cannot be told to power off is ended.
                let _ = link.send(&ToAgent::Finish);
                Ok(Report { hello, seconds: started.elapsed().as_secs_f64() })
            }
            other => bail!("VM {}: the agent's first word is no hello: {other:?}", plan.vm),
        },
        Err(error) => bail!("VM {}: the guest did not report ({error})", plan.vm),
    }
}

fn console(vm: &dyn Vm) -> String {
    let lines = vm.console_tail(CONSOLE_LINES);
    if lines.is_empty() { "  (nothing)".to_owned() } else { format!("  {}", lines.join("\n  ")) }
}

fn report(plan: &Plan, hello: &Hello) -> String {
    let topology = &plan.topology;
    let mut text = String::from("planned:\n");
    for node in &topology.nodes {
        let vcpus = topology.guest_cpus(node);
        let distances = topology.distances.get(node.id as usize).cloned().unwrap_or_default();
        text += &format!("  node {}: CPUs {vcpus}, {}, distances {distances:?}\n", node.id, node.memory);
    }
    text += &format!("  {}\nthe guest sees:\n", count(topology.guest_sockets(), "socket"));
    for node in &hello.machine.nodes {
        let memory = Bytes::from_mib(Bytes(node.memory_bytes).mib());
        text += &format!("  node {}: CPUs {}, {memory}, distances {:?}\n", node.id, node.cpus, node.distances);
    }
    let (sockets, llcs) = (&hello.machine.sockets, hello.machine.llcs.join(" | "));
    text + &format!("  {}, last-level caches of CPUs {llcs}\n", count(sockets.len(), "socket"))
}
