//! What a policy did with the VMs of a trace, as a table of its decisions and one of sums.

use crate::cells::dash;
use crate::text::{count, lines, table, width, wrapped};
use daemon::sentence;
use scheduler::balance::MoveKind;
use scheduler::{Action, Done};
use serde::Serialize;
use simulator::rivals::{Carried, Row};
use std::fmt::Write;
use topology::{Bytes, NodeSet};

/// A run of a trace, and what others made of it.
#[derive(Serialize)]
pub(crate) struct Compared {
    /// The modelled machine.
    pub(crate) machine: String,
    /// The trace.
    pub(crate) trace: String,
    /// What of it could not be run.
    pub(crate) left_out: Vec<String>,
    /// What the balancer decided.
    pub(crate) decisions: Vec<Told>,
    /// The balancer, then no balancing, then the others.
    pub(crate) rows: Vec<Row>,
}

/// A decision as it is shown.
#[derive(Serialize)]
pub(crate) struct Told {
    seconds: f64,
    kind: MoveKind,
    vm: String,
    client: u32,
    /// The home that it was given; `None` for memory.
    home: Option<NodeSet>,
    /// Memory that moved.
    moved: Bytes,
    /// The decision as a sentence, with its reason.
    text: String,
    /// Why it failed.
    failed: Option<String>,
}

impl Told {
    pub(crate) fn of(carried: &Carried) -> Self {
        let action = &carried.decision.action;
        let done: Option<&Done> = carried.outcome.as_ref().ok();
        Self {
            seconds: carried.at.0 as f64 / 1000.0,
            kind: carried.decision.kind,
            vm: action.vm().name.clone(),
            client: action.client().0,
            home: if let Action::Bind { home, .. } = action { Some(home.clone()) } else { None },
            moved: done.map_or(Bytes(0), |done| done.moved),
            text: sentence(&carried.decision),
            failed: carried.outcome.as_ref().err().map(ToString::to_string),
        }
    }
}

/// What stands below the table.
const LEGEND: &str = "Throughput: work as a part of what the VM would do alone on the machine, near its memory. \
    Remote: part of the memory accesses to another node. Waited: for a CPU, beside the CPU time used. \
    docs/balancer-comparison.md says what is modelled and what is not.";

/// The most decisions that are shown one by one.
const SHOWN: usize = 200;

/// All of it.
pub(crate) fn text(compared: &Compared) -> String {
    let Compared { machine, trace, left_out, decisions, rows } = compared;
    let vms = count(rows.first().map_or(0, |row| row.vms), "VM");
    let mut text = format!("{trace}: {vms} on {machine}\nMODELLED: no figure here was measured.\n\n");
    for sentence in left_out {
        let _ = writeln!(text, "Left out: {sentence}");
    }
    let homes: Vec<&Told> = decisions.iter().filter(|one| one.home.is_some()).collect();
    for one in homes.iter().take(SHOWN) {
        let failed = one.failed.as_ref().map_or_else(String::new, |why| format!("; it failed: {why}"));
        let _ = writeln!(text, "{:9.1} s  {}{failed}", one.seconds, one.text);
    }
    if homes.len() > SHOWN {
        let _ = writeln!(text, "... {} more; --json has all of them", homes.len() - SHOWN);
    }
    if !homes.is_empty() {
        text.push('\n');
    }
    let moves = homes.iter().filter(|one| !matches!(one.kind, MoveKind::Adopt | MoveKind::Evacuate)).count();
    let moved: Bytes = decisions.iter().map(|one| one.moved).sum();
    let _ = writeln!(
        text,
        "homenode gave {}, made {}, and moved {moved} of memory.\n",
        count(homes.len() - moves, "home"),
        count(moves, "move")
    );
    if rows.iter().all(|row| row.throughput.is_none()) {
        text.push_str("The VMs were idle: they wanted no CPU, so that there is no throughput to compare.\n\n");
    }
    let header = ["", "Throughput", "Worst VM", "Remote", "Waited", "Moved GiB/h", "Binds/h"];
    let mut table = table(header, &[1, 2, 3, 4, 5, 6]);
    for row in rows {
        let percent = |part: Option<f64>| part.map_or_else(dash, |part| format!("≈{:.1} %", 100.0 * part));
        table.add_row([
            row.rival.clone(),
            row.throughput.map_or_else(|| "idle".to_owned(), |_| percent(row.throughput)),
            percent(row.worst),
            percent(row.remote_part),
            percent(row.waited_part),
            format!("≈{:.1}", row.moved_gib_per_hour()),
            format!("≈{:.0}", row.binds_per_hour()),
        ]);
    }
    text.push_str(&lines(&table));
    text.push_str("\n\n");
    for line in wrapped(LEGEND, width()) {
        text.push_str(&(line + "\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_come_first_and_sums_last() {
        let told = |seconds, kind, home: Option<&str>, moved| Told {
            seconds,
            kind,
            vm: "web".into(),
            client: 0,
            home: home.map(|home| home.parse().unwrap()),
            moved: Bytes::from_mib(moved),
            text: "VM web: gets a home, -> node 1: it is new".into(),
            failed: None,
        };
        let row = |rival: &str, remote_part| Row {
            rival: rival.into(),
            hours: 0.5,
            throughput: Some(0.9),
            worst: Some(0.5),
            remote_part: Some(remote_part),
            waited_part: Some(0.0),
            moved_bytes: 3 << 20,
            binds: 1,
            vms: 1,
        };
        let decisions = vec![
            told(2.0, MoveKind::Adopt, Some("1"), 0),
            told(4.0, MoveKind::Follow, None, 3),
            told(60.0, MoveKind::Load, Some("0"), 0),
        ];
        let rows = vec![row("homenode balance", 0.01), row("Linux default", 0.5)];
        let compared =
            Compared { machine: "m".into(), trace: "day.toml".into(), left_out: Vec::new(), decisions, rows };
        let text = text(&compared);
        assert!(text.starts_with("day.toml: 1 VM on m\nMODELLED"), "{text}");
        assert!(text.contains("      2.0 s  VM web: gets a home, -> node 1"), "{text}");
        assert!(text.contains("homenode gave 1 home, made 1 move, and moved 3 MiB of memory."), "{text}");
        assert!(text.contains("Linux default") && text.contains("≈50.0 %"), "{text}");
    }

    #[test]
    fn vms_that_want_no_cpu_are_idle_and_have_no_throughput() {
        let rows = vec![simulator::rivals::row("homenode balance".into(), scheduler::Moment(60_000), &[])];
        let compared = Compared {
            machine: "m".into(),
            trace: "idle.toml".into(),
            left_out: Vec::new(),
            decisions: Vec::new(),
            rows,
        };
        let text = text(&compared);
        assert!(text.contains("The VMs were idle") && text.contains("idle         -"), "{text}");
        assert!(!text.contains("≈0.0 %"), "{text}");
    }
}
