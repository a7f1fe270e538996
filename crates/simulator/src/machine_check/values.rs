//! Single values: each in its range, bandwidth within what the channels can carry.

use super::Findings;
use std::ops::RangeInclusive;
use topology::Machine;
use topology::rates::{Flits, Rates, Source, Sourced};

/// Nanoseconds of a load that a file may state: no memory is faster, and none that is slower is
/// memory.
pub(super) const LATENCY_NS: RangeInclusive<f64> = 1.0..=1e6;
/// GB/s of a memory or a link: outside of it, a unit is mistaken.
pub(super) const GB_PER_S: RangeInclusive<f64> = 0.001..=1e6;
/// Microseconds of a message between VMs that a file may state.
const MESSAGE_US: RangeInclusive<f64> = 0.1..=1e6;
/// Lines that a core may have in flight: hundreds where a cache prefetches, not more.
const LINES: RangeInclusive<f64> = 1.0..=10_000.0;
/// Bytes that a channel moves in a transfer.
const CHANNEL_BYTES: f64 = 8.0;

pub(super) fn check(machine: &Machine, rates: &Rates, findings: &mut Findings) {
    let lines = &rates.lines_in_flight_per_core;
    number(
        findings,
        "rates.lines_in_flight_per_core",
        lines,
        |value| LINES.contains(&value),
        "a core has at least 1 line in flight, and at most 10000",
    );
    let latency = &rates.local_latency_ns;
    number(
        findings,
        "rates.local_latency_ns",
        latency,
        |value| LATENCY_NS.contains(&value),
        "memory takes some time: a number above 0, from 1 to 1000000 ns",
    );
    let bandwidth = &rates.node_bandwidth_gb_per_s;
    let possible = |value: f64| GB_PER_S.contains(&value);
    let cure = "a number above 0, from 0.001 to 1000000 GB/s";
    number(findings, "rates.node_bandwidth_gb_per_s", bandwidth, possible, cure);
    smt(machine, rates, findings);
    let above_zero = |value: f64| value > 0.0;
    if let Some(channels) = &rates.channels_per_node {
        let field = "rates.channels_per_node";
        if channels.value == 0 {
            findings.impossible(field, 0, "a node with memory has a channel", "a whole number from 1");
        }
        findings.source(field, channels.value, channels.source, &channels.from);
    }
    if let Some(speed) = &rates.channel_mt_per_s {
        number(findings, "rates.channel_mt_per_s", speed, above_zero, "a number above 0, for example 3200");
    }
    if let Some(port) = &rates.llc_bandwidth_gb_per_s {
        number(
            findings,
            "rates.llc_bandwidth_gb_per_s",
            port,
            possible,
            "a number above 0; leave it out where it never binds",
        );
    }
    if let Some(latency) = &rates.llc_latency_ns {
        let valid = |value: f64| 1.0 <= value && value < rates.local_latency_ns.value;
        number(
            findings,
            "rates.llc_latency_ns",
            latency,
            valid,
            "from 1 ns to less than local_latency_ns, or leave it out",
        );
    }
    if let Some(droop) = &rates.row_conflict_droop {
        let valid = |value: f64| (0.0..0.1).contains(&value);
        number(findings, "rates.row_conflict_droop", droop, valid, "a share from 0 to 0.1, or leave it out");
    }
    if let Some(flits) = &rates.flits {
        check_flits(flits, findings);
    }
    if let Some(network) = &rates.network {
        for (name, way) in [("switch", &network.switch), ("uplink", &network.uplink)] {
            let field = |value: &str| format!("rates.network.{name}.{value}");
            let cure = "a number from 0.1 to 1000000 us: one way, half of a round trip";
            number(findings, &field("latency_us"), &way.latency_us, |value| MESSAGE_US.contains(&value), cure);
            let cure = "a number from 0.001 to 1000000 GB/s; 1 Gbit/s is 0.125";
            number(findings, &field("gb_per_s"), &way.gb_per_s, possible, cure);
        }
    }
    peak(rates, findings);
}

/// A number in its range, with its source.
fn number(findings: &mut Findings, field: &str, sourced: &Sourced<f64>, valid: impl Fn(f64) -> bool, cure: &str) {
    let value = sourced.value;
    if !value.is_finite() {
        findings.impossible(field, value, "it is no number", cure);
    } else if !valid(value) {
        findings.impossible(field, value, "it is out of range", cure);
    }
    findings.source(field, value, sourced.source, &sourced.from);
}

fn smt(machine: &Machine, rates: &Rates, findings: &mut Findings) {
    let field = "rates.smt_yield";
    let threads = machine.threads_per_core();
    match &rates.smt_yield {
        Some(smt) => {
            let cure = "work of a core with both threads busy, in multiples of that with one: from 1 to 2";
            number(findings, field, smt, |value| (1.0..=2.0).contains(&value), cure);
            if threads == 1 {
                findings.doubtful(field, smt.value, "the machine has one thread a core", "leave it out");
            }
        }
        None if threads > 1 => {
            let cure = "add smt_yield = { value = 1.2, source = \"assumed\", from = \"why\" } or a better one";
            findings.missing(
                field,
                format!("a core has {threads} threads, and nothing says what both do together"),
                cure,
            );
        }
        None => {}
    }
}

fn check_flits(flits: &Sourced<Flits>, findings: &mut Findings) {
    let Flits { remote_read, remote_write, local_read_snoop } = flits.value;
    let pairs = [("remote_read", remote_read), ("remote_write", remote_write), ("local_read_snoop", local_read_snoop)];
    for (name, (towards, back)) in pairs {
        if ![towards, back].into_iter().all(|count| count.is_finite() && count >= 0.0) {
            let field = format!("rates.flits.value.{name}");
            let cure = "two numbers from 0: towards the memory, and back";
            findings.impossible(&field, format!("[{towards}, {back}]"), "it is out of range", cure);
        }
    }
    // A line is 8 flits: fewer cannot carry it.
    for (name, data) in [("remote_read", remote_read.1), ("remote_write", remote_write.0)] {
        if (0.0..8.0).contains(&data) {
            let field = format!("rates.flits.value.{name}");
            let cure = "at least 8: the line alone has 8 x 8 bytes";
            findings.impossible(&field, data, "a line does not fit in it", cure);
        }
    }
    let shown = format!("read {remote_read:?}, write {remote_write:?}, snoop {local_read_snoop:?}");
    findings.source("rates.flits", shown, flits.source, &flits.from);
}

/// What a node sustains, against what its channels carry at best.
fn peak(rates: &Rates, findings: &mut Findings) {
    let (Some(channels), Some(speed)) = (&rates.channels_per_node, &rates.channel_mt_per_s) else {
        let field =
            if rates.channels_per_node.is_none() { "rates.channels_per_node" } else { "rates.channel_mt_per_s" };
        let problem = "without it the bandwidth is not checked against what the channels carry";
        // A machine that was measured needs no data sheet.
        if !matches!(rates.node_bandwidth_gb_per_s.source, Source::Measured | Source::Calibrated) {
            findings.doubtful(field, "none", problem, "add channels_per_node and channel_mt_per_s");
        }
        return;
    };
    let peak_gb_per_s = f64::from(channels.value) * speed.value * CHANNEL_BYTES / 1000.0;
    let stated = rates.node_bandwidth_gb_per_s.value;
    if stated > peak_gb_per_s {
        let problem = format!(
            "more than {} channels of {} MT/s carry: {} x {} x 8 bytes = {peak_gb_per_s:.1} GB/s",
            channels.value, speed.value, channels.value, speed.value
        );
        findings.impossible("rates.node_bandwidth_gb_per_s", stated, problem, "lower it, or mend the channels");
    }
}
