//! `homenode balance --replay`: shadow mode.

use crate::args::BalanceArguments;
use crate::commands::balance::{failure, policy};
use crate::output;
use crate::text::count;
use daemon::{Recording, ReplayedPeriod, sentence};
use scheduler::Observe;
use std::path::Path;

/// Decides a recording again, and prints what is decided.
pub(crate) fn run(path: &Path, arguments: &BalanceArguments) -> anyhow::Result<()> {
    let recording = Recording::open(path).map_err(failure)?;
    let another = arguments.policy.as_deref().map(|file| policy(Some(file), recording.machine())).transpose()?;
    let mut totals = Totals::default();
    let mut written = Ok(());
    let each = |period: ReplayedPeriod| {
        totals.add(&period);
        // A full disk is told of once, at the end.
        if written.is_ok() {
            written = if arguments.json { json(&period) } else { print(&period, totals.first) };
        }
    };
    recording.replay(another, each).map_err(failure)?;
    written?;
    if !arguments.json {
        output::line(totals.sentence())?;
    }
    Ok(())
}

#[derive(Default)]
struct Totals {
    first: u64,
    periods: usize,
    decided: usize,
    recorded: usize,
    same: usize,
}

impl Totals {
    fn add(&mut self, period: &ReplayedPeriod) {
        if self.periods == 0 {
            self.first = period.at.0;
        }
        let recorded = period.recorded.as_deref().unwrap_or_default();
        self.periods += 1;
        self.decided += period.decisions.len();
        self.recorded += recorded.len();
        self.same += period.decisions.iter().filter(|decision| recorded.contains(decision)).count();
    }

    fn sentence(&self) -> String {
        let Self { periods, decided, recorded, same, .. } = self;
        let (periods, decided) = (count(*periods, "period"), count(*decided, "decision"));
        format!("{periods} replayed: {decided}, {recorded} were recorded, {same} are the same")
    }
}

fn json(period: &ReplayedPeriod) -> anyhow::Result<()> {
    output::json_line("balance.replay", period)
}

fn print(period: &ReplayedPeriod, first: u64) -> anyhow::Result<()> {
    let at = period.at.0.saturating_sub(first) as f64 / 1000.0;
    let recorded = period.recorded.as_deref().unwrap_or_default();
    for decision in &period.decisions {
        let mark = if recorded.contains(decision) { "as recorded" } else { "now only   " };
        output::line(format_args!("{at:9.1} s  {mark}  {}", sentence(decision)))?;
    }
    for decision in recorded.iter().filter(|decision| !period.decisions.contains(decision)) {
        output::line(format_args!("{at:9.1} s  then only    {}", sentence(decision)))?;
    }
    Ok(())
}
