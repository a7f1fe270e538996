//! A VM that nobody else changes meanwhile.

use crate::files::Files;
use crate::{InventoryError, Kept, Record};
use std::fs::File;
use vm::history::{Life, LifeEvent, UnixSeconds};
use vm::life::{State, Step};
use vm::truth::Mend;
use vm::{VirtualTopology, VmSpec};

/// A VM that nobody else changes meanwhile.
#[derive(Debug)]
pub struct Held {
    pub(crate) record: Record,
    pub(crate) files: Files,
    pub(crate) _lock: File,
}

/// What a start makes of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its spec.
    pub spec: VmSpec,
    /// What the guest will see.
    pub topology: VirtualTopology,
    /// Where it will live.
    pub placement: Kept,
}

impl Held {
    /// What is kept of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Begins to start or to resume it: until [`Held::complete`] or [`Held::call_back`] the record
    /// says so, and a kill leads back to what it was.
    ///
    /// # Errors
    /// The step is not possible now, or it cannot be written; then nothing has changed.
    pub fn begin(&mut self, step: Step, proposal: Proposal, at: UnixSeconds) -> Result<(), InventoryError> {
        let life = self.life_after(step, None, at)?;
        let written = self.files.propose(&proposal).and_then(|()| self.files.write_life(&life, false));
        if let Err(error) = written {
            // What cannot be removed either goes when somebody holds the VM next.
            let _ = self.files.withdraw();
            return Err(error);
        }
        let Proposal { spec, topology, placement } = proposal;
        self.record = Record { spec, topology: Some(topology), placement: Some(placement), life };
        Ok(())
    }

    /// What was begun has become true: it runs, with what was proposed.
    ///
    /// # Errors
    /// It was not begun, or it cannot be written; then whoever looks next writes it.
    pub fn complete(&mut self, event: LifeEvent, at: UnixSeconds) -> Result<(), InventoryError> {
        self.complete_as(event, false, at)
    }

    /// As [`Held::complete`]; `paused`: its guest came paused, and stays so.
    ///
    /// # Errors
    /// As [`Held::complete`].
    pub fn complete_as(&mut self, event: LifeEvent, paused: bool, at: UnixSeconds) -> Result<(), InventoryError> {
        // A guest that is resumed or arrives has the topology that it had.
        let powered_on = matches!(event, LifeEvent::Started { .. });
        let mut life = self.life_after(Step::Runs, Some(event), at)?;
        if powered_on && std::mem::take(&mut life.topology_anew) {
            life.tell(LifeEvent::TopologyAnew, at);
        }
        if paused {
            life.step(Step::Pause, None, at).map_err(|source| self.not_now(source))?;
        }
        self.files.write_life(&life, true)?;
        self.record.life = life;
        self.finish_adopting()
    }

    /// Puts what was proposed in place, once that is decided.
    pub(crate) fn finish_adopting(&self) -> Result<(), InventoryError> {
        self.files.adopt()?;
        self.files.write_life(&self.record.life, false)
    }

    /// What was begun has failed: the record is what it was before, or gone where there was none.
    ///
    /// # Errors
    /// It cannot be written; then whoever looks next does so.
    pub fn call_back(mut self) -> Result<(), InventoryError> {
        let Some(before) = self.record.life.before else { return self.files.remove() };
        self.files.withdraw()?;
        self.step(Step::Fails { back_to: before.state }, None, before.since)
    }

    /// Brings it up to the truth. vCPUs that are to go on ([`Mend::LetGoOn`]) do so already.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn mend(mut self, mend: Mend, at: UnixSeconds) -> Result<(), InventoryError> {
        match mend {
            Mend::Complete { paused } => {
                let (homes, life) = (self.record.homes(), &self.record.life);
                let event = match (life.state, life.before.map(|before| before.state)) {
                    (State::MigratingIn, _) => LifeEvent::Arrived { from: "another host".to_owned(), homes },
                    (_, Some(State::Suspended)) => LifeEvent::Resumed { homes },
                    _ => LifeEvent::Started { homes },
                };
                self.complete_as(event, paused, at)
            }
            Mend::CallBack => self.call_back(),
            Mend::Started => {
                let homes = self.record.homes();
                let mut life = self.record.life.clone();
                life.started_elsewhere(homes, at).map_err(|source| self.not_now(source))?;
                self.write_life(life)
            }
            Mend::Step(step, event) => self.step(step, Some(event), at),
            Mend::LetGoOn(event) => self.step(Step::Continue, Some(event), at),
        }
    }

    /// Takes a step of its life and writes it down.
    ///
    /// # Errors
    /// The step is not possible now, or it cannot be written; then it has not been taken.
    pub fn step(&mut self, step: Step, event: Option<LifeEvent>, at: UnixSeconds) -> Result<(), InventoryError> {
        let life = self.life_after(step, event, at)?;
        self.write_life(life)
    }

    /// Whether a step is possible now.
    ///
    /// # Errors
    /// It is not: what is.
    pub fn may(&self, step: Step) -> Result<State, InventoryError> {
        self.record.life.state.after(step).map_err(|source| self.not_now(source))
    }

    /// Changes its life otherwise, and writes it down.
    ///
    /// # Errors
    /// It cannot be written; then nothing has changed.
    pub fn change_life(&mut self, change: impl FnOnce(&mut Life)) -> Result<(), InventoryError> {
        let mut life = self.record.life.clone();
        change(&mut life);
        self.write_life(life)
    }

    /// Another spec of the same name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_spec(&mut self, spec: VmSpec) -> Result<(), InventoryError> {
        self.record.spec = spec;
        self.files.write_spec(&self.record.spec)
    }

    /// What the guest sees from its next power-on: the first one, or one at which it is sized anew.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_topology(&mut self, topology: Option<VirtualTopology>) -> Result<(), InventoryError> {
        self.record.topology = topology;
        self.files.write_topology(self.record.topology.as_ref())
    }

    /// Where it lives now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_placement(&mut self, placement: Option<Kept>) -> Result<(), InventoryError> {
        self.record.placement = placement;
        self.files.write_placement(self.record.placement.as_ref())
    }

    /// Forgets the VM.
    ///
    /// # Errors
    /// A file of it cannot be removed.
    pub fn delete(self) -> Result<(), InventoryError> {
        self.files.remove()
    }

    pub(crate) fn write_all(&self) -> Result<(), InventoryError> {
        let Record { spec, topology, placement, life } = &self.record;
        self.files.begin_life(life)?;
        self.files.withdraw()?;
        self.files.write_spec(spec)?;
        self.files.write_topology(topology.as_ref())?;
        self.files.write_placement(placement.as_ref())?;
        self.files.finish_life()
    }

    fn write_life(&mut self, life: Life) -> Result<(), InventoryError> {
        self.files.write_life(&life, false)?;
        self.record.life = life;
        Ok(())
    }

    fn life_after(&self, step: Step, event: Option<LifeEvent>, at: UnixSeconds) -> Result<Life, InventoryError> {
        let mut life = self.record.life.clone();
        life.step(step, event, at).map_err(|source| self.not_now(source))?;
        Ok(life)
    }

    fn not_now(&self, source: vm::life::NotNow) -> InventoryError {
        InventoryError::NotNow { vm: self.record.spec.name.clone(), source }
    }
}
