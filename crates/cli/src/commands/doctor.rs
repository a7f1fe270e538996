//! `homenode doctor`.

use crate::args::DoctorArguments;
use crate::balancer_host::{observe, open, uuid_of};
use crate::doctor_view::{self, Found, Repair, View};
use crate::guest_topology::{Guest, GuestNode, Untruth, examine};
use crate::manager_pins;
use crate::output;
use crate::text::count;
use crate::{balancer_place, vm_choice};
use anyhow::bail;
use linux::LinuxHost;
use linux::drift::{Cure, Finding, Homes};
use linux::vm::{RunningVm, VcpuThread};
use scheduler::{Action, Observe, VmKey};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology::CpuSet;
use vm::qemu::CommandLine;

/// Rounds of repair: where memory has moved, the next look may find that its policy was left behind.
const ROUNDS: usize = 3;

/// Runs the command.
pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let mut host = open(None, arguments.fix)?;
    let observation = observe(&mut host)?;
    let only = arguments.vm.as_deref().map(|choice| vm_choice::choose(&observation, choice, uuid_of)).transpose()?;
    let homes = homes(arguments);
    let mut findings = look(&mut host, &homes, only.as_ref())?;
    let mut repairs = Vec::new();
    for _ in 0..if arguments.fix { ROUNDS } else { 0 } {
        let tried = repair(&mut host, &findings, &repairs);
        if tried.is_empty() {
            break;
        }
        repairs.extend(tried);
        observe(&mut host)?;
        findings = look(&mut host, &homes, only.as_ref())?;
    }
    let vms = host.vms().filter(|vm| is_meant(&vm.key, only.as_ref())).count();
    let view = View { vms, repairs, findings };
    if arguments.json {
        output::json("doctor", &view)?;
    } else {
        output::print(doctor_view::text(&view))?;
    }
    match view.wrong() {
        0 => Ok(()),
        wrong => {
            bail!("{} {}", count(wrong, "finding"), if arguments.fix { "left after the repair" } else { "to mend" })
        }
    }
}

/// Homes that a balancer decided.
fn homes(arguments: &DoctorArguments) -> Homes {
    let Some(seen) = balancer_place::look(&arguments.state) else { return Homes::new() };
    seen.saved.balance.homes().map(|(vm, client, home)| ((vm.clone(), client), home.clone())).collect()
}

fn is_meant(vm: &VmKey, only: Option<&VmKey>) -> bool {
    only.is_none_or(|only| only == vm)
}

/// Everything that is wrong, worst first.
fn look(host: &mut LinuxHost, homes: &Homes, only: Option<&VmKey>) -> anyhow::Result<Vec<Found>> {
    let drift = host.drift(homes)?;
    // What is wrong with the host as a whole is also wrong with one VM on it.
    let meant = |finding: &Finding| finding.vm.as_ref().is_none_or(|vm| is_meant(vm, only));
    let mut found: Vec<Found> = drift.into_iter().filter(meant).map(Found::Drift).collect();
    for vm in host.vms().filter(|vm| is_meant(&vm.key, only)) {
        // A VM that has ended meanwhile has no command line.
        let Ok(arguments) = linux::process::command_line(vm.key.pid) else { continue };
        let command_line = CommandLine::parse(&arguments);
        let untruths = examine(host.machine(), &guest(vm, &command_line, homes));
        found.extend(untruths.into_iter().map(|untruth| Found::Guest { vm: vm.key.clone(), untruth }));
    }
    let managed: Vec<&RunningVm> = host.vms().filter(|vm| is_meant(&vm.key, only)).collect();
    for (key, pins) in libvirt::pins(managed.iter().copied()) {
        let Some(vm) = managed.iter().find(|vm| vm.key == key) else { continue };
        // What is bound elsewhere anyway is then told to the manager.
        let rebound = |client| {
            found.iter().any(|one| matches!(one.by_program(), Some(Cure::Act { action: action @ Action::Bind { .. } }) if *action.vm() == key && action.client() == client))
        };
        let untruths: Vec<Untruth> = manager_pins::examine(host.machine(), vm, &affinity(vm), &pins, rebound);
        found.extend(untruths.into_iter().map(|untruth| Found::Manager { vm: key.clone(), untruth }));
    }
    found.sort_by_key(|found| (Reverse(found.severity()), found.vm().cloned()));
    Ok(found)
}

fn guest<'a>(vm: &RunningVm, command_line: &'a CommandLine, homes: &Homes) -> Guest<'a> {
    let node = |client: &linux::vm::VmClient| GuestNode {
        client: client.id,
        number: client.virtual_node,
        vcpus: client.vcpus.clone(),
        memory: client.memory_size,
        home: homes.get(&(vm.key.clone(), client.id)).cloned(),
    };
    Guest {
        vm: vm.key.clone(),
        smp: &command_line.vcpus,
        nodes: vm.clients.iter().map(node).collect(),
        affinity: affinity(vm),
    }
}

/// Where the kernel lets its vCPUs run.
fn affinity(vm: &RunningVm) -> BTreeMap<u32, CpuSet> {
    let read = |vcpu: &VcpuThread| Some((vcpu.index, linux::sys::affinity(vcpu.thread_id).ok()?));
    vm.threads.vcpus.iter().filter_map(read).collect()
}

/// Tries every cure that a program can carry out and that did not fail before: threads first, then memory, then cpusets, which may be written
/// only when memory is where they say.
fn repair(host: &mut LinuxHost, findings: &[Found], before: &[Repair]) -> Vec<Repair> {
    let failed =
        |cure: &Cure| before.iter().any(|one| one.error.is_some() && one.finding.by_program().as_ref() == Some(cure));
    let mut curable: Vec<(Cure, &Found)> = findings
        .iter()
        .filter_map(|found| Some((found.by_program()?, found)))
        .filter(|(cure, _)| !failed(cure))
        .collect();
    curable.sort_by_key(|(cure, _)| match cure {
        Cure::Act { action: Action::Bind { .. } } => 0,
        Cure::Act { .. } => 1,
        Cure::Confine { .. } | Cure::ByHand { .. } => 2,
    });
    let repair = |(cure, found): (Cure, &Found)| {
        let (done, error) = match host.cure(&cure) {
            Ok(done) => (Some(done), None),
            Err(error) => (None, Some(error)),
        };
        Repair { finding: found.clone(), done, error }
    };
    curable.into_iter().map(repair).collect()
}
