//! What runs VMs, and a VM that it runs, for everybody who need not know which program it is.
//!
//! **Problem.** QEMU's own process, a domain of libvirt's, and what comes later can all be started,
//! looked at, grown, saved, sent and stopped. Whoever does so (`vm`, `run`, `evaluate`) must not
//! have a copy of itself for each.
//!
//! **Rule.** A backend implements [`Backend`] and gives [`Vm`]s. It decides nothing: where a VM
//! lives, which virtual node grows, where a saved VM wakes up comes with each call. It keeps no
//! record of a VM's life either: that is the caller's.
//!
//! **Example.** A third one (cloud-hypervisor, say) is a crate with these two implementations, a
//! name in [`BackendKind`], and a line where the program chooses.

use crate::sending::{DirtyRate, Progress, Rest, Sending, Sent, Tuning};
use crate::truth::Process;
use crate::{Accelerator, Added, CallOff, Launch, Manifest, Plan, Residence, Resize, Resized};
use crate::{VirtualTopology, VmSpec};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use topology::Bytes;

/// Time that somebody is given.
pub type Patience = core::time::Duration;

/// Which program runs a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// QEMU, started by homenode.
    #[default]
    Qemu,
    /// libvirt.
    Libvirt,
}

impl BackendKind {
    /// Whether it writes the guests that it saves into files of its own ([`GuestBytes::File`]).
    pub fn saves_files(self) -> bool {
        self == Self::Libvirt
    }
}

/// What runs a VM, and what it takes to reach it there: of a record, for the next command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReachedBy {
    /// QEMU, started by homenode: by the VM's name in the runtime directory.
    #[default]
    Qemu,
    /// A domain of libvirt's.
    Libvirt(DomainOf),
}

/// A domain, and the libvirt that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainOf {
    /// libvirt's URI, as `virsh --connect` takes it.
    pub uri: String,
    /// The domain's UUID: its name may be another's by now.
    pub uuid: String,
    /// Whether its owner wrote its definition: homenode changes it, and cannot write it anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

impl ReachedBy {
    /// Which program it is.
    pub fn kind(&self) -> BackendKind {
        match self {
            Self::Qemu => BackendKind::Qemu,
            Self::Libvirt(_) => BackendKind::Libvirt,
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Qemu => "qemu",
            Self::Libvirt => "libvirt",
        })
    }
}

/// A program that runs VMs.
pub trait Backend {
    /// Which one it is.
    fn kind(&self) -> BackendKind;

    /// What would run the instructions of a VM. Asked before anything is reserved or written for
    /// its start.
    ///
    /// # Errors
    /// It cannot be started by this backend: what it boots is not there, its name is taken, the
    /// backend cannot be told what its spec asks for.
    fn check(&self, launch: &Launch) -> Result<Accelerator, BackendError>;

    /// Starts a VM at the homes of its plan. Returns when its vCPUs run there.
    ///
    /// # Errors
    /// It cannot be started, or was called off meanwhile; nothing is left of it.
    fn start(&self, launch: &Launch, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError>;

    /// Starts a VM at the homes of its plan with a guest that was saved. Returns when its vCPUs run
    /// there.
    ///
    /// # Errors
    /// As [`Backend::start`]; and where the machine is not the one that the guest knows. The guest
    /// has not run.
    fn resume(&self, launch: &Launch, saved: Saved<'_>, call_off: &CallOff) -> Result<Box<dyn Vm>, BackendError>;

    /// The VM of this name, which runs already; `None` where none does.
    ///
    /// # Errors
    /// It is there and cannot be reached.
    fn adopt(&self, name: &str) -> Result<Option<Box<dyn Vm>>, BackendError>;

    /// What the process of the VM of this name does now, for [`crate::truth`].
    ///
    /// # Errors
    /// Nobody can say.
    fn process(&self, name: &str) -> Result<Process, BackendError>;

    /// What is plugged into a VM that runs, where others than homenode may have plugged it; `None`
    /// where nobody else can.
    ///
    /// # Errors
    /// Nobody can say.
    fn plugged(&self, _name: &str, _topology: &VirtualTopology) -> Result<Option<Added>, BackendError> {
        Ok(None)
    }

    /// As [`Vm::stop`], also of a VM that answers nobody any more.
    ///
    /// # Errors
    /// None of this name has a process ([`ErrorKind::Gone`]), its guest cannot be asked, or its
    /// process cannot be ended.
    fn stop(&self, name: &str, grace: Patience) -> Result<Stopped, BackendError>;

    /// Removes what the backend keeps of a VM that has no process, as far as homenode had it kept.
    ///
    /// # Errors
    /// It cannot be removed.
    fn forget(&self, _name: &str) -> Result<(), BackendError> {
        Ok(())
    }
}

/// How far a guest has come on its way into a file or out of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// What is there already.
    pub done: Bytes,
    /// What is not, as far as is known.
    pub remaining: Bytes,
}

/// Where the bytes of a guest that is saved go, and where they come from.
pub enum GuestBytes<'a> {
    /// A pipe or a socket, for the caller to pass on.
    Stream(OwnedFd),
    /// A file in the backend's own format, which it writes and reads itself: for a backend that
    /// [keeps files of its own](BackendKind::saves_files).
    File {
        /// The file.
        path: &'a Path,
        /// Calls the writing off once it is true.
        called_off: &'a AtomicBool,
    },
}

impl GuestBytes<'_> {
    /// The stream, for a backend that saves no files of its own. `vm` is what errors name.
    ///
    /// # Errors
    /// It is a file.
    pub fn stream(self, vm: &str) -> Result<OwnedFd, BackendError> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::File { path, .. } => {
                let problem = format!("VM {vm}: what runs it has no file of its own such as {}", path.display());
                Err(BackendError::new(ErrorKind::BadInput, problem))
            }
        }
    }

    /// The file and its flag, for a backend that saves files of its own.
    ///
    /// # Errors
    /// It is a stream.
    pub fn file(&self, vm: &str) -> Result<(&Path, &AtomicBool), BackendError> {
        match self {
            Self::File { path, called_off } => Ok((path, called_off)),
            Self::Stream(_) => {
                let problem = format!("VM {vm}: its guest is in a file of what runs it, not in a stream");
                Err(BackendError::new(ErrorKind::BadInput, problem))
            }
        }
    }
}

/// A guest that comes out of a file.
pub struct Saved<'a> {
    /// What the machine that it comes into must agree on.
    pub manifest: &'a Manifest,
    /// The guest's bytes, as [`Vm::save`] wrote them.
    pub from: GuestBytes<'a>,
    /// Asked once, before the guest runs: whether all that is read is right. Of a stream when
    /// nothing more will be read: an error of its own goes before what the program makes of bytes
    /// that end early.
    pub was_right: &'a mut dyn FnMut() -> Result<(), BackendError>,
    /// Told now and then how far it has come.
    pub told: &'a mut dyn FnMut(Transfer),
}

/// Who watches a guest that is sent: says whether it shall go on.
pub type Watch<'a> = dyn FnMut(&Progress) -> bool + 'a;

/// A VM that has a process. Dropping it leaves the VM as its backend promises: one that is tied to
/// its starter ends, any other goes on.
pub trait Vm {
    /// Its name.
    fn name(&self) -> &str;

    /// Its process.
    fn pid(&self) -> u32;

    /// What runs its instructions.
    fn accelerator(&self) -> &Accelerator;

    /// Version of the program that runs it, in that program's words.
    fn version(&self) -> &str;

    /// What its owner should know of its start, as sentences.
    fn notes(&self) -> &[String];

    /// Where it is, as the kernel says: compared with the homes of `plan`.
    ///
    /// # Errors
    /// It has ended, or cannot be looked at.
    fn residence(&mut self, plan: &Plan) -> Result<Residence, BackendError>;

    /// The connection to homenode's agent in the guest; `None` where it has no port for one, or
    /// where the connection was given away before.
    ///
    /// # Errors
    /// The port is there and cannot be reached.
    fn agent(&mut self) -> Result<Option<OwnedFd>, BackendError>;

    /// The last lines of its console, where they are kept.
    fn console_tail(&self, lines: usize) -> Vec<String>;

    /// Why it has ended, as a sentence; `None` while it runs.
    fn exited(&mut self) -> Option<String>;

    /// Why its guest stands still though nobody paused it, as a sentence; `None` where it runs, and
    /// where nobody can say. Does not wait.
    fn stalled(&mut self) -> Option<String> {
        None
    }

    /// Stops its vCPUs.
    ///
    /// # Errors
    /// It has ended, or refuses.
    fn pause(&mut self) -> Result<(), BackendError>;

    /// Lets its vCPUs go on.
    ///
    /// # Errors
    /// It has ended, or refuses.
    fn unpause(&mut self) -> Result<(), BackendError>;

    /// Resets its machine, as its reset button would.
    ///
    /// # Errors
    /// It has ended, or refuses.
    fn reset(&mut self) -> Result<(), BackendError>;

    /// Adds vCPUs and memory to it or takes them away, and waits until its guest has done its part.
    /// After each device that is plugged or unplugged `done` is told of all that are plugged in
    /// then. Devices that an earlier call plugged and nobody wrote down are found, and count.
    ///
    /// # Errors
    /// It has ended, refuses, or cannot do it at all; what `done` was told of is there.
    fn resize(&mut self, _: &Resize, _: &mut dyn FnMut(&Added)) -> Result<Resized, BackendError> {
        let problem = format!("VM {}: homenode cannot change its size while it runs in this way", self.name());
        Err(BackendError::new(ErrorKind::BadInput, problem))
    }

    /// What another program must agree on to take its guest over: what this one says, beside what
    /// is kept of the VM.
    ///
    /// # Errors
    /// It has ended, or does not say.
    fn manifest(&mut self, spec: &VmSpec, topology: &VirtualTopology, added: &Added) -> Result<Manifest, BackendError>;

    /// Writes all that its guest is into a stream, and closes that. Its vCPUs wait, before and
    /// after: only [`Vm::unpause`] lets them go on, only [`Vm::stop`] ends it. A backend that saves
    /// files writes its file instead, and the VM has no process once that is whole.
    ///
    /// # Errors
    /// It has ended, its vCPUs run, or its guest cannot be saved. Its vCPUs still wait.
    fn save(&mut self, into: GuestBytes<'_>, told: &mut dyn FnMut(Transfer)) -> Result<(), BackendError>;

    /// That its guest can be sent while it runs, as it is, in this way.
    ///
    /// # Errors
    /// It cannot be, and what would mend that; or it has ended.
    fn may_be_sent(&mut self, _: &Manifest, _: &Tuning) -> Result<(), BackendError> {
        Ok(())
    }

    /// Watches for some seconds how fast its guest writes to its memory; `None` where nobody can
    /// say.
    ///
    /// # Errors
    /// It has ended.
    fn dirty_rate(&mut self, _seconds: u64) -> Result<Option<DirtyRate>, BackendError> {
        Ok(None)
    }

    /// Sends it to another host while it runs. `watch` is told all the time how far it has come; it
    /// calls it off by saying no.
    ///
    /// # Errors
    /// It did not go. Of a stream, some of it may be on its way: [`Vm::stay`] has it go on here.
    fn send(&mut self, sending: Sending<'_>, _: &mut Watch<'_>) -> Result<Sent, BackendError> {
        Err(sending.route.refused(self.name()))
    }

    /// Waits until the memory has gone that follows its guest ([`Sent::Follows`]), over this stream
    /// where an earlier one was cut. `watch` is told all the time how far it has come: nothing
    /// calls it off.
    ///
    /// # Errors
    /// It does not go any more: the guest is lost.
    fn send_rest(&mut self, _: Option<OwnedFd>, _: &mut dyn FnMut(&Progress)) -> Result<Rest, BackendError> {
        let problem = format!("VM {}: no memory of it follows it to another host", self.name());
        Err(BackendError::new(ErrorKind::Failed, problem))
    }

    /// Whether memory follows its guest: it can go on at the destination only.
    ///
    /// # Errors
    /// It has ended.
    fn follows(&mut self) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// Its guest stays here, whatever was sent of it: calls that off, and lets its vCPUs go on
    /// where `runs`. Only where it is known that nobody lets it run elsewhere.
    ///
    /// # Errors
    /// It has ended, or refuses.
    fn stay(&mut self, runs: bool) -> Result<(), BackendError> {
        if runs { self.unpause() } else { Ok(()) }
    }

    /// Presses its power button and waits up to `grace` for it to power off; then, or at once
    /// without grace, ends it.
    ///
    /// # Errors
    /// Its process cannot be ended.
    fn stop(self: Box<Self>, grace: Patience) -> Result<Stopped, BackendError>;
}

/// How a VM was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The guest powered itself off.
    ByGuest,
    /// Its process was ended.
    ByForce,
}

/// What a backend could not do.
#[derive(Debug)]
pub struct BackendError {
    kind: ErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// What whoever asked can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for cannot be: mend it.
    BadInput,
    /// It was called off.
    CalledOff,
    /// There is no such VM any more.
    Gone,
    /// Anything else.
    Failed,
}

impl BackendError {
    /// An error of a backend's own.
    pub fn new(kind: ErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the input must be mended.
    pub fn is_bad_input(&self) -> bool {
        self.kind == ErrorKind::BadInput
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}
