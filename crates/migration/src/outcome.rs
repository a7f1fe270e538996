//! What became of a hand-over whose answer was lost: asked by the source, answered by the
//! destination's file of the receipt.
//!
//! **Rule.** The source asks only after it has said `go` and has no answer. The answer settles the
//! matter at the destination before it is given: `here` lets the guest run that is there, `never`
//! ends the QEMU that waits. A source whose record has no receipt has never said `go`: its guest
//! goes on without a question.

use crate::link::{Link, To};
use crate::protocol::{self, FromDestination};
use crate::receipts::{Decision, Receipts};
use crate::{MigrationError, host_name, now};
use inventory::{Held, Inventory, InventoryError, Kept};
use qemu::RuntimeDir;
use qemu::migration::{Outgoing, settle, take_name};
use std::io::Write;
use std::time::{Duration, Instant};
use vm::history::{HandedOver, LifeEvent};
use vm::life::{State, Step};
use vm::spec::name_problem;

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
    let decision = Receipts::of(inventory).decide(receipt, Decision::Never)?;
    settle(directory, vm, receipt, decision == Decision::Here)?;
    let said = match decision {
        Decision::Here => FromDestination::Runs { pid: 0, problem: None },
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

/// Finds out where the guest of a VM is that was being sent, and lets it go on there. `forced`:
/// somebody has seen to it himself, and says which.
///
/// # Errors
/// It was not being sent, or the destination cannot be asked.
pub fn resolve(directory: &RuntimeDir, mut held: Held, forced: Option<Outcome>) -> Result<Outcome, MigrationError> {
    let vm = held.record().spec.name.clone();
    if held.record().life.state != State::MigratingOut {
        let state = held.record().life.state;
        return Err(MigrationError::BadInput(format!("VM {vm} is {state}: no migration of it was cut short")));
    }
    let mut source = match Outgoing::connect(directory, &vm) {
        Err(qemu::QemuError::NoSuchVm { .. }) => None,
        source => Some(source?),
    };
    let handed_over = held.record().life.handed_over.clone();
    let outcome = match (&handed_over, forced) {
        (None, _) => Outcome::Stayed,
        (_, Some(forced)) => forced,
        (Some(HandedOver { to, receipt }), None) => {
            let asked = To::parse(to).and_then(|there| ask(&there, &vm, receipt));
            asked.map_err(|error| MigrationError::Undecided {
                vm: vm.clone(),
                host: to.clone(),
                because: error.to_string(),
            })?
        }
    };
    match outcome {
        Outcome::Stayed => {
            let Some(source) = source.as_mut() else {
                let because = "it ended while it was sent".to_owned();
                held.step(Step::Vanished, Some(LifeEvent::Lost { because }), now())?;
                let because = "it did not arrive either: it is lost, and can be started anew".to_owned();
                return Err(MigrationError::SourceLost { vm, because });
            };
            stays(&mut held, source, "homenode was ended while it was sent")?;
        }
        Outcome::Went => went(directory, held, source, handed_over.as_ref(), None)?,
    }
    Ok(outcome)
}

/// The guest stays: lets it go on where it ran before.
pub(crate) fn stays(held: &mut Held, source: &mut Outgoing, because: &str) -> Result<(), MigrationError> {
    let before = held.record().life.before.map_or(State::Running, |before| before.state);
    source.cancel()?;
    if before == State::Running {
        source.go_on()?;
    }
    let event = LifeEvent::Failed { because: because.to_owned() };
    held.change_life(|life| life.handed_over = None)?;
    Ok(held.step(Step::Fails { back_to: before }, Some(event), now())?)
}

/// The guest went: ends what is left of it here. On one host its record and its name stay.
pub(crate) fn went(
    directory: &RuntimeDir,
    mut held: Held,
    source: Option<Outgoing>,
    handed_over: Option<&HandedOver>,
    kept: Option<Kept>,
) -> Result<(), MigrationError> {
    let vm = held.record().spec.name.clone();
    if let Some(source) = source {
        source.end()?;
    }
    let here = handed_over.is_some_and(|to| to.to == To::ThisHost.name());
    if !here {
        return Ok(held.delete()?);
    }
    take_name(directory, &vm)?;
    if let Some(kept) = kept {
        held.set_placement(Some(kept))?;
    }
    let runs = held.record().life.before.is_none_or(|before| before.state == State::Running);
    let homes = held.record().homes();
    held.change_life(|life| life.handed_over = None)?;
    held.step(Step::Runs, Some(LifeEvent::Arrived { from: host_name(), homes }), now())?;
    if !runs {
        held.step(Step::Pause, None, now())?;
    }
    Ok(())
}
