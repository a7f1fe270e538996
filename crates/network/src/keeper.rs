//! The process that keeps a namespace with switches.
//!
//! It lives as long as what it was started with is open: for an experiment a socket to the program
//! that runs it, for `homenode switch create` a socket that it listens on until the last switch is
//! removed. Nobody but its own user reaches either.

use crate::card_name::CardName;
use crate::home::Home;
use crate::kernel::{self, Interface};
use crate::seen::{LinkSeen, PortSeen, SwitchSeen};
use crate::switch::{Switch, SwitchKind, Uplink, check, listed, reached_from};
use crate::vde::{Port, Vde};
use crate::words::{Answer, Request};
use crate::{NetworkError, Traffic};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use vm::spec::{MacAddress, SwitchName};

/// Most bytes of a request: far more than a switch with its uplinks has.
const LONGEST_REQUEST: u64 = 64 << 10;
/// Most queues of a card: as many as QEMU takes.
const MOST_QUEUES: u32 = 256;
/// How long somebody who connected may be silent: others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a keeper looks whether it can still be reached.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// What an interface's alias may have: the kernel takes 255 bytes.
const LONGEST_PORT: usize = 120;

/// Keeps switches for whoever holds the other end of `control`, or connects to it where it listens.
/// Returns when nobody needs them any more. For a process that has done nothing else: it enters a
/// new network namespace when it is first asked for a switch of the kernel's.
///
/// # Errors
/// `control` is no socket of ours.
pub fn keep(control: OwnedFd, listens_at: Option<&Path>) -> Result<(), NetworkError> {
    let mut keeper = Keeper::default();
    let Some(path) = listens_at else {
        let stream = UnixStream::from(control);
        return say(&stream, &Answer::Done).and_then(|()| keeper.serve(&stream)).map_err(broken);
    };
    let listener = UnixListener::from(control);
    let mut had_some = false;
    while !(had_some && keeper.switches.is_empty()) {
        if !linux::sys::wait_readable(&listener, LOOK_AGAIN).map_err(broken)? {
            // Whoever removed the directory can reach us no more. Cards keep their network without.
            if path.exists() { continue } else { break }
        }
        let (stream, _) = listener.accept().map_err(broken)?;
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.set_write_timeout(Some(PATIENCE));
        // Who went away or was silent is not served; the switches are kept for the others.
        let _ = say(&stream, &Answer::Done).and_then(|()| keeper.serve(&stream));
        had_some |= !keeper.switches.is_empty();
        // Its only asker failed to make the first one.
        if !had_some {
            break;
        }
    }
    // Somebody may have removed it already.
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// Root needs no user namespace, but one who is root in a container may have nothing else.
fn leave() -> Result<(), NetworkError> {
    let as_root = linux::sys::effective_user_id() == 0;
    let entered = if as_root { linux::sys::leave_network(false) } else { linux::sys::leave_network(true) };
    let entered = entered.or_else(|error| if as_root { linux::sys::leave_network(true) } else { Err(error) });
    entered.map_err(|source| NetworkError::NoNamespace { source })
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: io::Error) -> NetworkError {
    NetworkError::keeper(format!("cannot speak with its asker: {error}"))
}

fn say(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn refusal(error: NetworkError) -> Answer {
    match error {
        NetworkError::AddressTaken { mac, by } => Answer::AddressTaken { mac, by },
        error => Answer::Refused { input: error.is_input(), why: error.to_string() },
    }
}

/// What is made, other than by QEMUs.
#[derive(Debug, Default)]
struct Keeper {
    /// Where it came from, once it is in a namespace of its own.
    home: Option<Home>,
    switches: Vec<Linked>,
    /// Numbers of interfaces, each used once.
    next: u32,
}

/// A switch with the interfaces of its uplinks: on it, and on the other switch.
#[derive(Debug)]
struct Linked {
    switch: Switch,
    ends: Vec<[String; 2]>,
    /// Ends of what leads outside.
    outside: Vec<String>,
    /// The program that it is, where it is no bridge of the kernel's.
    vde: Option<Vde>,
}

impl Keeper {
    fn enter(&mut self) -> Result<(), NetworkError> {
        if self.home.is_none() {
            let home = linux::sys::own_network().map_err(broken)?;
            leave()?;
            self.home = Some(Home::new(home).map_err(broken)?);
        }
        Ok(())
    }

    fn serve(&mut self, stream: &UnixStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            io::Read::take(&mut reader, LONGEST_REQUEST).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(());
            }
            let request: Request = serde_json::from_slice(&line)?;
            match self.answer(request) {
                Ok((answer, descriptors)) => {
                    say(stream, &answer)?;
                    for descriptor in &descriptors {
                        linux::sys::send_descriptor(stream, b"t", descriptor.as_fd())?;
                    }
                }
                Err(error) => say(stream, &refusal(error))?,
            }
        }
    }

    fn answer(&mut self, request: Request) -> Result<(Answer, Vec<OwnedFd>), NetworkError> {
        match request {
            Request::Add(switch) => self.add(switch).map(|()| (Answer::Done, Vec::new())),
            Request::Remove(name) => self.remove(&name).map(|()| (Answer::Done, Vec::new())),
            Request::Enter => self.enter().map(|()| (Answer::Done, Vec::new())),
            // Never in the network that it came from.
            Request::TryMacvtap => {
                self.enter().and_then(|()| kernel::try_macvtap()).map(|()| (Answer::Done, Vec::new()))
            }
            Request::Show => Ok((Answer::Switches(self.seen()?), Vec::new())),
            Request::Tap { switch, port, queues, mac } => self.plug(&switch, (&port, mac), queues),
        }
    }

    fn names(&self) -> impl Iterator<Item = &SwitchName> {
        self.switches.iter().map(|linked| &linked.switch.name)
    }

    fn number(&mut self, letter: char) -> String {
        self.next += 1;
        format!("{letter}{}", self.next)
    }

    fn plain(&self) -> Vec<Switch> {
        self.switches.iter().map(|linked| linked.switch.clone()).collect()
    }

    fn add(&mut self, switch: Switch) -> Result<(), NetworkError> {
        let there = self.plain();
        check(&switch, &there)?;
        if switch.kind == SwitchKind::Vde {
            let vde = Some(Vde::start(&switch.name)?);
            self.switches.push(Linked { switch, ends: Vec::new(), outside: Vec::new(), vde });
            return Ok(());
        }
        self.enter()?;
        let ends: Vec<[String; 2]> = switch.uplinks.iter().map(|_| [self.number('u'), self.number('u')]).collect();
        let name = switch.name.as_ref();
        let (mut links, mut outlets) = (kernel::bridge_lines(name), String::new());
        for (uplink, [here, there]) in switch.uplinks.iter().zip(&ends) {
            links += &kernel::cable_lines([here, there], [name, uplink.to.as_ref()]);
            for end in [here, there] {
                outlets += &kernel::outlet_lines(end, uplink.rate, uplink.delay);
            }
        }
        let outside = switch.outside.iter().map(|_| self.number('u')).collect();
        let linked = Linked { switch, ends, outside, vde: None };
        let made = kernel::batch("ip", &links).and_then(|()| kernel::batch("tc", &outlets));
        if let Err(error) = made.and_then(|()| self.join(&linked)) {
            linked.unmake();
            return Err(error);
        }
        self.switches.push(linked);
        Ok(())
    }

    /// Joins a switch to what is outside.
    fn join(&self, linked: &Linked) -> Result<(), NetworkError> {
        let name = linked.switch.name.as_ref();
        let Some(home) = &self.home else { return Err(NetworkError::keeper("is in no namespace of its own")) };
        for (outside, here) in linked.switch.outside.iter().zip(&linked.outside) {
            home.join(outside, here, name)?;
            kernel::batch("ip", &format!("link set dev {here} addrgenmode none master {name} up\n"))?;
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), NetworkError> {
        let index = self.index(name)?;
        let others = self.switches.iter().filter(|linked| leads_to(linked, name).is_some());
        let others: Vec<String> = others.map(|linked| format!("switch {}", linked.switch.name)).collect();
        let cards = match &mut self.switches[index].vde {
            Some(vde) => vde.ports_now()?.into_iter().map(|(card, _)| card).collect::<Vec<_>>(),
            None => ports(&kernel::interfaces()?, name).map(|(card, _)| card).collect(),
        };
        let users: Vec<String> = cards.iter().map(|card| format!("VM {}", card.port)).chain(others).collect();
        if !users.is_empty() {
            return Err(NetworkError::InUse { name: name.to_owned(), by: users.join(", ") });
        }
        self.switches.remove(index).unmake();
        Ok(())
    }

    fn index(&self, name: &str) -> Result<usize, NetworkError> {
        let there = || NetworkError::NoSuchSwitch { name: name.to_owned(), there: listed(self.names()) };
        self.names().position(|known| known.as_ref() == name).ok_or_else(there)
    }

    /// Whether a card of another VM has the address that this one is to have, where frames of both
    /// come by.
    fn check_address(&mut self, switch: &SwitchName, card: &CardName) -> Result<(), NetworkError> {
        let Some(mac) = card.mac else { return Ok(()) };
        let there = self.plain();
        let reached = reached_from(switch, &there);
        let mut cards = Vec::new();
        for linked in &mut self.switches {
            if let Some(vde) = linked.vde.as_mut().filter(|_| linked.switch.name == *switch) {
                cards.extend(vde.ports_now()?.into_iter().map(|(card, _)| (card, switch.clone())));
            }
        }
        if self.home.is_some() {
            let interfaces = kernel::interfaces()?;
            for name in reached {
                cards.extend(ports(&interfaces, name.as_ref()).map(|(card, _)| (card, name.clone())));
            }
        }
        // One of the same VM may be on its way out, as its QEMU ends.
        match cards.into_iter().find(|(other, _)| other.mac == Some(mac) && other.vm() != card.vm()) {
            Some((other, at)) => {
                let by = format!("VM {} on switch {at}", other.port);
                Err(NetworkError::AddressTaken { mac, by })
            }
            None => Ok(()),
        }
    }

    fn plug(
        &mut self,
        switch: &SwitchName,
        (port, mac): (&str, Option<MacAddress>),
        queues: u32,
    ) -> Result<(Answer, Vec<OwnedFd>), NetworkError> {
        let index = self.index(switch.as_ref())?;
        let whole = port.len() <= LONGEST_PORT && port.bytes().all(|byte| byte.is_ascii_graphic());
        if !whole || queues > MOST_QUEUES {
            return Err(NetworkError::keeper(format!("was asked for a port that there cannot be: {port:?}")));
        }
        let card = CardName { port: port.to_owned(), mac };
        self.check_address(switch, &card)?;
        if let Some(vde) = &self.switches[index].vde {
            let Port { frames, control } = vde.plug(&card)?;
            return Ok((Answer::Socket, vec![frames, control]));
        }
        let name = self.number('p');
        let failed = |source| NetworkError::no_tap(port.to_owned(), source);
        let taps = linux::sys::tap(&name, queues).map_err(failed)?.queues;
        // Where this fails the tap goes with its descriptors.
        let plugged = format!("link set dev {name} alias {card} addrgenmode none master {switch} up\n");
        kernel::batch("ip", &plugged)?;
        Ok((Answer::Tap { queues: taps.len() as u32 }, taps))
    }

    fn seen(&self) -> Result<Vec<SwitchSeen>, NetworkError> {
        let (interfaces, queues) = match self.home {
            Some(_) => (kernel::interfaces()?, kernel::queues()?),
            None => Default::default(),
        };
        let sent = |end: &str| {
            let found = interfaces.iter().find(|interface| interface.ifname == end);
            found.map_or_else(Traffic::default, Interface::sent)
        };
        let link = |to: &SwitchName, uplink: &Uplink, end: &str| {
            let sent = sent(end);
            let queue = queues.get(end).copied().unwrap_or_default();
            // What the queue refuses never reaches the interface.
            let sent = Traffic { dropped: sent.dropped + queue.drops, ..sent };
            LinkSeen { to: to.to_string(), rate: uplink.rate, delay: uplink.delay, sent, waits: queue.overlimits }
        };
        let seen = |linked: &Linked| {
            let (name, kind) = (&linked.switch.name, linked.switch.kind);
            if let Some(vde) = &linked.vde {
                return Ok(SwitchSeen { name: name.to_string(), kind, ports: vde.ports()?, links: Vec::new() });
            }
            let ports = ports(&interfaces, name.as_ref()).map(|(card, interface)| PortSeen {
                port: card.port,
                from_vm: interface.received(),
                to_vm: interface.sent(),
            });
            let own = linked.switch.uplinks.iter().zip(&linked.ends);
            let own = own.map(|(uplink, [end, _])| link(&uplink.to, uplink, end));
            let outside = linked.switch.outside.iter().zip(&linked.outside);
            let outside = outside.map(|(outside, end)| LinkSeen {
                to: outside.to_string(),
                rate: None,
                delay: None,
                sent: sent(end),
                waits: 0,
            });
            let theirs = self.switches.iter().filter_map(|other| Some((other, leads_to(other, name.as_ref())?)));
            let theirs = theirs.map(|(other, (uplink, end))| link(&other.switch.name, uplink, end));
            let links = own.chain(theirs).chain(outside).collect();
            Ok(SwitchSeen { name: name.to_string(), kind, ports: ports.collect(), links })
        };
        self.switches.iter().map(seen).collect()
    }
}

impl Linked {
    /// Takes away what was made of it: a bridge frees its ports, a cable goes with one end, and a
    /// program with this value.
    fn unmake(&self) {
        if self.vde.is_some() {
            return;
        }
        for interface in self
            .ends
            .iter()
            .map(|[here, _]| here)
            .chain(&self.outside)
            .map(String::as_str)
            .chain([self.switch.name.as_ref()])
        {
            // It may not have come to be.
            let _ = kernel::batch("ip", &format!("link delete dev {interface}\n"));
        }
    }
}

/// The uplink of a switch to another one, and its end there. There is one at most: two would be a
/// ring.
fn leads_to<'a>(linked: &'a Linked, name: &str) -> Option<(&'a Uplink, &'a str)> {
    let mut uplinks = linked.switch.uplinks.iter().zip(&linked.ends);
    uplinks.find(|(uplink, _)| uplink.to.as_ref() == name).map(|(uplink, [_, there])| (uplink, there.as_str()))
}

/// Cards of VMs on a switch.
fn ports<'a>(interfaces: &'a [Interface], switch: &'a str) -> impl Iterator<Item = (CardName, &'a Interface)> {
    let on_it = interfaces.iter().filter(move |interface| interface.master.as_deref() == Some(switch));
    on_it.filter_map(|interface| Some((CardName::of(interface.ifalias.as_deref()?), interface)))
}
