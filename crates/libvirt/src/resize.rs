//! vCPUs and memory of a domain that runs: plugged in through libvirt, and taken away.
//!
//! **Problem.** `virsh setvcpus` takes the lowest numbers first, and binds them to what the
//! definition said once; memory that is plugged in goes where its cell was born.
//!
//! **Rule.** What is plugged in is read from libvirt first. A vCPU gets its pin (`vcpupin`) before
//! it is there (`setvcpu`): libvirt binds its thread as it makes it, before the guest can use it.
//! Memory is a virtio-mem device for its virtual node with a `<nodemask>` of its client's present
//! home; it grows and shrinks by `update-memory-device`. Then the guest has time to do its part.
//! The definition stays as it is.
//!
//! **Example.** Virtual node 1 lives on node 2 now and gets 1 GiB: `attach-device` of a virtio-mem
//! device of all that the node may still get, `<nodemask>2</nodemask>`, `<requested>` 1 GiB.

mod live;

use crate::connection::STDIN;
use crate::{Connection, DomainState, LibvirtError};
use live::{Device, Live};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use topology::{Bytes, CpuId, CpuSet, NodeSet};
use vm::backend::ErrorKind;
use vm::{Added, BackendError, Client, MemoryDeviceKind, Resize, Resized, VirtualNode, VirtualTopology};

/// How often libvirt is asked whether the guest got on.
const LOOK: Duration = Duration::from_millis(200);
/// The first libvirt that all of this was tried with.
const LEAST_VERSION: u32 = 9;

/// A domain, and how it runs.
#[derive(Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) uuid: &'a str,
    pub(crate) vm: &'a str,
    pub(crate) emulated: bool,
}

/// What is plugged into a domain that runs, whoever plugged it.
pub(crate) fn plugged(
    connection: &Connection,
    uuid: &str,
    vm: &str,
    topology: &VirtualTopology,
) -> Result<Added, BackendError> {
    Ok(Live::of(connection, uuid, vm)?.added(topology))
}

/// Carries out a [`Resize`].
pub(crate) fn resize(of: Of<'_>, resize: &Resize, done: &mut dyn FnMut(&Added)) -> Result<Resized, BackendError> {
    let live = Live::of(of.connection, of.uuid, of.vm)?;
    let added = Added { taken_away: resize.added.taken_away, ..live.added(&resize.topology) };
    if added != resize.added {
        done(&added);
    }
    let runs = of.connection.state(of.uuid)? == DomainState::Running;
    let mut work = Work { of, resize, runs, resized: Resized { added, ..Resized::default() }, done };
    work.check(&live)?;
    work.unplug_vcpus()?;
    work.resize_memory()?;
    work.plug_vcpus()?;
    if !runs {
        let note = format!("VM {}: its vCPUs are stopped: its guest does its part when they go on", of.vm);
        work.resized.notes.push(note);
    }
    Ok(work.resized)
}

struct Work<'a> {
    of: Of<'a>,
    resize: &'a Resize,
    runs: bool,
    resized: Resized,
    done: &'a mut dyn FnMut(&Added),
}

impl Work<'_> {
    fn bad_input(&self, problem: impl std::fmt::Display) -> BackendError {
        BackendError::new(ErrorKind::BadInput, format!("VM {}: {problem}", self.of.vm))
    }

    fn undone(&mut self, what: &str) {
        self.resized.undone.push(format!("VM {}: {what}", self.of.vm));
    }

    fn ask(&self, command: &[&str]) -> Result<String, LibvirtError> {
        self.of.connection.ask(command)
    }

    fn live(&self) -> Result<Live, BackendError> {
        Live::of(self.of.connection, self.of.uuid, self.of.vm)
    }

    /// Reads what is there now, and has it written down.
    fn tell(&mut self) -> Result<(), BackendError> {
        let taken_away = self.resized.added.taken_away;
        self.resized.added = Added { taken_away, ..self.live()?.added(&self.resize.topology) };
        (self.done)(&self.resized.added);
        Ok(())
    }

    fn client_of(&self, virtual_node: u32) -> Option<&Client> {
        self.resize.placement.clients.iter().find(|client| client.virtual_nodes.contains(&virtual_node))
    }

    fn node(&self, id: u32) -> Option<&VirtualNode> {
        self.resize.topology.nodes.iter().find(|node| node.id == id)
    }

    /// All that can be refused before anything is done.
    fn check(&self, live: &Live) -> Result<(), BackendError> {
        let new = self.new_vcpus(live);
        let changes_memory = self.resize.memory.iter().any(|(&id, &size)| {
            let base = self.node(id).map_or(Bytes(0), |node| node.memory);
            base.saturating_add(self.requested(id)) != size
        });
        if new.is_empty() && self.resize.unplug.is_empty() && !changes_memory {
            return Ok(());
        }
        let version = self.ask(&["version", "--daemon"])?;
        if let Some(version) = live::too_old(&version, LEAST_VERSION) {
            return Err(self.bad_input(format_args!(
                "libvirt {version} runs it: its size can be changed from libvirt {LEAST_VERSION}.0 on"
            )));
        }
        self.check_vcpus(live, &new)?;
        self.check_memory(live, changes_memory)
    }

    fn new_vcpus(&self, live: &Live) -> Vec<u32> {
        self.resize.plug.iter().copied().filter(|vcpu| !live.vcpus.contains(vcpu)).collect()
    }

    fn check_vcpus(&self, live: &Live, new: &[u32]) -> Result<(), BackendError> {
        let may_be = |vcpu: u32| self.resize.topology.nodes.iter().any(|node| node.absent.contains(&vcpu));
        if let Some(vcpu) = new.iter().find(|&&vcpu| !may_be(vcpu) || vcpu >= live.most_vcpus) {
            return Err(self.bad_input(format_args!(
                "its domain has no vCPU {vcpu} that may be plugged in: <vcpu current='N'> of its definition is what \
                lets it grow, from its next start on"
            )));
        }
        let plugged = &self.resized.added.vcpus;
        if let Some(vcpu) = self.resize.unplug.iter().find(|vcpu| !plugged.contains(vcpu)) {
            return Err(self.bad_input(format_args!(
                "vCPU {vcpu} was there at power-on: only those that were plugged in can be taken away"
            )));
        }
        // As for a QEMU of our own: one that emulates ends where a place for a thread is lacking.
        let (most, gone) = (live.most_vcpus, self.resized.added.taken_away);
        let wanted = live.vcpus.len() as u32 + new.len() as u32;
        if self.of.emulated && !new.is_empty() && wanted + gone > most {
            return Err(self.bad_input(format_args!(
                "emulated (TCG), it may have {} vCPUs until its next power-on, not {wanted}: QEMU has places for \
                the threads of {most}, and does not use those of the {gone} again that were taken away",
                most.saturating_sub(gone)
            )));
        }
        Ok(())
    }

    fn check_memory(&self, live: &Live, changes: bool) -> Result<(), BackendError> {
        if changes && !live.has_max_memory {
            return Err(self.bad_input(
                "its domain has no <maxMemory>: nothing can be plugged into it; with it in its definition, it may \
                grow from its next start on",
            ));
        }
        self.resize.check_memory(&self.resized.added).map_err(|problem| self.bad_input(problem))
    }

    /// What the devices of a virtual node were asked to give.
    fn requested(&self, virtual_node: u32) -> Bytes {
        let devices = self.resized.added.memory.iter().filter(|device| device.virtual_node == virtual_node);
        devices.map(|device| device.requested).sum()
    }

    fn plug_vcpus(&mut self) -> Result<(), BackendError> {
        for vcpu in self.new_vcpus(&self.live()?) {
            let node = self.resize.topology.nodes.iter().find(|node| node.vcpus.contains(&vcpu));
            let client = node.and_then(|node| self.client_of(node.id));
            let (number, uuid) = (vcpu.to_string(), self.of.uuid);
            if let Some(client) = client {
                let cpus = client.cpus_of(vcpu).to_string();
                self.ask(&["vcpupin", "--domain", uuid, "--vcpu", &number, "--cpulist", &cpus, "--live"])?;
            }
            self.ask(&["setvcpu", "--domain", uuid, "--vcpulist", &number, "--enable", "--live"])?;
            self.tell()?;
        }
        self.wait_online()
    }

    /// Waits until the guest has used all that were plugged in: libvirt says of a vCPU for how long
    /// it ran.
    fn wait_online(&mut self) -> Result<(), BackendError> {
        let wanted = self.resize.plug.clone();
        let unused = |this: &Self| -> Result<CpuSet, BackendError> {
            if wanted.is_empty() {
                return Ok(CpuSet::new());
            }
            let text = this.ask(&["domstats", "--vcpu", "--domain", this.of.uuid])?;
            Ok(wanted.iter().filter(|&&vcpu| live::never_ran(&text, vcpu)).map(|&vcpu| CpuId(vcpu)).collect())
        };
        if self.wait(|this| Ok(unused(this)?.len() as u64))? || !self.runs {
            return Ok(());
        }
        let off = unused(self)?;
        let s = if off.len() == 1 { "" } else { "s" };
        self.undone(&format!(
            "its guest has not used vCPU{s} {off} within {} s; in a Linux guest: \
             echo 1 > /sys/devices/system/cpu/cpuN/online",
            self.resize.patience.as_secs()
        ));
        Ok(())
    }

    fn unplug_vcpus(&mut self) -> Result<(), BackendError> {
        for vcpu in self.resize.unplug.clone() {
            let (number, uuid) = (vcpu.to_string(), self.of.uuid);
            // libvirt waits some seconds for the guest.
            let asked = self.ask(&["setvcpu", "--domain", uuid, "--vcpulist", &number, "--disable", "--live"]);
            if !matches!(asked, Err(LibvirtError::Refused { .. })) {
                asked?;
            }
            let gone = |this: &mut Self| Ok(u64::from(this.live()?.vcpus.contains(&vcpu)));
            if self.wait(gone)? {
                self.resized.added.taken_away += 1;
            } else {
                let seconds = self.resize.patience.as_secs();
                self.undone(&format!("vCPU {vcpu}: its guest has not let it go within {seconds} s"));
            }
            self.tell()?;
        }
        Ok(())
    }

    /// Looks until nothing is left of what the guest should do, or it has not got on for its
    /// patience. Whether nothing is left.
    fn wait(&mut self, mut left: impl FnMut(&mut Self) -> Result<u64, BackendError>) -> Result<bool, BackendError> {
        let mut least = left(self)?;
        let mut deadline = Instant::now() + self.resize.patience;
        while least > 0 && self.runs && Instant::now() < deadline {
            std::thread::sleep(LOOK);
            let now = left(self)?;
            if now < least {
                (least, deadline) = (now, Instant::now() + self.resize.patience);
            }
        }
        Ok(least == 0)
    }

    fn resize_memory(&mut self) -> Result<(), BackendError> {
        let wanted: Vec<(VirtualNode, Bytes)> =
            self.resize.memory.iter().filter_map(|(&id, &size)| Some((self.node(id)?.clone(), size))).collect();
        for (node, size) in wanted {
            let (now, wanted) = (self.requested(node.id), size.saturating_sub(node.memory));
            if wanted < now {
                self.shrink(node.id, now.saturating_sub(wanted))?;
            } else {
                self.grow(&node, wanted.saturating_sub(now))?;
            }
            self.settle(node.id)?;
        }
        Ok(())
    }

    /// The nodes that new memory of a virtual node is bound to; empty where the kernel may choose.
    fn home(&self, virtual_node: u32) -> NodeSet {
        self.client_of(virtual_node).map(Client::bound_to).unwrap_or_default()
    }

    fn virtio_mem_of(&self, virtual_node: u32) -> Result<Vec<Device>, BackendError> {
        let mut devices = self.live()?.devices;
        devices.retain(|device| device.node == virtual_node && device.kind == MemoryDeviceKind::VirtioMem);
        Ok(devices)
    }

    /// From the devices of this node that are bound to its present home, then from a new one.
    fn grow(&mut self, node: &VirtualNode, by: Bytes) -> Result<(), BackendError> {
        let (home, mut rest) = (self.home(node.id), by);
        for device in self.virtio_mem_of(node.id)? {
            let left = device.size.saturating_sub(device.requested).min(rest);
            if device.bound_to == home && left.0 > 0 {
                self.request(&device, device.requested.saturating_add(left))?;
                rest = rest.saturating_sub(left);
            }
        }
        if rest.0 > 0 { self.plug_memory(node, rest, &home) } else { Ok(()) }
    }

    /// Memory that lies away from the present home goes first.
    fn shrink(&mut self, virtual_node: u32, by: Bytes) -> Result<(), BackendError> {
        let (home, mut rest) = (self.home(virtual_node), by);
        let mut devices = self.virtio_mem_of(virtual_node)?;
        devices.reverse();
        devices.sort_by_key(|device| device.bound_to == home);
        for device in devices {
            let less = device.requested.min(rest);
            if less.0 > 0 {
                self.request(&device, device.requested.saturating_sub(less))?;
                rest = rest.saturating_sub(less);
            }
        }
        Ok(())
    }

    fn request(&mut self, device: &Device, amount: Bytes) -> Result<(), BackendError> {
        let amount = (amount.0 >> 10).to_string();
        let uuid = self.of.uuid;
        let named = ["--alias", &device.alias, "--requested-size", &amount];
        self.ask(&[&["update-memory-device", "--domain", uuid, "--live"][..], &named].concat())?;
        self.tell()
    }

    /// A device for all that the virtual node may still get, or, where libvirt has no room for
    /// that, for what is wanted now.
    fn plug_memory(&mut self, node: &VirtualNode, wanted: Bytes, home: &NodeSet) -> Result<(), BackendError> {
        let block = qemu::block_size(&self.resize.backing);
        let rest = node.growth.saturating_sub(self.requested(node.id));
        let whole = Bytes(rest.0 - rest.0 % block.0).max(wanted);
        let taken: BTreeSet<String> = self.live()?.devices.into_iter().map(|device| device.alias).collect();
        let mut names = (1..).map(|number| format!("ua-homenode-{}-{number}", node.id));
        let alias = names.find(|name| !taken.contains(name)).unwrap_or_default();
        let uuid = self.of.uuid;
        let plug = |size: Bytes| {
            let device = Device {
                alias: alias.clone(),
                node: node.id,
                kind: MemoryDeviceKind::VirtioMem,
                size,
                requested: wanted,
                taken: Bytes(0),
                bound_to: home.clone(),
            };
            let xml = device.xml(block, self.resize.backing.huge_pages);
            self.of.connection.ask_with(&["attach-device", "--domain", uuid, "--file", STDIN, "--live"], Some(&xml))
        };
        match plug(whole) {
            Err(LibvirtError::Refused { .. }) if whole > wanted => plug(wanted)?,
            plugged => plugged?,
        };
        self.tell()
    }

    /// Waits until the guest has taken, or given back, what its devices were asked for.
    fn settle(&mut self, virtual_node: u32) -> Result<(), BackendError> {
        let left = |this: &mut Self| {
            let devices = this.virtio_mem_of(virtual_node)?;
            Ok(devices.iter().map(|device| device.taken.0.abs_diff(device.requested.0)).sum())
        };
        if self.wait(left)? || !self.runs {
            return Ok(());
        }
        let seconds = self.resize.patience.as_secs();
        for device in self.virtio_mem_of(virtual_node)? {
            let (asked, taken, alias) = (device.requested, device.taken, &device.alias);
            if taken < asked {
                let lacks = asked.saturating_sub(taken);
                self.undone(&format!(
                    "virtual node {virtual_node}: its guest has not taken {lacks} of the {asked} of {alias} within \
                     {seconds} s; it needs a driver for virtio-mem"
                ));
            } else if taken > asked {
                let kept = taken.saturating_sub(asked);
                self.undone(&format!(
                    "virtual node {virtual_node}: its guest keeps {kept} of {alias} that it should give back; it made \
                     no progress for {seconds} s, and may give it back later"
                ));
            }
        }
        Ok(())
    }
}
