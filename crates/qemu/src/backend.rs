//! QEMU as a backend: VMs that live as long as their starter, and VMs in the background, reached
//! through their monitors.
//!
//! **Rule.** Nobody but the owner of the runtime directory reaches the monitor's socket, and QEMU
//! serves one visitor at a time: a VM that is adopted keeps the connection for as long as the value
//! lives, so that two commands never act on one VM in turns.

use crate::at_home::read_back;
use crate::background::{self, Started, connect, find};
use crate::hot_add;
use crate::migration::Over;
use crate::migration::channels::Leaving;
use crate::qmp::Qmp;
use crate::runtime_dir::{MONITOR, RuntimeDir};
use crate::state::BackgroundVm;
use crate::{AttachedVm, QemuError, migration, process, saved};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::time::Duration;
use vm::backend::{BackendKind, ErrorKind, GuestBytes, Patience, Saved, Stopped, Transfer, Watch};
use vm::sending::{DirtyRate, Progress, Rest, Route, Sending, Sent, Tuning};
use vm::truth::Process;
use vm::{
    Accelerator, Added, Backend, BackendError, CallOff, Launch, Manifest, Plan, Residence, Resize, Resized,
    VirtualTopology, Vm, VmSpec,
};

/// How long the monitor of a VM that runs may take to greet.
const GREETING: Duration = Duration::from_secs(10);

/// QEMU, for VMs that outlive the command that started them.
#[derive(Clone, Debug)]
pub struct InBackground {
    directory: RuntimeDir,
    silence: Duration,
}

impl InBackground {
    /// Those of a runtime directory.
    pub fn of(directory: RuntimeDir) -> Self {
        Self { directory, silence: saved::SILENCE }
    }

    /// The same, whose saving is given up after so long without a byte; a minute otherwise.
    pub fn given_up_after(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    fn connect(&self, name: &str) -> Result<Adopted, QemuError> {
        let (path, state) = find(&self.directory, name)?;
        let missing = || QemuError::NoSuchVm { vm: name.to_owned(), cleaned: None };
        let qemu = state.qemu.filter(|qemu| qemu.is_alive()).ok_or_else(missing)?;
        let qmp = Qmp::handshake(name, connect(name, &path.join(MONITOR))?, GREETING)?;
        Ok(self.adopted(state, qemu.pid, qmp, Vec::new()))
    }

    fn adopted(&self, state: BackgroundVm, pid: u32, qmp: Qmp, notes: Vec<String>) -> Adopted {
        let Self { directory, silence } = self.clone();
        Adopted { directory, state, pid, qmp, notes, switched_over: false, silence }
    }
}

impl Backend for InBackground {
    fn kind(&self) -> BackendKind {
        BackendKind::Qemu
    }

    fn check(&self, launch: &Launch) -> Result<Accelerator, BackendError> {
        crate::attached::check_here(launch)?;
        Ok(crate::accelerator(launch.spec.most_vcpus()))
    }

    fn start(&self, launch: &Launch, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        let Started { state, pid, qmp, notes } = background::start(&self.directory, launch, call_off)?;
        Ok(Box::new(self.adopted(state, pid, qmp, notes)))
    }

    fn resume(&self, launch: &Launch, guest: Saved<'_>, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        let notes = saved::resume(&self.directory, launch, guest, call_off)?;
        let mut vm = self.connect(&launch.spec.name)?;
        vm.notes = notes;
        Ok(Box::new(vm))
    }

    fn adopt(&self, name: &str) -> Result<Option<Box<dyn Vm>>, BackendError> {
        match self.connect(name) {
            Ok(vm) => Ok(Some(Box::new(vm))),
            Err(QemuError::NoSuchVm { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn process(&self, name: &str) -> Result<Process, BackendError> {
        Ok(background::process(&self.directory, name)?)
    }

    fn stop(&self, name: &str, grace: Patience) -> Result<Stopped, BackendError> {
        Ok(background::stop(&self.directory, name, grace)?)
    }
}

/// QEMU, for VMs that live as long as the process that started them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attached;

impl Backend for Attached {
    fn kind(&self) -> BackendKind {
        BackendKind::Qemu
    }

    fn check(&self, launch: &Launch) -> Result<Accelerator, BackendError> {
        crate::attached::check_here(launch)?;
        Ok(crate::accelerator(launch.spec.most_vcpus()))
    }

    fn start(&self, launch: &Launch, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        Ok(Box::new(AttachedVm::start(launch, call_off)?))
    }

    /// A VM that was saved goes on without whoever resumes it.
    fn resume(&self, launch: &Launch, _guest: Saved<'_>, _call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        let problem = format!("VM {}: a VM that was saved goes on in the background", launch.spec.name);
        Err(BackendError::new(ErrorKind::BadInput, problem))
    }

    /// Nobody else's VM is tied to this process.
    fn adopt(&self, _name: &str) -> Result<Option<Box<dyn Vm>>, BackendError> {
        Ok(None)
    }

    fn process(&self, _name: &str) -> Result<Process, BackendError> {
        Ok(Process::Gone { because: "it ended with the program that had started it".to_owned() })
    }

    fn stop(&self, name: &str, _grace: Patience) -> Result<Stopped, BackendError> {
        Err(QemuError::NoSuchVm { vm: name.to_owned(), cleaned: None }.into())
    }
}

/// A VM in the background, with a connection to its monitor.
#[derive(Debug)]
struct Adopted {
    directory: RuntimeDir,
    state: BackgroundVm,
    pid: u32,
    qmp: Qmp,
    notes: Vec<String>,
    /// Whether it was told to send the rest of a guest that stands still.
    switched_over: bool,
    /// After so long without a byte saving is given up.
    silence: Duration,
}

/// Resets a machine. One that was started with `-no-reboot` would end, now or at the reset that
/// its firmware may make of ours: from now on its guest may reset itself.
pub(crate) fn reset(qmp: &mut Qmp) -> Result<(), QemuError> {
    qmp.execute("set-action", &json!({ "reboot": "reset" }))?;
    qmp.execute("system_reset", &json!({})).map(drop)
}

impl Vm for Adopted {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn accelerator(&self) -> &Accelerator {
        &self.state.accelerator
    }

    fn version(&self) -> &str {
        self.qmp.version()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn residence(&mut self, plan: &Plan) -> Result<Residence, BackendError> {
        Ok(read_back(plan, self.pid, &self.state.accelerator, &mut self.qmp)?)
    }

    fn agent(&mut self) -> Result<Option<OwnedFd>, BackendError> {
        // Its port, if it had one, would need somebody who listens for as long as it runs.
        Ok(None)
    }

    fn console_tail(&self, _lines: usize) -> Vec<String> {
        Vec::new()
    }

    fn exited(&mut self) -> Option<String> {
        let ended = !self.state.qemu.is_some_and(|qemu| qemu.is_alive());
        ended.then(|| {
            let messages = self.directory.of_vm(&self.state.name).join(crate::runtime_dir::MESSAGES);
            let last = process::last_line(&messages).map(|line| format!(": {line}")).unwrap_or_default();
            format!("VM {}: QEMU has ended{last}", self.state.name)
        })
    }

    fn pause(&mut self) -> Result<(), BackendError> {
        self.qmp.execute("stop", &json!({}))?;
        Ok(())
    }

    fn unpause(&mut self) -> Result<(), BackendError> {
        Ok(migration::once_tidied_up(&mut self.qmp, "cont", &json!({}))?)
    }

    fn reset(&mut self) -> Result<(), BackendError> {
        Ok(reset(&mut self.qmp)?)
    }

    fn resize(&mut self, resize: &Resize, done: &mut dyn FnMut(&Added)) -> Result<Resized, BackendError> {
        Ok(hot_add::resize(&mut self.qmp, self.pid, resize, done)?)
    }

    fn manifest(&mut self, spec: &VmSpec, topology: &VirtualTopology, added: &Added) -> Result<Manifest, BackendError> {
        let hardware = self.state.accelerator.is_hardware();
        let run_by = saved::run_by(&mut self.qmp, self.pid, spec, hardware)?;
        Ok(Manifest::of(spec, topology, added, run_by))
    }

    fn save(&mut self, into: GuestBytes<'_>, told: &mut dyn FnMut(Transfer)) -> Result<(), BackendError> {
        let into = into.stream(&self.state.name)?;
        Ok(saved::save(&mut self.qmp, into, self.silence, told)?)
    }

    fn may_be_sent(&mut self, manifest: &Manifest, tuning: &Tuning) -> Result<(), BackendError> {
        migration::check_connections(&self.state.name, self.qmp.version(), tuning)?;
        migration::check(&mut self.qmp, manifest)
    }

    fn dirty_rate(&mut self, seconds: u64) -> Result<Option<DirtyRate>, BackendError> {
        Ok(migration::dirty_rate(&mut self.qmp, seconds)?)
    }

    fn send(&mut self, sending: Sending<'_>, watch: &mut Watch<'_>) -> Result<Sent, BackendError> {
        let name = &self.state.name;
        let over = match sending.route {
            Route::Stream(socket) => Over::One(socket),
            Route::Streams(give) => Over::Several(Leaving::listen(name, &self.directory.of_vm(name))?, give),
            Route::Manager { .. } => return Err(sending.route.refused(name)),
        };
        migration::send(&mut self.qmp, (over, &sending.tuning), &mut self.switched_over, watch)
    }

    fn send_rest(&mut self, over: Option<OwnedFd>, watch: &mut dyn FnMut(&Progress)) -> Result<Rest, BackendError> {
        migration::send_rest(&mut self.qmp, over, watch)
    }

    fn follows(&mut self) -> Result<bool, BackendError> {
        Ok(migration::follows(&mut self.qmp)?)
    }

    fn stay(&mut self, runs: bool) -> Result<(), BackendError> {
        Ok(migration::stay(&mut self.qmp, self.switched_over, runs)?)
    }

    fn stop(self: Box<Self>, grace: Patience) -> Result<Stopped, BackendError> {
        let Self { directory, state, mut qmp, .. } = *self;
        if grace.is_zero() && migration::was_sent(&mut qmp).unwrap_or(false) {
            return Ok(background::end_sent(&directory, &state.name)?);
        }
        // QEMU serves one visitor at a time.
        drop(qmp);
        Ok(background::stop(&directory, &state.name, grace)?)
    }
}

impl From<QemuError> for BackendError {
    fn from(error: QemuError) -> Self {
        let kind = match &error {
            error if error.is_bad_input() => ErrorKind::BadInput,
            QemuError::CalledOff { .. } => ErrorKind::CalledOff,
            QemuError::Closed { .. } | QemuError::Ended { .. } | QemuError::NoSuchVm { .. } => ErrorKind::Gone,
            _ => ErrorKind::Failed,
        };
        Self::new(kind, error)
    }
}
