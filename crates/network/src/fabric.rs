//! Switches, as their user has them.

use crate::NetworkError;
use crate::host::Owner;
use crate::seen::SwitchSeen;
use crate::switch::Switch;
use crate::vde;
use crate::words::{Answer, Request};
use linux::sys::{ChildSetup, Tie, receive_descriptor};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vm::spec::SwitchName;
use vm::{Carries, Tap};

/// How long a keeper may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long somebody who makes or removes a switch may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Most bytes of an answer.
const LONGEST_ANSWER: usize = 16 << 20;

/// What a program is told that makes it a keeper: `homenode switch keep [PATH]`.
const KEEP: [&str; 2] = ["switch", "keep"];

/// Switches in a namespace of their own.
#[derive(Debug)]
pub struct Fabric {
    stream: UnixStream,
    /// The keeper, where it ends with this value.
    keeper: Option<Child>,
}

impl Fabric {
    /// Switches that live no longer than this value, nor than this process. `homenode`: the program
    /// whose `switch keep` is the keeper.
    ///
    /// # Errors
    /// This user may not have a namespace.
    pub fn of_our_own(homenode: &Path) -> Result<Self, NetworkError> {
        let mut fabric = Self::without_namespace(homenode)?;
        fabric.done(&Request::Enter)?;
        Ok(fabric)
    }

    /// The same, until a switch needs a namespace: those of kind `vde` do not.
    ///
    /// # Errors
    /// The keeper does not start.
    pub fn without_namespace(homenode: &Path) -> Result<Self, NetworkError> {
        let broken = |error: io::Error| NetworkError::keeper(format!("cannot be started: {error}"));
        let (stream, theirs) = UnixStream::pair().map_err(broken)?;
        let keeper = start(homenode, None, theirs.into(), Tie::DiesWithUs).map_err(broken)?;
        let mut fabric = Self { stream, keeper: Some(keeper) };
        fabric.greeted()?;
        Ok(fabric)
    }

    /// The switches that `homenode switch create` made, with their keeper's socket in `directory`;
    /// `None` where there are none.
    ///
    /// # Errors
    /// Their keeper does not answer.
    pub fn kept(directory: &Path) -> Result<Option<Self>, NetworkError> {
        let socket = socket(directory);
        match UnixStream::connect(&socket) {
            Ok(stream) => {
                let mut fabric = Self { stream, keeper: None };
                fabric.greeted().map(|()| Some(fabric))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(NetworkError::keeper(format!("cannot be reached at {}: {error}", socket.display()))),
        }
    }

    /// Removes the socket in `directory` of a keeper that was killed, and what others left.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget_dead(directory: &Path) -> Result<(), NetworkError> {
        vde::sweep();
        let socket = socket(directory);
        let dead = || {
            let connected = UnixStream::connect(&socket);
            connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if !dead() {
            return Ok(());
        }
        // Whoever starts a keeper holds the lock.
        let _lock = Lock::of(directory)?;
        match dead().then(|| std::fs::remove_file(&socket)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                Err(NetworkError::keeper(format!("was killed, and {} stays: {error}", socket.display())))
            }
            _ => Ok(()),
        }
    }

    /// Makes a switch that stays until it is removed, beside those in `directory`.
    ///
    /// # Errors
    /// It does not fit beside them, or this host has no such thing.
    pub fn add_kept(directory: &Path, homenode: &Path, switch: &Switch) -> Result<(), NetworkError> {
        let _lock = Lock::of(directory)?;
        let mut fabric = match Self::kept(directory)? {
            Some(fabric) => fabric,
            None => Self::start_kept(directory, homenode)?,
        };
        fabric.add(switch)
    }

    /// Removes a switch from those in `directory`.
    ///
    /// # Errors
    /// It is not there, or in use.
    pub fn remove_kept(directory: &Path, name: &str) -> Result<(), NetworkError> {
        let _lock = Lock::of(directory)?;
        let none = || NetworkError::NoSuchSwitch { name: name.to_owned(), there: "none".to_owned() };
        let mut fabric = Self::kept(directory)?.ok_or_else(none)?;
        fabric.remove(name)?;
        let last = fabric.seen()?.is_empty();
        drop(fabric);
        if last {
            // Its keeper goes now. Whoever comes next must not meet it on its way out.
            wait_until_gone(&socket(directory));
        }
        Ok(())
    }

    fn start_kept(directory: &Path, homenode: &Path) -> Result<Self, NetworkError> {
        let broken = |error: io::Error| NetworkError::keeper(format!("cannot be started: {error}"));
        let path = socket(directory);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(broken(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(broken)?;
        let mut keeper = start(homenode, Some(&path), listener.into(), Tie::Outlives).map_err(broken)?;
        let stream = UnixStream::connect(&path).map_err(broken)?;
        let mut fabric = Self { stream, keeper: None };
        let greeted = fabric.greeted();
        if let Err(error) = greeted {
            let _ = keeper.kill();
            let said =
                keeper.wait_with_output().map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
            let _ = std::fs::remove_file(&path);
            return Err(said.ok().filter(|said| !said.is_empty()).map_or(error, NetworkError::Told));
        }
        Ok(fabric)
    }

    /// Makes a switch.
    ///
    /// # Errors
    /// It does not fit beside the others, or this kernel has no such thing.
    pub fn add(&mut self, switch: &Switch) -> Result<(), NetworkError> {
        self.done(&Request::Add(switch.clone()))
    }

    /// Removes a switch.
    ///
    /// # Errors
    /// It is not there, or something is plugged in.
    pub fn remove(&mut self, name: &str) -> Result<(), NetworkError> {
        self.done(&Request::Remove(name.to_owned()))
    }

    /// Plugs a card in that no other VM's card may have the address of, on all switches that are
    /// joined to that one.
    ///
    /// # Errors
    /// Another VM has it, there is no such switch, or this user may have no tap device.
    pub fn plug_card(&mut self, switch: &SwitchName, owner: Owner<'_>) -> Result<Tap, NetworkError> {
        let (switch, port) = (switch.clone(), owner.port());
        self.plugged(&Request::Tap { switch, port, queues: owner.queues, mac: Some(owner.mac) })
    }

    /// Plugs a card in, whatever its address is. `port` says whose it is.
    ///
    /// # Errors
    /// There is no such switch, or this user may have no tap device.
    pub fn plug(&mut self, switch: &SwitchName, port: &str, queues: u32) -> Result<Tap, NetworkError> {
        self.plugged(&Request::Tap { switch: switch.clone(), port: port.to_owned(), queues, mac: None })
    }

    fn plugged(&mut self, request: &Request) -> Result<Tap, NetworkError> {
        match self.ask(request)? {
            Answer::Tap { queues } => {
                (0..queues).map(|_| self.descriptor()).collect::<Result<Vec<_>, _>>().map(Tap::from)
            }
            Answer::Socket => {
                let frames = self.descriptor()?;
                let control = Some(Arc::new(self.descriptor()?));
                Ok(Tap { lock: control, carries: Carries::Datagrams, ..vec![frames].into() })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Plugs a card into a switch of the kernel's: one descriptor of a tap device for each queue.
    ///
    /// # Errors
    /// There is no such switch, or this user may have no tap device.
    pub fn tap(&mut self, switch: &SwitchName, port: &str, queues: u32) -> Result<Vec<OwnedFd>, NetworkError> {
        let Tap { queues, carries: Carries::TapFrames, .. } = self.plug(switch, port, queues)? else {
            return Err(NetworkError::keeper("sent no tap device"));
        };
        // Nobody else has them yet.
        Ok(queues.into_iter().filter_map(Arc::into_inner).collect())
    }

    /// What there is, and how much went through.
    ///
    /// # Errors
    /// The keeper has gone.
    pub fn seen(&mut self) -> Result<Vec<SwitchSeen>, NetworkError> {
        match self.ask(&Request::Show)? {
            Answer::Switches(switches) => Ok(switches),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether the kernel has macvtap devices.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn try_macvtap(&mut self) -> Result<(), NetworkError> {
        self.done(&Request::TryMacvtap)
    }

    fn greeted(&mut self) -> Result<(), NetworkError> {
        self.stream.set_read_timeout(Some(PATIENCE)).map_err(gone)?;
        self.stream.set_write_timeout(Some(PATIENCE)).map_err(gone)?;
        match self.answer()? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn done(&mut self, request: &Request) -> Result<(), NetworkError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, NetworkError> {
        let mut line = serde_json::to_vec(request).map_err(|error| gone(error.into()))?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(gone)?;
        self.answer()
    }

    /// Reads byte by byte: what comes behind the line has descriptors, which a reader ahead of us
    /// would lose.
    fn answer(&mut self) -> Result<Answer, NetworkError> {
        let (mut line, mut byte) = (Vec::new(), [0u8]);
        while line.len() < LONGEST_ANSWER {
            match self.stream.read(&mut byte).map_err(gone)? {
                0 => return Err(NetworkError::keeper("has ended")),
                _ if byte == *b"\n" => break,
                _ => line.push(byte[0]),
            }
        }
        match serde_json::from_slice(&line).map_err(|error| gone(error.into()))? {
            Answer::AddressTaken { mac, by } => Err(NetworkError::AddressTaken { mac, by }),
            Answer::Refused { input: true, why } => Err(NetworkError::Input(why)),
            Answer::Refused { input: false, why } => Err(NetworkError::Told(why)),
            answer => Ok(answer),
        }
    }

    fn descriptor(&self) -> Result<OwnedFd, NetworkError> {
        receive_descriptor(&self.stream).map_err(gone)?.ok_or_else(|| NetworkError::keeper("sent no tap device"))
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            // It takes away what it made, once it sees the socket closed.
            let _ = self.stream.shutdown(Shutdown::Both);
            let end = Instant::now() + PATIENCE;
            while matches!(keeper.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(LOOK_AGAIN);
            }
            // So it has ended for sure.
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn gone(error: io::Error) -> NetworkError {
    NetworkError::keeper(format!("does not answer: {error}"))
}

fn unexpected(answer: &Answer) -> NetworkError {
    NetworkError::keeper(format!("is of another version of homenode: it says {answer:?}"))
}

fn start(homenode: &Path, listens_at: Option<&Path>, control: OwnedFd, tie: Tie) -> io::Result<Child> {
    let mut command = Command::new(homenode);
    command.args(KEEP).args(listens_at).current_dir("/");
    command.stdin(Stdio::from(control)).stdout(Stdio::null());
    command.stderr(if listens_at.is_some() { Stdio::piped() } else { Stdio::null() });
    linux::sys::spawn(command, ChildSetup { tie, inherited: Vec::new(), cpus: None, user: None })
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("keeper")
}

fn wait_until_gone(socket: &Path) {
    let end = Instant::now() + PATIENCE;
    while socket.exists() && Instant::now() < end {
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The right to make and remove kept switches.
struct Lock(#[allow(dead_code, reason = "closing it releases the lock")] File);

impl Lock {
    fn of(directory: &Path) -> Result<Self, NetworkError> {
        let failed =
            |error: io::Error| NetworkError::keeper(format!("has no place in {}: {error}", directory.display()));
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let file = File::open(directory).map_err(failed)?;
        let end = Instant::now() + LOCK_PATIENCE;
        while !linux::sys::try_lock(&file).map_err(failed)? {
            if Instant::now() > end {
                return Err(NetworkError::keeper("is being changed by another homenode; try again"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(Self(file))
    }
}
