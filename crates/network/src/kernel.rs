//! The kernel's network, by iproute2's programs: they say each error in words, and their JSON is
//! the kernel's answer. All that is asked at once is one program's start.

use crate::NetworkError;
use crate::rate::{Delay, Rate};
use crate::seen::Traffic;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// Time that a link's queue holds: of a switch for offices, some 1 MB at 1 Gbit/s.
const QUEUE_MS: u64 = 10;
/// Time's worth of frames that go at once: timers of a busy host are late by less.
const BURST_MS: u64 = 1;
/// A whole frame with all headers must go at once.
const LEAST_BURST_BYTES: u64 = 4 << 10;
const LEAST_QUEUE_BYTES: u64 = 64 << 10;

/// An interface, as `ip` tells of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Interface {
    pub(crate) ifname: String,
    #[serde(default)]
    pub(crate) ifindex: u32,
    #[serde(default)]
    pub(crate) mtu: u32,
    #[serde(default)]
    pub(crate) master: Option<String>,
    #[serde(default)]
    pub(crate) ifalias: Option<String>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    addr_info: Vec<Address>,
    #[serde(default)]
    stats64: Counters,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    local: String,
    scope: String,
}

impl Interface {
    /// Addresses of IP that somebody gave it; the kernel makes those of the scope `link` itself.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        let given = self.addr_info.iter().filter(|address| address.scope != "link");
        given.map(|address| address.local.as_str()).collect()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.flags.iter().any(|flag| flag == "UP")
    }

    /// What came in from its other side.
    pub(crate) fn received(&self) -> Traffic {
        self.stats64.rx.traffic()
    }

    /// What went out to its other side.
    pub(crate) fn sent(&self) -> Traffic {
        self.stats64.tx.traffic()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Counters {
    rx: Counted,
    tx: Counted,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Counted {
    bytes: u64,
    packets: u64,
    dropped: u64,
}

impl Counted {
    fn traffic(&self) -> Traffic {
        Traffic { bytes: self.bytes, frames: self.packets, dropped: self.dropped }
    }
}

/// What a queue at the outlet of an interface counted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Queue {
    pub(crate) drops: u64,
    pub(crate) overlimits: u64,
}

#[derive(Deserialize)]
struct NamedQueue {
    dev: String,
    #[serde(default)]
    root: bool,
    #[serde(flatten)]
    counted: Queue,
}

/// Interfaces of this namespace.
pub(crate) fn interfaces() -> Result<Vec<Interface>, NetworkError> {
    read("ip", &["-json", "-statistics", "link", "show"])
}

/// Interfaces of this namespace with their addresses of IP.
pub(crate) fn addresses() -> Result<Vec<Interface>, NetworkError> {
    read("ip", &["-json", "address", "show"])
}

/// Interfaces of this namespace of one kind, such as `bridge`.
pub(crate) fn of_kind(kind: &str) -> Result<Vec<Interface>, NetworkError> {
    read("ip", &["-json", "link", "show", "type", kind])
}

/// Whether Open vSwitch has a bridge of that name; it is none of the kernel's bridges.
pub(crate) fn is_of_open_vswitch(name: &str) -> bool {
    let mut asks = Command::new("ovs-vsctl");
    asks.args(["--timeout=5", "br-exists", name]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without the program, or its database, there is none.
    asks.status().is_ok_and(|status| status.success())
}

/// The outermost queue of each interface that has one.
pub(crate) fn queues() -> Result<BTreeMap<String, Queue>, NetworkError> {
    let queues: Vec<NamedQueue> = read("tc", &["-json", "-statistics", "qdisc", "show"])?;
    Ok(queues.into_iter().filter(|queue| queue.root).map(|queue| (queue.dev, queue.counted)).collect())
}

/// Lines for `ip -batch`: a bridge that hands every frame on at once.
pub(crate) fn bridge_lines(bridge: &str) -> String {
    format!(
        "link add name {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         link set dev {bridge} addrgenmode none up\n"
    )
}

/// Lines for `ip -batch`: a cable between two bridges.
pub(crate) fn cable_lines(ends: [&str; 2], bridges: [&str; 2]) -> String {
    let [here, there] = ends;
    let mut lines = format!("link add name {here} type veth peer name {there}\n");
    for (end, bridge) in ends.into_iter().zip(bridges) {
        lines += &format!("link set dev {end} addrgenmode none master {bridge} up\n");
    }
    lines
}

/// Lines for `tc -batch`: what leaves by an interface has this rate, and this delay behind it.
pub(crate) fn outlet_lines(interface: &str, rate: Option<Rate>, delay: Option<Delay>) -> String {
    let mut lines = String::new();
    if let Some(rate) = rate {
        let bits = rate.bits_per_second();
        let bytes_in = |ms: u64| bits / 8 * ms / 1000;
        let (burst, queue) = (bytes_in(BURST_MS).max(LEAST_BURST_BYTES), bytes_in(QUEUE_MS).max(LEAST_QUEUE_BYTES));
        lines += &format!("qdisc add dev {interface} root handle 1: tbf rate {bits}bit burst {burst} limit {queue}\n");
    }
    if let Some(delay) = delay {
        let place = if rate.is_some() { "parent 1:1 handle 2:" } else { "root handle 2:" };
        let microseconds = delay.microseconds();
        // Frames that are on the way at once, of the fastest link: none is lost for lack of room.
        lines += &format!("qdisc add dev {interface} {place} netem delay {microseconds}us limit 1000000\n");
    }
    lines
}

/// Makes a macvtap device on a virtual card of this namespace, and removes both.
pub(crate) fn try_macvtap() -> Result<(), NetworkError> {
    // No port is called `t`.
    let made =
        batch("ip", "link add name t0 type veth peer name t1\nlink add link t0 name t2 type macvtap mode bridge\n");
    let removed = batch("ip", "link delete dev t0\n");
    made.and(removed)
}

/// Gives a program lines, and says what it did not like.
pub(crate) fn batch(program: &'static str, lines: &str) -> Result<(), NetworkError> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| NetworkError::NoProgram { program, source })?;
    if let Some(mut input) = child.stdin.take() {
        match input.write_all(lines.as_bytes()) {
            // It has seen enough: what it says follows.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.map_err(|source| NetworkError::NoProgram { program, source })?,
        }
    }
    let output = child.wait_with_output().map_err(|source| NetworkError::NoProgram { program, source })?;
    if output.status.success() { Ok(()) } else { Err(refused(program, &output.stderr)) }
}

fn read<T: for<'a> Deserialize<'a>>(program: &'static str, arguments: &[&str]) -> Result<Vec<T>, NetworkError> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|source| NetworkError::NoProgram { program, source })?;
    if !output.status.success() {
        return Err(refused(program, &output.stderr));
    }
    // Nothing at all is how `tc` says that there is none.
    let text = if output.stdout.trim_ascii().is_empty() { b"[]".as_slice() } else { &output.stdout };
    let unread = |error| NetworkError::Refused { program, said: format!("what is no JSON of ours: {error}"), cure: "" };
    serde_json::from_slice(text).map_err(unread)
}

/// What a program said, without the line of our batch that it names.
fn refused(program: &'static str, stderr: &[u8]) -> NetworkError {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Command failed"));
    // What follows begins with the end of this sentence.
    let said = lines.map(|line| line.trim_end_matches('.')).collect::<Vec<_>>().join("; ");
    let cure = if said.contains("Specified qdisc kind is unknown") || said.contains("qdisc not found") {
        ". This kernel lacks that queue: `modprobe sch_netem` for delays, `modprobe sch_tbf` for rates; without them \
        leave `delay` or `rate` out"
    } else if said.contains("Operation not permitted") {
        ". That needs CAP_NET_ADMIN: root has it"
    } else if said.contains("Unknown device type") || said.contains("Operation not supported") {
        ". This kernel lacks such devices: `modprobe bridge`, `modprobe veth`, `modprobe macvtap`"
    } else {
        ""
    };
    NetworkError::Refused { program, said, cure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_token_bucket_and_a_delay_behind_it() {
        // 1 Gbit/s = 125000000 bytes/s: 125000 in 1 ms, 1250000 in 10 ms.
        let lines = outlet_lines("u1", Some("1 Gbit/s".parse().unwrap()), Some("0.5 ms".parse().unwrap()));
        let expected = "qdisc add dev u1 root handle 1: tbf rate 1000000000bit burst 125000 limit 1250000\n\
             qdisc add dev u1 parent 1:1 handle 2: netem delay 500us limit 1000000\n";
        assert_eq!(lines, expected);
        // 1 Mbit/s = 125000 bytes/s: 125 in 1 ms, less than a frame; 1250 in 10 ms.
        let slow = outlet_lines("u1", Some("1 Mbit/s".parse().unwrap()), None);
        assert_eq!(slow, "qdisc add dev u1 root handle 1: tbf rate 1000000bit burst 4096 limit 65536\n");
        assert_eq!(outlet_lines("u1", None, None), "");
    }

    #[test]
    fn what_ip_and_tc_tell_is_read() {
        let text = r#"[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK"],"mtu":65536},
            {"ifname":"p1","master":"lan","ifalias":"vm/0","stats64":
                {"rx":{"bytes":10,"packets":2,"errors":0,"dropped":1},"tx":{"bytes":3,"packets":1}}}]"#;
        let interfaces: Vec<Interface> = serde_json::from_str(text).unwrap();
        assert_eq!(interfaces[0].master, None);
        assert_eq!(interfaces[1].received(), Traffic { bytes: 10, frames: 2, dropped: 1 });
        assert_eq!(interfaces[1].sent(), Traffic { bytes: 3, frames: 1, dropped: 0 });
    }

    #[test]
    fn a_kernel_without_delays_is_named() {
        let said = b"Error: Specified qdisc kind is unknown.\nCommand failed -:2\n";
        let error = refused("tc", said).to_string();
        assert!(error.starts_with("`tc` says: Error: Specified qdisc kind is unknown. This kernel lacks"), "{error}");
    }
}
