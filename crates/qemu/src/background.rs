//! VMs that outlive the command that started them.

use crate::QemuError;
use crate::attached::{Prepared, bring_home, explain, greeted, with_or_without_sandbox};
use crate::boot;
use crate::command_line::{self, Channel, ConsoleLog, HostTraits, Wiring};
use crate::migration::run_state;
use crate::process::{ErrorsTo, Process, last_line};
use crate::qmp::Qmp;
use crate::runtime_dir::{ARRIVING, CONSOLE, MESSAGES, MONITOR, RuntimeDir, VmDirectory};
use crate::state::{BackgroundVm, Phase};
use crate::taps::Inherited;
use linux::process::Identity;
use linux::sys::{ChildSetup, ProcessHandle, Tie};
use serde_json::json;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vm::backend::Stopped;
use vm::truth::Process as Seen;
use vm::{CallOff, ConsoleTo, Launch, Manifest};

/// How long QEMU may take to end once it was told to quit.
const QUIT: Duration = Duration::from_secs(5);
/// How long a process that homenode forked may take to become QEMU, until when nothing tells that
/// it is one, and one that has ended to let its lock go.
const A_MOMENT: Duration = Duration::from_secs(1);
/// How long a monitor may take to say whether its vCPUs run: whoever asks has others to look at.
const A_WORD: Duration = Duration::from_millis(300);
const SIGKILL: i32 = 9;

/// A VM that was started in the background, with its monitor.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) state: BackgroundVm,
    pub(crate) pid: u32,
    pub(crate) qmp: Qmp,
    /// What its owner should know of its start, as sentences.
    pub(crate) notes: Vec<String>,
}

/// Starts a VM in the background; returns when it runs at its home. If that fails, or is called
/// off, no VM is left. If this process is killed meanwhile, the next `list` or `start` ends it.
pub(crate) fn start(directory: &RuntimeDir, launch: &Launch, call_off: &CallOff) -> Result<Started, QemuError> {
    let prepared = Prepared::new(launch)?;
    let vm = &launch.spec.name;
    let claimed = claim(directory, vm, &directory.of_vm(vm))?;
    let started = with_or_without_sandbox(|sandbox| start_in(&claimed, launch, &prepared, sandbox, call_off));
    if started.is_err() {
        remove(claimed, vm)?;
    }
    let of_user = prepared.user.note().map(str::to_owned);
    started.map(|((state, pid, qmp), note)| Started {
        state,
        pid,
        qmp,
        notes: of_user.into_iter().chain(note).collect(),
    })
}

/// Makes and locks a directory for a VM. What a killed homenode only began to start there ends.
pub(crate) fn claim(directory: &RuntimeDir, vm: &str, path: &Path) -> Result<VmDirectory, QemuError> {
    let claim = || VmDirectory::claim(path).map_err(QemuError::io(vm, format!("lock {}", path.display())));
    let mut claimed = claim()?;
    let entry = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if claimed.is_none() && end_half_started(directory, &entry)?.is_some() {
        claimed = claim()?;
    }
    claimed.ok_or_else(|| {
        let pid = BackgroundVm::read(path).ok().and_then(|state| state.qemu).map_or(0, |qemu| qemu.pid);
        QemuError::NameTaken { vm: vm.to_owned(), pid }
    })
}

/// Removes what was written into the directory of a VM that was not started.
pub(crate) fn remove(claimed: VmDirectory, vm: &str) -> Result<(), QemuError> {
    let path = claimed.path.clone();
    claimed.remove().map(drop).map_err(QemuError::io(vm, format!("remove {}", path.display())))
}

/// What the vCPUs of a QEMU that is started wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits<'a> {
    /// `cont`.
    Us,
    /// The state of a guest with this manifest, whose machine is to be built again
    /// (`migrate-incoming`), and then `cont`.
    GuestOf(&'a Manifest),
}

/// A QEMU in the background that has built its machine. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) process: Process,
    pub(crate) qmp: Qmp,
    pub(crate) state: BackgroundVm,
}

fn start_in(
    place: &VmDirectory,
    launch: &Launch,
    prepared: &Prepared,
    sandbox: bool,
    call_off: &CallOff,
) -> Result<(BackgroundVm, u32, Qmp), QemuError> {
    let vm = &launch.spec.name;
    let Built { mut process, mut qmp, mut state } = build(place, launch, prepared, sandbox, Awaits::Us, call_off)?;
    let at_home = bring_home(&launch.plan, process.pid(), &mut qmp);
    at_home.map_err(|error| explain(error, &mut process, call_off))?;
    state.phase = Phase::Running;
    state.write(&place.path)?;
    if !call_off.complete() {
        return Err(QemuError::CalledOff { vm: vm.clone() });
    }
    let pid = process.pid();
    process.leave_running();
    Ok((state, pid, qmp))
}

/// Starts a QEMU whose vCPUs wait, and returns when it has filled its memory and built its machine.
pub(crate) fn build(
    place: &VmDirectory,
    launch: &Launch,
    prepared: &Prepared,
    sandbox: bool,
    awaits: Awaits<'_>,
    call_off: &CallOff,
) -> Result<Built, QemuError> {
    let vm = &launch.spec.name;
    let us = Identity::of(std::process::id()).map_err(QemuError::host(vm))?;
    let mut state = BackgroundVm::starting(launch, &prepared.host.accelerator, us);
    state.write(&place.path)?;
    let (monitor, console) = (listen(vm, &place.path.join(MONITOR))?, listen(vm, &place.path.join(CONSOLE))?);
    // QEMU's user need not be able to open it.
    let log = match &launch.console {
        ConsoleTo::File(path) => Some(boot::open_console(path).map_err(QemuError::io(vm, "open the console's file"))?),
        ConsoleTo::Terminal | ConsoleTo::Kept => None,
    };
    let taps = Inherited::of(launch)?;
    let wiring = Wiring {
        monitor: Some(Channel::Listening(monitor.as_raw_fd())),
        console: Channel::Listening(console.as_raw_fd()),
        console_log: log.as_ref().map(|log| ConsoleLog::Descriptor(log.as_raw_fd())),
        agent: None,
        taps: taps.numbers(),
        paused: true,
    };
    let boot = boot::for_qemu(launch, prepared)?;
    let host = HostTraits { sandbox, ..prepared.host.clone() };
    let mut arguments = command_line::arguments(&boot.spec, &launch.plan, &boot.files, &wiring, &host);
    match awaits {
        Awaits::Us => {}
        Awaits::GuestOf(manifest) => arguments.extend(command_line::waiting_for_a_guest(manifest, &launch.plan, &host)),
    }
    let lock = place.lock.try_clone().map_err(QemuError::io(vm, "copy the lock"))?;
    let mut inherited = boot.open;
    inherited.extend([OwnedFd::from(lock), monitor.into(), console.into()]);
    inherited.extend(log.map(OwnedFd::from));
    inherited.extend(taps.descriptors());
    let setup = ChildSetup {
        tie: Tie::Outlives,
        inherited,
        cpus: Some(launch.plan.qemu_cpus()),
        user: prepared.user.credentials(),
    };
    let errors = ErrorsTo::File(place.path.join(MESSAGES));
    let mut process = Process::start(vm, &prepared.binary, &arguments, &errors, setup)?;
    call_off.has_process(process.killer()?);
    // Without an identity it has ended already.
    let gone = |_| QemuError::Closed { vm: vm.clone() };
    let identity = Identity::of(process.pid()).map_err(gone);
    state.qemu = Some(identity.map_err(|error| explain(error, &mut process, call_off))?);
    state.write(&place.path)?;
    let greeted = connect(vm, &place.path.join(MONITOR)).and_then(|stream| greeted(vm, stream, process.pid()));
    let qmp = greeted.map_err(|error| explain(error, &mut process, call_off))?;
    qmp.version().clone_into(&mut state.qemu_version);
    Ok(Built { process, qmp, state })
}

fn listen(vm: &str, path: &Path) -> Result<UnixListener, QemuError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(QemuError::io(vm, format!("remove {}", path.display()))(error));
        }
        _ => {}
    }
    UnixListener::bind(path).map_err(QemuError::io(vm, format!("listen on {}", path.display())))
}

pub(crate) fn connect(vm: &str, path: &Path) -> Result<UnixStream, QemuError> {
    linux::sys::connect_at_once(path).map_err(|error| match error.kind() {
        // Nobody listens: QEMU has ended.
        std::io::ErrorKind::ConnectionRefused => QemuError::Closed { vm: vm.to_owned() },
        std::io::ErrorKind::WouldBlock => {
            let full = "QEMU does not answer, and others wait already";
            QemuError::io(vm, format!("connect to {}", path.display()))(std::io::Error::new(error.kind(), full))
        }
        _ => QemuError::io(vm, format!("connect to {}", path.display()))(error),
    })
}

/// VMs that run in the background, and what was cleaned up of others.
#[derive(Debug, Default)]
pub struct Listing {
    /// By name.
    pub vms: Vec<BackgroundVm>,
    /// What was found dead or half started and removed, as sentences.
    pub cleaned: Vec<String>,
}

/// Lists the VMs of a directory. What a QEMU that died left there is removed, and said.
pub fn list(directory: &RuntimeDir) -> Result<Listing, QemuError> {
    let mut listing = Listing::default();
    let unread = QemuError::directory(format!("read {}", directory.path().display()));
    for name in directory.names().map_err(unread)? {
        listing.cleaned.extend(end_half_started(directory, &name)?);
        listing.cleaned.extend(remove_dead(directory, &name)?);
        // One that is being received is none of this host's yet.
        match BackgroundVm::read(&directory.of_vm(&name)) {
            Ok(state) if state.name == name => listing.vms.push(state),
            _ => {}
        }
    }
    Ok(listing)
}

/// The process of a VM, as far as it can be seen. One whose start was cut short is ended.
///
/// # Errors
/// The processes of this host cannot be looked at.
pub fn process(directory: &RuntimeDir, name: &str) -> Result<Seen, QemuError> {
    end_half_started(directory, name)?;
    let path = directory.of_vm(name);
    let Ok(state) = BackgroundVm::read(&path) else {
        let because = "nothing of its process is left here: the host was restarted since, or it was removed by hand";
        return Ok(Seen::Gone { because: because.to_owned() });
    };
    Ok(match (state.phase, state.qemu.is_some_and(Identity::is_alive)) {
        (Phase::Running, true) if state.came_paused => Seen::CamePaused,
        (Phase::Running, true) => Seen::Runs,
        (Phase::Starting, _) if state.starter.is_alive() => Seen::Starts,
        _ => {
            let silent = || "QEMU said nothing: its guest powered itself off, or it was killed".to_owned();
            let because = last_words(&path, &state).unwrap_or_else(silent);
            Seen::Gone { because }
        }
    })
}

/// Whether the vCPUs of a VM run; `None` where its monitor does not say so at once.
pub fn vcpus_run(directory: &RuntimeDir, name: &str) -> Option<bool> {
    let stream = connect(name, &directory.of_vm(name).join(MONITOR)).ok()?;
    let mut qmp = Qmp::handshake_within(name, stream, A_WORD).ok()?;
    run_state(&mut qmp).ok().map(|(run, _)| run)
}

/// The process of a VM that runs in the background.
pub fn pid(directory: &RuntimeDir, name: &str) -> Option<u32> {
    pid_in(directory.path(), name)
}

/// The same, without making the directory where it is not there.
pub fn pid_in(runtime: &Path, name: &str) -> Option<u32> {
    let state = BackgroundVm::read(&runtime.join(name)).ok()?;
    state.qemu.filter(|qemu| qemu.is_alive()).map(|qemu| qemu.pid)
}

/// What a QEMU that has ended said, or who else may have ended it.
fn last_words(path: &Path, state: &BackgroundVm) -> Option<String> {
    let last = last_line(&path.join(MESSAGES)).map(|line| format!("QEMU's last words: {line}"));
    last.or_else(|| state.oom_kills.since().map(|why| format!("QEMU said nothing; since its start {why}.")))
}

/// Removes the directory of a VM whose QEMU has ended.
fn remove_dead(directory: &RuntimeDir, name: &str) -> Result<Option<String>, QemuError> {
    let path = directory.of_vm(name);
    let locked = match VmDirectory::lock_existing(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(QemuError::io(name, format!("lock {}", path.display())))?,
    };
    let Some(locked) = locked else { return Ok(None) };
    let state = BackgroundVm::read(&path).ok();
    let said = state.as_ref().and_then(|state| last_words(&path, state));
    let gone = locked.remove().map_err(QemuError::io(name, format!("remove {}", path.display())))?;
    // Without a record it is one that somebody only began to start.
    if state.is_none() {
        return Ok(None);
    }
    let said = said.map(|said| format!(" {said}")).unwrap_or_default();
    let kept = if gone { String::new() } else { format!(" {} has files of others; they stay.", path.display()) };
    Ok(Some(format!("VM {name} has ended; what it left was removed.{kept}{said}")))
}

/// Ends the QEMU of a VM whose start was cut short by a kill of homenode: it waits, paused, for a
/// `cont` that will never come.
fn end_half_started(directory: &RuntimeDir, name: &str) -> Result<Option<String>, QemuError> {
    let path = directory.of_vm(name);
    let Ok(state) = BackgroundVm::read(&path) else { return Ok(None) };
    if state.phase != Phase::Starting || state.starter.is_alive() {
        return Ok(None);
    }
    let deadline = Instant::now() + A_MOMENT;
    let mut holders = holders_of(&path, name)?;
    while holders.is_empty() && Instant::now() < deadline && matches!(VmDirectory::lock_existing(&path), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
        holders = holders_of(&path, name)?;
    }
    for &pid in &holders {
        end(name, pid, Duration::ZERO)?;
    }
    wait_released(&path);
    let said = || format!("VM {name} was only half started when homenode was killed; it was ended.");
    Ok((!holders.is_empty()).then(said))
}

/// Waits until nobody has a VM's directory: the kernel takes the lock from a process a moment after
/// it has ended.
pub(crate) fn wait_released(path: &Path) {
    let deadline = Instant::now() + A_MOMENT;
    while Instant::now() < deadline && matches!(VmDirectory::lock_existing(path), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes that were started as the QEMU of a VM and hold its directory open: its lock. The
/// record may not know them yet, and a program that becomes QEMU later is not known as one; another
/// homenode may have the directory for a moment.
fn holders_of(path: &Path, name: &str) -> Result<Vec<u32>, QemuError> {
    let path = match path.canonicalize() {
        // Somebody else has cleaned it up.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(QemuError::io(name, format!("find {}", path.display())))?,
    };
    let named = format!("{},", name.strip_suffix(ARRIVING).unwrap_or(name));
    let is_of_vm = |pid: u32| {
        let words = linux::process::command_line(pid).unwrap_or_default();
        words.windows(2).any(|pair| pair[0] == "-name" && pair[1].starts_with(&named))
    };
    let holds = |pid: u32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|target| target == path)
    };
    let all = linux::process::all().map_err(QemuError::host(name))?;
    Ok(all.into_iter().filter(|&pid| is_of_vm(pid) && holds(pid)).collect())
}

/// Waits up to `grace` for a process to end by itself, then kills it.
fn end(name: &str, pid: u32, grace: Duration) -> Result<(), QemuError> {
    // No such process: it has ended already.
    let Ok(handle) = ProcessHandle::open(pid) else { return Ok(()) };
    let wait = |time| handle.wait_ended(time).map_err(QemuError::io(name, format!("wait for process {pid}")));
    if wait(grace)? {
        return Ok(());
    }
    handle.signal(SIGKILL).map_err(QemuError::io(name, format!("end process {pid}")))?;
    wait(Duration::from_secs(30)).map(drop)
}

/// Stops a VM. Its guest is asked to power off and has `grace` for it; then, or at once without
/// grace, QEMU is ended. One whose guest cannot be asked is ended without grace only.
///
/// # Errors
/// There is no such VM, its guest cannot be asked, or its process does not end.
pub fn stop(directory: &RuntimeDir, name: &str, grace: Duration) -> Result<Stopped, QemuError> {
    let (path, state) = find(directory, name)?;
    let qemu = state.qemu.filter(|qemu| qemu.is_alive());
    let mut how = Stopped::ByForce;
    if let Some(qemu) = qemu {
        let handle = ProcessHandle::open(qemu.pid).map_err(QemuError::io(name, "open a handle on its process"))?;
        let ended = |time| handle.wait_ended(time).unwrap_or(false);
        let tell = |command| {
            let stream = connect(name, &path.join(MONITOR))?;
            Qmp::handshake(name, stream, QUIT)?.execute(command, &json!({}))
        };
        if !grace.is_zero() {
            match tell("system_powerdown") {
                Err(source) if !ended(A_MOMENT) => {
                    return Err(QemuError::NotAsked { vm: name.to_owned(), source: Box::new(source) });
                }
                _ if ended(grace) => how = Stopped::ByGuest,
                _ => {}
            }
        }
        // Without an answer it is killed below.
        if how == Stopped::ByForce && tell("quit").is_ok() {
            ended(QUIT);
        }
        end(name, qemu.pid, Duration::ZERO)?;
    }
    tidy_up(directory, name, &path)?;
    Ok(how)
}

/// Ends a QEMU whose guest was sent: its disks are the other one's, and it has nothing left to
/// write. To let it end by itself takes it twice the time.
pub(crate) fn end_sent(directory: &RuntimeDir, name: &str) -> Result<Stopped, QemuError> {
    let (path, state) = find(directory, name)?;
    if let Some(qemu) = state.qemu.filter(|qemu| qemu.is_alive()) {
        end(name, qemu.pid, Duration::ZERO)?;
    }
    tidy_up(directory, name, &path)?;
    Ok(Stopped::ByForce)
}

fn tidy_up(directory: &RuntimeDir, name: &str, path: &Path) -> Result<(), QemuError> {
    // Also of one that had ended: its last threads may hold its directory for a moment.
    wait_released(path);
    remove_dead(directory, name).map(drop)
}

/// A connection to a VM's console. QEMU serves one at a time: `None` if somebody has it. It is
/// given back when the file is closed.
pub fn console(directory: &RuntimeDir, name: &str) -> Result<Option<(UnixStream, File)>, QemuError> {
    let (path, _) = find(directory, name)?;
    let lock = || {
        let file = File::open(path.join(MESSAGES))?;
        Ok(linux::sys::try_lock(&file)?.then_some(file))
    };
    let Some(file) = lock().map_err(QemuError::io(name, "lock its console"))? else { return Ok(None) };
    Ok(Some((connect(name, &path.join(CONSOLE))?, file)))
}

pub(crate) fn find(directory: &RuntimeDir, name: &str) -> Result<(PathBuf, BackgroundVm), QemuError> {
    let missing = |cleaned| QemuError::NoSuchVm { vm: name.to_owned(), cleaned };
    crate::attached::check_name(name).map_err(|_| missing(None))?;
    let cleaned = remove_dead(directory, name)?;
    let path = directory.of_vm(name);
    let state = BackgroundVm::read(&path).map_err(|_| missing(cleaned))?;
    Ok((path, state))
}
