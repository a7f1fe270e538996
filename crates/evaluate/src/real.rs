//! This host: agents as child processes, VMs as QEMU processes at their homes.

use crate::WorldError;
use crate::disturbance::Reading;
use crate::experiment::NativeFiles;
use crate::guest_files::{Entry, GuestFiles};
use crate::resolve::{ResolvedConfiguration, ResolvedVm};
use crate::wiring::Wiring;
use crate::world::{LinkError, Participant, Said, StartedAs, Whereabouts, World};
use images::{Image, SeedFile, Tools};
use network::SwitchSeen;
use qemu::{AgentError, AgentLink, NativeAgent, QemuError, Reservation, RuntimeDir, TinyGuest};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vm::spec::{Boot, Disk, DiskFormat, GuestImage};
use vm::{Accelerator, Backend, CallOff, Launch, Plan, Residence, Vm};
use workloads::protocol::{PORT_NAME, ToAgent};

/// How long the tiny guest may take to power off when it is asked to.
const GRACE: Duration = Duration::from_secs(3);
/// How long a guest with an init of its own may take. What it writes is thrown away, so that
/// nothing is lost where it takes longer.
const GRACE_OF_INIT: Duration = Duration::from_secs(20);
/// How Linux says that it does not go on, and in how many last lines of a console that is looked
/// for: what it says of where it was stands behind it.
const PANIC: &str = "Kernel panic - not syncing:";
const PANIC_LINES: usize = 80;
/// How long others may plan VMs of theirs: each takes milliseconds.
const PLACEMENT: Duration = Duration::from_secs(120);
/// Where the agent is in the files of a guest that run natively.
const AGENT: &str = "/run/homenode-guest";

/// This host.
pub struct ThisHost {
    agent_program: PathBuf,
    backend: Box<dyn Backend>,
    guest_files: Option<GuestFiles>,
    system: Option<System>,
    /// The tiny guest with those files, once a VM needed it.
    brought: Option<Brought>,
    /// The seed disk of a disk image, in memory, once a VM needed it.
    seed: Option<OwnedFd>,
    /// The program whose `switch keep` keeps switches.
    homenode: PathBuf,
    /// The switches of each configuration, by its name.
    wirings: BTreeMap<String, Wiring>,
    epoch: Instant,
}

/// What guests boot beyond the tiny guest.
#[derive(Debug)]
pub enum System {
    /// A system of packages, to which the tiny guest goes.
    Packages(Image),
    /// A disk image with a system of its own.
    Image(GuestImage),
}

/// The tiny guest's initramfs with files behind it, in memory: it goes with this process.
struct Brought {
    guest: TinyGuest,
    initramfs: OwnedFd,
}

impl ThisHost {
    /// A host whose native agent is `agent_program` (`homenode-guest`), whose VMs `backend` runs,
    /// and whose switches the program `homenode` keeps.
    pub fn new(agent_program: PathBuf, homenode: PathBuf, backend: Box<dyn Backend>) -> Self {
        let (guest_files, system, brought, seed) = (None, None, None, None);
        let (wirings, epoch) = (BTreeMap::new(), Instant::now());
        Self { agent_program, backend, guest_files, system, brought, seed, homenode, wirings, epoch }
    }

    /// The same, whose guests have these files of the host.
    #[must_use]
    pub fn with_guest_files(self, guest_files: Option<GuestFiles>) -> Self {
        Self { guest_files, ..self }
    }

    /// The same, whose guests have this system.
    #[must_use]
    pub fn with_system(self, system: Option<System>) -> Self {
        Self { system, ..self }
    }

    /// What is started for a VM: a disk image with its seed; or the tiny guest, with the files that
    /// it needs, on its disk.
    fn launch(&mut self, vm: &ResolvedVm) -> Result<Launch, WorldError> {
        let mut launch = launch(vm);
        let spec = &mut launch.spec;
        let on_disk = match &self.system {
            None if self.guest_files.is_none() => return Ok(launch),
            None => false,
            Some(System::Packages(image)) => {
                spec.disks.insert(0, never_written(image.root(), DiskFormat::Raw));
                true
            }
            Some(System::Image(image)) => {
                spec.boot = Boot::Disk { firmware: image.firmware };
                let disks = [
                    never_written(image.path.clone(), image.format),
                    Disk { path: self.seed()?, format: DiskFormat::Raw, snapshot: false, read_only: true },
                ];
                spec.disks.splice(0..0, disks);
                return Ok(launch);
            }
        };
        let brought = match self.brought.take() {
            Some(brought) => brought,
            None => bring(self.guest_files.as_ref())?,
        };
        let Brought { guest, initramfs } = self.brought.insert(brought);
        let line = guest.command_line(&qemu::accelerator(spec.vcpus));
        let mut command_line = line.strip_prefix("console=ttyS0 ").unwrap_or(&line).to_owned();
        if on_disk {
            command_line += &TinyGuest::first_disk_words(&spec.name);
        }
        let initrd = in_memory(initramfs);
        spec.boot = Boot::Kernel { kernel: guest.kernel().to_owned(), initrd: Some(initrd), command_line };
        Ok(launch)
    }

    /// Where the seed disk is that brings agent and files into a disk image.
    fn seed(&mut self) -> Result<PathBuf, WorldError> {
        if let Some(seed) = &self.seed {
            return Ok(in_memory(seed));
        }
        let fail = |problem: String| WorldError::GuestFiles { problem };
        let agent = std::fs::read(&self.agent_program)
            .map_err(|error| fail(format!("{}: {error}", self.agent_program.display())))?;
        let entries = self.guest_files.as_ref().map(GuestFiles::entries).transpose();
        let entries = entries.map_err(|error| fail(error.to_string()))?.unwrap_or_default();
        let file = |Entry { path, is_program, content }| SeedFile { path, is_program, content };
        let files: Vec<SeedFile> = entries.into_iter().map(file).collect();
        let seed = images::seed(&agent, PORT_NAME, &files)
            .and_then(|seed| linux::sys::memory_file(c"homenode-seed", &seed))
            .map_err(|error| fail(format!("cannot make the seed disk in memory: {error}")))?;
        Ok(in_memory(self.seed.insert(seed)))
    }

    /// The agent on the host, among the guest's files where those are to run, on the CPUs that the
    /// configuration may use.
    fn native(&self, configuration: &ResolvedConfiguration) -> Result<Native, WorldError> {
        let (files, cpus) = (configuration.native_files, configuration.cpus.as_ref());
        let started = Instant::now();
        let own_process = OnceCell::new();
        let Some(System::Packages(image)) = self.system.as_ref().filter(|_| files == Some(NativeFiles::OfGuest)) else {
            return Ok(Native {
                agent: NativeAgent::start(&self.agent_program, cpus)?,
                started,
                own_process,
                wrapped: false,
            });
        };
        let mut bound = vec![(self.agent_program.clone(), PathBuf::from(AGENT))];
        if let Some(files) = &self.guest_files {
            bound.extend(files.paths().map(|path| (path.to_owned(), files.in_guest(path))));
        }
        let arguments: Vec<OsString> = [AGENT].into_iter().chain(NativeAgent::ARGUMENTS).map(OsString::from).collect();
        let command = image.native(&Tools::of_this_user(), &bound, &arguments)?;
        Ok(Native { agent: NativeAgent::of(command, cpus)?, started, own_process, wrapped: true })
    }
}

/// A disk whose writes go with the VM.
fn never_written(path: PathBuf, format: DiskFormat) -> Disk {
    Disk { path, format, snapshot: true, read_only: false }
}

/// A path to a descriptor of ours, for as long as we live.
fn in_memory(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

fn bring(files: Option<&GuestFiles>) -> Result<Brought, WorldError> {
    let no_files = |problem: String| WorldError::GuestFiles { problem };
    let guest = TinyGuest::locate(None).map_err(|error| no_files(error.to_string()))?;
    let mut initramfs = std::fs::read(guest.initramfs())
        .map_err(|error| no_files(format!("{}: {error}", guest.initramfs().display())))?;
    // An archive begins at a multiple of four bytes.
    initramfs.resize(initramfs.len().next_multiple_of(4), 0);
    if let Some(files) = files {
        initramfs.extend(files.archive().map_err(|error| no_files(error.to_string()))?);
    }
    let initramfs = linux::sys::memory_file(c"homenode-initramfs", &initramfs)
        .map_err(|error| no_files(format!("cannot keep them in memory: {error}")))?;
    Ok(Brought { guest, initramfs })
}

impl World for ThisHost {
    fn start(&mut self, configuration: &ResolvedConfiguration) -> Result<Vec<Box<dyn Participant>>, WorldError> {
        if configuration.vms.is_empty() {
            return Ok(vec![Box::new(self.native(configuration)?)]);
        }
        let mut launches: Vec<Launch> = configuration.vms.iter().map(|vm| self.launch(vm)).collect::<Result<_, _>>()?;
        // Those of an earlier visit have gone with its VMs.
        self.wirings.remove(&configuration.name);
        if !configuration.switches.is_empty() {
            let mut wiring = Wiring::of(&self.homenode, &configuration.switches)?;
            launches.iter_mut().try_for_each(|launch| wiring.plug(launch))?;
            self.wirings.insert(configuration.name.clone(), wiring);
        }
        let reservation = reserve(&launches)?;
        // If one fails, dropping the others ends them.
        let vms = configuration.vms.iter().zip(&launches);
        let started = vms
            .map(|(vm, launch)| {
                Ok(Box::new(Guest::start(self.backend.as_ref(), &vm.spec.name, launch)?) as Box<dyn Participant>)
            })
            .collect();
        drop(reservation);
        started
    }

    fn switches(&mut self, configuration: &ResolvedConfiguration) -> Result<Vec<SwitchSeen>, WorldError> {
        let Some(wiring) = self.wirings.get_mut(&configuration.name) else { return Ok(Vec::new()) };
        Ok(wiring.seen()?)
    }

    fn cpu_reading(&mut self, pids: &[u32]) -> Result<Reading, WorldError> {
        let machine = linux::load::machine_cpu_times()?;
        let at = self.epoch.elapsed().as_secs_f64();
        // With what commands used, which agents have waited for. A process that has just ended is
        // noticed by its closed connection.
        let own =
            pids.iter().chain([&std::process::id()]).filter_map(|&pid| linux::load::family_cpu_seconds(pid).ok()).sum();
        Ok(Reading { at, busy: machine.busy_seconds, steal: machine.steal_seconds, own })
    }

    fn timestamp(&self) -> String {
        now()
    }
}

/// Whoever plans a VM meanwhile counts these.
fn reserve(launches: &[Launch]) -> Result<Reservation, QemuError> {
    let directory = RuntimeDir::open()?;
    let lock = directory.lock_placement(PLACEMENT)?.ok_or_else(|| QemuError::Timeout {
        vm: launches.iter().map(|launch| launch.spec.name.as_str()).collect::<Vec<_>>().join(", "),
        what: "the placement lock: another homenode plans a VM".to_owned(),
        seconds: PLACEMENT.as_secs(),
    })?;
    let running = linux::examine_this_host().map_err(|source| QemuError::Host {
        vm: launches.first().map(|launch| launch.spec.name.clone()).unwrap_or_default(),
        source,
    })?;
    lock.reserve(&launches.iter().map(|launch| &launch.plan).collect::<Vec<_>>(), &running)
}

/// Now, in UTC, RFC 3339, in whole seconds.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Now, in UTC, for the name of a results directory.
pub fn stamp() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn link_error(error: AgentError) -> LinkError {
    match error {
        AgentError::Timeout { .. } => LinkError::Timeout,
        other => LinkError::Broken(other.to_string()),
    }
}

fn receive(link: &AgentLink, timeout: Duration) -> Result<Said, LinkError> {
    let arrived = link.receive(timeout).map_err(link_error)?;
    Ok(Said { at: arrived.at, message: arrived.message })
}

/// An agent on the host.
struct Native {
    agent: NativeAgent,
    started: Instant,
    /// Whether the process that was started has the agent as its only child (bubblewrap).
    wrapped: bool,
    own_process: OnceCell<u32>,
}

impl Participant for Native {
    fn name(&self) -> &'static str {
        "native"
    }
    fn pid(&self) -> u32 {
        let started = self.agent.pid();
        if !self.wrapped {
            return started;
        }
        if let Some(known) = self.own_process.get() {
            return *known;
        }
        // The first that descends from it is its child, which becomes the agent.
        let children = linux::process::descendants(started).unwrap_or_default();
        children.first().map_or(started, |&child| *self.own_process.get_or_init(|| child))
    }
    fn started(&self) -> Instant {
        self.started
    }
    fn started_as(&self) -> StartedAs {
        StartedAs { accelerator: "none".to_owned(), ..StartedAs::default() }
    }
    fn send(&mut self, message: &ToAgent) -> Result<(), LinkError> {
        self.agent.link().send(message).map_err(link_error)
    }
    fn receive(&mut self, timeout: Duration) -> Result<Said, LinkError> {
        receive(self.agent.link(), timeout)
    }
    fn whereabouts(&mut self) -> Whereabouts {
        Whereabouts { large_page_share: linux::large_pages::share(self.pid()), ..Whereabouts::default() }
    }
    fn exited(&mut self) -> Option<String> {
        None
    }
    fn console_tail(&self, _: usize) -> Vec<String> {
        Vec::new()
    }
    fn stop(self: Box<Self>) {
        self.agent.stop();
    }
}

/// An agent in a VM.
struct Guest {
    vm: Box<dyn Vm>,
    name: String,
    link: AgentLink,
    plan: Plan,
    started: Instant,
    grace: Duration,
}

/// What is started for a VM of an experiment.
fn launch(resolved: &ResolvedVm) -> Launch {
    let (mut spec, mut plan) = (resolved.spec.clone(), resolved.plan.clone());
    // Two evaluations on one host must not share a name.
    spec.shape.name = format!("{}-{}", spec.name, std::process::id());
    plan.vm.clone_from(&spec.name);
    Launch { agent: true, ..Launch::new(spec, plan) }
}

impl Guest {
    fn start(backend: &dyn Backend, name: &str, launch: &Launch) -> Result<Self, WorldError> {
        let no_link = |problem: String| WorldError::NoLink { name: name.to_owned(), problem };
        let started = Instant::now();
        let mut vm = backend.start(launch, &CallOff::default())?;
        let port = vm.agent()?.ok_or_else(|| no_link("it has no agent port".to_owned()))?;
        let stream = UnixStream::from(port);
        let reader = stream.try_clone().map_err(|error| no_link(format!("cannot listen to its agent: {error}")))?;
        let link = AgentLink::over(name, reader, stream);
        let grace = if launch.spec.boot.is_disk() { GRACE_OF_INIT } else { GRACE };
        Ok(Self { vm, name: name.to_owned(), link, plan: launch.plan.clone(), started, grace })
    }
}

impl Participant for Guest {
    fn name(&self) -> &str {
        &self.name
    }
    fn pid(&self) -> u32 {
        self.vm.pid()
    }
    fn started(&self) -> Instant {
        self.started
    }
    fn started_as(&self) -> StartedAs {
        let accelerator = match self.vm.accelerator() {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg { .. } => "tcg",
        };
        StartedAs {
            accelerator: accelerator.to_owned(),
            qemu: Some(self.vm.version().to_owned()),
            plan: serde_json::to_value(&self.plan).ok(),
        }
    }
    fn send(&mut self, message: &ToAgent) -> Result<(), LinkError> {
        self.link.send(message).map_err(link_error)
    }
    fn receive(&mut self, timeout: Duration) -> Result<Said, LinkError> {
        receive(&self.link, timeout)
    }
    fn whereabouts(&mut self) -> Whereabouts {
        let large_page_share = linux::large_pages::share(self.vm.pid());
        match self.vm.residence(&self.plan) {
            Ok(residence) => Whereabouts {
                local_share: local_share(&residence),
                large_page_share,
                residence: serde_json::to_value(&residence).ok(),
            },
            Err(error) => Whereabouts {
                local_share: None,
                large_page_share,
                residence: Some(serde_json::json!({ "unknown": error.to_string() })),
            },
        }
    }
    fn exited(&mut self) -> Option<String> {
        self.vm.exited()
    }
    fn stalled(&mut self) -> Option<String> {
        self.vm.stalled().or_else(|| panicked(&self.vm.console_tail(PANIC_LINES)))
    }
    fn console_tail(&self, lines: usize) -> Vec<String> {
        self.vm.console_tail(lines)
    }
    fn stop(mut self: Box<Self>) {
        // A guest that is gone cannot be told; `stop` ends what is left.
        let _ = self.link.send(&ToAgent::Finish);
        let _ = self.vm.stop(self.grace);
    }
}

/// What a console says of a kernel that has panicked.
fn panicked(console: &[String]) -> Option<String> {
    let line = console.iter().find(|line| line.contains(PANIC))?;
    let cause = line.split_once(PANIC).map(|(_, cause)| cause.trim()).filter(|cause| !cause.is_empty());
    Some(format!("the guest's kernel has panicked: {}", cause.unwrap_or("its console says no cause")))
}

/// Share of a VM's resident memory that lies on the home of its virtual node; `None` where the
/// kernel did not say.
fn local_share(residence: &Residence) -> Option<f64> {
    let (mut home, mut all) = (0u64, 0u64);
    for memory in &residence.memory {
        if memory.unknown.is_some() {
            return None;
        }
        for (&node, &pages) in &memory.pages_by_node {
            all += pages;
            home += if memory.home.contains(node) { pages } else { 0 };
        }
    }
    (all > 0).then(|| home as f64 / all as f64)
}
