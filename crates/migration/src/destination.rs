//! The destination's side: `homenode vm receive`.
//!
//! ```text
//! hello ─> offered ─> planned, reserved ─> built ─> receiving ─ go ─> decided ─> runs ─> gone,
//! done
//!    └────────┴──────────────┴───────────────┴──────────┴─ never, cut, QEMU dead: nothing is left
//! ```

use crate::door::Door;
use crate::link::{ALIVE, Link};
use crate::parts::in_ms;
use crate::protocol::{self, Built, FromDestination, FromSource, Hello, Offer};
use crate::receipts::{Decision, Receipts};
use crate::several::wait_for_all;
use crate::{MigrationError, disks, host_name, now};
use inventory::{Held, Inventory, Kept, Record, Room};
use qemu::migration::{Incoming, connections_of};
use qemu::{QemuError, RuntimeDir};
use std::any::Any;
use std::fs;
use std::io::{Read, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use topology::input::one_line;
use vm::backend::ReachedBy;
use vm::history::{Life, LifeEvent};
use vm::life::State;
use vm::sending::{MOST_CONNECTIONS, Tuning};
use vm::spec::Firmware;
use vm::{CallOff, Launch, Plan, VmSpec};

/// How long the other side may take to say what comes next, where that takes no work.
const NEXT: Duration = Duration::from_secs(60);
/// How long a guest that was sent may take until it is all here.
const ALL_HERE: Duration = Duration::from_secs(20);
/// How often is looked for what happens beside what is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Where the VM will live, and what holds the place.
pub struct Accepted {
    /// What is started.
    pub launch: Launch,
    /// Dropped when its memory is there.
    pub reservation: Box<dyn Any>,
}

/// What knows this host.
pub trait Destination {
    /// Plans homes from what runs now, under the placement lock, and reserves them. `leaves`: the
    /// process that the guest is in now, where that is one of this kernel's.
    ///
    /// # Errors
    /// There is no room, or another VM has the name.
    fn accept(&mut self, offer: &Offer, leaves: Option<u32>) -> Result<Accepted, MigrationError>;

    /// As [`Destination::accept`], and reserves nothing.
    ///
    /// # Errors
    /// There is no room.
    fn look(&mut self, offer: &Offer) -> Result<Plan, MigrationError>;
}

/// What this homenode says of itself.
pub(crate) fn hello(directory: &RuntimeDir, inventory: &Inventory) -> Hello {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let (runtime, inventory) = (directory.path().to_owned(), inventory.path().to_owned());
    let homenode = env!("CARGO_PKG_VERSION").to_owned();
    Hello { version: protocol::VERSION, homenode, host: host_name(), boot, runtime, inventory }
}

type ToSource = Link<FromSource>;

/// Receives one VM that somebody offers on `input`; what went wrong is said on `output` too.
///
/// # Errors
/// The VM is not here.
pub fn receive(
    directory: &RuntimeDir,
    inventory: &Inventory,
    host: &mut dyn Destination,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), MigrationError> {
    let mut link = Link::over("the source", input, output, protocol::from_source);
    let received = serve(directory, inventory, host, &mut link);
    if let Err(error) = &received {
        let refused = FromDestination::Refused { because: error.to_string(), bad_input: error.is_bad_input() };
        // It may be the link that is cut.
        let _ = link.say(&refused);
    }
    received
}

fn serve(
    directory: &RuntimeDir,
    inventory: &Inventory,
    host: &mut dyn Destination,
    link: &mut ToSource,
) -> Result<(), MigrationError> {
    let ours = hello(directory, inventory);
    let FromSource::Hello(theirs) = next(link)? else { return Err(MigrationError::out_of_turn(&link.host)) };
    link.say(&FromDestination::Hello(ours.clone()))?;
    theirs.check()?;
    let FromSource::Offer(offer) = next(link)? else { return Err(MigrationError::out_of_turn(&link.host)) };
    offer.check()?;
    let same_place = ours.is_same_place(&theirs);
    if let Some(problem) = disks::problem(&offer.manifest.spec, &offer.disks, same_place, offer.shared_storage) {
        return Err(MigrationError::BadInput(problem));
    }
    if same_place && has_forwards(&offer.manifest.spec) {
        let problem = "its ports of this host (`forward`) are taken as long as it runs here; \
                       it goes to another host, or with `vm suspend` and `vm resume` to another home";
        return Err(MigrationError::BadInput(problem.to_owned()));
    }
    let name = &offer.manifest.spec.name;
    if !same_place && inventory.names()?.contains(name) {
        let problem = format!(
            "a VM named {name} is kept there already; if nobody needs that one, `homenode vm delete {name}` there \
            forgets it"
        );
        return Err(MigrationError::BadInput(problem));
    }
    if offer.dry_run {
        let plan = Box::new(host.look(&offer)?);
        return link.say(&FromDestination::Planned { plan });
    }
    let leaves = (ours.boot == theirs.boot).then_some(offer.pid);
    let mut accepted = host.accept(&offer, leaves)?;
    let is_uefi = offer.manifest.spec.boot.firmware() == Firmware::Uefi;
    // QEMU writes the variables there once the guest runs. On one host the room is the source's.
    let room = (is_uefi && !same_place).then(|| inventory.room_for(name)).transpose()?;
    accepted.launch.variables = is_uefi.then(|| inventory.variables_file(name));
    link.say(&FromDestination::Planned { plan: Box::new(accepted.launch.plan.clone()) })?;
    let receipts = Receipts::of(inventory);
    let from = one_line(&theirs.host, 64);
    let receiving =
        Receiving { directory, inventory, receipts, offer: &offer, same_place, from, launch: &accepted.launch };
    let (incoming, tuning) = receiving.build(link)?;
    drop(accepted.reservation);
    receiving.guest(link, incoming, tuning, room)
}

fn has_forwards(spec: &VmSpec) -> bool {
    spec.networks.iter().any(|network| !network.forwards().is_empty())
}

fn next(link: &mut ToSource) -> Result<FromSource, MigrationError> {
    let deadline = Instant::now() + NEXT;
    loop {
        link.keep_alive(&FromDestination::Alive)?;
        match link.hear(ALIVE)? {
            Some(FromSource::Alive) | None if Instant::now() < deadline => {}
            Some(FromSource::Never) => return Err(MigrationError::called_off(&link.host)),
            Some(said) => return Ok(said),
            None => {
                let because = format!("it has said nothing for {} s", NEXT.as_secs());
                return Err(MigrationError::Link { host: link.host.clone(), because });
            }
        }
    }
}

struct Receiving<'a> {
    directory: &'a RuntimeDir,
    inventory: &'a Inventory,
    receipts: Receipts,
    offer: &'a Offer,
    same_place: bool,
    from: String,
    launch: &'a Launch,
}

impl Receiving<'_> {
    /// Builds a QEMU, while it is listened for whether the other side still wants it; and waits for
    /// the guest's coming.
    fn build(&self, link: &mut ToSource) -> Result<(Incoming, Tuning), MigrationError> {
        let call_off = CallOff::default();
        let (directory, launch) = (self.directory.clone(), self.launch.clone());
        let (receipt, of_builder) = (self.offer.receipt.clone(), call_off.clone());
        let manifest = self.offer.manifest.clone();
        let (began, (send, built)) = (Instant::now(), channel());
        let builder = thread::spawn(move || {
            // Nobody waits for it any more where it was called off.
            let _ = send.send(Incoming::build(&directory, &launch, &manifest, &receipt, &of_builder));
        });
        let mut incoming = loop {
            match built.recv_timeout(LOOK) {
                Ok(built) => break built?,
                Err(RecvTimeoutError::Disconnected) => return Err(MigrationError::out_of_turn(&link.host)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let heard = link.keep_alive(&FromDestination::Alive).and_then(|()| link.hear(Duration::ZERO));
            let problem = match heard {
                Ok(None | Some(FromSource::Alive)) => continue,
                Ok(Some(FromSource::Never)) => MigrationError::called_off(&link.host),
                Ok(Some(_)) => MigrationError::out_of_turn(&link.host),
                Err(error) => error,
            };
            call_off.call_off();
            // What it made is ended by its own drop.
            let _ = builder.join();
            return Err(problem);
        };
        let took_ms = in_ms(began.elapsed());
        let built = Built {
            pid: incoming.pid(),
            manifest: Box::new(incoming.manifest(&self.offer.manifest.added)?),
            notes: incoming.notes().to_vec(),
            took_ms,
            most_connections: MOST_CONNECTIONS,
        };
        link.say(&FromDestination::Built(built))?;
        let FromSource::Listen { tuning } = next(link)? else { return Err(MigrationError::out_of_turn(&link.host)) };
        if tuning.connections > MOST_CONNECTIONS {
            return Err(MigrationError::out_of_turn(&link.host));
        }
        incoming.prepare(&tuning, self.offer.runs).map_err(|error| self.cannot_receive(error, &tuning))?;
        Ok((incoming, tuning))
    }

    /// The guest: it comes, waits, and is let run.
    fn guest(
        &self,
        link: &mut ToSource,
        mut incoming: Incoming,
        tuning: Tuning,
        room: Option<Room>,
    ) -> Result<(), MigrationError> {
        let door = Door::open(self.directory.door(&self.offer.manifest.spec.name))?;
        link.say(&FromDestination::Listens)?;
        let carrier = if tuning.connections > 1 {
            let arriving = incoming.listen_for_several()?;
            link.say(&FromDestination::Receives)?;
            wait_for_all(&door, link, connections_of(&tuning), || arriving.connect())?;
            None
        } else {
            let (socket, carrier) = door.wait(link)?;
            incoming.listen(socket)?;
            link.say(&FromDestination::Receives)?;
            Some(carrier)
        };
        self.until_told(link, &mut incoming)?;
        self.all_here(&mut incoming)?;
        let record = self.record(room)?;
        incoming.takes_over()?;
        if self.receipts.decide(&self.offer.receipt, Decision::Here)? == Decision::Never {
            forget(record);
            self.receipts.forget(&self.offer.receipt)?;
            return Err(MigrationError::called_off(&link.host));
        }
        // From here on the guest is here, whatever becomes of the link.
        if self.offer.runs
            && let Err(error) = incoming.run()
        {
            return self.does_not_run(incoming, record, error.into());
        }
        let ran = Instant::now();
        // Memory may still follow.
        let carrier = carrier.filter(|_| tuning.postcopy);
        let told = self.runs(link, incoming, record, ran);
        drop(carrier);
        told
    }

    /// QEMU asks the kernel for what postcopy needs before the first byte.
    fn cannot_receive(&self, error: QemuError, tuning: &Tuning) -> MigrationError {
        match error {
            QemuError::Refused { message, .. } if tuning.postcopy => MigrationError::BadInput(format!(
                "QEMU there cannot let memory follow (--postcopy): {message}. It needs userfaultfd: `sysctl \
                 vm.unprivileged_userfaultfd=1` there, or run_as = \"root\" in the VM's spec; or leave --postcopy \
                 out"
            )),
            error => error.into(),
        }
    }

    /// Waits for `go`.
    fn until_told(&self, link: &mut ToSource, incoming: &mut Incoming) -> Result<(), MigrationError> {
        let mut looked = Instant::now();
        loop {
            link.keep_alive(&FromDestination::Alive)?;
            match link.hear(LOOK)? {
                Some(FromSource::Go { receipt }) if receipt == self.offer.receipt => return Ok(()),
                Some(FromSource::Never) => return Err(MigrationError::called_off(&link.host)),
                Some(FromSource::Alive) | None => {}
                Some(_) => return Err(MigrationError::out_of_turn(&link.host)),
            }
            if looked.elapsed() > Duration::from_millis(500) {
                // An error says that QEMU has ended, with its last words.
                incoming.next(Duration::ZERO)?;
                looked = Instant::now();
            }
        }
    }

    fn all_here(&self, incoming: &mut Incoming) -> Result<(), MigrationError> {
        let deadline = Instant::now() + ALL_HERE;
        loop {
            match incoming.is_here()? {
                true => return Ok(()),
                _ if Instant::now() > deadline => {
                    let because = format!("not all of the guest has arrived within {} s", ALL_HERE.as_secs());
                    return Err(self.refused(because));
                }
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn refused(&self, because: String) -> MigrationError {
        let (vm, host) = (self.offer.manifest.spec.name.clone(), host_name());
        MigrationError::Refused { vm, host, because, bad_input: false }
    }

    /// Its record here; on the same host that is the source's to write.
    fn record(&self, room: Option<Room>) -> Result<Option<Held>, MigrationError> {
        if self.same_place {
            return Ok(None);
        }
        let at = now();
        let mut life = Life::from_elsewhere(&self.offer.life, State::MigratingIn, ReachedBy::Qemu, at);
        life.topology_anew = self.offer.life.topology_anew;
        let placement = self.launch.plan.placement.clone();
        let kept = Kept { host: host_name(), placement, added: self.offer.manifest.added.clone() };
        let (spec, topology) = (self.offer.manifest.spec.clone(), Some(self.offer.manifest.topology.clone()));
        let record = Record { spec, topology, placement: Some(kept), life };
        let held = room.map_or_else(|| self.inventory.create(&record), |room| room.create(&record))?;
        Ok(Some(held))
    }

    /// It was to run and does not: that is taken back, but where the source asked meanwhile and
    /// was told that the guest is here. Then it has ended its own, and this one stays.
    fn does_not_run(
        &self,
        incoming: Incoming,
        record: Option<Held>,
        error: MigrationError,
    ) -> Result<(), MigrationError> {
        if self.receipts.take_back(&self.offer.receipt)? {
            drop(incoming);
            forget(record);
        } else {
            incoming.keep()?.take_name()?;
        }
        Err(error)
    }

    fn runs(
        &self,
        link: &mut ToSource,
        incoming: Incoming,
        record: Option<Held>,
        ran: Instant,
    ) -> Result<(), MigrationError> {
        let pid = incoming.pid();
        let mut problem = None;
        let mut note = |error: MigrationError| _ = problem.get_or_insert(error.to_string());
        match incoming.keep() {
            Ok(arrived) if !self.same_place => arrived.take_name().unwrap_or_else(|error| note(error.into())),
            Ok(_) => {}
            Err(error) => note(error.into()),
        }
        if let Some(mut held) = record {
            let homes = held.record().homes();
            let arrived = LifeEvent::Arrived { from: self.from.clone(), homes };
            let told = held.complete_as(arrived, !self.offer.runs, now());
            told.unwrap_or_else(|error| note(error.into()));
        }
        link.say(&FromDestination::Runs { pid, problem, for_ms: in_ms(ran.elapsed()) })?;
        loop {
            match link.hear(ALIVE)? {
                Some(FromSource::Gone) => break,
                Some(FromSource::Alive) | None => {}
                Some(_) => return Err(MigrationError::out_of_turn(&link.host)),
            }
        }
        self.receipts.forget(&self.offer.receipt)?;
        link.say(&FromDestination::Done)
    }
}

/// Takes back a record that was made for a guest that did not come.
fn forget(record: Option<Held>) {
    if let Some(held) = record {
        // One that stays is taken back by whoever looks next.
        let _ = held.call_back();
    }
}
