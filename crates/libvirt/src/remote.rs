//! Nodes and domains of a libvirt's host, look by look, with one run of `virsh` each.

mod cache;
mod domstats;
mod held;
mod observing;
mod rates;

pub use domstats::{DomainStats, VcpuStats};
pub use observing::of_definitions;
#[doc(hidden)]
pub use {cache::cached, domstats::parse as domstats};

use crate::capabilities::{free_memory, owned};
use crate::{Connection, LibvirtError};
use scheduler::{ObserveError, Occupancy};
use stacks::domain::{self, Domain};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topology::{Bytes, CpuId, Machine, NodeId};

/// libvirt is asked for the time of each CPU on its own, a round trip each: on larger hosts the
/// load of a node stays unknown.
const MOST_CPUS_ASKED: usize = 256;

/// The host of a libvirt, to be looked at again and again.
#[derive(Debug)]
pub struct Remote {
    connection: Connection,
    machine: Machine,
    /// UUIDs of the domains that ran at the last look.
    known: Vec<String>,
    /// The beginning of its clock.
    began: Instant,
    /// The last look of [`Observe::observe`](scheduler::Observe::observe): rates begin there.
    before: Option<Look>,
    /// Whether this libvirt understands `--nowait`, with which a domain that does not answer holds
    /// up nobody.
    nowait: bool,
}

/// What was seen at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// When: half-way between question and answer.
    pub at: Instant,
    /// Free memory, where libvirt says.
    pub free: BTreeMap<NodeId, Bytes>,
    /// Time of each CPU since the host started, where libvirt says.
    pub cpus: BTreeMap<CpuId, CpuTimes>,
    /// Domains that run, by name.
    pub domains: Vec<RemoteDomain>,
}

/// How a CPU has spent its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// At work: for programs, the kernel and interrupts.
    pub busy: Duration,
    /// At work or idle.
    pub whole: Duration,
}

/// A domain that runs.
#[derive(Clone, Debug)]
pub struct RemoteDomain {
    /// Its UUID.
    pub uuid: String,
    /// What its XML says now.
    pub domain: Domain,
    /// What it uses.
    pub stats: DomainStats,
}

impl Remote {
    /// Asks for the machine.
    ///
    /// # Errors
    /// As [`Connection::machine`].
    pub fn open(connection: Connection) -> Result<Self, LibvirtError> {
        let machine = connection.machine()?;
        Ok(Self { connection, machine, known: Vec::new(), began: Instant::now(), before: None, nowait: true })
    }

    /// The host.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// One look. Domains that come and go meanwhile may be left out.
    ///
    /// # Errors
    /// libvirt cannot be reached, or answers strangely.
    pub fn look(&mut self) -> Result<Look, LibvirtError> {
        let began = Instant::now();
        let cpus = self.asked_cpus();
        let mut commands = vec![vec!["list", "--uuid"], vec!["freecell", "--all"], self.domstats()];
        commands.extend(cpus.iter().map(|(_, text)| vec!["nodecpustats", "--cpu", text]));
        commands.extend(self.known.iter().map(|uuid| vec!["dumpxml", "--domain", uuid]));
        let mut answers = self.connection.ask_all(&owned(&commands))?.into_iter();
        let at = began + began.elapsed() / 2;
        let mut next =
            || answers.next().unwrap_or_else(|| Err(self.connection.strange("list", "an answer is missing")));
        let (uuids, free, stats) = (next()?, next().ok(), next());
        let times: Vec<_> = cpus.iter().map(|(cpu, _)| Some((*cpu, cpu_times(&next().ok()?)?))).collect();
        let documents: Vec<_> = self.known.iter().map(|uuid| (uuid.clone(), next())).collect();
        let uuids: Vec<String> = uuids.split_whitespace().map(str::to_owned).collect();
        let stats = self.stats_again(stats)?;
        let domains = self.domains(uuids, documents, &stats)?;
        let free = free.as_deref().map(free_memory).unwrap_or_default();
        Ok(Look { at, free, cpus: times.into_iter().flatten().collect(), domains })
    }

    /// For placement: the machine with what files occupy counted as free, what the domains hold,
    /// and what had to be assumed, as sentences.
    ///
    /// # Errors
    /// libvirt cannot be reached, or answers strangely.
    pub fn occupied(&mut self) -> Result<(Machine, Occupancy, Vec<String>), ObserveError> {
        let observation = self.for_placement()?;
        let mut machine = self.machine.clone();
        for node in &mut machine.nodes {
            node.free = observation.nodes.get(&node.id).and_then(|seen| seen.memory_free).or(node.free);
        }
        let occupancy = Occupancy::of_observation(&observation, &machine);
        Ok((machine, occupancy, observation.unseen_of(None)))
    }

    fn asked_cpus(&self) -> Vec<(CpuId, String)> {
        let online: Vec<CpuId> =
            self.machine.threads.iter().filter(|thread| thread.online).map(|thread| thread.id).collect();
        let asked = if online.len() <= MOST_CPUS_ASKED { online } else { Vec::new() };
        asked.into_iter().map(|cpu| (cpu, cpu.to_string())).collect()
    }

    fn domstats(&self) -> Vec<&'static str> {
        let mut command = vec!["domstats", "--list-active", "--state", "--cpu-total", "--balloon", "--vcpu"];
        command.extend(self.nowait.then_some("--nowait"));
        command
    }

    /// Asks again without `--nowait` where that may have been why there was no answer. Drivers of
    /// some hypervisors have none either way.
    fn stats_again(
        &mut self,
        answer: Result<String, LibvirtError>,
    ) -> Result<BTreeMap<String, DomainStats>, LibvirtError> {
        let text = match answer {
            Err(_) if self.nowait => {
                self.nowait = false;
                self.connection.ask_all(&owned(&[self.domstats()]))?.pop().and_then(Result::ok)
            }
            answer => answer.ok(),
        };
        Ok(text.as_deref().map(domstats::parse).unwrap_or_default())
    }

    /// Puts domains together; those that are new are asked for in a second run.
    fn domains(
        &mut self,
        uuids: Vec<String>,
        documents: Vec<(String, Result<String, LibvirtError>)>,
        stats: &BTreeMap<String, DomainStats>,
    ) -> Result<Vec<RemoteDomain>, LibvirtError> {
        let new: Vec<&str> =
            uuids.iter().map(String::as_str).filter(|uuid| !self.known.iter().any(|known| known == uuid)).collect();
        let asked = if new.is_empty() { Vec::new() } else { self.connection.domain_xmls(&new)? };
        let new = new.into_iter().map(str::to_owned).zip(asked);
        let mut domains = Vec::new();
        for (uuid, document) in documents.into_iter().filter(|(uuid, _)| uuids.contains(uuid)).chain(new) {
            let text = match document {
                Ok(text) => text,
                Err(error) if error.is_no_such_domain() => continue,
                Err(error) => return Err(error),
            };
            let domain = domain::parse(&text, &format!("domain {uuid}"))
                .map_err(|error| self.connection.strange("dumpxml", error.to_string()))?;
            let stats = stats.get(&domain.name).cloned().unwrap_or_default();
            domains.push(RemoteDomain { uuid, domain, stats });
        }
        domains.sort_by(|one, other| one.domain.name.cmp(&other.domain.name));
        self.known = uuids;
        Ok(domains)
    }
}

/// Times of a CPU, from lines such as `user:   1916560000000`, in nanoseconds.
#[doc(hidden)]
pub fn cpu_times(text: &str) -> Option<CpuTimes> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().parse::<u64>().ok()
    };
    // Hypervisors need not tell interrupts from the system, nor waiting for disks from idling.
    let busy = value("user")?.checked_add(value("system")?)?.checked_add(value("intr").unwrap_or(0))?;
    let whole = busy.checked_add(value("idle")?)?.checked_add(value("iowait").unwrap_or(0))?;
    Some(CpuTimes { busy: Duration::from_nanos(busy), whole: Duration::from_nanos(whole) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_says_nothing_is_given_up() {
        // It takes the connection, and then is silent.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let uri = format!("qemu+tcp://{}/system", silent.local_addr().expect("an address"));
        match Connection::new(Some(&uri)).with_limit(Duration::from_secs(2)).machine() {
            Err(LibvirtError::NoVirsh { .. }) => eprintln!("SKIPPED a_host_that_says_nothing_is_given_up: no virsh"),
            Err(error) => assert_eq!(error.to_string(), "libvirt: capabilities and 3 more: no answer within 2 s"),
            Ok(machine) => panic!("{machine:?}"),
        }
    }

    #[test]
    fn a_cpu_is_busy_for_users_and_system() {
        let text = "user:                1000000000\nsystem:               500000000\nidle:                9000000000\niowait:              1000000000\n";
        let expected = CpuTimes { busy: Duration::from_millis(1500), whole: Duration::from_millis(11500) };
        assert_eq!(cpu_times(text), Some(expected));
        assert_eq!(cpu_times("user: 1\nsystem: 1\n"), None);
    }
}
