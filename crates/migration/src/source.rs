//! The source's side: `homenode vm migrate`.
//!
//! ```text
//! offer ─> planned ─> built, compared ─> sending ─> completed ─> handed over ─ runs ─> ended
//!   └─────────┴────────────┴────────────────┴───────────┘            │ no answer: ask (outcome)
//!      any failure: the guest goes on here                           └ refused: goes on here
//! ```

use crate::checks::{check_connections, check_place, check_vcpus_gone, compare};
use crate::destination::hello;
use crate::door::give_here;
use crate::link::{Helper, Link, SILENCE, To};
use crate::outcome::{Outcome, ask, stays, went};
use crate::parts::{Laps, Parts, in_ms};
use crate::postcopy::{lost, until_all_went};
use crate::protocol::{self, Built, FromDestination, FromSource, Hello, Offer};
use crate::several::Carriers;
use crate::stall::Stall;
use crate::{MigrationError, disks, now};
use inventory::{Held, Inventory};
use qemu::RuntimeDir;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use topology::input::one_line;
use vm::backend::ErrorKind;
use vm::history::{HandedOver, LifeEvent};
use vm::life::{State, Step};
use vm::sending::{DirtyRate, Progress, Ram, Route, Sending, Sent, Tuning};
use vm::{Backend, Plan, Vm};

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
/// How long it may take to say why it does not receive the guest any more.
const KNOWS_WHY: Duration = Duration::from_secs(3);
/// How often somebody is told how far it has come.
const TOLD: Duration = Duration::from_secs(1);
/// How often is looked for what the destination says.
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
    /// How its guest goes.
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
    /// What of the time went where.
    pub parts: Parts,
    /// From the moment at which it stood still until it ran there, in milliseconds, as far as the
    /// source can tell.
    pub still_ms: u64,
}

/// Sends a VM. `stop` calls it off, until it is handed over.
///
/// # Errors
/// It is still here; or it is not known ([`MigrationError::Undecided`]), and stands still.
pub fn send(
    backend: &dyn Backend,
    directory: &RuntimeDir,
    inventory: &Inventory,
    mut held: Held,
    options: &Options,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&Say<'_>),
) -> Result<Report, MigrationError> {
    held.may(Step::Send)?;
    let vm = held.record().spec.name.clone();
    let (began, mut laps, mut parts) = (Instant::now(), Laps::begin(), Parts::default());
    // It starts while the offer is made.
    let link = Link::to(&options.to, &["vm", "receive"], protocol::from_destination)?;
    let mut source = backend.adopt(&vm)?.ok_or_else(|| MigrationError::just_ended(&vm))?;
    let receipt = new_receipt()?;
    let offer = offer(&held, source.as_mut(), options, &receipt)?;
    check_vcpus_gone(held.record(), &offer.manifest)?;
    source.may_be_sent(&offer.manifest, &options.tuning)?;
    let manifest = offer.manifest.clone();
    let mut talk = Talk::begin(link, &hello(directory, inventory), options, stop, began)?;
    let plan = talk.offered(offer)?;
    say(&Say::Planned(&plan));
    if options.dry_run {
        let dirty = source.dirty_rate(WATCHED_SECONDS)?;
        return Ok(Report { host: talk.host, plan, progress: None, dirty, all_ms: 0, parts, still_ms: 0 });
    }
    let built = talk.built()?;
    built.notes.iter().for_each(|note| say(&Say::Note(note)));
    compare(&vm, &talk.host, &manifest, &built, say)?;
    check_connections(&talk.host, options.tuning.connections, built.most_connections)?;
    talk.listens(options)?;
    held.step(Step::Send, None, now())?;
    parts.ready_ms = laps.lap_ms();
    parts.starts_ms = built.took_ms;
    let sent = talk.send(directory, source.as_mut(), options, say);
    let still = Instant::now();
    parts.sends_ms = laps.lap_ms();
    if !matches!(sent, Ok(Sent::Follows)) {
        talk.carrier = None;
    }
    // None: memory follows.
    let all_there = match sent {
        Ok(Sent::AllThere(progress)) => Some(progress),
        Ok(Sent::Follows) => None,
        Ok(sent) => {
            let (host, because) = (talk.host, format!("what runs it sent it by itself: {sent:?}"));
            return Err(MigrationError::Undecided { vm, host, because });
        }
        Err(error) => {
            // The other side need not wait until it misses us.
            let _ = talk.link.say(&FromSource::Never);
            if source.follows().is_ok_and(|follows| follows) {
                return Err(lost(held, source, &talk.host));
            }
            return Err(stayed(&vm, &talk.host, held, source.as_mut(), &error));
        }
    };
    let placement = talk.same_place.then(|| plan.placement.clone());
    let handed_over = HandedOver { to: options.to.name().to_owned(), receipt, placement };
    if let Err(error) = held.change_life(|life| life.handed_over = Some(handed_over.clone())) {
        return Err(stayed(&vm, &talk.host, held, source.as_mut(), &error.into()));
    }
    if all_there.is_none() {
        say(&Say::Note("the guest goes; until its memory has followed it needs both hosts, and is lost if one fails"));
    }
    match talk.hand_over(options, &handed_over.receipt, say) {
        Ok(None) => {}
        Ok(Some(_)) if all_there.is_none() => return Err(lost(held, source, &talk.host)),
        Ok(Some(error)) => return Err(stayed(&vm, &talk.host, held, source.as_mut(), &error)),
        Err(error) => {
            let (host, because) = (options.to.name().to_owned(), error.to_string());
            return Err(MigrationError::Undecided { vm, host, because });
        }
    }
    let since_sent_there = still.elapsed();
    parts.hands_over_ms = laps.lap_ms();
    let progress = match all_there {
        None => talk.follows(source.as_mut(), options, &handed_over.receipt, say)?,
        Some(progress) => progress,
    };
    parts.follows_ms = laps.lap_ms();
    let still_ms = in_ms(since_sent_there.saturating_sub(talk.ran)) + progress.downtime_ms.unwrap_or(0);
    let all_ms = in_ms(began.elapsed());
    went(directory, held, Some(source), Some(&handed_over))?;
    talk.gone(say);
    parts.ends_ms = laps.lap_ms();
    Ok(Report { host: talk.host, plan, progress: Some(progress), dirty: None, all_ms, parts, still_ms })
}

/// The guest stays, whatever came between: it is let go on, and its record says so.
fn stayed(vm: &str, host: &str, mut held: Held, source: &mut dyn Vm, error: &MigrationError) -> MigrationError {
    let because = match error {
        MigrationError::Refused { because, .. } => because.clone(),
        // What its errors begin with is said once.
        error => error.to_string().trim_start_matches(&format!("VM {vm}: ")).to_owned(),
    };
    match stays(&mut held, source, &because) {
        Ok(()) => MigrationError::Stayed { vm: vm.to_owned(), host: host.to_owned(), because },
        Err(MigrationError::Backend(gone)) if gone.kind() == ErrorKind::Gone => {
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

fn offer(held: &Held, source: &mut dyn Vm, options: &Options, receipt: &str) -> Result<Offer, MigrationError> {
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
    /// The program that carries the guest to another host, which ends with the value.
    carrier: Option<Helper>,
}

impl<'a> Talk<'a> {
    fn begin(
        mut link: Link<FromDestination>,
        ours: &Hello,
        options: &Options,
        stop: &'a AtomicBool,
        began: Instant,
    ) -> Result<Self, MigrationError> {
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
        check_place(&options.to, ours, &theirs)?;
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
                // What its errors begin with is said once.
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

    /// Sends the guest until all of it is there.
    fn send(
        &mut self,
        directory: &RuntimeDir,
        source: &mut dyn Vm,
        options: &Options,
        say: &mut dyn FnMut(&Say<'_>),
    ) -> Result<Sent, MigrationError> {
        let (tuning, vm) = (options.tuning, self.vm.clone());
        let mut carriers = Carriers::of(&vm, &options.to);
        let mut carry = |socket| carriers.carry(socket);
        let route = match &options.to {
            _ if tuning.connections > 1 => Route::Streams(&mut carry),
            To::ThisHost => Route::Stream(give_here(directory, &vm)?),
            to => {
                let (carrier, socket) = to.carry(&["vm", "receive", "--data", &vm])?;
                self.carrier = Some(carrier);
                Route::Stream(socket)
            }
        };
        let FromDestination::Receives = self.next(NEXT)? else { return Err(self.out_of_turn()) };
        let (mut watched, mut wrong) = (Watched::new(Instant::now()), None);
        let sent = source.send(Sending { route, tuning }, &mut |progress| {
            wrong = self.watch(&mut watched, progress, say).err();
            wrong.is_none()
        });
        match (sent, wrong) {
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) if error.kind() == ErrorKind::Failed => {
                // The destination knows more of why.
                let said = self.next(KNOWS_WHY);
                Err(said.err().filter(|said| matches!(said, MigrationError::Refused { .. })).unwrap_or(error.into()))
            }
            (sent, _) => Ok(sent?),
        }
    }

    /// Looks whether it still goes, and tells how far it has come.
    fn watch(
        &mut self,
        watched: &mut Watched,
        progress: &Progress,
        say: &mut dyn FnMut(&Say<'_>),
    ) -> Result<(), MigrationError> {
        let now = Instant::now();
        watched.came = progress.ram.or(watched.came);
        if progress.switches {
            if now.duration_since(*watched.switched.get_or_insert(now)) > SWITCHES {
                return Err(self.link_error("the rest of the guest did not arrive in time"));
            }
        } else {
            self.check().map_err(|error| error.with_progress(watched.came))?;
            if watched.stall.stands_still(progress, now) {
                return Err(self.link_error(format!("nothing of the guest has gone for {} s", SILENCE.as_secs())));
            }
        }
        if watched.told.elapsed() > TOLD {
            say(&Say::Progress(progress));
            watched.told = now;
        }
        match self.hear(Duration::ZERO)? {
            Some(_) => Err(self.out_of_turn()),
            None => Ok(()),
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
        source: &mut dyn Vm,
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

/// What was seen of a guest on its way.
struct Watched {
    stall: Stall,
    told: Instant,
    /// Since when the rest of it goes.
    switched: Option<Instant>,
    came: Option<Ram>,
}

impl Watched {
    fn new(now: Instant) -> Self {
        Self { stall: Stall::new(now), told: now, switched: None, came: None }
    }
}
