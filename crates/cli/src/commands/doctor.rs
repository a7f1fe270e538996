//! `homenode doctor`.

use crate::args::DoctorArguments;
use crate::args_source::SourceArguments;
use crate::balancer_host::open;
use crate::doctor_view::{self, View};
use crate::findings_view::tally;
use crate::{balancer_place, output, source, vm_choice};
use anyhow::{Context, bail};
use judge::{Finding, Homes, Known, Mending};
use linux::LinuxHost;
use scheduler::balance::BalanceState;
use scheduler::{Observation, Observe, VmKey};
use topology::Machine;

/// Runs the command.
pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    if arguments.source != SourceArguments::default() {
        return elsewhere(arguments);
    }
    let mut host = open(None, arguments.fix)?;
    let mut observation = host.examine().context("this host cannot be read")?;
    let only = only(arguments, &observation)?;
    let homes = homes(balancer_place::look(&arguments.state).map(|seen| seen.saved.balance));
    let look = |host: &LinuxHost, observation: &Observation| -> Vec<Finding> {
        let asked = host.vms().filter(|vm| only.as_ref().is_none_or(|only| vm.key == *only));
        let known = Known { homes: homes.clone(), believed: libvirt::pins(asked) };
        findings(host.machine(), observation, only.as_ref(), &known)
    };
    let mut mending = Mending::default();
    if arguments.fix {
        mending = judge::mend(&mut host, look).context("this host cannot be read")?;
        observation = host.examine().context("this host cannot be read")?;
    }
    let found = look(&host, &observation);
    show(arguments, observation, only.as_ref(), mending, found)
}

/// Another host, a recording, a model: only looked at, and nobody there believes anything of pins.
fn elsewhere(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let mut source = source::open(&arguments.source)?;
    let observation = source.examine()?;
    let only = only(arguments, &observation)?;
    let homes = homes(source.remembered(&arguments.state).map(|remembered| remembered.balance));
    let known = Known { homes, ..Known::default() };
    let found = findings(source.machine(), &observation, only.as_ref(), &known);
    show(arguments, observation, only.as_ref(), Mending::default(), found)
}

/// The VM that was asked for, if one was.
fn only(arguments: &DoctorArguments, observation: &Observation) -> anyhow::Result<Option<VmKey>> {
    arguments.vm.as_deref().map(|choice| vm_choice::choose(observation, choice)).transpose()
}

/// Homes that a balancer decided.
fn homes(balance: Option<BalanceState>) -> Homes {
    let balance = balance.unwrap_or_default();
    balance.homes().map(|(vm, client, home)| ((vm.clone(), client), home.clone())).collect()
}

fn findings(machine: &Machine, observation: &Observation, only: Option<&VmKey>, known: &Known) -> Vec<Finding> {
    match only {
        Some(only) => judge::running_vm(machine, observation, only, known),
        None => judge::host(machine, observation, known),
    }
}

fn show(
    arguments: &DoctorArguments,
    mut observation: Observation,
    only: Option<&VmKey>,
    mending: Mending,
    findings: Vec<Finding>,
) -> anyhow::Result<()> {
    // What was not seen of other VMs is no matter of this one.
    observation.unseen.retain(|sentence| only.is_none_or(|only| sentence.contains(&only.name)));
    let view = View {
        vms: if only.is_some() { 1 } else { observation.vms.len() },
        repairs: mending.tried,
        worse: mending.worse,
        unseen: observation.unseen,
        wrong: judge::wrong(&findings),
        findings,
    };
    match arguments.json {
        true => output::json("doctor", &view)?,
        false => output::print(doctor_view::text(&view, only.is_some()))?,
    }
    if let Some(worse) = &view.worse {
        bail!("{worse}");
    }
    match (view.wrong, view.unseen.len()) {
        (0, 0) => Ok(()),
        (0, _) => bail!("not everything could be looked at: nothing is wrong with what could"),
        _ => bail!("{} {}", tally(&view.findings), if arguments.fix { "left after the repair" } else { "found" }),
    }
}
