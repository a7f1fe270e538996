//! What a guest is told of its CPUs and last-level caches (`-smp`, `-cpu`).

use super::option_groups::OptionGroups;
use super::options::Options;
use super::sizes::is_yes;
use serde::{Deserialize, Serialize};

/// What a guest is told of its CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCpus {
    /// Virtual sockets.
    pub sockets: u32,
    /// Dies in a socket.
    pub dies: u32,
    /// Cores in a die.
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
    /// What it is told of its last-level caches.
    #[serde(default)]
    pub caches: GuestCaches,
}

/// What a guest is told of its last-level caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestCaches {
    /// One for each die: what QEMU makes up.
    #[default]
    OnePerDie,
    /// The host's own, by the host's numbers of CPUs.
    Passthrough,
    /// None.
    Disabled,
}

impl GuestCaches {
    /// What QEMU's arguments say: `-cpu host,host-cache-info=on`, `-cpu host,l3-cache=off`.
    pub fn of(groups: &OptionGroups<'_>) -> Self {
        let cpu = Options::parse(groups.text("cpu").unwrap_or_default(), "model");
        match (cpu.is_on("host-cache-info"), cpu.get("l3-cache").is_none_or(is_yes)) {
            (true, _) => Self::Passthrough,
            (false, false) => Self::Disabled,
            _ => Self::OnePerDie,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_what_the_cpu_is_told() {
        let of = |cpu: &str| GuestCaches::of(&OptionGroups::of(&["qemu", "-cpu", "x", "-cpu", cpu].map(str::to_owned)));
        assert_eq!(of("host,migratable=off,host-cache-info=on"), GuestCaches::Passthrough);
        assert_eq!(of("qemu64,l3-cache=off"), GuestCaches::Disabled);
        assert_eq!((of("host"), of("host,host-cache-info=off")), (GuestCaches::OnePerDie, GuestCaches::OnePerDie));
    }
}
