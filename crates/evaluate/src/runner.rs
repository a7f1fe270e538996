//! Measures: visits configurations in turns, starts all participants' repetitions together, rejects
//! disturbed ones, keeps everything.

use crate::carried::{self, Carried};
use crate::disturbance::Disturbance;
use crate::errors::{RunError, WorldError};
use crate::estimate;
use crate::job;
use crate::join;
use crate::journal::Journal;
use crate::overlap::{self, Interval};
use crate::progress::{Event, Progress};
use crate::records::{Clock, Done, Record, Repetition, Start};
use crate::resolve::{Resolved, ResolvedGuest};
use crate::schedule::Visit;
use crate::team::Team;
use crate::world::World;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use workloads::protocol::{FromAgent, PROTOCOL_VERSION, ToAgent};
use workloads::workload::Repetition as Measured;

/// How long a machine is watched to call it quiet.
const QUIET_WINDOW: Duration = Duration::from_millis(300);

/// One session of an evaluation.
pub struct Runner<'a> {
    resolved: &'a Resolved,
    world: &'a mut dyn World,
    journal: &'a mut Journal,
    progress: &'a mut dyn Progress,
    cancelled: &'a AtomicBool,
    teams: BTreeMap<usize, Team<'a>>,
    next_job: u64,
    epoch: Instant,
}

impl<'a> Runner<'a> {
    /// A session whose jobs are numbered from `next_job`. It stops soon after `cancelled` is set.
    pub fn new(
        resolved: &'a Resolved,
        world: &'a mut dyn World,
        journal: &'a mut Journal,
        progress: &'a mut dyn Progress,
        cancelled: &'a AtomicBool,
        next_job: u64,
    ) -> Self {
        Self { resolved, world, journal, progress, cancelled, teams: BTreeMap::new(), next_job, epoch: Instant::now() }
    }

    /// Makes all visits in their order, and ends all participants.
    ///
    /// # Errors
    /// Something failed or `cancelled` was set; what was measured is in the journal, and no
    /// participant is left.
    pub fn run(self, visits: &[Visit]) -> Result<(), RunError> {
        let mut left = Some(visits.to_vec());
        self.run_while(|_| left.take().unwrap_or_default())
    }

    /// The same, of the visits that `next` says, again and again until it says none. It is told
    /// what was recorded since the journal was opened.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_while(mut self, mut next: impl FnMut(&[Record]) -> Vec<Visit>) -> Result<(), RunError> {
        let mut visits = next(self.journal.appended());
        let (seconds, expectation) = estimate::expected(self.resolved, &visits);
        self.progress.tell(Event::Begin { seconds, expectation });
        let mut outcome = Ok(());
        while outcome.is_ok() && !visits.is_empty() {
            outcome = visits.iter().try_for_each(|visit| self.visit(visit));
            visits = next(self.journal.appended());
        }
        for (_, team) in std::mem::take(&mut self.teams) {
            team.stop();
        }
        outcome
    }

    fn visit(&mut self, visit: &Visit) -> Result<(), RunError> {
        let begun = Instant::now();
        self.ensure_team(visit.configuration)?;
        let configuration = self.resolved.configurations[visit.configuration].name.clone();
        self.progress.tell(Event::Visit { configuration: &configuration, point: &visit.point, round: visit.round });
        let before = self.carried(visit.configuration);
        let mut repetitions = self.resolved.experiment.repetitions;
        for attempt in 0..=self.resolved.experiment.limits.repeat_disturbed {
            if attempt > 0 {
                self.wait_for_quiet()?;
            }
            let rejected = self.job(visit, repetitions)?;
            if rejected == 0 {
                break;
            }
            // The first of a job is never counted.
            repetitions = rejected + 1;
        }
        let counted = before.and_then(|before| Ok(carried::since(&before, self.carried(visit.configuration)?)));
        let (carried, uncounted) = match counted {
            Ok(carried) => (carried, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        if let Some(why) = &uncounted {
            let note = format!("{configuration}: nobody knows what its switches carried: {why}");
            self.progress.tell(Event::Note(&note));
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.journal.append(Record::Visit {
            configuration,
            point: visit.point.clone(),
            round: visit.round,
            seconds,
            carried,
            uncounted,
        })?;
        let advanced = match self.resolved.experiment.until {
            Some(_) => seconds,
            None => estimate::visit_seconds(self.resolved, visit),
        };
        self.progress.tell(Event::Advanced { seconds: advanced });
        Ok(())
    }

    /// Waits until other processes leave the CPUs alone, but not for long: a host may always be
    /// busy.
    fn wait_for_quiet(&mut self) -> Result<(), RunError> {
        let limits = &self.resolved.experiment.limits;
        let deadline = Instant::now() + Duration::from_secs(u64::from(limits.quiet_seconds));
        let pids = self.pids();
        while Instant::now() < deadline && !self.cancelled.load(Ordering::Relaxed) {
            let before = self.world.cpu_reading(&pids).map_err(|error| RunError::Load(error.into()))?;
            std::thread::sleep(QUIET_WINDOW);
            let after = self.world.cpu_reading(&pids).map_err(|error| RunError::Load(error.into()))?;
            if !Disturbance::between(&before, &after).rejects(limits.other_cpu_percent) {
                break;
            }
        }
        Ok(())
    }

    /// What the switches of a configuration have carried; nothing where there are none.
    fn carried(&mut self, configuration: usize) -> Result<Vec<Carried>, WorldError> {
        let configuration = &self.resolved.configurations[configuration];
        Ok(carried::counted(&self.world.switches(configuration)?))
    }

    /// Processes of all participants, also of configurations that wait for their turn.
    fn pids(&self) -> Vec<u32> {
        self.teams.values().flat_map(Team::pids).collect()
    }

    fn ensure_team(&mut self, index: usize) -> Result<(), RunError> {
        if self.teams.contains_key(&index) {
            return Ok(());
        }
        if !self.resolved.keep_running {
            for (_, team) in std::mem::take(&mut self.teams) {
                team.stop();
            }
        }
        let configuration = &self.resolved.configurations[index];
        let name = configuration.name.as_str();
        self.progress.tell(Event::Starting { configuration: name, participants: configuration.participants() });
        let begun = Instant::now();
        let members = self
            .world
            .start(configuration)
            .map_err(|error| RunError::Start { configuration: name.to_owned(), reason: error.into() })?;
        // Entered before it is known to work, so that a failure ends it with the others.
        self.teams.insert(index, Team { members, cancelled: self.cancelled });
        self.greet(index)?;
        self.progress.tell(Event::Started { configuration: name, seconds: begun.elapsed().as_secs_f64() });
        if self.resolved.experiment.until.is_none() {
            self.progress.tell(Event::Advanced { seconds: estimate::start_seconds(self.resolved, index) });
        }
        Ok(())
    }

    /// Waits for the first line of each, and keeps it.
    fn greet(&mut self, index: usize) -> Result<(), RunError> {
        let configuration = &self.resolved.configurations[index];
        let Some(team) = self.teams.get_mut(&index) else { return Ok(()) };
        let hello = |message| match message {
            FromAgent::Hello(hello) => Some(hello),
            _ => None,
        };
        let heard = team.await_all("first line", self.resolved.boot_seconds(), hello);
        let heard = heard.map_err(|error| match self.resolved.guest {
            Some(ResolvedGuest::Image(_)) => error.of_image(),
            _ => error,
        })?;
        for (participant, (at, hello)) in heard.into_iter().enumerate() {
            let member = &mut team.members[participant];
            if hello.protocol != PROTOCOL_VERSION {
                let message = format!(
                    "its agent speaks protocol {}, this homenode {PROTOCOL_VERSION}: build both again",
                    hello.protocol
                );
                return Err(RunError::Failed { name: member.name().to_owned(), message });
            }
            let started_as = member.started_as();
            self.journal.append(Record::Start(Box::new(Start {
                configuration: configuration.name.clone(),
                participant,
                name: member.name().to_owned(),
                pid: member.pid(),
                accelerator: started_as.accelerator,
                qemu: started_as.qemu,
                boot_seconds: at.saturating_duration_since(member.started()).as_secs_f64(),
                hello,
                plan: started_as.plan,
                residence: member.whereabouts().residence,
            })))?;
        }
        let configuration = &self.resolved.configurations[index];
        let Some(team) = self.teams.get_mut(&index) else { return Ok(()) };
        join::join(team, configuration, self.resolved.boot_seconds())
    }

    /// One job of all participants; how many counted repetitions were rejected.
    fn job(&mut self, visit: &Visit, repetitions: u32) -> Result<u32, RunError> {
        let job = self.next_job;
        self.next_job += 1;
        let limits = &self.resolved.experiment.limits;
        let configuration = &self.resolved.configurations[visit.configuration];
        let participants = configuration.participants();
        let name = visit.point.workload.as_str();
        // Of a program that spans all, the first alone starts it and says what it measured.
        let workers = if configuration.is_span { 0..1 } else { 0..participants as usize };
        let of_span = |index: u32| configuration.is_span.then_some(index);
        let unknown = || RunError::Job { workload: name.to_owned(), reason: "nobody settled it".to_owned() };
        let section = self.resolved.workload(name).ok_or_else(unknown)?;
        let patience = limits.repetition_seconds.saturating_add(section.patience());
        let parameters = |index: u32| {
            let share = job::share(self.resolved, &visit.point, participants, of_span(index));
            let failed = |reason: String| RunError::Job { workload: name.to_owned(), reason };
            section.job(&share).map_err(|error| failed(error.to_string()))
        };
        let parameters = (0..participants).map(parameters).collect::<Result<Vec<_>, _>>()?;
        let pids = self.pids();
        let Some(team) = self.teams.get_mut(&visit.configuration) else { return Ok(0) };
        for (member, parameters) in parameters.into_iter().enumerate() {
            let workload = name.to_owned();
            team.send(member, &ToAgent::Run { job, workload, repetitions, parameters }, "the job's start")?;
        }
        let mut rejected = 0;
        for repetition in 0..repetitions {
            let ready = move |message| match message {
                FromAgent::Ready { job: of, repetition: next } if of == job && next == repetition => Some(()),
                _ => None,
            };
            let readying = if repetition == 0 { 0..team.members.len() } else { workers.clone() };
            team.await_of(readying, "readiness for the next repetition", patience, ready)?;
            let before = self.world.cpu_reading(&pids).map_err(|error| RunError::Load(error.into()))?;
            let begun = Instant::now();
            workers.clone().try_for_each(|member| team.send(member, &ToAgent::Go { job }, "a repetition"))?;
            let over = move |message| match message {
                FromAgent::Repetition { job: of, repetition: this, clock_seconds, measured }
                    if of == job && this == repetition =>
                {
                    Some((clock_seconds, measured))
                }
                _ => None,
            };
            let heard = team.await_of(workers.clone(), "result of a repetition", patience, over)?;
            let after = self.world.cpu_reading(&pids).map_err(|error| RunError::Load(error.into()))?;
            let last = heard.iter().map(|(at, _)| *at).max();
            let host_seconds = last.map(|last| last.saturating_duration_since(begun).as_secs_f64());
            let disturbance = Disturbance::between(&before, &after);
            let is_rejected = disturbance.rejects(limits.other_cpu_percent);
            rejected += u32::from(is_rejected && repetition > 0);
            let intervals: Vec<Interval> =
                heard.iter().map(|(at, (_, measured))| interval(self.epoch, *at, measured)).collect();
            let since_epoch = |at: Instant| at.saturating_duration_since(self.epoch).as_secs_f64();
            let clock = |(at, (own, _)): &(Instant, (Option<f64>, Measured))| {
                let (asked_seconds, heard_seconds) = (since_epoch(begun), since_epoch(*at));
                own.map(|own_seconds| Clock { own_seconds, asked_seconds, heard_seconds })
            };
            let clocks = heard.iter().map(clock).collect::<Option<Vec<Clock>>>().unwrap_or_default();
            self.journal.append(Record::Repetition(Repetition {
                configuration: configuration.name.clone(),
                point: visit.point.clone(),
                round: visit.round,
                job,
                repetition,
                participants: heard.into_iter().map(|(_, (_, measured))| measured).collect(),
                overlap: overlap::overlap(&intervals).unwrap_or(1.0),
                other_cpu_percent: disturbance.other_cpu_percent,
                steal_percent: disturbance.steal_percent,
                own_cpu_percent: Some(disturbance.own_cpu_percent),
                host_seconds,
                clocks,
                rejected: is_rejected,
            }))?;
            self.progress.tell(Event::Repetition { rejected: is_rejected });
        }
        self.finish_job(visit.configuration, job, workers)?;
        Ok(rejected)
    }

    /// Waits until each has verified its result, and reads back where it is.
    fn finish_job(&mut self, index: usize, job: u64, workers: Range<usize>) -> Result<(), RunError> {
        let configuration = self.resolved.configurations[index].name.as_str();
        let Some(team) = self.teams.get_mut(&index) else { return Ok(()) };
        let done = move |message| match message {
            FromAgent::Done { job: of, verification, thread_cpus, pages_by_node } if of == job => {
                Some((verification, thread_cpus, pages_by_node))
            }
            _ => None,
        };
        let heard =
            team.await_of(workers, "end of the job", self.resolved.experiment.limits.repetition_seconds, done)?;
        for (participant, (_, (verification, thread_cpus, pages_by_node))) in heard.into_iter().enumerate() {
            let whereabouts = team.members[participant].whereabouts();
            self.journal.append(Record::Done(Done {
                configuration: configuration.to_owned(),
                job,
                participant,
                verification,
                thread_cpus,
                pages_by_node,
                local_share: whereabouts.local_share,
                large_page_share: whereabouts.large_page_share,
                residence: whereabouts.residence,
            }))?;
        }
        Ok(())
    }
}

fn interval(epoch: Instant, at: Instant, measured: &Measured) -> Interval {
    Interval { end: at.saturating_duration_since(epoch).as_secs_f64(), seconds: measured.phases.clone() }
}
