//! `homenode vm adopt`: a domain that somebody else made becomes a VM that homenode keeps.
//!
//! **Rule.** Nothing of the domain changes: a record is made of what its XML says
//! ([`libvirt::adopted`]) and, where it runs, of where the kernel says that it is. From its next
//! start on homenode plans its home; its definition stays its owner's.

use crate::args_vm::AdoptArguments;
use crate::failure::bad_input;
use crate::{backend, kept, life_words, nearest, output};
use anyhow::Context;
use inventory::{Kept, Record};
use libvirt::{Connection, DomainState, ListedDomain, adopted};
use scheduler::present_homes;
use topology::NodeSet;
use vm::Added;
use vm::backend::{DomainOf, ReachedBy};
use vm::history::Life;
use vm::life::State;

/// Runs the command.
pub(super) fn run(arguments: &AdoptArguments) -> anyhow::Result<()> {
    let connection = Connection::new(arguments.connect.as_deref());
    let failure = |error: libvirt::LibvirtError| backend::failure(error.into());
    if let Some(host) = connection.other_host().map_err(failure)? {
        return Err(bad_input(format!("--connect: this is the libvirt of {host}; adopt its VMs on that host")));
    }
    let name = &arguments.name;
    let found = connection.find(name).map_err(failure)?.ok_or_else(|| {
        let virsh = connection.command_by_hand();
        let domains = connection.domains().unwrap_or_default();
        let nearest = nearest::sentence(name, domains.iter().map(|domain| domain.name.as_str()));
        bad_input(format!(
            "libvirt has no domain {name}: `{virsh} list --all` shows those that it has (--connect URI){nearest}"
        ))
    })?;
    let uri = connection.effective_uri().map_err(failure)?;
    let by = DomainOf { uri: arguments.connect.clone().unwrap_or(uri), uuid: found.uuid.clone(), adopted: true };
    not_kept(&found)?;
    let xml = if found.state.has_process() {
        connection.domain_xml(&found.uuid)
    } else {
        connection.ask(&["dumpxml", "--inactive", "--domain", &found.uuid])
    };
    let machine = topology::read::live().context("this host cannot be read")?;
    let vm = adopted(&xml.map_err(failure)?, &machine).map_err(bad_input)?;
    let running = linux::examine_this_host().context("the running VMs cannot be read")?;
    let seen =
        running.vms.iter().find(|seen| found.state.has_process() && seen.vm.name == found.name && !seen.stranger);
    let placement = match seen {
        Some(seen) => present_homes(&machine, seen, &vm.placement),
        None => vm.placement,
    };
    let homes = placement.clients.iter().fold(NodeSet::new(), |all, client| all.union(&client.home));
    let life = Life { state: state(found.state), ..Life::planned(ReachedBy::Libvirt(by), kept::now()) };
    let placement = Some(Kept { host: machine.name, placement, added: Added::default() });
    let record = Record { spec: vm.spec, topology: Some(vm.topology), placement, life };
    drop(kept::inventory().create(&record).map_err(kept::failure)?);
    vm.notes.iter().for_each(output::note);
    output::line(format_args!(
        "VM {} is kept from now on: {}, {}, nodes {homes}; its definition stays libvirt's and its owner's",
        record.spec.name,
        record.life.state,
        life_words::nodes(&record.sizes())
    ))
}

/// That no record is about this domain, by whatever name.
fn not_kept(found: &ListedDomain) -> anyhow::Result<()> {
    let inventory = kept::inventory();
    for name in inventory.names().map_err(kept::failure)? {
        let Ok(record) = inventory.read(&name) else { continue };
        if matches!(&record.life.backend, ReachedBy::Libvirt(domain) if domain.uuid == found.uuid) {
            return Err(bad_input(format!("VM {name}: homenode keeps this domain already")));
        }
    }
    Ok(())
}

fn state(of: DomainState) -> State {
    match of {
        DomainState::Paused => State::Paused,
        of if of.has_process() => State::Running,
        _ => State::Stopped,
    }
}
