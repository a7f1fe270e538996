//! A VM that runs as long as this process does.

use crate::at_home::{bind_threads, read_back};
use crate::backend::reset;
use crate::boot;
use crate::command_line::{self, BootFiles, Channel, HostTraits, Wiring};
use crate::console::{Sink, Tail, pump};
use crate::firmware::{self, Uefi};
use crate::hot_add;
use crate::process::{ErrorsTo, ExitWatch, Process};
use crate::qmp::Qmp;
use crate::taps::Inherited;
use crate::user::QemuUser;
use crate::{QemuError, accelerator, binary, migration, saved};
use linux::sys::{ChildSetup, Tie};
use serde_json::json;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vm::backend::{GuestBytes, Patience, Stopped, Transfer};
use vm::spec::{Firmware, name_problem};
use vm::{
    Accelerator, Added, BackendError, CallOff, Launch, Manifest, Plan, Residence, Resize, Resized, VirtualTopology, Vm,
    VmSpec,
};

/// How long a QEMU that builds its machine may show no progress: its memory does not grow, and its
/// monitor does not greet.
const NO_PROGRESS: Duration = Duration::from_secs(60);

/// A running VM. Dropping it ends QEMU; if this process is killed, the kernel ends QEMU.
#[derive(Debug)]
pub struct AttachedVm {
    plan: Plan,
    process: Process,
    qmp: Qmp,
    accelerator: Accelerator,
    console: Tail,
    console_input: UnixStream,
    agent: Option<UnixStream>,
    notes: Vec<String>,
    /// What helps where the host has no room for what its guest writes.
    where_writes_go: String,
}

impl AttachedVm {
    /// Starts QEMU with its vCPUs paused, binds each vCPU thread to its client's CPUs, and lets the
    /// vCPUs go. Returns when the guest runs.
    ///
    /// # Errors
    /// It cannot be started, or `call_off` was used meanwhile; nothing is left of it.
    pub fn start(launch: &Launch, call_off: &CallOff) -> Result<Self, QemuError> {
        let prepared = Prepared::new(launch)?;
        let mut started =
            with_or_without_sandbox(|sandbox| Self::start_prepared(launch, &prepared, sandbox, call_off))?;
        started.0.notes.extend(prepared.user.note().map(str::to_owned));
        started.0.notes.extend(started.1);
        if call_off.complete() { Ok(started.0) } else { Err(QemuError::CalledOff { vm: launch.spec.name.clone() }) }
    }

    fn start_prepared(
        launch: &Launch,
        prepared: &Prepared,
        sandbox: bool,
        call_off: &CallOff,
    ) -> Result<Self, QemuError> {
        let vm = &launch.spec.name;
        let pair = || UnixStream::pair().map_err(QemuError::io(vm, "make a socket pair"));
        let taps = Inherited::of(launch)?;
        let (monitor, console, agent) = (pair()?, pair()?, launch.agent.then(pair).transpose()?);
        let wiring = Wiring {
            monitor: Some(Channel::Descriptor(monitor.1.as_raw_fd())),
            console: Channel::Descriptor(console.1.as_raw_fd()),
            console_log: None,
            agent: agent.as_ref().map(|agent| Channel::Descriptor(agent.1.as_raw_fd())),
            taps: taps.numbers(),
            paused: true,
        };
        let sink = Sink::open(&launch.console).map_err(QemuError::io(vm, "open the console's file"))?;
        let boot = boot::for_qemu(launch, prepared)?;
        let host = HostTraits { sandbox, ..prepared.host.clone() };
        let arguments = command_line::arguments(&boot.spec, &launch.plan, &boot.files, &wiring, &host);
        let mut inherited: Vec<OwnedFd> = boot.open;
        inherited.extend([monitor.1.into(), console.1.into()]);
        let (agent, agent_of_qemu) = agent.map_or((None, None), |(ours, theirs)| (Some(ours), Some(theirs)));
        inherited.extend(agent_of_qemu.map(OwnedFd::from));
        inherited.extend(taps.descriptors());
        let setup = ChildSetup {
            tie: Tie::DiesWithUs,
            inherited,
            cpus: Some(launch.plan.qemu_cpus()),
            user: prepared.user.credentials(),
        };
        let mut process = Process::start(vm, &prepared.binary, &arguments, &ErrorsTo::Us, setup)?;
        call_off.has_process(process.killer()?);
        let output = console.0.try_clone().map_err(QemuError::io(vm, "copy the console's socket"))?;
        let (tail, _) = pump(format!("console of VM {vm}"), output, sink);
        let connected = greeted(vm, monitor.0, process.pid());
        let qmp = connected.and_then(|mut qmp| bring_home(&launch.plan, process.pid(), &mut qmp).map(|()| qmp));
        let qmp = qmp.map_err(|error| explain(error, &mut process, call_off))?;
        Ok(Self {
            plan: launch.plan.clone(),
            process,
            qmp,
            accelerator: prepared.host.accelerator.clone(),
            console: tail,
            console_input: console.0,
            agent,
            notes: Vec::new(),
            where_writes_go: prepared.user.where_writes_go(),
        })
    }

    /// Why not all of its console was written where it should go, as a sentence; `None` where it
    /// was.
    pub fn console_dropped(&self) -> Option<&str> {
        self.console.dropped()
    }

    /// Bytes written to it are typed on the guest's console.
    pub fn console_input(&self) -> Result<UnixStream, QemuError> {
        self.console_input.try_clone().map_err(QemuError::io(&self.plan.vm, "copy the console's socket"))
    }

    /// How the VM ended; `None` while it runs.
    pub fn ending(&mut self) -> Option<Ending> {
        let error = self.process.ended(Duration::ZERO)?;
        if !self.process.succeeded() {
            return Some(Ending::Failed(error.to_string()));
        }
        match self.qmp.shutdown_reason().as_deref() {
            Some("guest-reset" | "guest-panic") => Some(Ending::Reset),
            _ => Some(Ending::PoweredOff),
        }
    }

    /// Tells when QEMU has ended, also after this value is gone.
    pub fn exit_watch(&self) -> ExitWatch {
        self.process.exit().clone()
    }
}

impl Vm for AttachedVm {
    fn name(&self) -> &str {
        &self.plan.vm
    }

    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    fn version(&self) -> &str {
        self.qmp.version()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn residence(&mut self, plan: &Plan) -> Result<Residence, BackendError> {
        let residence = read_back(plan, self.process.pid(), &self.accelerator, &mut self.qmp);
        Ok(residence.map_err(|error| explain(error, &mut self.process, &CallOff::default()))?)
    }

    fn agent(&mut self) -> Result<Option<OwnedFd>, BackendError> {
        Ok(self.agent.take().map(OwnedFd::from))
    }

    fn console_tail(&self, lines: usize) -> Vec<String> {
        self.console.lines(lines)
    }

    fn exited(&mut self) -> Option<String> {
        let vm = self.plan.vm.clone();
        self.ending().map(|ending| match ending {
            Ending::PoweredOff => format!("VM {vm}: the guest powered off"),
            Ending::Reset => format!("VM {vm}: the guest reset itself: a kernel panic, or a reboot"),
            Ending::Failed(words) => words,
        })
    }

    fn stalled(&mut self) -> Option<String> {
        let error = self.qmp.has_come("BLOCK_IO_ERROR").filter(|error| error["data"]["action"] == "stop")?;
        let what = error["data"]["operation"].as_str().unwrap_or("reach").to_owned();
        let reason = error["data"]["reason"].as_str().unwrap_or("QEMU says no reason").to_owned();
        let advice =
            if error["data"]["nospace"] == true { format!(". {}", self.where_writes_go) } else { String::new() };
        let vm = &self.plan.vm;
        Some(format!("VM {vm}: QEMU stopped the guest, since it cannot {what} a disk of it: {reason}{advice}"))
    }

    fn pause(&mut self) -> Result<(), BackendError> {
        self.qmp.execute("stop", &json!({}))?;
        Ok(())
    }

    fn unpause(&mut self) -> Result<(), BackendError> {
        Ok(migration::once_tidied_up(&mut self.qmp, "cont", &json!({}))?)
    }

    fn reset(&mut self) -> Result<(), BackendError> {
        let reset = reset(&mut self.qmp);
        Ok(reset.map_err(|error| explain(error, &mut self.process, &CallOff::default()))?)
    }

    fn resize(&mut self, resize: &Resize, done: &mut dyn FnMut(&Added)) -> Result<Resized, BackendError> {
        let resized = hot_add::resize(&mut self.qmp, self.process.pid(), resize, done);
        Ok(resized.map_err(|error| explain(error, &mut self.process, &CallOff::default()))?)
    }

    fn manifest(&mut self, spec: &VmSpec, topology: &VirtualTopology, added: &Added) -> Result<Manifest, BackendError> {
        let run_by = saved::run_by(&mut self.qmp, self.process.pid(), spec, self.accelerator.is_hardware())?;
        Ok(Manifest::of(spec, topology, added, run_by))
    }

    fn save(&mut self, into: GuestBytes<'_>, told: &mut dyn FnMut(Transfer)) -> Result<(), BackendError> {
        let into = into.stream(self.qmp.vm())?;
        Ok(saved::save(&mut self.qmp, into, saved::SILENCE, told)?)
    }

    fn stop(mut self: Box<Self>, grace: Patience) -> Result<Stopped, BackendError> {
        let ended = |this: &Self| this.process.exit().wait(Duration::ZERO).is_some();
        if ended(&self) {
            return Ok(Stopped::ByGuest);
        }
        if !grace.is_zero() && self.qmp.execute("system_powerdown", &json!({})).is_ok() {
            self.process.exit().wait(grace);
        }
        if ended(&self) {
            return Ok(Stopped::ByGuest);
        }
        if self.qmp.execute("quit", &json!({})).is_ok() {
            self.process.exit().wait(Duration::from_secs(5));
        }
        self.process.kill();
        Ok(Stopped::ByForce)
    }
}

/// How a VM ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By the guest's own power switch, or because QEMU was told to quit.
    PoweredOff,
    /// The guest reset itself and may not start again.
    Reset,
    /// QEMU failed: its exit status and its last words.
    Failed(String),
}

/// What does not change between two tries to start a VM.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) binary: PathBuf,
    pub(crate) user: QemuUser,
    pub(crate) host: HostTraits,
    pub(crate) firmware: Option<Uefi>,
}

impl Prepared {
    /// Checks what can be checked before a process exists.
    pub(crate) fn new(launch: &Launch) -> Result<Self, QemuError> {
        let vm = &launch.spec.name;
        check_name(vm)?;
        check_plan(launch)?;
        check_places(launch)?;
        let binary = binary::locate(vm)?;
        let (user, host) = (QemuUser::choose(launch)?, host_traits(launch.spec.most_vcpus()));
        if host.accelerator.is_hardware() {
            user.uses_kvm(vm)?;
        }
        boot::check_console(launch)?;
        Ok(Self { binary, user, host, firmware: firmware::of(launch)? })
    }
}

/// Checks what can be checked before a VM is started, whoever starts it: its name and its plan.
///
/// # Errors
/// It cannot be started here.
pub fn check(launch: &Launch) -> Result<(), QemuError> {
    check_name(&launch.spec.name)?;
    check_plan(launch)
}

/// [`check`], and whether this host has the firmware that a QEMU of ours boots it by.
pub(crate) fn check_here(launch: &Launch) -> Result<(), QemuError> {
    check(launch)?;
    check_places(launch)?;
    firmware::of(launch).map(drop)
}

/// Starts something with QEMU's sandbox, and without where this QEMU has none. Says so then.
pub(crate) fn with_or_without_sandbox<T>(
    mut start: impl FnMut(bool) -> Result<T, QemuError>,
) -> Result<(T, Option<String>), QemuError> {
    match start(true) {
        Err(QemuError::Ended { last_words, .. }) if last_words.contains("-sandbox") => {
            Ok((start(false)?, Some("this QEMU is built without -sandbox: it was started without".to_owned())))
        }
        started => Ok((started?, None)),
    }
}

/// Whether the kernel has memory policies.
pub(crate) fn host_has_numa() -> bool {
    Path::new("/sys/devices/system/node").is_dir()
}

fn host_traits(vcpus: u32) -> HostTraits {
    HostTraits {
        accelerator: accelerator::accelerator(vcpus),
        numa: host_has_numa(),
        amd: accelerator::host_is_amd(),
        sandbox: true,
    }
}

/// What a VM that somebody else starts boots, as files that stay: those of the spec, or those of
/// the tiny guest, and the UEFI firmware that this host has.
///
/// # Errors
/// A file is not there.
pub fn boot_files(launch: &Launch, accelerator: &Accelerator) -> Result<BootFiles, QemuError> {
    let files = boot::resolve(launch, accelerator, &QemuUser::Ourselves(None))?;
    let is_uefi = launch.spec.boot.firmware() == Firmware::Uefi;
    Ok(BootFiles { flash: is_uefi.then(firmware::of_this_host).flatten().map(|found| found.by_hand()), ..files })
}

/// [`boot_files`] of a VM on another machine: only the tiny guest's files are looked for here.
///
/// # Errors
/// The tiny guest's files are not there.
pub fn boot_files_elsewhere(launch: &Launch, accelerator: &Accelerator) -> Result<BootFiles, QemuError> {
    boot::elsewhere(launch, accelerator)
}

/// The command that a person could start by hand: console on the terminal, no monitor, vCPUs
/// running.
pub fn command_by_hand(launch: &Launch) -> Result<String, QemuError> {
    check_name(&launch.spec.name)?;
    check_plan(launch)?;
    check_places(launch)?;
    let binary = binary::locate(&launch.spec.name)?;
    let host = host_traits(launch.spec.most_vcpus());
    let files = boot::resolve(launch, &host.accelerator, &QemuUser::Ourselves(None))?;
    let boot = BootFiles { flash: firmware::of(launch)?.map(|found| found.by_hand()), ..files };
    let taps = std::collections::BTreeMap::new();
    let wiring = Wiring { monitor: None, console: Channel::Stdio, console_log: None, agent: None, taps, paused: false };
    let arguments = command_line::arguments(&launch.spec, &launch.plan, &boot, &wiring, &host);
    Ok(command_line::as_shell(&binary, &arguments))
}

/// A name that is safe in a path and in QEMU's options.
pub(crate) fn check_name(name: &str) -> Result<(), QemuError> {
    let fail = |problem| QemuError::Spec { vm: name.to_owned(), problem: format!("name = \"{name}\": {problem}") };
    name_problem(name).map_or(Ok(()), |problem| Err(fail(problem)))
}

/// Each disk and network card has a PCI slot for itself, of which there are so many. libvirt puts
/// more of them behind bridges.
fn check_places(launch: &Launch) -> Result<(), QemuError> {
    let (disks, cards) = (launch.spec.disks.len(), launch.spec.networks.len());
    let most = command_line::growth::device_places(&launch.plan.topology);
    if disks + cards <= most {
        return Ok(());
    }
    let problem = format!("disk and network: {disks} disks and {cards} network cards; QEMU has places for {most} here");
    Err(QemuError::Spec { vm: launch.spec.name.clone(), problem })
}

fn check_plan(launch: &Launch) -> Result<(), QemuError> {
    let topology = &launch.plan.topology;
    let fail = |problem: String| Err(QemuError::Spec { vm: launch.spec.name.clone(), problem });
    let vcpus: usize = topology.nodes.iter().map(|node| node.vcpus.len()).sum();
    let product =
        u64::from(topology.sockets) * u64::from(topology.cores_per_socket) * u64::from(topology.threads_per_core);
    if vcpus as u64 != product || vcpus == 0 {
        let (sockets, cores, threads) = (topology.sockets, topology.cores_per_socket, topology.threads_per_core);
        return fail(format!("vcpus = {vcpus} do not fill {sockets} sockets of {cores} cores of {threads} threads"));
    }
    if topology.dies_per_socket == 0 || !topology.cores_per_socket.is_multiple_of(topology.dies_per_socket) {
        return fail(format!(
            "{} dies do not divide sockets of {} cores",
            topology.dies_per_socket, topology.cores_per_socket
        ));
    }
    if topology.nodes.iter().any(|node| node.absent.contains(&0)) {
        return fail("vCPU 0 is there at power-on: QEMU begins with it".to_owned());
    }
    if let Some(client) = launch.plan.placement.clients.iter().find(|client| client.cpus.is_empty()) {
        return fail(format!("client {} has no CPU to run on", client.id));
    }
    Ok(())
}

/// Waits until QEMU greets: it fills the VM's memory before. How long that takes nobody can say,
/// since others may fill theirs: it has time as long as its memory grows.
pub(crate) fn greeted(vm: &str, monitor: UnixStream, pid: u32) -> Result<Qmp, QemuError> {
    let mut seen = None;
    Qmp::handshake_while(vm, monitor, NO_PROGRESS, || {
        let resident = linux::process::resident_pages(pid);
        std::mem::replace(&mut seen, resident) != resident
    })
}

/// Binds the paused vCPUs, then lets them go.
pub(crate) fn bring_home(plan: &Plan, pid: u32, qmp: &mut Qmp) -> Result<(), QemuError> {
    let threads = qmp.vcpu_threads(pid)?;
    bind_threads(plan, pid, &threads)?;
    qmp.execute("cont", &json!({})).map(drop)
}

/// A broken connection usually means that QEMU has ended: then its own last words say more. If we
/// ended it, that says all.
pub(crate) fn explain(error: QemuError, process: &mut Process, call_off: &CallOff) -> QemuError {
    if call_off.is_called_off() {
        return QemuError::CalledOff { vm: process.vm().to_owned() };
    }
    let patience = match &error {
        QemuError::Closed { .. } => Duration::from_secs(5),
        _ => Duration::ZERO,
    };
    process.ended(patience).unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn launch(vcpus: u32, memory_mib: u64) -> Launch {
        let (spec, plan) = (samples::spec("a", vcpus, memory_mib), samples::plan("a", 1, vcpus, memory_mib));
        Launch::new(spec, plan)
    }

    #[test]
    fn names_that_would_leave_their_place_are_refused() {
        for name in ["", "..", "a/b", "-S", "a,b", "a b", &"x".repeat(65)] {
            assert!(check_name(name).is_err_and(|error| error.is_bad_input()), "{name}");
        }
        for name in ["a", "web-1.example", "VM_2"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn more_cards_than_there_are_slots_are_refused() {
        let mut launch = launch(4, 64);
        let switch: vm::spec::SwitchName = "lan".parse().unwrap();
        // Slots 1 to 30, of which one is the agent's.
        launch.spec.networks = vec![vm::spec::Network::in_switch(switch.clone()); 29];
        assert!(check_places(&launch).is_ok());
        launch.spec.networks.push(vm::spec::Network::in_switch(switch));
        let error = check_places(&launch).unwrap_err();
        let expected = "VM a: disk and network: 0 disks and 30 network cards; QEMU has places for 29 here";
        assert!(error.is_bad_input(), "{error}");
        assert_eq!(error.to_string(), expected);
        // Two ports for each of 5 nodes that grow: 10, in 2 slots.
        let grows = vm::VirtualNode { growth: topology::Bytes::GIB, ..launch.plan.topology.nodes[0].clone() };
        launch.plan.topology.nodes = vec![grows; 5];
        assert!(check_places(&launch).unwrap_err().to_string().ends_with("QEMU has places for 27 here"));
    }

    #[test]
    fn a_plan_must_fill_its_sockets() {
        let mut launch = launch(4, 64);
        assert!(check_plan(&launch).is_ok());
        launch.plan.topology.sockets = 3;
        let text = check_plan(&launch).unwrap_err().to_string();
        assert_eq!(text, "VM a: vcpus = 4 do not fill 3 sockets of 4 cores of 1 threads");
    }
}
