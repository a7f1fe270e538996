//! Threads that walk through pages on random nodes: which of them are at remote memory changes from
//! page to page, and the rates with it. A mean over the nodes would miss that, and that the slowest
//! thread ends the run.

use super::Setting;
use simulator::events::{Actor, Outcome, Phase, RunError, Simulation};
use simulator::threads::Arrangement;
use simulator::threads::streams::groups;
use simulator::traces::Random;
use simulator::{Active, Classes, CoreWork, Profile, RateSolver, SolveError};
use topology::rates::LINE_BYTES;

/// Pages that a thread walks through before it waits for the others: an array of 5 x 10^7 elements
/// has 191 pages of 2 MB, 8 threads have about 24 each of both arrays that Copy uses.
const PAGES: usize = 50;
/// Bytes of a page: a large page of the hypervisor.
const PAGE_BYTES: f64 = 2_097_152.0;
/// Placements of pages that are averaged.
const DRAWS: u64 = 8;

/// MB/s of a kernel whose pages lie on random nodes of each thread's memory, all threads waiting
/// for the last one.
pub(super) fn rate(
    setting: &Setting,
    solver: &mut dyn RateSolver,
    arrangements: &[Arrangement],
    profile: &Profile,
) -> Result<f64, RunError> {
    let mut mb_per_s = 0.0;
    for (index, arrangement) in arrangements.iter().enumerate() {
        for draw in 0..DRAWS {
            let mut random = Random::part(setting.seed, 1000 * index as u64 + draw);
            let (outcome, threads) = walk(setting, solver, arrangement, profile, &mut random)?;
            let lines = f64::from(threads) * PAGES as f64 * PAGE_BYTES / LINE_BYTES;
            mb_per_s +=
                arrangement.weight / DRAWS as f64 * 1000.0 * lines * profile.counted_bytes_per_line / outcome.end_ns;
        }
    }
    Ok(mb_per_s)
}

fn walk(
    setting: &Setting,
    solver: &mut dyn RateSolver,
    arrangement: &Arrangement,
    profile: &Profile,
    random: &mut Random,
) -> Result<(Outcome, u32), RunError> {
    // What it found before was on other kinds of work.
    solver.forget();
    let mut run = Simulation::new(setting.model.stations().len(), Borrowed(solver));
    let (mut core, mut threads) = (0, 0);
    for (work, count) in &arrangement.works {
        let mut at_node = Vec::new();
        for &(node, share) in &work.memory {
            let alone = CoreWork { threads: 1, memory: vec![(node, 1.0)], ..work.clone() };
            let group = groups(setting.model, profile, &[(alone, 1.0)], 0.0).remove(0);
            at_node.push((share, run.memory(&group)?));
        }
        for _ in 0..count.round() as u32 {
            for _ in 0..work.threads {
                let page = |_| {
                    let mut left = random.unit();
                    let drawn = at_node.iter().find(|(share, _)| {
                        left -= share;
                        left < 0.0
                    });
                    let memory = drawn.or(at_node.last()).map(|(_, memory)| *memory);
                    memory.map(|memory| Phase::Memory { memory, lines: PAGE_BYTES / LINE_BYTES })
                };
                let phases: Vec<Phase> = (0..PAGES).filter_map(page).collect();
                run.actor(Actor::new(core, phases));
                threads += 1;
            }
            core += 1;
        }
    }
    Ok((run.run()?, threads))
}

/// A solver that someone else owns.
struct Borrowed<'a>(&'a mut dyn RateSolver);

impl RateSolver for Borrowed<'_> {
    fn rates(&mut self, classes: &Classes, active: &[Active], lines_per_ns: &mut Vec<f64>) -> Result<(), SolveError> {
        lines_per_ns.clear();
        if active.is_empty() { Ok(()) } else { self.0.rates(classes, active, lines_per_ns) }
    }

    fn forget(&mut self) {
        self.0.forget();
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}
