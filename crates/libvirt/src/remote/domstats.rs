//! The answer of `virsh domstats`.

use crate::DomainState;
use std::collections::BTreeMap;
use std::time::Duration;
use topology::Bytes;

/// What a domain uses. `None`: its hypervisor does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainStats {
    /// What it does.
    pub state: Option<DomainState>,
    /// CPU time of the whole domain since it started.
    pub cpu_time: Option<Duration>,
    /// vCPUs that it has now.
    pub vcpus: Option<u32>,
    /// Memory that the guest has now, after the balloon.
    pub memory: Option<Bytes>,
    /// Resident memory of its process, of whichever node; huge pages do not count.
    pub resident: Option<Bytes>,
    /// By vCPU.
    pub by_vcpu: BTreeMap<u32, VcpuStats>,
}

/// What a vCPU used since the domain started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuStats {
    /// CPU time.
    pub time: Option<Duration>,
    /// Time in which it was ready to run and had no CPU.
    pub delay: Option<Duration>,
}

/// Domains by name.
pub fn parse(text: &str) -> BTreeMap<String, DomainStats> {
    let mut domains = BTreeMap::<String, DomainStats>::new();
    let mut name = None;
    for line in text.lines() {
        // A name may hold quotes, but no end of line; figures are indented.
        if let Some(found) = line.strip_prefix("Domain: '").and_then(|rest| rest.strip_suffix('\'')) {
            name = Some(found.to_owned());
            domains.entry(found.to_owned()).or_default();
        } else if let (Some(name), Some((key, value))) = (&name, line.trim().split_once('='))
            && let Ok(value) = value.parse::<u64>()
        {
            take(domains.entry(name.clone()).or_default(), key, value);
        }
    }
    domains
}

fn take(stats: &mut DomainStats, key: &str, value: u64) {
    let kib = || value.checked_mul(1024).map(Bytes);
    match key {
        "state.state" => stats.state = Some(state(value)),
        "cpu.time" => stats.cpu_time = Some(Duration::from_nanos(value)),
        "vcpu.current" => stats.vcpus = u32::try_from(value).ok(),
        "balloon.current" => stats.memory = kib(),
        "balloon.rss" => stats.resident = kib(),
        _ => {
            let Some((vcpu, what)) = key.strip_prefix("vcpu.").and_then(|rest| rest.split_once('.')) else { return };
            let Ok(vcpu) = vcpu.parse::<u32>() else { return };
            match what {
                "time" => stats.by_vcpu.entry(vcpu).or_default().time = Some(Duration::from_nanos(value)),
                "delay" => stats.by_vcpu.entry(vcpu).or_default().delay = Some(Duration::from_nanos(value)),
                _ => {}
            }
        }
    }
}

/// libvirt's `virDomainState`.
fn state(number: u64) -> DomainState {
    match number {
        1 | 2 => DomainState::Running,
        3 => DomainState::Paused,
        4 => DomainState::ShuttingDown,
        5 => DomainState::ShutOff,
        6 => DomainState::Crashed,
        7 => DomainState::Suspended,
        _ => DomainState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_each_domain() {
        let text = "Domain: \
            'it's'\n  state.state=1\n  cpu.time=510000000\n  balloon.current=65536\n  balloon.rss=55536\n  vcpu.current=2\n  vcpu.0.state=1\n  vcpu.0.time=90000000\n  vcpu.0.delay=255567501\n  vcpu.1.time=0\nDomain: 'b'\n  state.state=3\n";
        let domains = parse(text);
        let one = &domains["it's"];
        assert_eq!((one.state, one.vcpus), (Some(DomainState::Running), Some(2)));
        assert_eq!((one.memory, one.resident), (Some(Bytes::from_mib(64)), Some(Bytes(55536 << 10))));
        assert_eq!(one.by_vcpu[&0].delay, Some(Duration::from_nanos(255_567_501)));
        assert_eq!(one.by_vcpu[&1], VcpuStats { time: Some(Duration::ZERO), delay: None });
        // What is not told is not zero.
        assert_eq!(domains["b"], DomainStats { state: Some(DomainState::Paused), ..DomainStats::default() });
    }

    #[test]
    fn nonsense_is_passed_over() {
        assert!(parse("vcpu.0.time=1\nerror\n").is_empty());
        let odd =
            parse("Domain: 'a'\n  vcpu.x.time=1\n  vcpu.1=2\n  balloon.rss=18446744073709551615\n  cpu.time=-1\n");
        assert_eq!(odd["a"], DomainStats::default());
    }
}
