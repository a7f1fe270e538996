//! What each kind of network needs, and whether it is here: tried where that leaves nothing.

use crate::host::helper;
use crate::{Fabric, NetworkError, Switch, SwitchKind, Uplink, kernel};
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vm::spec::SwitchName;

/// Root's right over networks, a bit of `CapEff` (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;
/// Runs as its owner (inode(7)).
const SETUID: u32 = 0o4000;

/// A kind of network, or what one may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// As a spec or a command says it.
    pub name: &'static str,
    /// Why this user has none of it here, with what helps; `None` where it works.
    pub lacks: Option<String>,
    /// What it needs.
    pub needs: &'static str,
    /// What it can and what it costs.
    pub costs: &'static str,
}

/// Looks at this host as this user. Switches are tried in a namespace that goes again. `homenode`:
/// the program whose `switch keep` is the keeper.
///
/// # Errors
/// The kernel does not tell what this process may.
pub fn survey(homenode: &Path) -> std::io::Result<Vec<Kind>> {
    let may = File::open("/proc/self/status").and_then(std::io::read_to_string)?;
    let administers = has(&may, CAP_NET_ADMIN);
    let tried = Tried::of(homenode);
    let bridges = kernel::of_kind("bridge").map_or(0, |bridges| bridges.len());
    Ok(vec![
        Kind {
            name: "kind = \"user\"",
            lacks: None,
            needs: "nothing",
            costs: "QEMU copies each packet; nobody reaches the guest but by forwarded ports",
        },
        Kind {
            name: "kind = \"switch\"",
            lacks: tried.switch,
            needs: "ip, /dev/net/tun, and a network namespace (root, or user namespaces)",
            costs: "the kernel's bridge; a process of 2 MiB for all switches of a user",
        },
        Kind {
            name: "switch --kind vde",
            lacks: without_namespace(homenode).err().map(|error| error.to_string()),
            needs: "vde_switch (Debian: vde2); no right and no namespace",
            costs: "a process for each switch, which copies each packet; no links, one queue, no vhost",
        },
        Kind {
            name: "switch --rate",
            lacks: tried.rate,
            needs: "a switch, tc, and the kernel's sch_tbf",
            costs: "a token bucket for each direction of a link",
        },
        Kind {
            name: "switch --delay",
            lacks: tried.delay,
            needs: "a switch, tc, and the kernel's sch_netem",
            costs: "memory for the frames that are under way",
        },
        Kind {
            name: "switch --bridge, --card",
            lacks: (!administers).then(|| "root: this user has no CAP_NET_ADMIN".to_owned()),
            needs: "root (CAP_NET_ADMIN, CAP_SYS_ADMIN)",
            costs: "a pair of virtual cards more for each frame; a card is the switch's alone",
        },
        Kind {
            name: "kind = \"bridge\"",
            lacks: on_bridge(administers, bridges),
            needs: "a bridge, and root or QEMU's helper",
            costs: "as a switch; the guest is in the host's network",
        },
        Kind {
            name: "kind = \"macvtap\"",
            lacks: tried.macvtap.or_else(|| (!administers).then(|| "root: this user has no CAP_NET_ADMIN".to_owned())),
            needs: "root, the kernel's macvtap, and udev",
            costs: "no bridge on the way; the host itself does not reach its guests by it",
        },
        Kind {
            name: "vhost",
            lacks: vhost(),
            needs: "the kernel's vhost_net, and the right to open /dev/vhost-net",
            costs: "a thread of the kernel for each queue; packets pass QEMU by",
        },
    ])
}

fn has(status: &str, capability: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits >> capability & 1 == 1)
}

fn on_bridge(administers: bool, bridges: usize) -> Option<String> {
    if bridges == 0 {
        return Some(
            "a bridge: this host has none (`ip link add br0 type bridge`, or libvirt's default network)".to_owned(),
        );
    }
    if administers {
        return None;
    }
    match helper() {
        None => Some("root, or qemu-bridge-helper (Debian: qemu-system-common)".to_owned()),
        Some(helper) if !std::fs::metadata(helper).is_ok_and(|it| it.mode() & SETUID != 0) => {
            Some(format!("root, or `chmod u+s {helper}`"))
        }
        Some(_) if !Path::new("/etc/qemu/bridge.conf").exists() => {
            Some("root, or a line `allow BRIDGE` in /etc/qemu/bridge.conf".to_owned())
        }
        Some(_) => None,
    }
}

fn vhost() -> Option<String> {
    let opened = File::options().read(true).write(true).open("/dev/vhost-net");
    let error = opened.err()?;
    Some(match error.kind() {
        std::io::ErrorKind::NotFound => {
            "/dev/vhost-net: `modprobe vhost_net` makes it where the kernel has it".to_owned()
        }
        _ => format!("/dev/vhost-net: {error} (Debian: the group kvm may open it)"),
    })
}

fn plain(name: SwitchName, kind: SwitchKind) -> Switch {
    Switch { name, kind, uplinks: Vec::new(), outside: Vec::new() }
}

/// Makes a switch of the user's own, and plugs a card in.
fn without_namespace(homenode: &Path) -> Result<(), NetworkError> {
    let name = "vde".parse::<SwitchName>().map_err(|error| NetworkError::keeper(error.to_string()))?;
    let mut fabric = Fabric::without_namespace(homenode)?;
    fabric.add(&plain(name.clone(), SwitchKind::Vde))?;
    fabric.plug(&name, "tried/0", 1).map(drop)
}

/// What a throw-away namespace said.
struct Tried {
    switch: Option<String>,
    rate: Option<String>,
    delay: Option<String>,
    macvtap: Option<String>,
}

impl Tried {
    fn of(homenode: &Path) -> Self {
        let why = |error: NetworkError| Some(error.to_string());
        let name = |text: &str| text.parse::<SwitchName>().ok();
        let begun = Fabric::of_our_own(homenode).and_then(|mut fabric| {
            let core = name("core").ok_or_else(|| NetworkError::keeper("knows no name"))?;
            fabric.add(&plain(core.clone(), SwitchKind::Kernel))?;
            fabric.tap(&core, "tried/0", 1).map(|_| (fabric, core))
        });
        let (mut fabric, core) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let switch = why(error);
                let after = Some("a switch".to_owned());
                return Self { rate: after.clone(), delay: after.clone(), macvtap: after, switch };
            }
        };
        let mut link = |switch: &str, uplink: Uplink| {
            let name = name(switch)?;
            fabric.add(&Switch { uplinks: vec![uplink], ..plain(name, SwitchKind::Kernel) }).err().and_then(why)
        };
        let unlimited = Uplink { to: core, rate: None, delay: None };
        let rate = link("rate", Uplink { rate: "1 Gbit/s".parse().ok(), ..unlimited.clone() });
        let delay = link("delay", Uplink { delay: "1 ms".parse().ok(), ..unlimited });
        let macvtap = fabric.try_macvtap().err().and_then(why);
        Self { switch: None, rate, delay, macvtap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_a_bit_of_those_in_effect() {
        // 0x1000 = 1 << 12: CAP_NET_ADMIN alone.
        assert!(has("CapPrm:\t0\nCapEff:\t0000000000001000\n", CAP_NET_ADMIN));
        assert!(!has("CapEff:\t0000000000000fff\n", CAP_NET_ADMIN));
        assert!(!has("", CAP_NET_ADMIN));
    }
}
