//! libvirt as a backend: its domains, started, reached and ended through `virsh`.
//!
//! **Rule.** A domain is named by a UUID that we chose, from its first moment on. It is created
//! transient, so that at no time there is a definition that nobody started; one that shall stay is
//! defined once it runs. What the kernel says of its QEMU is read as for any VM of libvirt's.

use crate::residence::{read_back, unreachable_process};
use crate::start::{NewDomain, accelerator, new_uuid, qemu_version, socket_of, with_mark, with_port, with_uuid};
use crate::{Connection, LibvirtError, local_process};
use qemu::agent::PORT_NAME;
use stacks::domain::DomainError;
use stacks::emit::{Emission, Kind, emit};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use topology::Machine;
use vm::backend::{BackendKind, ErrorKind, Patience, Saved, Stopped, Transfer};
use vm::{
    Accelerator, Added, Backend, BackendError, CallOff, Launch, Manifest, Plan, Residence, VirtualTopology, Vm, VmSpec,
};

/// How often a domain that is to be ended is looked for: it may only just be in the making.
const LOOKS: u32 = 50;
/// Time between two looks at a domain that is to end.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Domains of a libvirt on this host.
#[derive(Debug)]
pub struct Domains {
    connection: Connection,
    machine: Machine,
    accelerator: Accelerator,
    kept: bool,
}

impl Domains {
    /// `kept`: libvirt keeps what is started. Otherwise it ends with the value that stands for it.
    ///
    /// # Errors
    /// libvirt cannot be reached.
    pub fn new(connection: Connection, machine: Machine, kept: bool) -> Result<Self, LibvirtError> {
        let accelerator = accelerator(&connection)?;
        Ok(Self { connection, machine, accelerator, kept })
    }

    /// What runs its guests.
    pub fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    /// The domain of a launch as XML, as `virsh define` takes it.
    ///
    /// # Errors
    /// What it boots is not there, or libvirt cannot be told something that the spec asks for.
    pub fn xml(&self, launch: &Launch) -> Result<String, BackendError> {
        qemu::check(launch)?;
        let boot = qemu::boot_files(launch, &self.accelerator)?;
        let (spec, plan, accelerator) = (&launch.spec, &launch.plan, &self.accelerator);
        let emission = Emission { machine: &self.machine, spec, plan, boot: &boot, accelerator };
        let cannot = |problem| BackendError::new(ErrorKind::BadInput, problem);
        let xml = emit(Kind::Libvirt, &emission).map_err(cannot)?;
        if launch.agent { with_port(&xml, PORT_NAME).map_err(strange_xml) } else { Ok(xml) }
    }

    fn domain(&self, uuid: String, new: Option<NewDomain>, plan_vm: &str) -> Result<Domain, LibvirtError> {
        let look = |error: linux::LinuxError| self.connection.strange("look for QEMU", error.to_string());
        let process = local_process(&uuid).map_err(look)?;
        let process = process.ok_or_else(|| unreachable_process(&self.connection, plan_vm))?;
        Ok(Domain {
            name: plan_vm.to_owned(),
            pid: process.key.pid,
            version: qemu_version(&self.connection)?,
            accelerator: self.accelerator.clone(),
            connection: self.connection.clone(),
            uuid,
            new,
        })
    }
}

impl Backend for Domains {
    fn kind(&self) -> BackendKind {
        BackendKind::Libvirt
    }

    fn start(&self, launch: &Launch, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        let uuid = new_uuid().map_err(|error| BackendError::new(ErrorKind::Failed, error))?;
        let xml = with_mark(&with_uuid(&self.xml(launch)?, &uuid).map_err(strange_xml)?).map_err(strange_xml)?;
        let called_off = || {
            let text = format!("VM {}: its start was called off; nothing of it is left", launch.spec.name);
            BackendError::new(ErrorKind::CalledOff, text)
        };
        if call_off.is_called_off() {
            return Err(called_off());
        }
        let (connection, named) = (self.connection.clone(), uuid.clone());
        call_off.has_process(Box::new(move || end(&connection, &named)));
        let started = NewDomain::start(&self.connection, xml, uuid.clone());
        if call_off.is_called_off() {
            return Err(called_off());
        }
        let mut domain = self.domain(uuid, Some(started?), &launch.spec.name)?;
        // One that is not kept can be called off for as long as it lives.
        if !self.kept {
            return if call_off.is_called_off() { Err(called_off()) } else { Ok(Box::new(domain)) };
        }
        if !call_off.complete() {
            return Err(called_off());
        }
        domain.new.take().map_or(Ok(()), NewDomain::keep)?;
        Ok(Box::new(domain))
    }

    fn resume(&self, launch: &Launch, _: Saved<'_>, _: &CallOff) -> Result<Box<dyn Vm>, BackendError> {
        Err(of_libvirt(&launch.spec.name, "virsh restore"))
    }

    fn adopt(&self, name: &str) -> Result<Option<Box<dyn Vm>>, BackendError> {
        let found = self.connection.find(name)?.filter(|domain| domain.state.has_process());
        let Some(found) = found else { return Ok(None) };
        Ok(Some(Box::new(self.domain(found.uuid, None, &found.name)?)))
    }
}

/// libvirt writes files of its own, and keeps who may read them.
fn of_libvirt(vm: &str, command: &str) -> BackendError {
    let problem = format!("VM {vm} is libvirt's, which saves and restores its domains itself: `{command}`");
    BackendError::new(ErrorKind::BadInput, problem)
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
}

impl Domain {
    fn tell(&self, command: &str) -> Result<(), BackendError> {
        self.connection.ask(&[command, "--domain", &self.uuid])?;
        Ok(())
    }

    fn has_ended(&self) -> Result<bool, LibvirtError> {
        match self.connection.state(&self.uuid) {
            Ok(state) => Ok(!state.has_process()),
            Err(error) if error.is_no_such_domain() => Ok(true),
            Err(error) => Err(error),
        }
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
        &[]
    }

    fn residence(&mut self, plan: &Plan) -> Result<Residence, BackendError> {
        let look = |error: linux::LinuxError| self.connection.strange("look for QEMU", error.to_string());
        let process = local_process(&self.uuid).map_err(look)?;
        let process = process.ok_or_else(|| unreachable_process(&self.connection, &self.name))?;
        Ok(read_back(plan, &process, &self.accelerator, self.version.clone()).map_err(look)?)
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

    fn exited(&mut self) -> Option<String> {
        let name = &self.name;
        let words = format!("VM {name}: QEMU ended; libvirt keeps its last words in /var/log/libvirt/qemu/{name}.log");
        // Where libvirt does not answer it is not known to have ended.
        self.has_ended().unwrap_or(false).then_some(words)
    }

    fn pause(&mut self) -> Result<(), BackendError> {
        self.tell("suspend")
    }

    fn unpause(&mut self) -> Result<(), BackendError> {
        self.tell("resume")
    }

    fn reset(&mut self) -> Result<(), BackendError> {
        self.tell("reset")
    }

    fn manifest(&mut self, _: &VmSpec, _: &VirtualTopology, _: &Added) -> Result<Manifest, BackendError> {
        Err(of_libvirt(&self.name, "virsh save"))
    }

    fn save(&mut self, _: OwnedFd, _: &mut dyn FnMut(Transfer)) -> Result<(), BackendError> {
        Err(of_libvirt(&self.name, "virsh save"))
    }

    fn stop(self: Box<Self>, grace: Patience) -> Result<Stopped, BackendError> {
        let deadline = Instant::now() + grace;
        if !grace.is_zero() && self.tell("shutdown").is_ok() {
            while Instant::now() < deadline {
                if self.has_ended()? {
                    return Ok(Stopped::ByGuest);
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        match self.connection.destroy(&self.uuid) {
            // It has ended meanwhile.
            Err(_) if self.has_ended()? => Ok(Stopped::ByGuest),
            destroyed => Ok(destroyed.map(|()| Stopped::ByForce)?),
        }
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
