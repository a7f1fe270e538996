//! The source's side: `homenode vm migrate`.
//!
//! ```text
//! offer ─> planned ─> built, compared ─> sending ─> completed ─> handed over ─ runs ─> ended
//!   └─────────┴────────────┴────────────────┴───────────┘            │ no answer: ask (outcome)
//!      any failure: the guest goes on here                           └ refused: goes on here
//! ```

use crate::checks::{check_blocked, check_emulated, check_place, compare};
use crate::destination::hello;
use crate::link::{Helper, Link, SILENCE, To};
use crate::outcome::{Outcome, ask, stays, went};
use crate::postcopy::{follows, lost, until_all_went};
use crate::protocol::{self, Built, FromDestination, FromSource, Offer};
use crate::stall::Stall;
use crate::{MigrationError, disks, now};
use inventory::{Held, Inventory};
use qemu::migration::{DirtyRate, Outgoing, Progress, Ram, Status, Tuning};
use qemu::{QemuError, RuntimeDir};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use topology::Bytes;
use topology::input::one_line;
use vm::Plan;
use vm::history::{HandedOver, LifeEvent};
use vm::life::{State, Step};

/// How long the destination may take to say hello: ssh has to log in.
const HELLO: Duration = Duration::from_secs(60);
/// How long it may take to plan, and to fill the VM's memory: it says that it is there meanwhile.
const BUILDS: Duration = Duration::from_secs(3600);
/// How long it may take for what takes no work.
const NEXT: Duration = Duration::from_secs(90);
/// How long it may take to let the guest run.
const RUNS: Duration = Duration::from_secs(60);
/// How long the rest of a guest may take that stands still.
const SWITCHES: Duration = Duration::from_secs(60);
/// How often somebody is told how far it has come.
const TOLD: Duration = Duration::from_secs(1);
/// How often is asked how far it has come.
const LOOK: Duration = Duration::from_millis(20);
/// How often a destination is asked that does not answer.
const ASKED: u32 = 3;
/// Seconds that a guest is watched for how fast it writes.
const WATCHED_SECONDS: u64 = 1;

/// How a VM is sent.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to.
    pub to: To,
    /// What QEMU is told.
    pub tuning: Tuning,
    /// Called off after this.
    pub timeout: Option<Duration>,
    /// Disks of the same path and size are the same disks.
    pub shared_storage: bool,
    /// Only says what would be.
    pub dry_run: bool,
}

/// What is told of a VM on its way.
pub enum Say<'a> {
    /// Where it will live, and why.
    Planned(&'a Plan),
    /// How far it has come.
    Progress(&'a Progress),
    /// What its owner should know, as a sentence.
    Note(&'a str),
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Report {
    /// The other host, as it names itself.
    pub host: String,
    /// Where it lives now, or would.
    pub plan: Plan,
    /// How far it had come at the end; `None` where nothing was sent.
    pub progress: Option<Progress>,
    /// How fast it writes to its memory; only where nothing was sent.
    pub dirty: Option<DirtyRate>,
    /// From the beginning until it ran there, in milliseconds.
    pub all_ms: u64,
    /// From the moment at which it stood still until it ran there, in milliseconds, as far as the
    /// source can tell.
    pub still_ms: u64,
}

/// Sends a VM. `stop` calls it off, until it is handed over.
///
/// # Errors
/// It is still here; or it is not known ([`MigrationError::Undecided`]), and stands still.
pub fn send(
    directory: &RuntimeDir,
    inventory: &Inventory,
    mut held: Held,
    options: &Options,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&Say<'_>),
) -> Result<Report, MigrationError> {
    held.may(Step::Send)?;
    let vm = held.record().spec.name.clone();
    let mut source = Outgoing::connect(directory, &vm)?;
    check_blocked(&vm, &mut source)?;
    let receipt = new_receipt()?;
    let offer = offer(&held, &mut source, options, &receipt)?;
    check_emulated(&offer.manifest)?;
    let (began, manifest) = (Instant::now(), offer.manifest.clone());
    let mut talk = Talk::begin(directory, inventory, options, stop, began)?;
    let plan = talk.offered(offer)?;
    say(&Say::Planned(&plan));
    if options.dry_run {
        let dirty = source.dirty_rate(WATCHED_SECONDS)?;
        return Ok(Report { host: talk.host, plan, progress: None, dirty, all_ms: 0, still_ms: 0 });
    }
    let built = talk.built()?;
    built.notes.iter().for_each(|note| say(&Say::Note(note)));
    compare(&vm, &talk.host, &manifest, &built, say)?;
    talk.listens(options)?;
    held.step(Step::Send, None, now())?;
    let sent = talk.send(&mut source, options, say);
    if !matches!(&sent, Ok((progress, _)) if progress.status == Status::Follows) {
        talk.carrier = None;
    }
    let (progress, still) = match sent {
        Ok(sent) => sent,
        Err(error) => {
            // The other side need not wait until it misses us.
            let _ = talk.link.say(&FromSource::Never);
            if source.progress().is_ok_and(|progress| follows(&progress.status)) {
                return Err(lost(held, source, &talk.host));
            }
            return Err(stayed(&vm, &talk.host, held, &mut source, &error));
        }
    };
    let placement = talk.same_place.then(|| plan.placement.clone());
    let handed_over = HandedOver { to: options.to.name().to_owned(), receipt, placement };
    if let Err(error) = held.change_life(|life| life.handed_over = Some(handed_over.clone())) {
        return Err(stayed(&vm, &talk.host, held, &mut source, &error.into()));
    }
    if progress.status == Status::Follows {
        say(&Say::Note("the guest goes; until its memory has followed it needs both hosts, and is lost if one fails"));
    }
    match talk.hand_over(options, &handed_over.receipt, say) {
        Ok(None) => {}
        Ok(Some(_)) if progress.status == Status::Follows => return Err(lost(held, source, &talk.host)),
        Ok(Some(error)) => return Err(stayed(&vm, &talk.host, held, &mut source, &error)),
        Err(error) => {
            let (host, because) = (options.to.name().to_owned(), error.to_string());
            return Err(MigrationError::Undecided { vm, host, because });
        }
    }
    let since_sent_there = still.elapsed();
    let progress = match progress.status {
        Status::Follows => talk.follows(&mut source, options, &handed_over.receipt, say)?,
        _ => progress,
    };
    let since_sent = since_sent_there.saturating_sub(talk.ran).as_millis() as u64;
    let still_ms = since_sent + progress.downtime_ms.unwrap_or(0);
    let all_ms = began.elapsed().as_millis() as u64;
    went(directory, held, Some(source), Some(&handed_over))?;
    talk.gone(say);
    Ok(Report { host: talk.host, plan, progress: Some(progress), dirty: None, all_ms, still_ms })
}

/// The guest stays, whatever came between: it is let go on, and its record says so.
fn stayed(vm: &str, host: &str, mut held: Held, source: &mut Outgoing, error: &MigrationError) -> MigrationError {
    let because = match error {
        MigrationError::Refused { because, .. } => because.clone(),
        error => error.to_string(),
    };
    match stays(&mut held, source, &because) {
        Ok(()) => MigrationError::Stayed { vm: vm.to_owned(), host: host.to_owned(), because },
        Err(MigrationError::Qemu(QemuError::Closed { .. } | QemuError::Ended { .. })) => {
            let lost = LifeEvent::Lost { because: because.clone() };
            // Where it cannot be written, whoever looks next sees the same.
            let _ = held.step(Step::Vanished, Some(lost), now());
            MigrationError::SourceLost { vm: vm.to_owned(), because }
        }
        Err(other) => other,
    }
}

fn new_receipt() -> Result<String, MigrationError> {
    linux::unique::word().map_err(MigrationError::io("read /dev/urandom"))
}

fn offer(held: &Held, source: &mut Outgoing, options: &Options, receipt: &str) -> Result<Offer, MigrationError> {
    let record = held.record();
    let vm = &record.spec.name;
    let no_topology = || MigrationError::BadInput(format!("VM {vm}: nothing is known of its virtual topology"));
    let topology = record.topology.as_ref().ok_or_else(no_topology)?;
    let added = record.placement.as_ref().map(|kept| kept.added.clone()).unwrap_or_default();
    Ok(Offer {
        receipt: receipt.to_owned(),
        manifest: source.manifest(&record.spec, topology, &added)?,
        life: record.life.clone(),
        runs: record.life.state == State::Running,
        pid: source.pid(),
        disks: disks::seen(&record.spec)?,
        shared_storage: options.shared_storage,
        dry_run: options.dry_run,
    })
}

/// What is said with the destination.
struct Talk<'a> {
    link: Link<FromDestination>,
    host: String,
    same_place: bool,
    stop: &'a AtomicBool,
    deadline: Option<Instant>,
    vm: String,
    /// For how long it had run there when that was said.
    ran: Duration,
    /// The program that carries the guest, which ends with the value.
    carrier: Option<Helper>,
}

impl<'a> Talk<'a> {
    fn begin(
        directory: &RuntimeDir,
        inventory: &Inventory,
        options: &Options,
        stop: &'a AtomicBool,
        began: Instant,
    ) -> Result<Self, MigrationError> {
        let mut link = Link::to(&options.to, &["vm", "receive"], protocol::from_destination)?;
        let ours = hello(directory, inventory);
        link.say(&FromSource::Hello(ours.clone()))?;
        let deadline = options.timeout.map(|timeout| began + timeout);
        let host = options.to.name().to_owned();
        let mut talk = Self {
            link,
            host,
            same_place: false,
            stop,
            deadline,
            vm: String::new(),
            ran: Duration::ZERO,
            carrier: None,
        };
        let said = talk.next(HELLO)?;
        let FromDestination::Hello(theirs) = said else { return Err(talk.out_of_turn()) };
        theirs.check()?;
        talk.same_place = ours.is_same_place(&theirs);
        check_place(&options.to, &ours, &theirs)?;
        talk.host = one_line(&theirs.host, 64);
        Ok(talk)
    }

    fn out_of_turn(&self) -> MigrationError {
        MigrationError::out_of_turn(&self.host)
    }

    fn link_error(&self, because: impl Into<String>) -> MigrationError {
        MigrationError::Link { host: self.host.clone(), because: because.into() }
    }

    /// Whether somebody called it off, or it takes too long.
    fn check(&self) -> Result<(), MigrationError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(self.link_error("it was called off"));
        }
        match self.deadline {
            Some(deadline) if Instant::now() > deadline => Err(self.link_error("it took longer than --timeout")),
            _ => Ok(()),
        }
    }

    /// What is said next, but that the link is there.
    fn next(&mut self, within: Duration) -> Result<FromDestination, MigrationError> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            self.check()?;
            if let Some(said) = self.hear(LOOK)? {
                return Ok(said);
            }
        }
        Err(self.link_error(format!("no answer within {} s", within.as_secs())))
    }

    /// What is said within a time, but that the link is there.
    fn hear(&mut self, within: Duration) -> Result<Option<FromDestination>, MigrationError> {
        self.link.keep_alive(&FromSource::Alive)?;
        match self.link.hear(within)? {
            None | Some(FromDestination::Alive) => Ok(None),
            Some(FromDestination::Refused { because, bad_input }) => {
                let (vm, host) = (self.vm.clone(), self.host.clone());
                // What QEMU's errors begin with is said once.
                let because = because.strip_prefix(&format!("VM {vm}: ")).unwrap_or(&because).to_owned();
                Err(MigrationError::Refused { vm, host, because, bad_input })
            }
            said => Ok(said),
        }
    }

    fn offered(&mut self, offer: Offer) -> Result<Plan, MigrationError> {
        self.vm.clone_from(&offer.manifest.spec.name);
        self.link.say(&FromSource::Offer(Box::new(offer)))?;
        match self.next(NEXT)? {
            FromDestination::Planned { plan } => Ok(*plan),
            _ => Err(self.out_of_turn()),
        }
    }

    fn built(&mut self) -> Result<Built, MigrationError> {
        match self.next(BUILDS)? {
            FromDestination::Built(built) => Ok(built),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Tells the destination how the guest will come; nothing was changed where it cannot come so.
    fn listens(&mut self, options: &Options) -> Result<(), MigrationError> {
        self.link.say(&FromSource::Listen { tuning: options.tuning })?;
        match self.next(NEXT)? {
            FromDestination::Listens => Ok(()),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Sends the guest until all of it is there. Says when it was seen to be.
    fn send(
        &mut self,
        source: &mut Outgoing,
        options: &Options,
        say: &mut dyn FnMut(&Say<'_>),
    ) -> Result<(Progress, Instant), MigrationError> {
        let vm = self.vm.clone();
        let (carrier, socket) = options.to.carry(&["vm", "receive", "--data", vm.as_str()])?;
        self.carrier = Some(carrier);
        let FromDestination::Receives = self.next(NEXT)? else { return Err(self.out_of_turn()) };
        source.prepare(&options.tuning)?;
        source.send(socket)?;
        let mut stall = Stall::new(Instant::now());
        let (mut told, mut switched, mut came) = (Instant::now(), None::<Instant>, None::<Ram>);
        let mut asked = false;
        loop {
            match switched {
                None => self.check().map_err(|error| how_far(error, came))?,
                Some(at) if at.elapsed() > SWITCHES => {
                    return Err(self.link_error("the rest of the guest did not arrive in time"));
                }
                Some(_) => {}
            }
            let progress = source.next(LOOK)?;
            if switched.is_none() && stall.stands_still(&progress, Instant::now()) {
                return Err(self.link_error(format!("nothing of the guest has gone for {} s", SILENCE.as_secs())));
            }
            came = progress.ram.or(came);
            if options.tuning.postcopy && !asked && progress.sent_all_once() {
                source.follow_later()?;
                asked = true;
            }
            match progress.status {
                Status::Ready if switched.is_none() => {
                    self.check()?;
                    source.switch_over()?;
                    switched = Some(Instant::now());
                    continue;
                }
                Status::Completed | Status::Follows => return Ok((progress, Instant::now())),
                Status::Interrupted => return Err(self.link_error("the link was cut")),
                Status::Failed | Status::Cancelled => {
                    // The destination knows more of why.
                    let said = self.next(Duration::from_secs(3));
                    let because = progress.error.unwrap_or_else(|| "QEMU says that it failed".to_owned());
                    return Err(match said {
                        Err(error @ MigrationError::Refused { .. }) => error,
                        _ => self.link_error(because),
                    });
                }
                _ => {}
            }
            if told.elapsed() > TOLD {
                say(&Say::Progress(&progress));
                told = Instant::now();
            }
            if self.hear(Duration::ZERO)?.is_some() {
                return Err(self.out_of_turn());
            }
        }
    }

    /// Says `go`. From now on the destination decides: nothing where the guest runs there, else why
    /// it does not and will not.
    fn hand_over(
        &mut self,
        options: &Options,
        receipt: &str,
        say: &mut dyn FnMut(&Say<'_>),
    ) -> Result<Option<MigrationError>, MigrationError> {
        let answered = self.link.say(&FromSource::Go { receipt: receipt.to_owned() }).and_then(|()| {
            let deadline = Instant::now() + RUNS;
            while Instant::now() < deadline {
                // Where it refuses, only what its file of the receipt says counts.
                if let Some(FromDestination::Runs { problem, for_ms, .. }) = self.hear(LOOK)? {
                    self.ran = Duration::from_millis(for_ms);
                    problem.iter().for_each(|problem| say(&Say::Note(problem)));
                    return Ok(());
                }
            }
            Err(self.link_error("it does not say whether the guest runs"))
        });
        let Err(lost) = answered else { return Ok(None) };
        let mut unanswered = None;
        for asked in 0..ASKED {
            thread::sleep(Duration::from_secs(u64::from(asked)));
            match ask(&options.to, &self.vm, receipt) {
                Ok(Outcome::Went) => {
                    say(&Say::Note(&format!("the answer to the hand-over was lost ({lost}); it was asked for again")));
                    return Ok(None);
                }
                Ok(Outcome::Stayed) => return Ok(Some(lost)),
                Err(error) => unanswered = Some(error),
            }
        }
        Err(unanswered.unwrap_or(lost))
    }

    /// Waits until the memory has gone after a guest that runs there.
    fn follows(
        &mut self,
        source: &mut Outgoing,
        options: &Options,
        receipt: &str,
        say: &mut dyn FnMut(&Say<'_>),
    ) -> Result<Progress, MigrationError> {
        let mut told = Instant::now();
        let (vm, link) = (&self.vm, &mut self.link);
        until_all_went(source, &options.to, vm, receipt, |progress| {
            // What the other homenode says does not matter any more, nor that it ends.
            let _ = link.keep_alive(&FromSource::Alive).and_then(|()| link.hear(Duration::ZERO));
            if told.elapsed() > TOLD {
                say(&Say::Progress(progress));
                told = Instant::now();
            }
        })
    }

    /// Says that it has ended here.
    fn gone(&mut self, say: &mut dyn FnMut(&Say<'_>)) {
        let told = self.link.say(&FromSource::Gone).and_then(|()| {
            let deadline = Instant::now() + NEXT;
            while Instant::now() < deadline {
                if let Some(FromDestination::Done) = self.link.hear(LOOK)? {
                    return Ok(());
                }
            }
            Err(self.link_error("it does not say whether it has tidied up"))
        });
        if let Err(error) = told {
            say(&Say::Note(&format!("the VM runs there; the receipt of its migration may still be there: {error}")));
        }
    }
}

/// Adds how far it had come to why it ends there.
fn how_far(error: MigrationError, came: Option<Ram>) -> MigrationError {
    let (MigrationError::Link { host, because }, Some(ram)) = (&error, came) else { return error };
    let left = format!("{} of {} were left in round {}", ram.remaining, ram.total, ram.rounds);
    // Known from the second round on.
    let writes = match ram.dirty_per_second {
        Bytes(0) => String::new(),
        dirty => format!(", and the guest writes {dirty} in a second"),
    };
    MigrationError::Link { host: host.clone(), because: format!("{because}: {left}{writes}") }
}
