//! A trace as a file that people write.
//!
//! What VMs want, never where they live. Each thing has a default that says the usual:
//!
//! ```toml
//! seconds = 1800
//!
//! [[vm]]
//! name = "web"
//! vcpus = 4
//! memory = "8 GiB"
//! busy = 2.5              # CPUs, all its life
//!
//! [[vm]]
//! name = "db"
//! arrives = 300           # seconds
//! ends = 1500
//! vcpus = 16
//! virtual_nodes = 2
//! memory = "64 GiB"
//! kind = "chasing"
//! [[vm.phase]]
//! busy = 1
//! resident = "8 GiB"      # touched so far
//! [[vm.phase]]
//! after = 600             # seconds from its arrival
//! busy = 12
//! ```

use super::{Arrival, Trace};
use crate::Profile;
use crate::host::{ClientShape, Phase, Reuse, VmShape};
use scheduler::{Mobility, Moment, USUAL_SHARES};
use serde::Deserialize;
use topology::{Bytes, NodeSet, TomlError, TomlText};
use vm::Stated;

/// The longest trace: 31 days.
const LONGEST_S: f64 = 31.0 * 86_400.0;
/// Part of the traffic of a virtual node that goes to the others of its VM, as generated traces
/// have it.
const SIBLING_PART: f64 = 0.15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceFile {
    name: Option<String>,
    seconds: f64,
    #[serde(default)]
    seed: u64,
    #[serde(default, rename = "vm")]
    vms: Vec<VmEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VmEntry {
    name: String,
    #[serde(default)]
    arrives: f64,
    ends: Option<f64>,
    vcpus: u32,
    #[serde(default = "one")]
    virtual_nodes: u32,
    memory: Bytes,
    #[serde(default)]
    kind: Kind,
    #[serde(default = "usual_shares")]
    shares: u32,
    node_affinity: Option<NodeSet>,
    #[serde(default)]
    memory_fixed: bool,
    #[serde(default)]
    latency_sensitive: bool,
    #[serde(default)]
    prefer_ht: bool,
    busy: Option<f64>,
    #[serde(default, rename = "phase")]
    phases: Vec<PhaseEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseEntry {
    #[serde(default)]
    after: f64,
    busy: f64,
    resident: Option<Bytes>,
    kind: Option<Kind>,
}

/// How a guest uses memory.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Mixed,
    Streaming,
    Chasing,
    Computing,
}

impl Kind {
    fn profile(self) -> Profile {
        match self {
            Self::Mixed => Profile::mixed(),
            Self::Streaming => Profile::streaming(),
            Self::Chasing => Profile::chasing(),
            Self::Computing => Profile::computing(),
        }
    }

    /// Of a virtual node with so many vCPUs.
    fn reuse(self, vcpus: u32) -> Reuse {
        let working_set = Bytes(Reuse::USUAL_FOR_A_VCPU.0 * u64::from(vcpus));
        match self {
            Self::Mixed => Reuse::mixed(working_set),
            Self::Streaming => Reuse::default(),
            Self::Chasing => Reuse::chasing(working_set),
            Self::Computing => Reuse::computing(working_set),
        }
    }
}

fn one() -> u32 {
    1
}

fn usual_shares() -> u32 {
    USUAL_SHARES
}

impl Trace {
    /// Reads and checks a trace. `file` only names the text in errors.
    ///
    /// # Errors
    /// The first thing in it that cannot be used, with its line.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, TomlError> {
        let text = TomlText::new(text, file);
        let read: TraceFile = text.read()?;
        if !(1.0..=LONGEST_S).contains(&read.seconds) {
            return Err(text.fault("seconds", format!("expected 1 to {LONGEST_S}")));
        }
        if read.vms.is_empty() {
            return Err(text.fault("vm", "no VM is described: write [[vm]] with a name, vcpus, memory and busy".into()));
        }
        for (index, vm) in read.vms.iter().enumerate() {
            if let Some((field, problem)) = vm.fault(read.seconds) {
                return Err(text.fault(&format!("vm[{index}]{field}"), problem));
            }
        }
        let mut arrivals: Vec<Arrival> = read.vms.iter().map(VmEntry::arrival).collect();
        arrivals.sort_by_key(|arrival| arrival.at);
        let name = read.name.unwrap_or_else(|| file.to_owned());
        Ok(Self { name, seed: Some(read.seed), ends: moment(read.seconds), arrivals })
    }
}

impl VmEntry {
    /// The first field that cannot be used, and why.
    fn fault(&self, seconds: f64) -> Option<(String, String)> {
        let fault = |field: &str, problem: String| Some((format!(".{field}"), problem));
        if !(0.0..seconds).contains(&self.arrives) {
            return fault("arrives", format!("expected seconds from 0 to before the end of the trace, {seconds}"));
        }
        if self.ends.is_some_and(|ends| !ends.is_finite() || ends <= self.arrives) {
            return fault("ends", format!("expected seconds after its arrival, {}", self.arrives));
        }
        if !(1..=4096).contains(&self.vcpus) {
            return fault("vcpus", "expected 1 to 4096".into());
        }
        if !(1..=self.vcpus.min(64)).contains(&self.virtual_nodes) {
            return fault("virtual_nodes", format!("expected 1 to {}: each needs a vCPU", self.vcpus.min(64)));
        }
        if self.memory < Bytes::MIB {
            return fault("memory", "expected 1 MiB or more".into());
        }
        match (self.busy, self.phases.is_empty()) {
            (None, true) => {
                return fault("busy", "how many CPUs it wants is missing: give busy, or [[vm.phase]]".into());
            }
            (Some(_), false) => return fault("busy", "its phases say that too: keep one of the two".into()),
            (Some(busy), true) => {
                if let Some(problem) = self.too_busy(busy) {
                    return fault("busy", problem);
                }
            }
            (None, false) => {}
        }
        let mut last = 0.0;
        for (number, phase) in self.phases.iter().enumerate() {
            let fault = |field: &str, problem: String| Some((format!(".phase[{number}].{field}"), problem));
            if number == 0 && phase.after != 0.0 {
                return fault("after", "the first phase begins with the VM: leave it out, or write 0".into());
            }
            if !phase.after.is_finite() || phase.after < last {
                return fault("after", format!("expected seconds not before those of the phase above, {last}"));
            }
            if let Some(problem) = self.too_busy(phase.busy) {
                return fault("busy", problem);
            }
            if phase.resident.is_some_and(|resident| resident > self.memory) {
                return fault("resident", format!("expected at most its memory, {}", self.memory));
            }
            last = phase.after;
        }
        None
    }

    fn too_busy(&self, busy: f64) -> Option<String> {
        let valid = (0.0..=f64::from(self.vcpus)).contains(&busy);
        (!valid).then(|| format!("expected CPUs from 0 to its vCPUs, {}", self.vcpus))
    }

    fn arrival(&self) -> Arrival {
        let clients = (0..self.virtual_nodes).map(|number| self.client(number)).collect();
        let because = "its trace says so".to_owned();
        let vm = VmShape {
            name: self.name.clone(),
            shares: self.shares,
            mobility: if self.memory_fixed { Mobility::MemoryFixed { because } } else { Mobility::Movable },
            node_affinity: self.node_affinity.clone(),
            latency_sensitive: self.latency_sensitive,
            stated: Stated { prefer_ht: self.prefer_ht, ..Stated::default() },
            guest: None,
            clients,
        };
        Arrival { at: moment(self.arrives), leaves: self.ends.map(moment), vm }
    }

    /// One virtual node: its equal part of all.
    fn client(&self, number: u32) -> ClientShape {
        let nodes = self.virtual_nodes;
        let vcpus = self.vcpus / nodes + u32::from(number < self.vcpus % nodes);
        let part = f64::from(vcpus) / f64::from(self.vcpus);
        let memory = |bytes: Bytes| Bytes((bytes.0 as f64 * part) as u64);
        let phase = |after: f64, busy: f64, resident: Option<Bytes>, kind: Kind| Phase {
            after_ms: moment(after).0,
            busy: busy * part,
            resident: memory(resident.unwrap_or(self.memory)),
            profile: kind.profile(),
            reuse: kind.reuse(vcpus),
        };
        let phases = match self.busy {
            Some(busy) => vec![phase(0.0, busy, None, self.kind)],
            None => {
                let of = |one: &PhaseEntry| phase(one.after, one.busy, one.resident, one.kind.unwrap_or(self.kind));
                self.phases.iter().map(of).collect()
            }
        };
        let sibling_part = if nodes > 1 { SIBLING_PART } else { 0.0 };
        ClientShape { vcpus, memory: memory(self.memory), held_part: 0.0, sibling_part, phases }
    }
}

fn moment(seconds: f64) -> Moment {
    Moment((seconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: &str = "seconds = 1800\n[[vm]]\nname = \"db\"\narrives = 300\nends = 1500\nvcpus = 10\nvirtual_nodes = \
        4\nmemory = \"20 GiB\"\n[[vm.phase]]\nbusy = 1\nresident = \"5 GiB\"\n[[vm.phase]]\nafter = 600\nbusy = \
        8\nkind = \"chasing\"\n";

    #[test]
    fn virtual_nodes_get_their_parts_by_vcpus() {
        // 10 vCPUs on 4 nodes: 3, 3, 2, 2; of 20 GiB 6, 6, 4, 4; of 8 busy CPUs 2.4, 2.4, 1.6, 1.6.
        let trace = Trace::from_toml(DB, "day.toml").unwrap();
        assert_eq!((trace.name.as_str(), trace.ends, trace.check()), ("day.toml", Moment(1_800_000), Ok(())));
        let arrival = &trace.arrivals[0];
        assert_eq!((arrival.at, arrival.leaves), (Moment(300_000), Some(Moment(1_500_000))));
        let vcpus: Vec<u32> = arrival.vm.clients.iter().map(|client| client.vcpus).collect();
        assert_eq!(vcpus, [3, 3, 2, 2]);
        assert_eq!(arrival.vm.clients[0].memory, Bytes(6 << 30));
        let phases = &arrival.vm.clients[2].phases;
        assert_eq!((phases[0].resident, phases[1].resident), (Bytes(1 << 30), Bytes(4 << 30)));
        assert!((phases[1].busy - 1.6).abs() < 1e-9 && phases[1].after_ms == 600_000);
        assert_eq!((phases[0].profile, phases[1].profile), (Profile::mixed(), Profile::chasing()));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_line() {
        let vm = "seconds = 60\n[[vm]]\nname = \"a\"\nvcpus = 2\nmemory = \"1 GiB\"\n";
        for (text, parts) in [
            ("seconds = 0\n".to_owned(), ["day.toml:1", "seconds = 0", "expected 1 to"]),
            ("seconds = 60\n".to_owned(), ["day.toml", "vm", "no VM is described"]),
            (vm.to_owned(), ["day.toml", "vm[0].busy", "give busy, or [[vm.phase]]"]),
            (format!("{vm}busy = 3\n"), ["day.toml:6", "vm[0].busy = 3", "from 0 to its vCPUs, 2"]),
            (format!("{vm}busy = 1\narrives = 60\n"), ["day.toml:7", "vm[0].arrives = 60", "before the end"]),
            (format!("{vm}busy = 1\nvirtual_nodes = 3\n"), ["day.toml:7", "virtual_nodes = 3", "expected 1 to 2"]),
            (format!("{vm}busy = 1\nkind = \"fast\"\n"), ["day.toml:7", "kind", "`streaming`"]),
            (format!("{vm}[[vm.phase]]\nafter = 5\nbusy = 1\n"), ["day.toml:7", "phase[0].after = 5", "first phase"]),
            (
                format!("{vm}[[vm.phase]]\nbusy = 1\nresident = \"2 GiB\"\n"),
                ["day.toml:8", "vm[0].phase[0].resident", "at most its memory, 1 GiB"],
            ),
        ] {
            let error = Trace::from_toml(&text, "day.toml").unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{part} in {error}");
            }
        }
    }
}
