//! What became of a hand-over whose answer was lost: asked by the source, answered by the
//! destination's file of the receipt.
//!
//! **Rule.** The source asks only after it has said `go` and has no answer. The answer settles the
//! matter at the destination before it is given: `here` lets the guest run that is there, `never`
//! ends the QEMU that waits. A source whose record has no receipt has never said `go`: its guest
//! goes on without a question.
//!
//! Where the source is gone for good, the destination can be told to settle it itself: its word
//! counts, and a source that comes back later learns it.

use crate::link::{Link, To};
use crate::postcopy::{end, lost, until_all_went};
use crate::protocol::{self, FromDestination};
use crate::receipts::{Decision, Receipts};
use crate::{MigrationError, host_name, now};
use inventory::{Held, Inventory, InventoryError, Kept};
use qemu::RuntimeDir;
use qemu::migration::{came_paused, left_waiting, settle, take_name, took_over};
use std::io::Write;
use std::time::{Duration, Instant};
use vm::history::{HandedOver, LifeEvent};
use vm::life::{State, Step};
use vm::spec::name_problem;
use vm::{Backend, Vm};

/// How long the destination may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Where a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At the source.
    Stayed,
    /// At the destination.
    Went,
}

/// `vm receive --outcome`: settles a receipt at the destination and says what was decided.
///
/// # Errors
/// It cannot be settled: nothing is said.
pub fn answer(
    directory: &RuntimeDir,
    inventory: &Inventory,
    vm: &str,
    receipt: &str,
    mut output: impl Write,
) -> Result<(), MigrationError> {
    if let Some(problem) = name_problem(vm) {
        return Err(MigrationError::BadInput(format!("--vm {vm:?}: {problem}")));
    }
    let receipts = Receipts::of(inventory);
    // One that was decided and forgotten since is known by what runs.
    let first = if took_over(directory, vm, receipt) { Decision::Here } else { Decision::Never };
    receipts.decide(receipt, first)?;
    let decision = settled(directory, &receipts, vm, receipt)?;
    let said = match decision {
        Decision::Here => FromDestination::Runs { pid: 0, problem: None, for_ms: 0 },
        Decision::Never => FromDestination::Refused { because: "it is not here".to_owned(), bad_input: false },
    };
    let line = serde_json::to_string(&said).map_err(|error| MigrationError::io("answer")(error.into()))?;
    writeln!(output, "{line}").map_err(MigrationError::io("answer"))?;
    match (decision, inventory.hold(vm)) {
        // It has its name, and its record is brought up by whoever looks next.
        (Decision::Here, _) if directory_is_free(directory, vm) => take_name(directory, vm).map_err(Into::into),
        (Decision::Never, Ok(held)) if held.record().life.state == State::MigratingIn => Ok(held.call_back()?),
        (_, Err(InventoryError::NoSuchVm { .. } | InventoryError::Busy { .. }) | Ok(_)) => Ok(()),
        (_, Err(error)) => Err(error.into()),
    }
}

/// Does what was decided to the QEMU that is here, and says what it is.
fn settled(directory: &RuntimeDir, receipts: &Receipts, vm: &str, receipt: &str) -> Result<Decision, MigrationError> {
    receipts.tell(receipt, |decision| {
        settle(directory, vm, receipt, decision == Decision::Here)?;
        Ok(())
    })
}

fn directory_is_free(directory: &RuntimeDir, vm: &str) -> bool {
    !directory.path().join(vm).exists()
}

/// Asks the destination.
pub(crate) fn ask(to: &To, vm: &str, receipt: &str) -> Result<Outcome, MigrationError> {
    let mut link = Link::to(to, &["vm", "receive", "--outcome", receipt, "--vm", vm], protocol::from_destination)?;
    let deadline = Instant::now() + ANSWER;
    while Instant::now() < deadline {
        match link.hear(Duration::from_millis(100))? {
            Some(FromDestination::Runs { .. }) => return Ok(Outcome::Went),
            Some(FromDestination::Refused { .. }) => return Ok(Outcome::Stayed),
            _ => {}
        }
    }
    Err(MigrationError::Link { host: to.name().to_owned(), because: "it does not answer".to_owned() })
}

/// Finds out where the guest of a VM is whose migration was cut short, and lets it go on there.
/// `forced`: somebody has seen to it himself, and says which. Who receives a guest that is all
/// there may let it run without a question: the word of this side counts.
///
/// # Errors
/// No migration of it was cut short, or the destination cannot be asked.
pub fn resolve(
    backend: &dyn Backend,
    directory: &RuntimeDir,
    inventory: &Inventory,
    held: Held,
    forced: Option<Outcome>,
) -> Result<Outcome, MigrationError> {
    match held.record().life.state {
        State::MigratingOut => resolve_sent(backend, directory, held, forced),
        State::MigratingIn => resolve_received(directory, inventory, held, forced),
        state => {
            let vm = &held.record().spec.name;
            Err(MigrationError::BadInput(format!("VM {vm} is {state}: no migration of it was cut short")))
        }
    }
}

fn resolve_sent(
    backend: &dyn Backend,
    directory: &RuntimeDir,
    mut held: Held,
    forced: Option<Outcome>,
) -> Result<Outcome, MigrationError> {
    let vm = held.record().spec.name.clone();
    let handed_over = held.record().life.handed_over.clone();
    if handed_over.is_none() && forced == Some(Outcome::Went) {
        let problem = "it was never handed over, so it runs nowhere else; `--resolve` alone lets it go on here";
        return Err(MigrationError::BadInput(format!("VM {vm}: {problem}")));
    }
    let mut source = backend.adopt(&vm)?;
    let outcome = match (&handed_over, forced) {
        (None, _) => Outcome::Stayed,
        (_, Some(forced)) => forced,
        (Some(HandedOver { to, receipt, .. }), None) => {
            let asked = To::parse(to).and_then(|there| ask(&there, &vm, receipt));
            asked.map_err(|error| MigrationError::Undecided {
                vm: vm.clone(),
                host: to.clone(),
                because: error.to_string(),
            })?
        }
    };
    let follows = source.as_mut().map(|source| source.follows()).transpose()? == Some(true);
    match (outcome, source) {
        (Outcome::Stayed, Some(source)) if follows => {
            let host = handed_over.as_ref().map_or("the destination", |there| &there.to);
            return Err(lost(held, source, host));
        }
        (Outcome::Stayed, Some(mut source)) => {
            stays(&mut held, source.as_mut(), "homenode was ended while it was sent")?;
        }
        (Outcome::Stayed, None) => {
            let because = "it ended while it was sent".to_owned();
            held.step(Step::Vanished, Some(LifeEvent::Lost { because }), now())?;
            let because = "it did not arrive either: it is lost, and can be started anew".to_owned();
            return Err(MigrationError::SourceLost { vm, because });
        }
        (Outcome::Went, mut source) => {
            if let (true, Some(source), Some(there)) = (follows, source.as_mut(), &handed_over) {
                until_all_went(source.as_mut(), &To::parse(&there.to)?, &vm, &there.receipt, |_| ())?;
            }
            went(directory, held, source, handed_over.as_ref())?;
        }
    }
    Ok(outcome)
}

/// At the destination, whose homenode was ended after the guest had arrived.
fn resolve_received(
    directory: &RuntimeDir,
    inventory: &Inventory,
    mut held: Held,
    forced: Option<Outcome>,
) -> Result<Outcome, MigrationError> {
    let vm = held.record().spec.name.clone();
    let Some((receipt, is_all_here)) = left_waiting(directory, &vm) else {
        let problem = "is migrating in, and no QEMU waits for it; `homenode vm list` removes what is left of it";
        return Err(MigrationError::BadInput(format!("VM {vm} {problem}")));
    };
    let wanted = if is_all_here && forced != Some(Outcome::Stayed) { Decision::Here } else { Decision::Never };
    let receipts = Receipts::of(inventory);
    receipts.decide(&receipt, wanted)?;
    match settled(directory, &receipts, &vm, &receipt)? {
        Decision::Never => {
            held.call_back()?;
            Ok(Outcome::Stayed)
        }
        Decision::Here => {
            take_name(directory, &vm)?;
            let (homes, paused) = (held.record().homes(), came_paused(directory, &vm));
            held.complete_as(LifeEvent::Arrived { from: "another host".to_owned(), homes }, paused, now())?;
            Ok(Outcome::Went)
        }
    }
}

/// The guest stays: lets it go on where it ran before.
pub(crate) fn stays(held: &mut Held, source: &mut dyn Vm, because: &str) -> Result<(), MigrationError> {
    let before = held.record().life.before.map_or(State::Running, |before| before.state);
    source.stay(before == State::Running)?;
    let event = LifeEvent::Failed { because: because.to_owned() };
    Ok(held.step(Step::Fails { back_to: before }, Some(event), now())?)
}

/// The guest went: ends what is left of it here. On one host its record and its name stay.
pub(crate) fn went(
    directory: &RuntimeDir,
    mut held: Held,
    source: Option<Box<dyn Vm>>,
    handed_over: Option<&HandedOver>,
) -> Result<(), MigrationError> {
    let vm = held.record().spec.name.clone();
    if let Some(source) = source {
        end(source)?;
    }
    let Some(there) = handed_over.filter(|there| there.to == To::ThisHost.name()) else { return Ok(held.delete()?) };
    take_name(directory, &vm)?;
    if let Some(placement) = there.placement.clone() {
        let added = held.record().placement.as_ref().map(|kept| kept.added.clone()).unwrap_or_default();
        held.set_placement(Some(Kept { host: host_name(), placement, added }))?;
    }
    let runs = held.record().life.before.is_none_or(|before| before.state == State::Running);
    let homes = held.record().homes();
    let arrived = LifeEvent::Arrived { from: host_name(), homes };
    held.may(Step::Runs)?;
    // In one: killed in between, it would be said to run where it is paused.
    let mut told = Ok(());
    held.change_life(|life| {
        told = life.step(Step::Runs, Some(arrived), now());
        if !runs {
            told = told.clone().and_then(|()| life.step(Step::Pause, None, now()));
        }
    })?;
    told.map_err(|source| InventoryError::NotNow { vm, source }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use inventory::Record;
    use qemu::InBackground;
    use std::collections::BTreeMap;
    use topology::Bytes;
    use vm::history::{Life, UnixSeconds};
    use vm::{Added, Client, MemoryPolicy, Placement, Shape, VirtualNode, VirtualTopology, VmSpec};

    fn on(node: &str) -> Placement {
        let (home, cpus) = (node.parse().unwrap(), "0-3".parse().unwrap());
        let memory_policy = MemoryPolicy::Bind;
        let client = Client {
            id: 0,
            virtual_nodes: vec![0],
            home,
            cpus,
            vcpu_cpus: BTreeMap::new(),
            groups: Vec::new(),
            far: Vec::new(),
            memory_policy,
        };
        Placement { clients: vec![client] }
    }

    /// Both homenodes were killed once the guest had been handed over on one host.
    #[test]
    fn a_guest_that_went_to_another_home_on_this_host_is_written_down_there() {
        let place = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::at(place.path().join("run")).unwrap();
        let inventory = Inventory::at(place.path().join("vms"));
        let memory = Bytes::from_mib(512);
        let shape = Shape { name: "web".to_owned(), vcpus: 1, memory, ..Shape::default() };
        let nodes = vec![VirtualNode { vcpus: vec![0], memory, ..VirtualNode::default() }];
        let topology = VirtualTopology {
            exposed: false,
            nodes,
            sockets: 1,
            cores_per_socket: 1,
            dies_per_socket: 1,
            threads_per_core: 1,
            distances: vec![vec![10]],
        };
        let kept = Kept { host: "a".to_owned(), placement: on("0"), added: Added::default() };
        let (spec, life) = (VmSpec { shape, ..VmSpec::default() }, Life::planned(Default::default(), UnixSeconds(1)));
        let record = Record { spec, topology: Some(topology), placement: Some(kept), life };
        let mut held = inventory.create(&record).unwrap();
        let steps = [Step::Start, Step::Runs, Step::Send];
        steps.into_iter().for_each(|step| held.step(step, None, UnixSeconds(2)).unwrap());
        let (to, receipt) = (To::ThisHost.name().to_owned(), "7".repeat(32));
        let handed_over = HandedOver { to, receipt, placement: Some(on("1")) };
        held.change_life(|life| life.handed_over = Some(handed_over)).unwrap();
        drop(held);
        // Where it was received.
        std::fs::create_dir_all(directory.door("web").parent().unwrap()).unwrap();
        let held = inventory.hold("web").unwrap();
        let backend = InBackground::of(directory.clone());
        let outcome = resolve(&backend, &directory, &inventory, held, Some(Outcome::Went));
        assert_eq!(outcome.unwrap(), Outcome::Went);
        let record = inventory.read("web").unwrap();
        assert_eq!(
            (record.life.state, record.placement.as_ref().map(|kept| &kept.placement)),
            (State::Running, Some(&on("1")))
        );
        let arrived = LifeEvent::Arrived { from: host_name(), homes: vec!["1".parse().unwrap()] };
        assert_eq!(record.life.history.last().map(|chapter| &chapter.event), Some(&arrived));
    }
}
