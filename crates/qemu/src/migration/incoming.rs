//! The destination: a QEMU that waits for a guest.

use super::{Arriving, CONNECTION, End, Status, look, next, run_state, tune};
use crate::at_home::bind_threads;
use crate::attached::{Prepared, explain, with_or_without_sandbox};
use crate::background::{Awaits, Built, build, claim, connect, remove, wait_released};
use crate::qmp::Qmp;
use crate::runtime_dir::{MONITOR, RuntimeDir, VmDirectory};
use crate::saved::run_by;
use crate::state::Phase;
use crate::{BackgroundVm, QemuError};
use linux::sys::ProcessHandle;
use serde_json::json;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vm::sending::Tuning;
use vm::{Added, CallOff, Launch, Manifest};

const SIGKILL: i32 = 9;
/// How long the monitor of a QEMU that is up may take to greet.
const GREETING: Duration = Duration::from_secs(10);

/// How long a QEMU may take to notice that its link was cut.
const NOTICES: Duration = Duration::from_secs(10);

/// A QEMU that was built for a guest and waits for it, its vCPU threads at home. Dropping it ends
/// it, and removes what it left.
#[derive(Debug)]
pub struct Incoming {
    directory: RuntimeDir,
    launch: Launch,
    call_off: CallOff,
    notes: Vec<String>,
    /// Whom QEMU runs as, where that is somebody else.
    user: Option<u32>,
    // `None` once it is kept or ended.
    parts: Option<(VmDirectory, Built)>,
}

impl Incoming {
    /// Builds it at the homes of a plan: fills its memory, binds its vCPU threads. Its directory is
    /// not yet that of a VM of this name. `receipt` tells it from others of the name, for ever.
    ///
    /// # Errors
    /// It cannot be built, or was called off; nothing is left of it.
    pub fn build(
        directory: &RuntimeDir,
        launch: &Launch,
        manifest: &Manifest,
        receipt: &str,
        call_off: &CallOff,
    ) -> Result<Self, QemuError> {
        let prepared = Prepared::new(launch)?;
        let vm = &launch.spec.name;
        let place = claim(directory, vm, &directory.of_arriving(vm))?;
        let built = with_or_without_sandbox(|sandbox| {
            let mut built = build(&place, launch, &prepared, sandbox, Awaits::GuestOf(manifest), call_off)?;
            let pid = built.process.pid();
            let bound = built.qmp.vcpu_threads(pid).and_then(|threads| bind_threads(&launch.plan, pid, &threads));
            bound.map_err(|error| explain(error, &mut built.process, call_off))?;
            built.state.receipt = Some(receipt.to_owned());
            built.state.write(&place.path)?;
            Ok(built)
        });
        match built {
            Ok((built, note)) => {
                let notes = prepared.user.note().map(str::to_owned).into_iter().chain(note).collect();
                let (directory, launch, call_off) = (directory.clone(), launch.clone(), call_off.clone());
                let user = prepared.user.credentials().map(|credentials| credentials.user);
                Ok(Self { directory, launch, call_off, notes, user, parts: Some((place, built)) })
            }
            Err(error) => {
                remove(place, vm)?;
                Err(error)
            }
        }
    }

    /// What its owner should know of it, as sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// QEMU's process.
    pub fn pid(&self) -> u32 {
        self.parts.as_ref().map_or(0, |(_, built)| built.process.pid())
    }

    /// What the guest's own manifest is to be compared with. `added`: what it was given since its
    /// power-on.
    ///
    /// # Errors
    /// It has ended, or does not say.
    pub fn manifest(&mut self, added: &Added) -> Result<Manifest, QemuError> {
        let (pid, launch) = (self.pid(), self.launch.clone());
        let hardware = self.parts.as_ref().is_some_and(|(_, built)| built.state.accelerator.is_hardware());
        let run_by = self.with(|qmp| run_by(qmp, pid, &launch.spec, hardware))?;
        Ok(Manifest::of(&launch.spec, &launch.plan.topology, added, run_by))
    }

    fn with<T>(&mut self, ask: impl FnOnce(&mut Qmp) -> Result<T, QemuError>) -> Result<T, QemuError> {
        let vm = &self.launch.spec.name;
        let (_, built) = self.parts.as_mut().ok_or_else(|| QemuError::Closed { vm: vm.clone() })?;
        ask(&mut built.qmp).map_err(|error| explain(error, &mut built.process, &self.call_off))
    }

    /// Tells QEMU how its guest will come. `runs`: whether it is let run then
    /// ([`Incoming::run`]); a paused one stays paused.
    ///
    /// # Errors
    /// QEMU cannot receive it so, and says why.
    pub fn prepare(&mut self, tuning: &Tuning, runs: bool) -> Result<(), QemuError> {
        self.parts.iter_mut().for_each(|(_, built)| built.state.came_paused = !runs);
        self.with(|qmp| tune(qmp, tuning, End::Receives { runs }))
    }

    /// Receives a guest from a connected socket, in the background.
    ///
    /// # Errors
    /// QEMU refuses, and says why.
    pub fn listen(&mut self, socket: OwnedFd) -> Result<(), QemuError> {
        self.with(|qmp| {
            qmp.give(CONNECTION, socket.as_fd())?;
            drop(socket);
            qmp.execute("migrate-incoming", &json!({ "uri": format!("fd:{CONNECTION}") })).map(drop)
        })
    }

    /// Receives a guest over several connections, in the background: all that
    /// [`Incoming::prepare`] was told of are to be made.
    ///
    /// # Errors
    /// QEMU refuses, and says why.
    pub fn listen_for_several(&mut self) -> Result<Arriving, QemuError> {
        let (place, user) = (self.directory.of_arriving(&self.launch.spec.name), self.user);
        let pid = self.pid();
        self.with(|qmp| Arriving::listen(qmp, (&place, pid), user))
    }

    /// Waits up to `within` until it has come further.
    ///
    /// # Errors
    /// QEMU has ended: what it received does not fit, or was cut. Its last words are in the error.
    pub fn next(&mut self, within: Duration) -> Result<(), QemuError> {
        self.with(|qmp| next(qmp, within).map(drop))
    }

    /// Whether the guest can run here: all of it has come, or all but memory that follows.
    ///
    /// # Errors
    /// QEMU has ended: what it received does not fit, or was cut.
    pub fn is_here(&mut self) -> Result<bool, QemuError> {
        self.with(|qmp| {
            let status = next(qmp, Duration::ZERO)?.status;
            let follows = matches!(status, Status::Follows | Status::Interrupted);
            // Its devices are loaded once it has left this state.
            Ok(status == Status::Completed || (follows && run_state(qmp)?.1 != "inmigrate"))
        })
    }

    /// Writes down that from now on the guest may run here: a homenode that cleans up leaves it
    /// alone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn takes_over(&mut self) -> Result<(), QemuError> {
        let Some((place, built)) = self.parts.as_mut() else { return Ok(()) };
        built.state.phase = Phase::TakingOver;
        built.state.write(&place.path)
    }

    /// Lets the guest run, and asks whether it does.
    ///
    /// # Errors
    /// It does not.
    pub fn run(&mut self) -> Result<(), QemuError> {
        self.with(run)
    }

    /// Keeps it, running or paused as it was: this value no longer ends it.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn keep(mut self) -> Result<Arrived, QemuError> {
        let vm = self.launch.spec.name.clone();
        let Some((place, mut built)) = self.parts.take() else { return Err(QemuError::Closed { vm }) };
        built.state.phase = Phase::Running;
        let written = built.state.write(&place.path);
        // Whatever happens now, the guest is here.
        built.process.leave_running();
        written?;
        Ok(Arrived { directory: self.directory.clone(), vm })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some((place, mut built)) = self.parts.take() {
            built.process.kill();
            // What stays is removed by whoever comes next.
            let _ = place.remove();
        }
    }
}

/// A guest that has arrived and runs.
#[derive(Debug)]
pub struct Arrived {
    directory: RuntimeDir,
    vm: String,
}

impl Arrived {
    /// Makes it the VM of its name on this host.
    ///
    /// # Errors
    /// Another one has the name.
    pub fn take_name(&self) -> Result<(), QemuError> {
        take_name(&self.directory, &self.vm)
    }
}

/// Makes a VM that has arrived the one of its name. Nothing is to be done where it was before.
pub fn take_name(directory: &RuntimeDir, vm: &str) -> Result<(), QemuError> {
    let (from, to) = (directory.of_arriving(vm), directory.of_vm(vm));
    match std::fs::rename(&from, &to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && to.is_dir() => Ok(()),
        renamed => renamed.map_err(QemuError::io(vm, format!("rename {} to {}", from.display(), to.display()))),
    }
}

fn run(qmp: &mut Qmp) -> Result<(), QemuError> {
    let vm = qmp.vm().to_owned();
    qmp.execute("cont", &json!({}))?;
    match run_state(qmp)? {
        (true, _) => Ok(()),
        (false, word) => {
            let message = format!("it does not run: {word}");
            Err(QemuError::Refused { vm, command: "cont".to_owned(), message })
        }
    }
}

/// What was received by a receipt, and its directory.
fn received(directory: &RuntimeDir, vm: &str, receipt: &str) -> Option<(PathBuf, BackgroundVm)> {
    let of = |path: PathBuf| BackgroundVm::read(&path).ok().map(|state| (path, state));
    let places = [directory.of_arriving(vm), directory.of_vm(vm)].into_iter();
    places.filter_map(of).find(|(_, state)| state.receipt.as_deref() == Some(receipt))
}

/// What a homenode left that was killed while it received a VM: the receipt, and whether all of
/// the guest is there, so that it could be let run.
pub fn left_waiting(directory: &RuntimeDir, vm: &str) -> Option<(String, bool)> {
    let state = BackgroundVm::read(&directory.of_arriving(vm)).ok()?;
    let is_all_there = state.phase != Phase::Starting && state.qemu.is_some_and(|qemu| qemu.is_alive());
    state.receipt.map(|receipt| (receipt, is_all_there))
}

/// Whether a VM that came from elsewhere was paused when it came.
pub fn came_paused(directory: &RuntimeDir, vm: &str) -> bool {
    BackgroundVm::read(&directory.of_vm(vm)).is_ok_and(|state| state.came_paused)
}

/// Whether the guest of a receipt was let run here, and is here since.
pub fn took_over(directory: &RuntimeDir, vm: &str, receipt: &str) -> bool {
    received(directory, vm, receipt).is_some_and(|(_, state)| state.phase == Phase::Running)
}

/// Lets the memory of a guest that runs here already come over another connected socket.
///
/// # Errors
/// It is not here, or its QEMU has not noticed within [`NOTICES`] that its link was cut.
pub fn resume_at(directory: &RuntimeDir, vm: &str, receipt: &str, socket: OwnedFd) -> Result<(), QemuError> {
    let missing = || QemuError::NoSuchVm { vm: vm.to_owned(), cleaned: None };
    let (path, state) = received(directory, vm, receipt).ok_or_else(missing)?;
    state.qemu.filter(|qemu| qemu.is_alive()).ok_or_else(missing)?;
    let mut qmp = Qmp::handshake(vm, connect(vm, &path.join(MONITOR))?, GREETING)?;
    let deadline = Instant::now() + NOTICES;
    while look(&mut qmp)?.status == Status::Follows && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    qmp.give(CONNECTION, socket.as_fd())?;
    drop(socket);
    qmp.execute("migrate-recover", &json!({ "uri": format!("fd:{CONNECTION}") })).map(drop)
}

/// Settles what a receipt whose homenode has ended left: lets the guest run that is here for good
/// (`here`), or ends the QEMU that waits for one. A guest that was paused when it left stays so,
/// and so does one that its owner has paused since. Says whether there was a QEMU.
///
/// # Errors
/// QEMU cannot be reached, or ended.
pub fn settle(directory: &RuntimeDir, vm: &str, receipt: &str, here: bool) -> Result<bool, QemuError> {
    let Some((path, mut state)) = received(directory, vm, receipt) else { return Ok(false) };
    let Some(qemu) = state.qemu.filter(|qemu| qemu.is_alive()) else { return Ok(false) };
    if here && state.phase == Phase::Running {
        return Ok(true);
    }
    if here {
        let mut qmp = Qmp::handshake(vm, connect(vm, &path.join(MONITOR))?, GREETING)?;
        if !state.came_paused && !run_state(&mut qmp)?.0 {
            run(&mut qmp)?;
        }
        state.phase = Phase::Running;
        state.write(&path)?;
        return Ok(true);
    }
    let end = || {
        let handle = ProcessHandle::open(qemu.pid)?;
        handle.signal(SIGKILL)?;
        handle.wait_ended(Duration::from_secs(30))
    };
    end().map_err(QemuError::io(vm, format!("end process {}", qemu.pid)))?;
    wait_released(&path);
    if let Ok(Some(place)) = VmDirectory::lock_existing(&path) {
        remove(place, vm)?;
    }
    Ok(true)
}
