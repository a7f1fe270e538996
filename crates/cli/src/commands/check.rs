//! `homenode check`.

use crate::accepted_file::{AcceptedFile, AcceptedReport};
use crate::args::CheckArguments;
use crate::args_balance::StateArguments;
use crate::check_subjects::{Here, Subject, Subjects, Unread, subjects};
use crate::check_view::{self, Assumed, Checked, Report, TooMuch, assumed};
use crate::commands::check_cured::{self, Job};
use crate::failure::bad_input;
use crate::findings_view::tally;
use crate::source::Remembered;
use crate::text::count;
use crate::{balancer_place, machine_choice, output, own_pages};
use anyhow::{Context, bail};
use jiff::Zoned;
use judge::{Finding, Known, ShapedVm};
use scheduler::{Occupancy, VmKey};
use stacks::check::Definition;
use topology::Machine;

/// Runs the command.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let mut machine = machine_choice::machine_or_host(&arguments.machine, &arguments.connect)?;
    let decisions = arguments.accepted.as_deref().map(AcceptedFile::read).transpose()?;
    let mut here = Here::default();
    let Subjects { read, mut unread } = subjects(arguments, &mut here)?;
    let (mut definitions, mut running) = (Vec::new(), Vec::new());
    for subject in read {
        match subject {
            Subject::Definition { text, source } => match Definition::read(text, source.clone()) {
                Ok(definition) => definitions.push(definition),
                Err(error) => unread.push(Unread::new(&source, &bad_input(error))),
            },
            Subject::Process(vm) => running.push(vm),
        }
    }
    if definitions.is_empty() && running.is_empty() {
        let problems: Vec<&str> = unread.iter().map(|unread| unread.problem.as_str()).collect();
        return Err(not_judged(&unread, problems.join("\n")));
    }
    let shaped: Vec<ShapedVm> = definitions.iter().map(Definition::shaped).cloned().collect();
    let others = others(&mut machine, arguments, &shaped, &mut here)?;
    if let Some(directory) = &arguments.cured_into {
        let processes = running.iter().map(|vm| vm.name.as_str()).collect();
        let unread = unread.into_iter().map(|unread| unread.problem).collect();
        let (definitions, movable) = (&definitions[..], arguments.movable);
        let job = Job { machine: &machine, others: &others, definitions, processes, movable, unread };
        return job.cure_into(directory);
    }
    if arguments.movable && !arguments.cured {
        return Err(bad_input("--movable: says how a cure is written: give --cured or --cured-into DIRECTORY too"));
    }
    let beside = judge::together(&machine, &others, &shaped);
    if arguments.cured {
        return match (&definitions[..], &running[..], &unread[..]) {
            ([one], [], []) => check_cured::print(arguments, one, &machine, &beside[0].others),
            ([], [vm], []) => Err(bad_input(format!(
                "--cured: {} is a QEMU that libvirt does not manage (process {}): it has no domain to print. `homenode \
                check {}` prints the options and commands",
                vm.name, vm.pid, vm.pid
            ))),
            _ => Err(bad_input(
                "--cured: prints one domain: name one; --cured-into DIRECTORY cures all that are named together",
            )),
        };
    }
    let mut judged = Vec::new();
    for ((definition, vm), beside) in definitions.iter().zip(&shaped).zip(beside) {
        match definition.check(&machine, &beside.others) {
            Ok(findings) => {
                let vm = Checked::new(vm, definition.source().to_owned(), beside.homes);
                judged.push(Judged { vm, findings });
            }
            Err(error) => unread.push(Unread::new(definition.source(), &bad_input(error))),
        }
    }
    for vm in running {
        judged.push(judged_process(&machine, &vm, &mut here)?);
    }
    unread.sort_by(|one, other| one.source.cmp(&other.source));
    let much = judge::overcommitted(&machine, &others, &shaped);
    let named = |vm: &usize| shaped[*vm].name.clone();
    let overcommitted =
        much.into_iter().map(|what| TooMuch { vms: what.vms.iter().map(named).collect(), what }).collect();
    let parts = Parts { nodes: assumed(&machine, &others), judged, unread, overcommitted };
    show(arguments, &machine.name, decisions.as_ref(), parts)
}

/// That something was not judged: bad input, where another one would help.
fn not_judged(unread: &[Unread], text: String) -> anyhow::Error {
    if unread.iter().any(|unread| unread.is_bad_input) { bad_input(text) } else { anyhow::anyhow!(text) }
}

/// A VM, and what is wrong with it.
struct Judged {
    vm: Checked,
    findings: Vec<Finding>,
}

/// What a report is made of.
struct Parts {
    nodes: Vec<Assumed>,
    judged: Vec<Judged>,
    unread: Vec<Unread>,
    overcommitted: Vec<TooMuch>,
}

fn judged_process(machine: &Machine, vm: &VmKey, here: &mut Here) -> anyhow::Result<Judged> {
    let (host, observation) = here.look()?;
    let remembered = Remembered::of_this_host(&StateArguments { state: None });
    let known = Known { homes: remembered.homes(machine, observation), ..Known::default() };
    let findings = judge::running_vm(machine, observation, vm, &known);
    let seen = observation.vms.iter().find(|seen| seen.vm == *vm);
    let seen = seen.with_context(|| format!("{}: it ended", vm.name))?;
    let shaped = ShapedVm::of_running(scheduler::Observe::machine(host), seen, &known);
    let homes = known.homes.iter().filter(|((of, _), _)| of == vm).filter_map(|(_, home)| home.should.clone());
    let homes = homes.reduce(|one, other| one.union(&other)).unwrap_or_default();
    Ok(Judged { vm: Checked::new(&shaped, format!("process {}", vm.pid), homes), findings })
}

fn show(
    arguments: &CheckArguments,
    machine: &str,
    decisions: Option<&AcceptedFile>,
    parts: Parts,
) -> anyhow::Result<()> {
    let Parts { nodes, judged, unread, overcommitted } = parts;
    let (mut vms, mut findings) = (Vec::new(), Vec::new());
    let mut accepted = None::<AcceptedReport>;
    let names: Vec<String> = judged.iter().map(|one| one.vm.vm.clone()).collect();
    let looked_at: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut counted: Vec<(usize, Finding)> = judged
        .iter()
        .enumerate()
        .flat_map(|(vm, one)| one.findings.iter().cloned().map(move |found| (vm, found)))
        .collect();
    if let Some(decisions) = decisions {
        let mut all: Vec<Finding> = counted.iter().map(|(_, finding)| finding.clone()).collect();
        accepted = Some(decisions.apply(&mut all, &looked_at, Zoned::now().date()));
        counted.iter_mut().zip(all).for_each(|((_, finding), marked)| *finding = marked);
    }
    for (index, Judged { mut vm, .. }) in judged.into_iter().enumerate() {
        let mut own: Vec<Finding> =
            counted.iter().filter(|(of, _)| *of == index).map(|(_, finding)| finding.clone()).collect();
        // Two definitions of one name are two VMs.
        if names.iter().filter(|name| **name == vm.vm).count() > 1 {
            vm.vm = format!("{} ({})", vm.vm, vm.source);
            own.iter_mut().for_each(|finding| finding.vm = Some(vm.vm.clone()));
        }
        vm.wrong = judge::wrong(&own);
        vms.push(vm);
        findings.extend(own);
    }
    findings.sort_by(Finding::order);
    let wrong = judge::wrong(&findings);
    let of_all = vms.len() + unread.len();
    let what = match &vms[..] {
        [one] => one.source.clone(),
        several => count(several.len(), "VM"),
    };
    let missing = unread.len();
    let report = Report { machine, nodes, vms, unread, overcommitted, accepted, wrong, findings: &findings };
    match arguments.json {
        true => output::json("check", &report)?,
        false => output::print(check_view::text(&report, arguments.summary))?,
    }
    let tally = tally(&findings);
    let found = if tally.is_empty() { "nothing is wrong".to_owned() } else { tally };
    if missing > 0 {
        let were = if missing == 1 { "was" } else { "were" };
        let first = report.unread.first().map(|unread| unread.problem.as_str()).unwrap_or_default();
        return Err(not_judged(
            &report.unread,
            format!("{missing} of {of_all} {were} not judged; {what}: {found}\n{first}"),
        ));
    }
    if wrong > 0 {
        bail!("{what}: {found}");
    }
    Ok(())
}

/// What VMs of this host hold, or will when they have started, that are not judged themselves;
/// nothing on another machine. Huge pages of those that are count as free.
fn others(
    machine: &mut Machine,
    arguments: &CheckArguments,
    judged: &[ShapedVm],
    here: &mut Here,
) -> anyhow::Result<Occupancy> {
    if arguments.machine.on.is_some() || arguments.connect.connect.is_some() {
        return Ok(Occupancy::default());
    }
    let (_, running) = here.look()?;
    let is_judged = |name: &str| judged.iter().any(|judged| judged.name == name);
    own_pages::give_back(machine, running, is_judged);
    Ok(balancer_place::occupancy_without(running, machine, is_judged))
}
