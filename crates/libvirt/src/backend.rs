//! libvirt as a backend: its domains, started, reached and ended through `virsh`.
//!
//! **Rule.** A domain is named by a UUID that we chose, from its first moment on. It is created
//! transient, so that at no time there is a definition that nobody started; one that shall stay is
//! defined once it runs. One that libvirt keeps starts from its definition, in which only homes
//! change: what its owner added stays. What the kernel says of its QEMU is read as for any VM of
//! libvirt's.

use crate::domains::START;
use crate::residence::{read_back, unreachable_process};
use crate::resize::{Of, plugged};
use crate::run_by::run_by;
use crate::save::{self, Restored, restore};
use crate::send;
use crate::stalled::{Standing, has_ended};
use crate::start::{
    NewDomain, accelerator, accelerator_of, check_name, new_uuid, qemu_version, socket_of, with_mark, with_port,
    with_uuid,
};
use crate::{Connection, DomainState, LibvirtError, local_process};
use qemu::agent::PORT_NAME;
use stacks::domain::{DomainError, parse, planned};
use stacks::emit::{Emission, Kind, emit};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use vm::backend::{BackendKind, DomainOf, ErrorKind, GuestBytes, Patience, Saved, Stopped, Transfer, Watch};
use vm::sending::{DirtyRate, Sending, Sent};
use vm::truth::Process;
use vm::{
    Accelerator, Added, Backend, BackendError, CallOff, Launch, Manifest, Plan, Residence, Resize, Resized, Stated,
    VirtualTopology, Vm, VmSpec,
};

/// How often a domain that is to be ended is looked for: it may only just be in the making.
const LOOKS: u32 = 50;
/// Time between two looks at a domain that is to end.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Domains of a libvirt on this host.
#[derive(Clone, Debug)]
pub struct Domains {
    connection: Connection,
    /// The one that is meant, whatever it is called by now; else one is meant by its name.
    uuid: Option<String>,
    /// Whether its owner wrote its definition.
    adopted: bool,
    kept: bool,
}

impl Domains {
    /// Domains that libvirt keeps, by name.
    pub fn kept(connection: Connection) -> Self {
        Self { connection, uuid: None, adopted: false, kept: true }
    }

    /// Domains that end with the values that stand for them.
    pub fn transient(connection: Connection) -> Self {
        Self { kept: false, ..Self::kept(connection) }
    }

    /// One domain that libvirt keeps: a start makes it where there is none.
    pub fn of(domain: &DomainOf) -> Self {
        let DomainOf { uri, uuid, adopted } = domain;
        let connection = Connection::new(Some(uri));
        Self { connection, uuid: Some(uuid.clone()), adopted: *adopted, kept: true }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The domain of a launch as XML, as `virsh define` takes it.
    ///
    /// # Errors
    /// What it boots is not there, or libvirt cannot be told something that the spec asks for.
    pub fn xml(&self, launch: &Launch) -> Result<String, BackendError> {
        self.xml_for(launch, &accelerator(&self.connection)?)
    }

    fn xml_for(&self, launch: &Launch, accelerator: &Accelerator) -> Result<String, BackendError> {
        qemu::check(launch)?;
        crate::refused::check(launch)?;
        let boot = qemu::boot_files(launch, accelerator)?;
        let machine = topology::read::live().map_err(|error| BackendError::new(ErrorKind::Failed, error))?;
        let (spec, plan) = (&launch.spec, &launch.plan);
        let emission = Emission { machine: &machine, spec, plan, boot: &boot, accelerator };
        let xml = emit(Kind::Libvirt, &emission).map_err(|problem| BackendError::new(ErrorKind::BadInput, problem))?;
        if launch.agent { with_port(&xml, PORT_NAME).map_err(strange_xml) } else { Ok(xml) }
    }

    /// Its definition, where libvirt keeps one.
    fn definition(&self) -> Result<Option<String>, LibvirtError> {
        self.uuid.as_deref().map_or(Ok(None), |uuid| self.connection.definition(uuid))
    }

    /// UUID and state of the domain that is meant.
    fn find(&self, name: &str) -> Result<Option<(String, DomainState)>, LibvirtError> {
        let Some(uuid) = &self.uuid else {
            return Ok(self.connection.find(name)?.map(|found| (found.uuid, found.state)));
        };
        match self.connection.state(uuid) {
            Err(error) if error.is_no_such_domain() => Ok(None),
            state => Ok(Some((uuid.clone(), state?))),
        }
    }

    fn domain(
        &self,
        uuid: String,
        new: Option<NewDomain>,
        name: &str,
        accelerator: Accelerator,
    ) -> Result<Domain, LibvirtError> {
        let look = |error: linux::LinuxError| self.connection.strange("look for QEMU", error.to_string());
        let process = local_process(&uuid).map_err(look)?;
        let process = process.ok_or_else(|| unreachable_process(&self.connection, name))?;
        Ok(Domain {
            name: name.to_owned(),
            pid: process.key.pid,
            version: qemu_version(&self.connection)?,
            accelerator,
            connection: self.connection.clone(),
            uuid,
            new,
            notes: Vec::new(),
            standing: Standing::default(),
        })
    }

    fn start_new(&self, launch: &Launch, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        let chosen = self.uuid.clone().map_or_else(new_uuid, Ok);
        let uuid = chosen.map_err(|error| BackendError::new(ErrorKind::Failed, error))?;
        let accelerator = accelerator(&self.connection)?;
        let xml = with_uuid(&self.xml_for(launch, &accelerator)?, &uuid).map_err(strange_xml)?;
        let xml = with_mark(&xml, &Stated::of(&launch.spec.policy)).map_err(strange_xml)?;
        let name = &launch.spec.name;
        if call_off.is_called_off() {
            return Err(called_off(name));
        }
        self.ended_when_called_off(&uuid, call_off);
        let started = NewDomain::start(&self.connection, xml, uuid.clone());
        if call_off.is_called_off() {
            return Err(called_off(name));
        }
        let mut domain = self.domain(uuid, Some(started?), name, accelerator)?;
        // One that is not kept can be called off for as long as it lives.
        if !self.kept {
            return if call_off.is_called_off() { Err(called_off(name)) } else { Ok(Box::new(domain)) };
        }
        if !call_off.complete() {
            return Err(called_off(name));
        }
        domain.new.take().map_or(Ok(()), NewDomain::keep)?;
        Ok(Box::new(domain))
    }

    fn ended_when_called_off(&self, uuid: &str, call_off: &CallOff) {
        let (connection, named) = (self.connection.clone(), uuid.to_owned());
        call_off.has_process(Box::new(move || end(&connection, &named)));
    }

    /// Starts a domain that libvirt keeps, at the homes of the plan: only what is said of them
    /// changes in its definition, and goes back where it does not start.
    fn start_defined(
        &self,
        uuid: &str,
        definition: &str,
        launch: &Launch,
        call_off: &CallOff,
    ) -> Result<Box<dyn Vm>, BackendError> {
        let name = &launch.spec.name;
        if self.connection.state(uuid)?.has_process() {
            return Err(runs_already(name));
        }
        self.no_saved_image(uuid, name)?;
        let planned = planned(definition, &format!("the definition of VM {name}"), &launch.plan);
        let planned = planned.map_err(strange_xml)?;
        if call_off.is_called_off() {
            return Err(called_off(name));
        }
        self.connection.define(&planned)?;
        self.ended_when_called_off(uuid, call_off);
        let started = self.connection.with_limit(START).ask(&["start", "--domain", uuid]);
        let kind = parse(&planned, "the domain").map_err(strange_xml)?.kind;
        let domain = started.and_then(|_| self.domain(uuid.to_owned(), None, name, accelerator_of(&kind)));
        let domain = match domain {
            Ok(domain) if call_off.complete() => return Ok(Box::new(domain)),
            Ok(_) => Err(called_off(name)),
            // Somebody else was faster: it is not ours to end.
            Err(LibvirtError::Refused { words, .. }) if words.contains("already active") => {
                return Err(runs_already(name));
            }
            Err(_) if call_off.is_called_off() => Err(called_off(name)),
            Err(error) => Err(error.into()),
        };
        // It may have ended by itself. What libvirt then refuses is not why it did not start.
        let _ = self.connection.destroy(uuid);
        let _ = self.connection.define(definition);
        domain
    }

    /// One that libvirt saved would go on where it was, with the memory that it had there.
    fn no_saved_image(&self, uuid: &str, name: &str) -> Result<(), BackendError> {
        let said = self.connection.ask(&["dominfo", "--domain", uuid])?;
        if !said.lines().any(|line| line.strip_prefix("Managed save:").is_some_and(|word| word.trim() == "yes")) {
            return Ok(());
        }
        let virsh = self.connection.command_by_hand();
        let problem = format!(
            "VM {name}: libvirt holds a saved image of it (`virsh managedsave`): `{virsh} start {uuid}` lets it go on \
            where it was, `{virsh} managedsave-remove {uuid}` forgets its memory"
        );
        Err(BackendError::new(ErrorKind::BadInput, problem))
    }
}

impl Backend for Domains {
    fn kind(&self) -> BackendKind {
        BackendKind::Libvirt
    }

    fn check(&self, launch: &Launch) -> Result<Accelerator, BackendError> {
        let name = &launch.spec.name;
        if let Some(definition) = self.definition()? {
            let domain = parse(&definition, "the domain").map_err(strange_xml)?;
            self.no_saved_image(self.uuid.as_deref().unwrap_or(name), name)?;
            return Ok(accelerator_of(&domain.kind));
        }
        if self.adopted {
            let problem = format!(
                "VM {name}: libvirt has no definition of it any more, and its owner wrote that: define it again \
                (`virsh define`), or `homenode vm delete {name}` forgets it"
            );
            return Err(BackendError::new(ErrorKind::BadInput, problem));
        }
        check_name(&self.connection, name)?;
        // What cannot be said to libvirt shows here.
        let accelerator = accelerator(&self.connection)?;
        self.xml_for(launch, &accelerator)?;
        Ok(accelerator)
    }

    fn start(&self, launch: &Launch, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        match (&self.uuid, self.definition()?) {
            (Some(uuid), Some(definition)) => self.start_defined(uuid, &definition, launch, call_off),
            _ => self.start_new(launch, call_off),
        }
    }

    fn resume(&self, launch: &Launch, mut saved: Saved<'_>, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        let Restored { uuid, kind, notes } =
            restore(&self.connection, launch, &mut saved, call_off, |uuid| self.ended_when_called_off(uuid, call_off))?;
        let mut domain = self.domain(uuid, None, &launch.spec.name, accelerator_of(&kind))?;
        domain.notes = notes;
        // From here on it may have run: nobody ends it as one that is half started.
        if !call_off.complete() {
            end(&self.connection, &domain.uuid);
            return Err(save::called_off(&domain.name));
        }
        domain.keep_defined()?;
        domain.tell("resume")?;
        Ok(Box::new(domain))
    }

    fn adopt(&self, name: &str) -> Result<Option<Box<dyn Vm>>, BackendError> {
        let found = self.find(name)?.filter(|(_, state)| state.has_process());
        let Some((uuid, _)) = found else { return Ok(None) };
        let xml = self.connection.domain_xml(&uuid)?;
        let kind = parse(&xml, "the domain").map_err(strange_xml)?.kind;
        Ok(Some(Box::new(self.domain(uuid, None, name, accelerator_of(&kind))?)))
    }

    fn process(&self, name: &str) -> Result<Process, BackendError> {
        let gone = || Process::Gone { because: "libvirt has no such domain any more".to_owned() };
        let uuid = match &self.uuid {
            Some(uuid) => Some(uuid.clone()),
            None => self.find(name)?.map(|(uuid, _)| uuid),
        };
        let Some(uuid) = uuid else { return Ok(gone()) };
        match self.connection.process(&uuid) {
            Err(error) if error.is_no_such_domain() => Ok(gone()),
            process => Ok(process?),
        }
    }

    fn plugged(&self, name: &str, topology: &VirtualTopology) -> Result<Option<Added>, BackendError> {
        let Some((uuid, _)) = self.find(name)?.filter(|(_, state)| state.has_process()) else { return Ok(None) };
        plugged(&self.connection, &uuid, name, topology).map(Some)
    }

    fn stop(&self, name: &str, grace: Patience) -> Result<Stopped, BackendError> {
        let none = || {
            let text = format!("VM {name}: {} runs no such domain", self.connection.which());
            BackendError::new(ErrorKind::Gone, text)
        };
        let (uuid, _) = self.find(name)?.filter(|(_, state)| state.has_process()).ok_or_else(none)?;
        stop(&self.connection, &uuid, grace)
    }

    /// The definition of one that homenode had libvirt keep. What its owner wrote stays.
    fn forget(&self, _name: &str) -> Result<(), BackendError> {
        let Some(uuid) = self.uuid.as_deref().filter(|_| !self.adopted) else { return Ok(()) };
        match self.connection.undefine(uuid) {
            Err(error) if error.is_no_such_domain() => Ok(()),
            undefined => Ok(undefined.map(drop)?),
        }
    }
}

fn runs_already(vm: &str) -> BackendError {
    BackendError::new(ErrorKind::Failed, format!("VM {vm} runs already: somebody started it through libvirt"))
}

fn called_off(vm: &str) -> BackendError {
    let text = format!("VM {vm}: its start was called off; nothing of it is left");
    BackendError::new(ErrorKind::CalledOff, text)
}

/// Asks the guest to power off, if there is grace for it, and then ends it.
fn stop(connection: &Connection, uuid: &str, grace: Patience) -> Result<Stopped, BackendError> {
    let deadline = Instant::now() + grace;
    if !grace.is_zero() && connection.ask(&["shutdown", "--domain", uuid]).is_ok() {
        while Instant::now() < deadline {
            if has_ended(connection, uuid)? {
                return Ok(Stopped::ByGuest);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    match connection.destroy(uuid) {
        // It has ended meanwhile.
        Err(_) if has_ended(connection, uuid)? => Ok(Stopped::ByGuest),
        destroyed => Ok(destroyed.map(|()| Stopped::ByForce)?),
    }
}

fn strange_xml(error: DomainError) -> BackendError {
    BackendError::new(ErrorKind::Failed, error)
}

/// Ends a domain that may only just be in the making.
fn end(connection: &Connection, uuid: &str) {
    for _ in 0..LOOKS {
        match connection.destroy(uuid) {
            Err(error) if error.is_no_such_domain() => std::thread::sleep(LOOK_AGAIN),
            _ => break,
        }
    }
}

/// A domain that has a process on this host.
#[derive(Debug)]
struct Domain {
    name: String,
    pid: u32,
    version: String,
    accelerator: Accelerator,
    connection: Connection,
    uuid: String,
    /// Ends the domain when it is dropped.
    new: Option<NewDomain>,
    notes: Vec<String>,
    standing: Standing,
}

impl Domain {
    /// One that came from a file of another host's has no definition here yet.
    fn keep_defined(&self) -> Result<(), LibvirtError> {
        if self.connection.find(&self.uuid)?.is_some_and(|found| found.persistent) {
            return Ok(());
        }
        self.connection.define(&self.connection.ask(&["dumpxml", "--domain", &self.uuid, "--inactive"])?)
    }

    fn tell(&self, command: &str) -> Result<(), BackendError> {
        self.connection.ask(&[command, "--domain", &self.uuid])?;
        Ok(())
    }
}

impl Vm for Domain {
    fn name(&self) -> &str {
        &self.name
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn residence(&mut self, plan: &Plan) -> Result<Residence, BackendError> {
        let look = |error: linux::LinuxError| self.connection.strange("look for QEMU", error.to_string());
        let process = local_process(&self.uuid).map_err(look)?;
        let process = process.ok_or_else(|| unreachable_process(&self.connection, &self.name))?;
        let devices = plugged(&self.connection, &self.uuid, &self.name, &plan.topology)?.memory;
        Ok(read_back(plan, &devices, &process, &self.accelerator, self.version.clone()).map_err(look)?)
    }

    fn agent(&mut self) -> Result<Option<OwnedFd>, BackendError> {
        let xml = self.connection.domain_xml(&self.uuid)?;
        let Some(socket) = socket_of(&xml, PORT_NAME) else { return Ok(None) };
        let closed = |error: std::io::Error| {
            let text = format!(
                "VM {}: the agent's socket {} is closed to this user ({error}); do it as root, or with the \
                libvirt of this user (qemu:///session)",
                self.name,
                socket.display()
            );
            BackendError::new(ErrorKind::Failed, text)
        };
        Ok(Some(linux::sys::connect_at_once(&socket).map_err(closed)?.into()))
    }

    /// libvirt gives its console to one visitor, and keeps nothing of it.
    fn console_tail(&self, _lines: usize) -> Vec<String> {
        Vec::new()
    }

    fn stalled(&mut self) -> Option<String> {
        self.standing.look(self.pid, &self.connection, &self.uuid, &self.name)
    }

    fn exited(&mut self) -> Option<String> {
        let name = &self.name;
        let words = format!("VM {name}: QEMU ended; libvirt keeps its last words in /var/log/libvirt/qemu/{name}.log");
        // Most looks find a QEMU that runs. Where libvirt gives no answer it is taken to be there.
        let is_there = linux::load::process_cpu_seconds(self.pid).is_ok();
        (!is_there && has_ended(&self.connection, &self.uuid).unwrap_or(false)).then_some(words)
    }

    fn pause(&mut self) -> Result<(), BackendError> {
        self.tell("suspend")
    }

    fn unpause(&mut self) -> Result<(), BackendError> {
        self.tell("resume")
    }

    /// A domain that ends when its guest resets itself would end: from now on its guest may.
    fn reset(&mut self) -> Result<(), BackendError> {
        if self.connection.domain_xml(&self.uuid)?.contains("<on_reboot>destroy</on_reboot>") {
            let command = ["set-lifecycle-action", "--type", "reboot", "--action", "restart", "--live", "--domain"];
            self.connection.ask(&[&command[..], &[&self.uuid]].concat())?;
        }
        self.tell("reset")
    }

    fn resize(&mut self, resize: &Resize, done: &mut dyn FnMut(&Added)) -> Result<Resized, BackendError> {
        let (connection, uuid, vm) = (&self.connection, self.uuid.as_str(), self.name.as_str());
        crate::resize::resize(Of { connection, uuid, vm, emulated: !self.accelerator.is_hardware() }, resize, done)
    }

    fn manifest(&mut self, spec: &VmSpec, topology: &VirtualTopology, added: &Added) -> Result<Manifest, BackendError> {
        let xml = self.connection.domain_xml(&self.uuid)?;
        Ok(Manifest::of(spec, topology, added, run_by(&xml, spec, self.version.clone())?))
    }

    fn save(&mut self, into: GuestBytes<'_>, told: &mut dyn FnMut(Transfer)) -> Result<(), BackendError> {
        save::save((&self.connection, &self.uuid, &self.name), &into, told)
    }

    fn dirty_rate(&mut self, seconds: u64) -> Result<Option<DirtyRate>, BackendError> {
        Ok(send::dirty_rate(&self.connection, &self.uuid, seconds))
    }

    fn send(&mut self, sending: Sending<'_>, watch: &mut Watch<'_>) -> Result<Sent, BackendError> {
        send::send((&self.connection, &self.uuid, &self.name), &sending, watch)
    }

    fn stay(&mut self, runs: bool) -> Result<(), BackendError> {
        send::stay(&self.connection, &self.uuid, runs)
    }

    fn stop(self: Box<Self>, grace: Patience) -> Result<Stopped, BackendError> {
        stop(&self.connection, &self.uuid, grace)
    }
}

impl From<LibvirtError> for BackendError {
    fn from(error: LibvirtError) -> Self {
        let kind = match &error {
            error if error.is_bad_input() => ErrorKind::BadInput,
            error if error.is_no_such_domain() => ErrorKind::Gone,
            _ => ErrorKind::Failed,
        };
        Self::new(kind, error)
    }
}
