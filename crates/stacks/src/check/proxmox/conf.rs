//! A configuration as values, and what changes in it.

use super::numa::NumaNode;
use super::values;
use judge::Spot;
use std::collections::{BTreeMap, BTreeSet};
use topology::words::quoted;
use topology::{Bytes, CpuSet};

/// qemu-server's `$MAX_NUMA`.
pub(super) const MOST_NUMA: u32 = 8;
/// What it takes without a word.
const USUAL_MEMORY_MIB: u64 = 512;
/// Options in the order in which commands name them.
const ORDER: [&str; 9] = ["sockets", "cores", "vcpus", "numa", "hugepages", "memory", "hotplug", "affinity", "args"];

/// A value and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) line: u32,
    pub(super) value: String,
}

/// A line that Proxmox cannot read, and starts the VM without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) line: u32,
    pub(super) key: String,
    /// As qemu-server says it.
    pub(super) why: String,
    /// What was likely meant: option and value.
    pub(super) instead: Option<(String, String)>,
}

/// A configuration: the options that Proxmox reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conf {
    pub(super) file: String,
    pub(super) values: BTreeMap<String, Line>,
    pub(super) left_out: Vec<LeftOut>,
    /// As it is from the next start on, where changes wait for that.
    pub(super) next: Option<Box<Conf>>,
}

/// A line of a configuration that becomes another one, or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) key: String,
    /// `None`: the line goes.
    pub(super) value: Option<String>,
}

impl Setting {
    #[allow(clippy::needless_pass_by_value, reason = "a value is a number or a text at hand")]
    pub(super) fn new(key: impl Into<String>, value: impl ToString) -> Self {
        Self { key: key.into(), value: Some(value.to_string()) }
    }

    pub(super) fn gone(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None }
    }

    pub(super) fn line(&self) -> String {
        match &self.value {
            None => format!("# Take the line {} out.", self.key),
            Some(value) => format!("{}: {value}", self.key),
        }
    }
}

/// The options of `qm set` for some settings; it takes one `--delete`.
pub(super) fn options(settings: &[Setting]) -> String {
    let set = |setting: &Setting| Some(format!("--{} {}", setting.key, quoted(setting.value.as_ref()?)));
    let gone: Vec<&str> =
        settings.iter().filter(|setting| setting.value.is_none()).map(|setting| setting.key.as_str()).collect();
    let delete = (!gone.is_empty()).then(|| format!("--delete {}", gone.join(",")));
    settings.iter().filter_map(set).chain(delete).collect::<Vec<_>>().join(" ")
}

impl Conf {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), values: BTreeMap::new(), left_out: Vec::new(), next: None }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|line| line.value.as_str())
    }

    pub(super) fn is_on(&self, key: &str) -> bool {
        self.get(key).is_some_and(values::is_true)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(values::whole).filter(|&number| number > 0)
    }

    /// Virtual sockets; `smp` is their old name.
    pub(super) fn sockets(&self) -> u64 {
        self.number("sockets").or_else(|| self.number("smp")).unwrap_or(1)
    }

    pub(super) fn cores(&self) -> u64 {
        self.number("cores").unwrap_or(1)
    }

    /// vCPUs that it may have.
    pub(super) fn most_vcpus(&self) -> u64 {
        self.sockets().saturating_mul(self.cores())
    }

    /// vCPUs that it starts with: those with the lowest numbers.
    pub(super) fn vcpus(&self) -> u64 {
        self.number("vcpus").unwrap_or_else(|| self.most_vcpus()).min(self.most_vcpus())
    }

    pub(super) fn memory_mib(&self) -> u64 {
        self.get("memory").and_then(values::current).unwrap_or(USUAL_MEMORY_MIB)
    }

    pub(super) fn memory(&self) -> Bytes {
        Bytes::from_mib(self.memory_mib())
    }

    pub(super) fn hotplug(&self) -> BTreeSet<&'static str> {
        self.get("hotplug").and_then(|value| values::hotplug(value).ok()).unwrap_or_else(values::usual_hotplug)
    }

    pub(super) fn affinity(&self) -> Option<CpuSet> {
        self.get("affinity").and_then(values::cpu_set)
    }

    /// The size of huge pages as it is written: `any`, `2`, `1024`.
    pub(super) fn huge_pages(&self) -> Option<&str> {
        self.get("hugepages").map(|value| value.trim_matches('"'))
    }

    /// `numaN` that are written, by number; they count with `numa: 1` only.
    pub(super) fn numa_nodes(&self) -> BTreeMap<u32, NumaNode> {
        let node = |id: u32| Some((id, NumaNode::read(self.get(&numa_key(id))?).ok()?));
        (0..MOST_NUMA).filter_map(node).collect()
    }

    pub(super) fn spot(&self, key: &str) -> Option<Spot> {
        self.values.get(key).map(|line| Spot { at: key.to_owned(), line: Some(line.line) })
    }

    pub(super) fn spots<'a>(&self, keys: impl IntoIterator<Item = &'a str>) -> Vec<Spot> {
        keys.into_iter().filter_map(|key| self.spot(key)).collect()
    }

    /// Where its `numaN` are written.
    pub(super) fn numa_spots(&self) -> Vec<Spot> {
        (0..MOST_NUMA).filter_map(|id| self.spot(&numa_key(id))).collect()
    }

    /// The configuration with these settings; lines that Proxmox cannot read go when it writes it.
    pub(super) fn with(&self, settings: &[Setting]) -> Self {
        let mut conf = self.clone();
        if !settings.is_empty() {
            conf.left_out.clear();
        }
        for setting in settings {
            match &setting.value {
                None => drop(conf.values.remove(&setting.key)),
                Some(value) => {
                    let line = conf.values.get(&setting.key).map_or(0, |line| line.line);
                    conf.values.insert(setting.key.clone(), Line { line, value: value.clone() });
                }
            }
        }
        conf
    }

    /// What makes another configuration of this one.
    pub(super) fn changes_to(&self, other: &Self) -> Vec<Setting> {
        let keys: BTreeSet<&String> = self.values.keys().chain(other.values.keys()).collect();
        let place = |key: &str| {
            let of = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
            let id = key.strip_prefix("numa").and_then(|id| id.parse::<u32>().ok());
            (id.map_or_else(|| of(key), |_| of("numa")), id.map_or(0, |id| id + 1))
        };
        let differs = |key: &&String| self.get(key) != other.get(key);
        let mut settings: Vec<Setting> = keys
            .into_iter()
            .filter(differs)
            .map(|key| Setting { key: key.clone(), value: other.get(key).map(str::to_owned) })
            .collect();
        settings.sort_by_key(|setting| (setting.value.is_none(), place(&setting.key)));
        settings
    }

    /// The number of the VM: what its file is called.
    pub(super) fn id(&self) -> &str {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        name.strip_suffix(".conf").filter(|id| id.parse::<u32>().is_ok()).unwrap_or("VMID")
    }
}

impl Conf {
    /// What names the VM to homenode: its number on its host, else the file.
    pub(super) fn choice(&self) -> &str {
        if self.id() == "VMID" { &self.file } else { self.id() }
    }
}

/// `numa3`.
pub(super) fn numa_key(id: u32) -> String {
    format!("numa{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_has_written_is_one_word_of_the_command() {
        let setting = Setting::new("args", "-device x,y='$(id)' -numa dist,src=0,dst=1,val=21");
        assert_eq!(options(&[setting]), r"--args '-device x,y='\''$(id)'\'' -numa dist,src=0,dst=1,val=21'");
    }

    #[test]
    fn a_command_has_one_delete_at_its_end() {
        let settings = [Setting::gone("numa2"), Setting::new("cores", 4), Setting::gone("numa3")];
        assert_eq!(options(&settings), "--cores 4 --delete numa2,numa3");
    }
}
