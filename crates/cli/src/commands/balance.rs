//! `homenode balance`.

use crate::args::BalanceArguments;
use crate::balance_view::Log;
use crate::commands::{balance_replay, balance_trace};
use crate::failure::{bad_input, unwritable};
use crate::switch_exchanges::SwitchExchanges;
use crate::{balance_view, balancer_host, balancer_place, remote_host, this_host};
use anyhow::{Context, bail};
use daemon::{Balancer, DaemonError, Event, Instance, Mode, Outcome, PolicyFile, Recorder, Restored, Rules, Wake};
use linux::{LinuxHost, TrafficOptions};
use scheduler::{Act, Action, ActionError, Done, Host, Moment, Observation, Observe, ObserveError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use topology::Machine;

/// Runs the command.
pub(crate) fn run(arguments: &BalanceArguments) -> anyhow::Result<()> {
    if let Some(recording) = &arguments.replay {
        return balance_replay::run(recording, arguments);
    }
    if let (Some(choice), Some(trace)) = (&arguments.on, &arguments.trace) {
        return balance_trace::run(choice, trace, arguments);
    }
    let mut log = Log::new(arguments.json);
    if let Some(uri) = &arguments.connect {
        let host = OnlyLookedAt(remote_host::open(uri)?);
        let policy = policy(arguments.policy.as_deref(), host.machine())?;
        let (rules, file) = (Rules::new(policy.vms.clone()), balancer_place::own(&arguments.state)?);
        let balancer = Balancer::new(host, &policy, rules, Mode::DryRun, file, Restored::Nothing);
        return work(balancer, arguments, &policy, &mut log);
    }
    let machine = this_host::machine()?;
    let policy = policy(arguments.policy.as_deref(), &machine)?;
    let (mut balancer, _lock) = start(arguments, &policy, &mut log)?;
    if arguments.release {
        return release(&mut balancer, &log);
    }
    work(balancer, arguments, &policy, &mut log)
}

/// Looks and decides, once or until it is stopped.
fn work<H: Host>(
    mut balancer: Balancer<H>,
    arguments: &BalanceArguments,
    policy: &PolicyFile,
    log: &mut Log,
) -> anyhow::Result<()> {
    if let Some(path) = &arguments.record {
        let recorder = Recorder::start(path, balancer.machine(), policy, &balancer.saved().balance)
            .map_err(|error| unwritable("--record", &error))?;
        balancer.record_to(recorder);
    }
    let stop = stop_signals()?;
    let failed = if arguments.once { once(&mut balancer, &stop, log)? } else { forever(&mut balancer, &stop, log) };
    finish(&mut balancer, arguments, policy, log)?;
    match failed {
        0 => Ok(()),
        number => bail!("{number} of the actions failed"),
    }
}

/// The policy that the arguments name, else the default.
pub(crate) fn policy(path: Option<&Path>, machine: &Machine) -> anyhow::Result<PolicyFile> {
    let read = path.map(|path| PolicyFile::read(path, &machine.node_ids()));
    read.transpose().map(Option::unwrap_or_default).map_err(failure)
}

/// Marks what the user can mend as bad input.
pub(crate) fn failure(error: DaemonError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(error) } else { error.into() }
}

/// A balancer that goes on where the last one left off, and the lock that keeps a second one away.
/// A dry run needs none.
fn start(
    arguments: &BalanceArguments,
    policy: &PolicyFile,
    log: &mut Log,
) -> anyhow::Result<(Balancer<LinuxHost>, Option<Instance>)> {
    let file = balancer_place::own(&arguments.state)?;
    let (lock, restored, mode) = if arguments.dry_run {
        let known = balancer_place::look(&arguments.state).map(|seen| seen.saved);
        (None, known.map_or(Restored::Nothing, |saved| Restored::Memory(Box::new(saved))), Mode::DryRun)
    } else {
        balancer_place::make_directory(&file)?;
        let lock = balancer_place::take()?;
        (Some(lock), file.restore()?, Mode::Act)
    };
    if let Restored::SetAside { to, because } = &restored {
        let (file, to) = (file.path().display(), to.display());
        log.trouble(&format!(
            "{file}: the balancer's state cannot be understood ({because}): kept as {to}, starting anew"
        ));
    }
    let may_create = mode == Mode::Act;
    let traffic = TrafficOptions { from: policy.traffic, may_create, ..TrafficOptions::default() };
    let host = balancer_host::open_for_long(policy.balance.move_bytes_per_second, traffic)?;
    if let Some(what) = host.hidden_vms() {
        log.trouble(&format!("not seen: {what}"));
    }
    let rules = Rules::new(policy.vms.clone());
    let mut balancer = Balancer::new(host, policy, rules, mode, file, restored);
    balancer.heed(Box::new(balancer_place::starts));
    if policy.balance.communication_percent > 0.0 {
        let mut counted = SwitchExchanges::of_this_user()?;
        balancer.ask_exchanges(Box::new(move |observation| counted.now(observation)));
    }
    if mode == Mode::Act {
        // From now on whoever looks finds this process.
        balancer.save()?;
    }
    Ok((balancer, lock))
}

/// A host that can be looked at from here and not changed.
struct OnlyLookedAt<O>(O);

impl<O: Observe> Observe for OnlyLookedAt<O> {
    fn machine(&self) -> &Machine {
        self.0.machine()
    }

    fn now(&self) -> Moment {
        self.0.now()
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        self.0.observe()
    }
}

impl<O: Observe> Act for OnlyLookedAt<O> {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        let (vm, reason) = (action.vm().name.clone(), "this host is only looked at from here".to_owned());
        Err(ActionError::Failed { vm, operation: "change it".to_owned(), reason })
    }
}

/// Tells of the first signal that ends programs.
fn stop_signals() -> anyhow::Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let (tell, told) = channel();
    thread::spawn(move || {
        for _ in signals.forever() {
            // Nobody waits any more if this fails.
            let _ = tell.send(());
        }
    });
    Ok(told)
}

fn wait(stop: &Receiver<()>, time: Duration) -> Wake {
    if stop.recv_timeout(time).is_ok() { Wake::Stop } else { Wake::Time }
}

/// A look, a period later one round. Returns how many actions failed.
fn once<H: Host>(balancer: &mut Balancer<H>, stop: &Receiver<()>, log: &mut Log) -> anyhow::Result<usize> {
    let unreadable = |why| anyhow::anyhow!("the host cannot be read: {why}");
    balancer.look().map_err(unreadable)?;
    if wait(stop, Duration::from_millis(balancer.policy().period_ms)) == Wake::Stop {
        return Ok(0);
    }
    let period = balancer.period().map_err(unreadable)?;
    let failed = |event: &&Event| matches!(event, Event::Acted { outcome: Outcome::Failed(_), .. });
    let failures = period.events.iter().filter(failed).count();
    log.period(&period);
    if !period.events.iter().any(|event| matches!(event, Event::Acted { .. })) && period.nodes > 1 {
        log.news(
            "nothing to do: no VM would be better off elsewhere, as far as can be seen; `homenode why VM` says more",
        );
    }
    Ok(failures)
}

fn forever<H: Host>(balancer: &mut Balancer<H>, stop: &Receiver<()>, log: &mut Log) -> usize {
    daemon::run(
        balancer,
        |time| wait(stop, time),
        |period| match period {
            Ok(period) => log.period(&period),
            Err(why) => log.unreadable(&why.to_string()),
        },
    );
    0
}

fn finish<H: Host>(
    balancer: &mut Balancer<H>,
    arguments: &BalanceArguments,
    policy: &PolicyFile,
    log: &mut Log,
) -> anyhow::Result<()> {
    log.summary();
    if arguments.dry_run {
        return Ok(());
    }
    if policy.release_on_stop && !arguments.once {
        return release(balancer, log);
    }
    Ok(balancer.save()?)
}

fn release<H: Host>(balancer: &mut Balancer<H>, log: &Log) -> anyhow::Result<()> {
    let released = balancer.release()?;
    log.released(&released)?;
    match balance_view::failures(&released) {
        0 => Ok(()),
        number => bail!("{number} of {} affinities could not be undone; --release tries again", released.len()),
    }
}
