//! How good the measurement was, and where it ran.

use super::words::NONE;
use super::{Kind, Row, Table};
use crate::summary::{Cell, ConfigurationSummary, Reduced, State, Summary};
use crate::until::{EndedBy, Reached, Widest};

/// A guest's clock that runs faster than this, as a multiple of the host's, is told.
const MOST_GUEST_CLOCK: f64 = 1.1;
/// One that runs slower than this is told too.
const LEAST_GUEST_CLOCK: f64 = 0.9;

/// A row of each configuration at each point.
pub(super) fn tables(summary: &Summary) -> [Table; 2] {
    [repetitions(summary), surroundings(summary)]
}

fn cells(summary: &Summary) -> impl Iterator<Item = &Cell> {
    summary.configurations.iter().flat_map(|configuration| &configuration.cells)
}

fn of_each(
    summary: &Summary,
    title: &str,
    header: &[&str],
    row: fn(&Cell) -> Vec<String>,
    notes: Vec<String>,
) -> Table {
    let labelled = |configuration: &str, cell: &Cell| {
        [configuration.to_owned(), cell.point.to_string()].into_iter().chain(row(cell)).collect()
    };
    let of_one =
        |one: &ConfigurationSummary| one.cells.iter().map(|cell| labelled(&one.name, cell)).collect::<Vec<_>>();
    let rows = summary.configurations.iter().flat_map(of_one);
    Table {
        title: title.to_owned(),
        header: ["Configuration", "Point"].iter().chain(header).map(|&name| name.to_owned()).collect(),
        rows: rows.map(|cells| Row { cells, kind: Kind::Measured }).collect(),
        notes,
    }
}

fn repetitions(summary: &Summary) -> Table {
    let all = || cells(summary);
    let rejected: usize = all().map(|cell| cell.rejected).sum();
    let counted: usize = all().map(|cell| cell.counted).sum();
    let mut notes: Vec<String> = summary.reached.iter().map(ended).collect();
    notes.push(format!(
        "{rejected} repetitions were rejected because other processes used the CPUs; {counted} count. Median \
         and mean of the repetitions \
         against the best, and their standard deviation in per cent of the mean: of the worst kernel. \
         Overlap: share of the time in which all VMs ran the same kernel, median (worst)."
    ));
    if all().any(|cell| cell.state == State::Disturbed) {
        notes.push("~ every repetition was disturbed: the figure is the best of the disturbed ones.".to_owned());
    }
    if all().any(|cell| cell.state == State::Wrong) {
        notes.push("wrong: a job's result was wrong, so it has no figure.".to_owned());
        // The reasons of the first few: the others mostly say the same.
        let of = |one: &ConfigurationSummary| one.cells.iter().filter_map(|cell| cell.wrong.clone()).next();
        let reasons =
            summary.configurations.iter().filter_map(|one| of(one).map(|why| format!("{}: {why}.", one.name)));
        notes.extend(reasons.take(4));
    }
    if all().any(|cell| !cell.figures.is_empty() && !cell.verified) {
        notes.push("? not verified: nobody said how to check that the result is right.".to_owned());
    }
    notes.extend(wrong_clocks(summary));
    let header = ["Counted", "Rejected", "Rounds", "Median/best", "Mean/best", "Deviation", "Overlap"];
    of_each(summary, "How well it was measured", &header, repetitions_of, notes)
}

/// That times of an emulated guest are wrong, where its clock was seen to run fast or slow.
fn wrong_clocks(summary: &Summary) -> Vec<String> {
    let fast = |cell: &Cell| cell.guest_clock.filter(|clock| *clock > MOST_GUEST_CLOCK);
    let slow = |cell: &Cell| cell.slow_guest_clock.filter(|clock| *clock < LEAST_GUEST_CLOCK);
    let names = |of: &dyn Fn(&Cell) -> Option<f64>| {
        let wrong = summary.configurations.iter().filter(|one| one.cells.iter().any(|cell| of(cell).is_some()));
        wrong.map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let told = |how: String, names: String, so: &str| {
        format!(
            "WRONG TIMES: the clock of an emulated guest ran {how} as fast as this host's, which is too busy for it \
             ({names}). Times there are too {so}; check values are not touched by it."
        )
    };
    let most = cells(summary).filter_map(fast).max_by(f64::total_cmp);
    let least = cells(summary).filter_map(slow).min_by(f64::total_cmp);
    let fast = most.map(|most| told(format!("up to {most:.1} times"), names(&fast), "long, and rates too low"));
    let slow = least.map(|least| told(format!("only {least:.2} times"), names(&slow), "short, and rates too high"));
    fast.into_iter().chain(slow).collect()
}

fn repetitions_of(cell: &Cell) -> Vec<String> {
    // A figure that is 0 has no share of its best.
    let least =
        |of: fn(&Reduced) -> f64| cell.figures.iter().map(of).filter(|share| share.is_finite()).min_by(f64::total_cmp);
    let median = least(|figures| figures.quantity.better.ratio(figures.spread.median, figures.best));
    let mean = least(|figures| figures.quantity.better.ratio(figures.spread.mean, figures.best));
    let deviation = |figures: &Reduced| Some(figures.spread.standard_deviation? / figures.spread.mean);
    let deviation = cell.figures.iter().filter_map(deviation).filter(|share| share.is_finite()).max_by(f64::total_cmp);
    let rounds = cell.figures.iter().map(|figures| figures.spread.rounds.len()).min();
    vec![
        match cell.state {
            State::Missing => "missing".to_owned(),
            State::Wrong => "wrong".to_owned(),
            State::Disturbed => format!("{} ~", cell.counted),
            State::Measured => cell.counted.to_string(),
        },
        cell.rejected.to_string(),
        known(rounds.map(|rounds| rounds.to_string())),
        known(median.map(percent)),
        known(mean.map(percent)),
        known(deviation.map(|share| format!("{:.1} %", 100.0 * share))),
        known(cell.overlap.map(|(median, worst)| format!("{:.0} % ({:.0} %)", 100.0 * median, 100.0 * worst))),
    ]
}

/// What ended the rounds.
fn ended(reached: &Reached) -> String {
    let (asked, minutes) = (&reached.asked, reached.minutes);
    let wanted = format!("at most {} % of it wide", asked.interval_percent);
    let spent = format!("{} rounds, {minutes:.1} min", reached.rounds);
    let widest = |one: &Widest| {
        format!(" The widest is {:.1} %: {}, {}, {}.", one.percent, one.configuration, one.quantity, one.point)
    };
    let widest = reached.widest.as_ref().map_or_else(String::new, widest);
    let without = match reached.without {
        0 => String::new(),
        count => format!(" {count} ratios have none yet."),
    };
    match reached.ended_by {
        Some(EndedBy::Intervals) => {
            format!("Rounds ended because the interval of each ratio is {wanted}, after {spent}.{widest}")
        }
        Some(EndedBy::Time) => format!(
            "Rounds ended because {} min were spent: not each ratio has an interval {wanted}, after \
             {spent}.{widest}{without}",
            asked.at_most_minutes
        ),
        Some(EndedBy::Rounds) => {
            format!(
                "Rounds ended because there were too many: not each ratio has an interval {wanted}, after \
                 {spent}.{widest}{without}"
            )
        }
        None => format!("Rounds go on until the interval of each ratio is {wanted}; so far {spent}.{widest}{without}"),
    }
}

fn surroundings(summary: &Summary) -> Table {
    let header = ["CPU use", "Others' CPU", "Steal", "Memory at home", "Large pages"];
    let notes = vec![
        "CPU use: of homenode, its VMs and its agents, in CPUs, median. Others' CPU and steal: the most in a \
         repetition that counts, in per cent \
         of one CPU. Memory at home and large pages (over 4 KiB, as the host maps them): the least, read back \
         after each job."
            .to_owned(),
    ];
    of_each(summary, "Where it ran", &header, surroundings_of, notes)
}

fn surroundings_of(cell: &Cell) -> Vec<String> {
    let has_figures = cell.counted > 0;
    vec![
        known(cell.own_cpu_percent.map(|percent| format!("{:.2}", percent / 100.0))),
        known(has_figures.then(|| format!("{:.0} %", cell.other_cpu_percent))),
        known(has_figures.then(|| format!("{:.1} %", cell.steal_percent))),
        known(cell.local_share.map(percent)),
        known(cell.large_page_share.map(percent)),
    ]
}

fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| NONE.to_owned())
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
