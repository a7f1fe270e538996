//! Applications: programs whose figure is the time of a run. The model runs their profiles; on a
//! host run kernels in their place, where `[kernels]` names some.

mod check;
mod narrow;
mod ratios;
mod section;
mod team;

pub use narrow::{Widths, narrowed};
pub(crate) use ratios::times;
pub use ratios::{Outcome, Ratio, cells, outcomes, ratios};
pub use section::{Comparison, PublishedRatio, RatioTable, Section, Shows};

pub(crate) use check::first_fault;

use crate::figure::{Figure, seconds, share};
use crate::modelled::{Load, ModelledError, REMOTE_SHARE, Setting, threads_by_node};
use simulator::RateSolver;
use simulator::application::{time, utilisation};
use std::collections::BTreeMap;

/// Times of all applications of [`Setting::profiles`] at all points of a configuration, the share
/// of the first one's memory traffic that leaves its node, and how busy the machine is with the
/// most processes of the first one.
///
/// # Errors
/// The machine lacks threads for a point, a profile is none of an application, or rates cannot be
/// computed.
pub(crate) fn predict(
    setting: &Setting,
    solver: &mut dyn RateSolver,
) -> Result<(Vec<Figure>, Option<Load>), ModelledError> {
    let mut figures = Vec::new();
    let mut load = None;
    for profile in setting.profiles {
        let application = profile.application.as_ref().ok_or_else(|| ModelledError::Unknown {
            field: "application.profiles".to_owned(),
            value: profile.name.clone(),
            valid: "a profile with [application]; this one has kernels, which are rates".to_owned(),
        })?;
        for point in &setting.resolved.points {
            let Some(threads) = point.width() else { continue };
            if team::is_too_wide_without_smt(setting, threads) {
                continue;
            }
            let team = team::team(setting, application, threads)?;
            let unsolved = |reason| setting.unsolved(&format!("{} with {threads} processes", profile.name), reason);
            let time = time(application, setting.model, &team, solver).map_err(unsolved)?;
            figures.push(setting.figure(point, seconds(&profile.name), time.seconds()));
            let is_first = setting.profiles.first().is_some_and(|first| first.name == profile.name);
            if is_first && application.memory.is_some() {
                figures.push(setting.figure(point, share(REMOTE_SHARE), team.remote_share()));
                let busy = utilisation(application, setting.model, &team, solver).map_err(unsolved)?;
                let mut by_node = BTreeMap::new();
                threads_by_node(&team.works, 1.0, &mut by_node);
                load = busy.map(|utilisation| Load {
                    configuration: setting.configuration.name.clone(),
                    figure: profile.name.clone(),
                    threads,
                    utilisation,
                    threads_by_node: by_node,
                });
            }
        }
    }
    Ok((figures, load))
}
