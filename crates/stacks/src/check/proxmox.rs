//! A configuration of Proxmox VE (`/etc/pve/qemu-server/ID.conf`) as a VM that somebody shaped, and
//! cures as `qm set`.
//!
//! What it says is read as qemu-server 9.2 carries it out: `affinity` holds for the whole process,
//! `numaN` counts with `numa: 1` only, and without a `numaN` each socket is a virtual node that is
//! bound to nothing. Snapshots (`[name]`) are other VMs.

use crate::domain::{DomainError, Problem};
use crate::emit::proxmox::has_gap;
use judge::{Aspect, Binding, Change, Finding, HugePages, NoTarget, Part, Severity, ShapedNode, ShapedVm, Spot, Spots};
use scheduler::Occupancy;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use topology::input::excerpt;
use topology::limits::{MOST_VCPUS, MOST_VIRTUAL_NODES};
use topology::words::quoted;
use topology::{Bytes, CpuId, CpuSet, Machine, NodeSet};
use vm::qemu::GuestCpus;

/// What qemu-server takes without a word.
const USUAL_MEMORY_MIB: u64 = 512;
/// More is no VM that QEMU starts; less than a number with which arithmetic fails.
const MOST: u64 = 1 << 20;

/// The values of a configuration by key, each with its line.
struct Lines<'a> {
    file: &'a str,
    values: BTreeMap<&'a str, (u32, &'a str)>,
}

/// Whether a text looks like such a configuration: lines of `key: value` from the first on.
pub(super) fn is_one(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_pair = |line: &str| {
        line.split_once(':')
            .is_some_and(|(key, _)| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
    };
    lines.next().is_some_and(is_pair)
}

impl<'a> Lines<'a> {
    fn read(text: &'a str, file: &'a str) -> Self {
        let own = (1..).zip(text.lines()).take_while(|(_, line)| !line.starts_with('['));
        let pairs = own.filter(|(_, line)| !line.starts_with('#'));
        let pair = |(number, line): (u32, &'a str)| {
            line.split_once(':').map(|(key, value)| (key.trim(), (number, value.trim())))
        };
        Self { file, values: pairs.filter_map(pair).collect() }
    }

    fn wrong(&self, key: &str, valid: &str) -> DomainError {
        let (line, value) = self.values.get(key).copied().unwrap_or_default();
        let (key, value, valid) = (key.to_owned(), value.to_owned(), valid.to_owned());
        DomainError::new(self.file, Problem::Proxmox { line, key, value, valid })
    }

    fn number(&self, key: &str, usual: u64) -> Result<u64, DomainError> {
        let Some((_, value)) = self.values.get(key) else { return Ok(usual) };
        let value = value.strip_prefix("current=").unwrap_or(value);
        let number = value.parse().ok().filter(|number| (1..=MOST * 1024).contains(number));
        number.ok_or_else(|| self.wrong(key, "a number from 1"))
    }

    /// A part of a value such as `cpus=0-3,memory=4096`; sets are written with `;`.
    fn part<T: FromStr>(&self, key: &str, part: &str, valid: &str) -> Result<Option<T>, DomainError> {
        let (_, value) = self.values.get(key).copied().unwrap_or_default();
        let found = value.split(',').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == part);
        let parsed = found.map(|(_, text)| text.replace(';', ",").parse());
        parsed.transpose().map_err(|_| self.wrong(key, &format!("{part}={valid} in it")))
    }

    fn spot(&self, key: &str) -> Option<Spot> {
        self.values.get(key).map(|(line, _)| Spot { at: key.to_owned(), line: Some(*line) })
    }
}

/// The VM that a configuration defines.
///
/// # Errors
/// A value is none that Proxmox takes: line, key, value and what would be valid.
pub(super) fn shaped(text: &str, file: &str) -> Result<ShapedVm, DomainError> {
    let lines = Lines::read(text, file);
    let (sockets, cores) = (lines.number("sockets", 1)?, lines.number("cores", 1)?);
    let vcpus = u32::try_from(sockets * cores).ok().filter(|&vcpus| vcpus <= MOST_VCPUS);
    let vcpus = vcpus.ok_or_else(|| lines.wrong("cores", &format!("at most {MOST_VCPUS} vCPUs in all sockets")))?;
    let memory = Bytes::from_mib(lines.number("memory", USUAL_MEMORY_MIB)?);
    let numa = lines.values.get("numa").is_some_and(|(_, value)| *value == "1");
    if numa && sockets > MOST_VIRTUAL_NODES as u64 {
        let valid = format!("at most {MOST_VIRTUAL_NODES}, each a virtual node");
        return Err(lines.wrong("sockets", &valid));
    }
    let told = (0..8).filter(|id| numa && lines.values.contains_key(format!("numa{id}").as_str()));
    let mut nodes = told.map(|id| node(&lines, id)).collect::<Result<Vec<_>, _>>()?;
    if nodes.is_empty() {
        let count = if numa { sockets as u32 } else { 1 };
        let each = vcpus / count.max(1);
        let of = |id: u32| (id * each..(id + 1) * each).map(CpuId).collect();
        let part = Bytes(memory.0 / u64::from(count.max(1)));
        nodes = (0..count)
            .map(|id| ShapedNode { id, vcpus: of(id), memory: part, own_binding: true, ..ShapedNode::default() })
            .collect();
    }
    for (from, to, value) in distances(&lines) {
        if let Some(node) = nodes.iter_mut().find(|node| node.id == from) {
            node.distances.insert(to, value);
        }
    }
    let affinity: Option<CpuSet> = match lines.values.get("affinity") {
        Some((_, value)) => Some(value.parse().map_err(|_| lines.wrong("affinity", "CPUs such as 0-3,8"))?),
        None => None,
    };
    let huge = lines.values.get("hugepages").and_then(|(_, value)| value.parse().ok()).map(Bytes::from_mib);
    Ok(ShapedVm {
        name: lines.values.get("name").map_or_else(|| format!("VM {}", id_of(file)), |(_, name)| (*name).to_owned()),
        vcpus,
        memory: nodes.iter().map(|node| node.memory).sum(),
        guest: GuestCpus { sockets: sockets as u32, dies: 1, cores: cores as u32, threads: 1, ..GuestCpus::default() },
        vnuma: nodes.len() > 1,
        pins: affinity.iter().flat_map(|cpus| (0..vcpus).map(|vcpu| (vcpu, cpus.clone()))).collect(),
        emulator: affinity,
        huge_pages: huge.map(|size| HugePages { size: Some(size), cells: None }).into_iter().collect(),
        spots: spots(&lines, vcpus),
        nodes,
        ..ShapedVm::default()
    })
}

fn node(lines: &Lines<'_>, id: u32) -> Result<ShapedNode, DomainError> {
    let key = format!("numa{id}");
    let vcpus: Option<CpuSet> = lines.part(&key, "cpus", "0-3")?;
    let memory: Option<u64> = lines.part(&key, "memory", "MiB")?;
    let nodes: Option<NodeSet> = lines.part(&key, "hostnodes", "0-1")?;
    let policy: Option<String> = lines.part(&key, "policy", "bind")?;
    let mode = match policy.as_deref() {
        Some("interleave") => "interleave",
        Some("preferred") => "preferred",
        _ => "strict",
    };
    let vcpus = vcpus.ok_or_else(|| lines.wrong(&key, "cpus=0-3 in it"))?;
    let memory = memory.filter(|mib| *mib <= MOST * 1024).ok_or_else(|| lines.wrong(&key, "memory=MiB in it"))?;
    let binding = nodes.map(|nodes| Binding { mode: mode.to_owned(), nodes });
    Ok(ShapedNode { id, vcpus, memory: Bytes::from_mib(memory), binding, own_binding: true, ..ShapedNode::default() })
}

/// Distances that `args` hands to QEMU: `-numa dist,src=0,dst=1,val=21`.
fn distances(lines: &Lines<'_>) -> Vec<(u32, u32, u32)> {
    let (_, args) = lines.values.get("args").copied().unwrap_or_default();
    let of = |word: &str| {
        let field = |name: &str| {
            word.split(',').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?.1.parse().ok()
        };
        word.starts_with("dist,").then(|| Some((field("src")?, field("dst")?, field("val")?))).flatten()
    };
    args.split_whitespace().filter_map(of).collect()
}

fn spots(lines: &Lines<'_>, vcpus: u32) -> Spots {
    let cells = (0..8).flat_map(|id| {
        let key = format!("numa{id}");
        [(Part::Cell(id), key.clone()), (Part::MemoryNode(id), key)]
    });
    let keys = [
        (Part::Memory, "memory"),
        (Part::Vcpus, "cores"),
        (Part::Topology, "sockets"),
        (Part::Emulator, "affinity"),
        (Part::HugePages, "hugepages"),
    ];
    let all = keys.map(|(part, key)| (part, key.to_owned())).into_iter().chain(cells);
    let pins = (0..vcpus).map(|vcpu| (Part::VcpuPin(vcpu), "affinity".to_owned()));
    Spots(all.chain(pins).filter_map(|(part, key)| Some((part, lines.spot(&key)?))).collect())
}

/// The number of a VM: what its file is called.
fn id_of(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.strip_suffix(".conf").filter(|id| id.parse::<u32>().is_ok()).unwrap_or("VMID")
}

/// What is wrong with it, each finding with its cure as a `qm set`.
pub(super) fn check(machine: &Machine, others: &Occupancy, vm: &ShapedVm, text: &str, file: &str) -> Vec<Finding> {
    let judgement = judge::definition(machine, others, vm);
    let mut findings = judgement.findings.clone();
    for finding in &mut findings {
        let changes: BTreeSet<Aspect> = finding.cure.changes.clone();
        let change = judgement.change(&changes);
        let words = change.as_ref().map(|change| words(change, text, file)).unwrap_or_default();
        let unbound = change.as_ref().map(unbound).unwrap_or_default();
        if !unbound.is_empty() {
            finding.cure.advice = unbound.join("; ");
        }
        if !words.is_empty() {
            finding.cure.commands = vec![format!("qm set {} {}", id_of(file), words.join(" "))];
            finding.cure.restart = true;
        } else if !changes.is_empty() {
            finding.cure.changes.clear();
            if change.as_ref().is_some_and(Change::binds_each_vcpu) {
                finding.cure.advice = "Proxmox binds no single vCPU, and no balancer takes one off isolated CPUs: a \
                    hookscript can (taskset -cp CPU THREAD for each vCPU, after each start); or leave these CPUs out of \
                    isolcpus"
                    .to_owned();
            } else if unbound.is_empty() {
                finding.cure.advice =
                    "Proxmox binds no single vCPU: `homenode balance` on that host brings each to its home".to_owned();
            }
        }
    }
    findings
}

/// Virtual nodes that Proxmox cannot bind to their homes, each as a sentence.
fn unbound(change: &Change<'_>) -> Vec<String> {
    let gaps = change.bindings().into_iter().filter(|(_, _, home)| has_gap(home));
    gaps.map(|(id, _, home)| {
        format!(
            "the home {home} of virtual node {id} has a gap, and Proxmox hands QEMU only one range of host nodes \
            rightly: its memory stays unbound, and `homenode balance` on that host keeps it at home"
        )
    })
    .collect()
}

/// The options of `qm set` that bring about a change; none where it is as Proxmox can have it
/// already.
fn words(change: &Change<'_>, text: &str, file: &str) -> Vec<String> {
    settings(change, text, file).iter().map(Setting::option).collect()
}

/// A line of a configuration that becomes another one, or goes.
struct Setting {
    key: String,
    /// `None`: the line goes.
    value: Option<String>,
}

impl Setting {
    #[allow(clippy::needless_pass_by_value, reason = "a value is a number or a text at hand")]
    fn new(key: impl Into<String>, value: impl ToString) -> Self {
        Self { key: key.into(), value: Some(value.to_string()) }
    }

    fn option(&self) -> String {
        match &self.value {
            None => format!("--delete {}", self.key),
            // Of `args` everything but the distances is what somebody wrote there.
            Some(value) => format!("--{} {}", self.key, quoted(value)),
        }
    }

    fn line(&self) -> String {
        match &self.value {
            None => format!("# Take the line {} out.", self.key),
            Some(value) => format!("{}: {value}", self.key),
        }
    }
}

/// What a change sets, without what the configuration has already.
fn settings(change: &Change<'_>, text: &str, file: &str) -> Vec<Setting> {
    let (vm, target) = (change.vm(), change.target);
    let mut settings = Vec::new();
    let guest = change.guest();
    if guest != vm.guest {
        settings.push(Setting::new("sockets", guest.sockets));
        settings.push(Setting::new("cores", guest.cores * guest.threads));
    }
    let bindings = change.bindings();
    if !bindings.is_empty() {
        settings.push(Setting::new("numa", 1));
    }
    for (id, mode, nodes) in &bindings {
        let Some(node) = target.nodes.iter().find(|node| node.id == *id) else { continue };
        let policy = if mode == "strict" { "bind" } else { mode };
        let (cpus, memory) = (node.vcpus.to_string().replace(',', ";"), node.memory.mib());
        let value = match has_gap(nodes) {
            false => format!("cpus={cpus},hostnodes={nodes},memory={memory},policy={policy}"),
            // Huge pages are taken from the nodes that are named, and Proxmox starts no VM of them
            // without.
            true if !vm.huge_pages.is_empty() => continue,
            true => format!("cpus={cpus},memory={memory}"),
        };
        settings.push(Setting::new(format!("numa{id}"), value));
    }
    let gone = vm.nodes.iter().filter(|node| target.reshaped && node.id as usize >= target.nodes.len());
    settings.extend(gone.map(|node| Setting { key: format!("numa{}", node.id), value: None }));
    let pins = change.pins();
    let homes = target.nodes.iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    let moves = (!pins.vcpus.is_empty() || pins.emulator.is_some()) && !change.binds_each_vcpu();
    if moves && vm.emulator.as_ref() != Some(&homes) {
        settings.push(Setting::new("affinity", homes));
    }
    if change.changes_distances() && told(vm) != target.distances {
        settings.push(Setting::new("args", arguments(&target.distances, text, file)));
    }
    let lines = Lines::read(text, file);
    let now = |setting: &Setting| lines.values.get(setting.key.as_str()).map(|(_, value)| (*value).to_owned());
    settings.retain(|setting| setting.value.is_none() || now(setting) != setting.value);
    settings
}

/// The configuration with these settings.
fn with(settings: &[Setting], text: &str) -> String {
    let own = text.lines().take_while(|line| !line.starts_with('['));
    let key = |line: &str| line.split_once(':').map(|(key, _)| key.trim().to_owned());
    let stays = |line: &&str| key(line).is_none_or(|key| settings.iter().all(|setting| setting.key != key));
    let kept = own.filter(stays).map(str::to_owned);
    kept.chain(settings.iter().map(Setting::line)).map(|line| line + "\n").collect()
}

/// Lines that bring a VM that exists to its home, with the `qm set` that writes the same, and what
/// is still wrong with them.
///
/// # Errors
/// No home can be named.
pub(super) fn numa_lines(
    machine: &Machine,
    others: &Occupancy,
    vm: &ShapedVm,
    text: &str,
    file: &str,
) -> Result<String, DomainError> {
    let aspects = BTreeSet::from([Aspect::Shape, Aspect::Home, Aspect::Topology, Aspect::Distances]);
    let judgement = judge::definition(machine, others, vm);
    let no_home = |error: NoTarget| DomainError::new(file, error);
    let change = judgement.try_change(&aspects).map_err(no_home)?;
    let settings = settings(&change, text, file);
    let after = shaped(&with(&settings, text), file)?;
    let mut written = format!("# VM {} on {}: ", excerpt(&vm.name), excerpt(&machine.name));
    if settings.is_empty() {
        written += "its configuration has all of its NUMA lines already.\n";
    } else {
        let options: Vec<String> = settings.iter().map(Setting::option).collect();
        written += "the NUMA lines that its configuration lacks or has otherwise, and the command that writes them.\n";
        written += &format!("# qm set {} {}\n", id_of(file), options.join(" "));
    }
    let left = judge::definition(machine, others, &after).findings;
    let left = left.iter().filter(|finding| finding.severity > Severity::Note);
    let left = left.map(|finding| finding.sentence.clone()).chain(unbound(&change));
    written.extend(left.map(|sentence| format!("# WARNING: {sentence}\n")));
    written.extend(settings.iter().map(|setting| setting.line() + "\n"));
    Ok(written)
}

/// What the guest is told: 10 and 20 where nothing is written.
fn told(vm: &ShapedVm) -> Vec<Vec<u32>> {
    let value = |from: &ShapedNode, to: &ShapedNode| match from.id == to.id {
        true => 10,
        false => from.distances.get(&to.id).or_else(|| to.distances.get(&from.id)).copied().unwrap_or(20),
    };
    vm.nodes.iter().map(|from| vm.nodes.iter().map(|to| value(from, to)).collect()).collect()
}

/// The `args` with these distances: Proxmox has no option of its own for them.
fn arguments(distances: &[Vec<u32>], text: &str, file: &str) -> String {
    let lines = Lines::read(text, file);
    let (_, args) = lines.values.get("args").copied().unwrap_or_default();
    let kept: Vec<&str> =
        args.split(" -numa dist,").next().into_iter().filter(|rest| !rest.starts_with("-numa dist,")).collect();
    let row = |(from, row): (usize, &Vec<u32>)| {
        let of = move |(to, value): (usize, &u32)| format!("-numa dist,src={from},dst={to},val={value}");
        row.iter().enumerate().map(of).collect::<Vec<_>>().join(" ")
    };
    let told: Vec<String> = distances.iter().enumerate().map(row).collect();
    kept.into_iter().filter(|rest| !rest.is_empty()).map(str::to_owned).chain(told).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_has_written_is_one_word_of_the_command() {
        let setting = Setting::new("args", "-device x,y='$(id)' -numa dist,src=0,dst=1,val=21");
        assert_eq!(setting.option(), r"--args '-device x,y='\''$(id)'\'' -numa dist,src=0,dst=1,val=21'");
    }
}
