//! A switch that is a program of its user: `vde_switch` (Virtual Distributed Ethernet). It learns
//! addresses, and hands frames from datagram socket to datagram socket.
//!
//! **Rule.** The program ends when its standard input does, which its keeper holds. Its sockets are
//! in a directory that the keeper has locked; whoever makes another such directory takes away those
//! whose lock is free. A card is a datagram socket, and a connection whose end takes the port away:
//! QEMU inherits both.
//!
//! Sources: vde_switch(1); vde-2, `include/libvdeplug.h` and `src/vde_switch/datasock.c`, for what
//! is said over the control socket.

use crate::NetworkError;
use crate::card_name::CardName;
use crate::seen::{PortSeen, Traffic};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vm::spec::SwitchName;

const PROGRAM: &str = "vde_switch";
/// Begins the names of directories with sockets of such switches.
const PLACES: &str = "homenode-vde-";
/// Most cards of a switch.
const PORTS: &str = "1024";
/// How long the program may take until it listens, and for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Bytes of an address of a socket (unix(7)): its family and its path.
const PATH_BYTES: usize = 108;
const ADDRESS_BYTES: usize = 2 + PATH_BYTES;
const AF_UNIX: u16 = 1;
/// Most letters that we and the program put behind a directory's path.
const LONGEST_SOCKET: usize = 24;
/// Begins a request over the control socket, version 3: any port.
const REQUEST: [u32; 3] = [0xfeed_face, 3, 0];
/// Most bytes of what the program says of its ports.
const LONGEST_ANSWER: usize = 4 << 20;
/// Ends an answer of the management socket.
const DONE: &[u8] = b"\n1000 Success";

/// A running switch. It ends with this value.
#[derive(Debug)]
pub(crate) struct Vde {
    name: SwitchName,
    program: Child,
    place: Place,
}

/// A card on such a switch.
#[derive(Debug)]
pub(crate) struct Port {
    /// Frames, one in each datagram.
    pub(crate) frames: OwnedFd,
    /// The port is there as long as this is open.
    pub(crate) control: OwnedFd,
}

impl Vde {
    /// Starts a switch, and waits until cards can be plugged in.
    pub(crate) fn start(name: &SwitchName) -> Result<Self, NetworkError> {
        let place = Place::new()?;
        let mut command = Command::new(PROGRAM);
        command.arg("--sock").arg(place.path.join("ctl")).arg("--mgmt").arg(place.path.join("management"));
        command.args(["--mode", "600", "--dirmode", "700", "--mgmtmode", "600", "--numports", PORTS]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        let program = command.spawn().map_err(|source| NetworkError::NoVde { source })?;
        let mut switch = Self { name: name.clone(), program, place };
        let end = Instant::now() + PATIENCE;
        while let Err(error) = switch.connected("ctl/ctl").and_then(|_| switch.connected("management")) {
            match switch.program.try_wait() {
                Ok(None) if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
                Ok(Some(status)) => return Err(switch.fault(format!("ended as it started: {status}"))),
                _ => return Err(switch.fault(format!("does not listen: {error}"))),
            }
        }
        Ok(switch)
    }

    fn fault(&self, problem: String) -> NetworkError {
        NetworkError::Vde { switch: self.name.to_string(), problem }
    }

    fn connected(&self, socket: &str) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.place.path.join(socket))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// The cards that are plugged in: none where the program has ended.
    pub(crate) fn ports_now(&mut self) -> Result<Vec<(CardName, [Traffic; 2])>, NetworkError> {
        if matches!(self.program.try_wait(), Ok(None)) { self.cards() } else { Ok(Vec::new()) }
    }

    /// Plugs a card in.
    pub(crate) fn plug(&self, card: &CardName) -> Result<Port, NetworkError> {
        // The keeper plugs in one after the other.
        let own = self.place.path.join("card");
        let plugged = self.plugged(card, &own);
        // The switch is connected to it, and needs its name no more.
        let _ = fs::remove_file(&own);
        plugged.map_err(|error| self.fault(format!("takes no card: {error}")))
    }

    fn plugged(&self, card: &CardName, own: &Path) -> io::Result<Port> {
        let mut control = self.connected("ctl/ctl")?;
        let frames = UnixDatagram::bind(own)?;
        let mut request: Vec<u8> = REQUEST.iter().flat_map(|word| word.to_ne_bytes()).collect();
        request.extend(AF_UNIX.to_ne_bytes());
        request.extend(own.as_os_str().as_encoded_bytes());
        request.resize(4 * REQUEST.len() + ADDRESS_BYTES, 0);
        request.extend(card.to_string().bytes());
        control.write_all(&request)?;
        let mut address = [0u8; ADDRESS_BYTES];
        control.read_exact(&mut address)?;
        let path = address[2..].split(|&byte| byte == 0).next().unwrap_or_default();
        frames.connect(Path::new(&*String::from_utf8_lossy(path)))?;
        Ok(Port { frames: frames.into(), control: control.into() })
    }

    /// The cards that are plugged in, and what the switch counted.
    pub(crate) fn ports(&self) -> Result<Vec<PortSeen>, NetworkError> {
        let seen = |(card, [from_vm, to_vm]): (CardName, [Traffic; 2])| PortSeen { port: card.port, from_vm, to_vm };
        self.cards().map(|cards| cards.into_iter().map(seen).collect())
    }

    /// The same with their addresses: what each VM sent, and was sent.
    fn cards(&self) -> Result<Vec<(CardName, [Traffic; 2])>, NetworkError> {
        let told = || {
            let mut management = self.connected("management")?;
            management.write_all(b"port/print\n")?;
            let (mut text, mut part) = (Vec::new(), [0u8; 4096]);
            while !text.windows(DONE.len()).any(|window| window == DONE) && text.len() < LONGEST_ANSWER {
                match management.read(&mut part)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    bytes => text.extend_from_slice(&part[..bytes]),
                }
            }
            Ok(text)
        };
        let fault = |error: io::Error| {
            let cure = format!("`homenode switch delete {}` takes it away once it has ended", self.name);
            self.fault(format!("does not say what it has: {error}. {cure}"))
        };
        told().map(|text| ports_in(&String::from_utf8_lossy(&text))).map_err(fault)
    }
}

impl Drop for Vde {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// What `port/print` tells: of each port what came in and went out, and who is at its other end.
fn ports_in(text: &str) -> Vec<(CardName, [Traffic; 2])> {
    let (mut ports, mut from_vm, mut to_vm) = (Vec::new(), Traffic::default(), Traffic::default());
    for line in text.lines().map(str::trim) {
        if let Some(counted) = line.strip_prefix("IN:") {
            from_vm = traffic(counted);
        } else if let Some(counted) = line.strip_prefix("OUT:") {
            to_vm = traffic(counted);
        } else if let Some((_, port)) = line.split_once(" module unix prog ") {
            let card = CardName::of(port.trim_start().trim_start_matches(':').trim());
            ports.push((card, [from_vm, to_vm]));
        }
    }
    ports
}

/// `pkts N bytes N`.
fn traffic(text: &str) -> Traffic {
    let number = |word: &str| {
        let mut words = text.split_whitespace().skip_while(|known| *known != word);
        words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
    };
    // What a full socket does not take waits in the switch: it counts no drops.
    Traffic { bytes: number("bytes"), frames: number("pkts"), dropped: 0 }
}

/// A directory of this user's alone, which goes with this value.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    #[allow(dead_code, reason = "closing it releases the lock")]
    lock: File,
}

impl Place {
    fn new() -> Result<Self, NetworkError> {
        sweep();
        let all = std::env::temp_dir();
        let failed = |error: io::Error| {
            let source = io::Error::new(error.kind(), format!("{error}; TMPDIR may name another directory"));
            NetworkError::NoPlace { place: all.clone(), source }
        };
        for number in 0..10_000 {
            let path = all.join(format!("{PLACES}{}-{number}", std::process::id()));
            if path.as_os_str().len() + LONGEST_SOCKET > PATH_BYTES {
                return Err(failed(io::Error::other("too long a path for sockets")));
            }
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made.map_err(failed)?,
            }
            // Whoever sweeps at this moment may take it for one of somebody who died.
            if let Some(lock) = locked(&path) {
                return Ok(Self { path, lock });
            }
        }
        Err(failed(io::Error::other("no name is free for the sockets of a switch")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The lock of a directory that is there, where nobody else has it.
fn locked(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    let free = linux::sys::try_lock(&file).ok()?;
    let (here, there) = (file.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    (free && (here.dev(), here.ino()) == (there.dev(), there.ino())).then_some(file)
}

/// Takes away what killed keepers of this user left.
pub(crate) fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    let own = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|it| it.is_dir() && it.uid() == linux::sys::effective_user_id())
    };
    for entry in entries.filter_map(Result::ok) {
        let (name, path) = (entry.file_name(), entry.path());
        if name.as_encoded_bytes().starts_with(PLACES.as_bytes()) && own(&path) {
            // Its lock is held until it has gone.
            let _ = locked(&path).map(|_lock| fs::remove_dir_all(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_switch_says_of_its_ports_is_read() {
        let text = "VDE switch V.2.3.2\n\nvde$ 0000 DATA END WITH '.'\n\
             Port 0001 untagged_vlan=0000 ACTIVE - Unnamed Allocatable\n \
             Current User: root Access Control: (User: NONE - Group: NONE)\n \
             IN:  pkts       2001          bytes              3029514\n \
             OUT: pkts          1          bytes                 1514\n  \
             -- endpoint ID 0003 module unix prog   : vm-a/0=52:54:00:00:00:01\n\
             Port 0002 untagged_vlan=0000 INACTIVE - Unnamed Allocatable\n.\n1000 Success\n";
        let ports = ports_in(text);
        assert_eq!(ports.len(), 1, "a port without a card is none");
        let (card, [from_vm, to_vm]) = &ports[0];
        assert_eq!((card.to_string().as_str(), from_vm.bytes), ("vm-a/0=52:54:00:00:00:01", 3_029_514));
        assert_eq!(*to_vm, Traffic { bytes: 1514, frames: 1, dropped: 0 });
    }

    #[test]
    fn frames_go_from_card_to_card_and_nothing_stays() {
        let switch = match Vde::start(&"lan".parse().unwrap()) {
            Err(error @ NetworkError::NoVde { .. }) => {
                return eprintln!("SKIPPED frames_go_from_card_to_card: {error}");
            }
            switch => switch.unwrap(),
        };
        let place = switch.place.path.clone();
        let card = |line: &str| switch.plug(&CardName::of(line)).unwrap();
        let (one, two) = (card("a/0"), card("b/0"));
        let (from, to) = (UnixDatagram::from(one.frames), UnixDatagram::from(two.frames));
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xB5];
        frame.resize(60, 0x5A);
        assert_eq!(from.send(&frame).unwrap(), 60);
        let mut arrived = [0u8; 2048];
        assert_eq!(to.recv(&mut arrived).unwrap(), 60);
        assert_eq!(arrived[..60], frame[..]);
        let sent = |switch: &Vde| switch.ports().unwrap().iter().map(|port| port.from_vm.bytes).collect::<Vec<_>>();
        assert_eq!(sent(&switch), [60, 0]);
        drop(one.control);
        let end = Instant::now() + PATIENCE;
        while sent(&switch).len() > 1 && Instant::now() < end {
            std::thread::sleep(LOOK_AGAIN);
        }
        assert_eq!(sent(&switch), [0], "a port goes with its card");
        sweep();
        assert!(place.exists(), "it is used");
        drop(switch);
        assert!(!place.exists());
    }
}
