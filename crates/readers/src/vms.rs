//! What other users' processes say that they are.

use crate::{Tree, printed, read_or_printed, same_from_json, text};
use judge::Known;
use linux::{HostOptions, LinuxHost, Root};
use scheduler::balance::{BalancePolicy, BalanceState, step};
use scheduler::{Observation, Observe, Occupancy};
use stacks::domain::{self, Domain};
use std::sync::OnceLock;
use topology::Machine;
use topology::input::shortened;
use vm::Origin;
use vm::qemu::CommandLine;

/// A command line, an argument a line.
pub(crate) fn command_line(input: &[u8]) {
    let arguments: Vec<String> = text(input).lines().map(str::to_owned).collect();
    Origin::parse(&arguments);
    let Some(read) = read_or_printed(CommandLine::parse(&arguments)) else { return };
    let ids: Vec<&str> = read.guest_backends().collect();
    let known = ids.iter().filter(|id| read.backend(id).is_some()).count();
    assert!(known <= topology::limits::MOST_OBJECTS, "{known} backends");
    let named: usize = read.nodes.values().map(|node| node.vcpus.len()).sum();
    assert!(named <= topology::limits::MOST_VCPUS as usize, "{named} vCPUs in nodes");
}

/// A `/proc` and a `/sys`, as a tree: looked at twice, as the balancer does, and examined.
pub(crate) fn proc_tree(input: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory");
    Tree::of(input).write(directory.path());
    let options = HostOptions { root: Root::at(directory.path()), run_states: true, ..HostOptions::default() };
    let Some(mut host) = read_or_printed(LinuxHost::new(options)) else { return };
    let looks = [LinuxHost::observe, LinuxHost::observe, LinuxHost::examine];
    for look in looks {
        let Some(seen) = read_or_printed(look(&mut host)) else { continue };
        same_from_json(&seen);
        seen.unseen_of(None).iter().for_each(|sentence| printed(sentence));
        used(Observe::machine(&host), &seen);
    }
}

/// What runs elsewhere: an observation as `top --json` prints it, or domains one after the other.
pub(crate) fn occupied(input: &[u8]) {
    let text = text(input);
    let machine = machine();
    if let Some(seen) =
        read_or_printed(serde_json::from_str::<Observation>(&text).map_err(|error| shortened(&error.to_string())))
    {
        same_from_json(&seen);
        return used(machine, &seen);
    }
    let documents = text.split_inclusive("</domain>");
    let domains: Vec<Domain> =
        documents.filter_map(|text| read_or_printed(domain::parse(text.trim(), "a.xml"))).collect();
    used(machine, &libvirt::remote::of_definitions(machine, domains));
}

/// A domain as an observation.
pub(crate) fn as_occupied(domain: &[u8]) -> Vec<u8> {
    let domain = domain::parse(&String::from_utf8_lossy(domain), "seed.xml").into_iter().collect();
    serde_json::to_vec(&libvirt::remote::of_definitions(machine(), domain)).expect("written")
}

/// Gives an observation to all who read one.
fn used(machine: &Machine, seen: &Observation) {
    Occupancy::of_observation(seen, machine);
    step(machine, &BalancePolicy::default(), &mut BalanceState::default(), seen);
    judge::host(machine, seen, &Known::default());
}

pub(crate) fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| topology::read::shipped("hp-dl380-g6").expect("a file").expect("a machine"))
}
