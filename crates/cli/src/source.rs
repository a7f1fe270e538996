//! Where observations come from: this host, another host's libvirt, a modelled host with a trace, a
//! recording. Whoever looks takes [`open`]'s answer and asks no further.

use crate::args_balance::StateArguments;
use crate::args_source::SourceArguments;
use crate::commands::balance_trace;
use crate::failure::bad_input;
use crate::{balancer_host, balancer_place, remote_host};
use anyhow::Context;
use daemon::{Life, PolicyFile, Recording, Rules, VmRecord, Watched, sentence};
use libvirt::remote::Remote;
use linux::LinuxHost;
use scheduler::balance::{BalanceState, Homes, homes};
use scheduler::{Moment, Observation, Observe};
use serde::Serialize;
use simulator::traces::TracedHost;
use std::thread;
use std::time::{Duration, SystemTime};
use topology::Machine;

/// The name of this host among sources.
pub(crate) const HERE: &str = "this host";

/// A source that was opened.
pub(crate) struct Source {
    host: Host,
    name: String,
    /// The first moment that was looked at.
    first: Option<Moment>,
}

enum Host {
    Here(Box<LinuxHost>),
    Elsewhere(Box<Remote>),
    Recorded(Box<Recording>),
    Modelled(Box<TracedHost>),
}

/// What a balancer of the source remembers.
#[derive(Default)]
pub(crate) struct Remembered {
    /// What it decides by.
    pub(crate) policy: PolicyFile,
    /// Homes, and what decisions depend on.
    pub(crate) balance: BalanceState,
    /// What was done to VMs; `None` where nobody counted.
    pub(crate) records: Option<Vec<VmRecord>>,
    /// Whether it lives, and what it is doing; `None` where nobody can know.
    pub(crate) balancer: Option<BalancerNow>,
}

/// A balancer at this moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BalancerNow {
    /// Its process; `None` where that has ended.
    pub(crate) pid: Option<u32>,
    /// Whether it lives.
    pub(crate) life: Life,
    /// Seconds since it last wrote something down.
    silent_seconds: Option<f64>,
    /// What it is doing; of one that does not run, what it was doing then.
    doing: Option<String>,
    doing_seconds: Option<f64>,
}

impl BalancerNow {
    fn of(watched: &Watched) -> Self {
        let since = |time: Option<SystemTime>| Some(time?.elapsed().unwrap_or_default().as_secs_f64());
        let doing = watched.doing.as_ref();
        Self {
            pid: watched.pid,
            life: watched.life,
            silent_seconds: since(watched.heard),
            doing: doing.map(|doing| sentence(&doing.decision)),
            doing_seconds: doing.and_then(|doing| since(doing.since)),
        }
    }

    /// One of which only the lock says that it is there.
    fn of_holder(pid: Option<u32>) -> Self {
        Self { pid, life: Life::of_holder(pid), silent_seconds: None, doing: None, doing_seconds: None }
    }

    /// Where this one has ended and another holds the lock, that one.
    fn or_holder(self, holder: Option<Option<u32>>) -> Self {
        match holder {
            Some(pid) if self.life == Life::Dead => Self::of_holder(pid),
            _ => self,
        }
    }

    /// `balancer: process 7`, and what one must know of it.
    pub(crate) fn sentence(&self) -> String {
        let doing = self.doing.as_ref();
        let seconds = self.doing_seconds.map_or_else(String::new, |seconds| format!(" for {seconds:.0} s"));
        match (self.life, self.pid) {
            (Life::Running, Some(pid)) => {
                let doing = doing.map_or_else(String::new, |doing| format!(", at work{seconds}: {doing}"));
                format!("balancer: process {pid}{doing}")
            }
            (Life::Running, None) => "balancer: a process that has no number here".to_owned(),
            (Life::Stopped, Some(pid)) => {
                let doing = doing.map_or_else(String::new, |doing| format!("; stopped in the middle of: {doing}"));
                format!("BALANCER STOPPED: process {pid} does nothing until `kill -CONT {pid}`{doing}")
            }
            _ => {
                let doing = |doing| {
                    format!(": the last one ended in the middle of: {doing}; `homenode balance --release` undoes it")
                };
                format!("no balancer runs{}", self.doing.as_ref().map_or_else(String::new, doing))
            }
        }
    }
}

/// Opens the source that the arguments name.
///
/// # Errors
/// Bad input, or a host that cannot be read.
pub(crate) fn open(arguments: &SourceArguments) -> anyhow::Result<Source> {
    let (host, name) = match arguments {
        SourceArguments { replay: Some(path), .. } => {
            let recording = Recording::open(path).map_err(bad_input)?;
            (Host::Recorded(Box::new(recording)), format!("recording {}", path.display()))
        }
        SourceArguments { on: Some(choice), trace: Some(path), .. } => {
            let host = balance_trace::host(choice, path)?;
            (Host::Modelled(Box::new(host)), format!("trace {}", path.display()))
        }
        SourceArguments { connect: Some(uri), .. } => (Host::Elsewhere(Box::new(remote_host::open(uri)?)), uri.clone()),
        _ => (Host::Here(Box::new(balancer_host::open(None, false)?)), HERE.to_owned()),
    };
    Ok(Source { host, name, first: None })
}

impl Source {
    /// What it is, in words.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The machine.
    pub(crate) fn machine(&self) -> &Machine {
        match &self.host {
            Host::Here(host) => host.machine(),
            Host::Elsewhere(host) => host.machine(),
            Host::Recorded(recording) => recording.machine(),
            Host::Modelled(host) => host.machine(),
        }
    }

    /// Whether time passes there by itself. A recording goes on from one look to the next.
    pub(crate) fn lives(&self) -> bool {
        !matches!(self.host, Host::Recorded(_) | Host::Modelled(_))
    }

    /// Of what does not live: how long after its first look this one is.
    pub(crate) fn since_start_seconds(&self, observation: &Observation) -> Option<f64> {
        let first = self.first.filter(|_| !self.lives())?;
        Some(observation.at.0.saturating_sub(first.0) as f64 / 1000.0)
    }

    /// The next look; `None` where what is looked at has ended.
    ///
    /// # Errors
    /// Nothing at all can be read.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<Observation>> {
        let next = self.look()?;
        self.first = self.first.or(next.as_ref().map(|seen| seen.at));
        Ok(next)
    }

    fn look(&mut self) -> anyhow::Result<Option<Observation>> {
        match &mut self.host {
            Host::Recorded(recording) => recording.look().map_err(bad_input),
            Host::Modelled(host) if host.has_ended() => Ok(None),
            host => host.any().observe().map(Some).context("nothing can be seen"),
        }
    }

    /// An observation with rates: what happened in `interval`; of what does not live, the last one.
    ///
    /// # Errors
    /// Nothing at all can be read.
    pub(crate) fn watch(&mut self, interval: Duration) -> anyhow::Result<Observation> {
        if !self.lives() {
            let mut last = self.next()?.context("nothing was seen")?;
            while let Some(observation) = self.next()? {
                last = observation;
            }
            return Ok(last);
        }
        self.host.any().observe().context("nothing can be seen")?;
        thread::sleep(interval);
        self.host.any().observe().context("nothing can be seen")
    }

    /// The same with what is slow to learn: settings, limits, policies of memory.
    ///
    /// # Errors
    /// Nothing at all can be read.
    pub(crate) fn examine(&mut self, interval: Duration) -> anyhow::Result<Observation> {
        match &mut self.host {
            Host::Modelled(_) => self.watch(interval),
            Host::Recorded(recording) => recording.examine().map_err(bad_input),
            host => examine(host.any(), interval),
        }
    }

    /// What a balancer knows of it; the defaults where there is none and was none.
    pub(crate) fn remembered(&self, state: &StateArguments) -> Remembered {
        match &self.host {
            Host::Here(_) => Remembered::of_this_host(state),
            // Nobody balances it: what a policy would do there, `balance --on --trace` says.
            Host::Modelled(_) | Host::Elsewhere(_) => Remembered::default(),
            Host::Recorded(recording) => Remembered {
                policy: recording.policy().clone(),
                balance: recording.state().clone(),
                ..Remembered::default()
            },
        }
    }
}

/// All that can be seen of a host, with rates: what happened in `interval`.
///
/// # Errors
/// Nothing at all can be read.
pub(crate) fn examine(host: &mut dyn Observe, interval: Duration) -> anyhow::Result<Observation> {
    host.observe().context("nothing can be seen")?;
    thread::sleep(interval);
    host.examine().context("nothing can be seen")
}

impl Remembered {
    /// What a balancer of this host remembers; the defaults where there is none and was none.
    pub(crate) fn of_this_host(state: &StateArguments) -> Self {
        // A state that was named is that of another host, or of another time.
        let holder = if state.state.is_none() { balancer_place::lock_holder() } else { None };
        let watched = |seen: Watched| Self {
            balancer: Some(BalancerNow::of(&seen).or_holder(holder)),
            policy: seen.saved.policy,
            balance: seen.saved.balance,
            records: Some(seen.saved.vms),
        };
        let none = || Self { balancer: holder.map(BalancerNow::of_holder), ..Self::default() };
        balancer_place::look(state).map_or_else(none, watched)
    }

    /// Where everybody lives and should live.
    pub(crate) fn homes(&self, machine: &Machine, observation: &Observation) -> Homes {
        homes(machine, &self.policy.balance, &self.balance, observation)
    }

    /// Puts the policy's rules for single VMs on what was seen.
    pub(crate) fn rule(&self, observation: &mut Observation) {
        Rules::new(self.policy.vms.clone()).apply(observation);
    }
}

impl Host {
    fn any(&mut self) -> &mut dyn Observe {
        match self {
            Self::Here(host) => host.as_mut(),
            Self::Elsewhere(host) => host.as_mut(),
            Self::Recorded(recording) => recording.as_mut(),
            Self::Modelled(host) => host.as_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balancer_that_does_nothing_is_told_from_one_that_works() {
        let now = |life, pid, doing: Option<&str>| {
            let doing = doing.map(str::to_owned);
            BalancerNow { pid, life, silent_seconds: Some(1.0), doing, doing_seconds: Some(3.2) }.sentence()
        };
        assert_eq!(now(Life::Running, Some(7), None), "balancer: process 7");
        let at_work = "balancer: process 7, at work for 3 s: VM web: memory follows";
        assert_eq!(now(Life::Running, Some(7), Some("VM web: memory follows")), at_work);
        let stopped = now(Life::Stopped, Some(7), None);
        assert_eq!(stopped, "BALANCER STOPPED: process 7 does nothing until `kill -CONT 7`");
        assert_eq!(now(Life::Dead, None, None), "no balancer runs");
        // The last one was killed, and the one after it was stopped before it wrote anything.
        let killed = |holder| {
            let doing = Some("VM web: home 0".to_owned());
            let now = BalancerNow { pid: None, life: Life::Dead, silent_seconds: None, doing, doing_seconds: None };
            now.or_holder(holder).sentence()
        };
        let us = std::process::id();
        assert_eq!(killed(Some(Some(us))), format!("balancer: process {us}"));
        assert_eq!(killed(Some(None)), "balancer: a process that has no number here");
        assert!(killed(None).contains("--release"));
        let killed = now(Life::Dead, None, Some("VM web: home 0"));
        assert!(killed.contains("in the middle of: VM web: home 0") && killed.contains("--release"), "{killed}");
    }
}
