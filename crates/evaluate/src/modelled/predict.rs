//! From an experiment and machines to figures, each beside the published one.

use super::beside::Beside;
use super::fit::{self, Fitted};
use super::stream::{self, Load};
use super::{ModelledError, Setting};
use crate::applications;
use crate::experiment::{APPLICATION, Configuration, Experiment, NUMA_MATRIX};
use crate::figure::{Figure, Provenance};
use crate::resolve::{Host, ResolvedConfiguration, ResolvedVm, resolve};
use crate::validation::cell::ValidationCell;
use crate::validation::outcome::{StatementOutcome, outcomes};
use serde::{Deserialize, Serialize};
use simulator::workload::WorkloadProfile;
use simulator::{Amva, MachineModel, MaxMin, RateSolver};
use std::collections::BTreeSet;
use topology::rates::Rates;
use topology::read::Described;
use topology::{Bytes, Machine};

/// An experiment on the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Always true: no figure here was measured.
    pub modelled: bool,
    /// Name of the experiment.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The solver of the figures.
    pub solver: String,
    /// The solver of the cross-check.
    pub cross_check_solver: String,
    /// Decides what was drawn where placements were too many to enumerate.
    pub seed: u64,
    /// Version of homenode.
    pub homenode: String,
    /// Commit that it was built from, where known.
    pub commit: Option<String>,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// In the order of the experiment.
    pub configurations: Vec<PredictedConfiguration>,
    /// All figures.
    pub figures: Vec<Figure>,
    /// Those that have a published one, or one that is only a picture.
    pub cells: Vec<ValidationCell>,
    /// What the sources say in words.
    pub statements: Vec<StatementOutcome>,
    /// How busy the machine is.
    pub loads: Vec<Load>,
    /// A measured run of the same experiment, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
}

/// A configuration of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedConfiguration {
    /// Its name.
    pub name: String,
    /// What runs: `on the host`, `2 VMs x 8 vCPUs`.
    pub shape: String,
    /// Whether it runs on the host itself.
    pub native: bool,
    /// The machine.
    pub machine: String,
    /// Home nodes of each VM's clients: `0 | 1`.
    pub homes: Vec<String>,
    /// Whether that is the machine of the published figures, so that errors mean something.
    pub is_published_machine: bool,
}

/// What a prediction is made from.
pub struct Inputs<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The machine of `--on`; without it the experiment's own.
    pub on: Option<&'a Described>,
    /// Machines by the names that an experiment uses.
    pub machines: &'a dyn Fn(&str) -> Option<Described>,
    /// Profiles of the workload, see [`Setting::profiles`].
    pub profiles: &'a [WorkloadProfile],
    /// See [`Setting::seed`].
    pub seed: u64,
}

/// What a configuration stands on.
pub(crate) struct Ground<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) configuration: &'a Configuration,
    pub(crate) resolved: &'a ResolvedConfiguration,
    pub(crate) machine: &'a Machine,
    pub(crate) rates: &'a Rates,
    pub(crate) profiles: &'a [WorkloadProfile],
    pub(crate) seed: u64,
}

impl<'a> Ground<'a> {
    pub(crate) fn setting(&self, model: &'a MachineModel) -> Setting<'a> {
        Setting {
            experiment: self.experiment,
            configuration: self.configuration,
            resolved: self.resolved,
            machine: self.machine,
            model,
            profiles: self.profiles,
            seed: self.seed,
        }
    }
}

/// Runs an experiment on the model.
///
/// # Errors
/// A machine is missing, has no rates, or lacks threads or memory; or rates cannot be computed.
/// There is no figure then.
pub fn predict(inputs: &Inputs) -> Result<Prediction, ModelledError> {
    let experiment = inputs.experiment;
    let mut prediction = empty(inputs);
    let mut without_network = BTreeSet::new();
    let cross_fit = match on_published_machine(inputs) {
        true => refit(inputs, &mut MaxMin::default())?,
        false => None,
    };
    for configuration in &experiment.configurations {
        let mut described = machine_of(inputs, configuration)?;
        let lent = lend_network(inputs, &mut described);
        let machine = &described.machine;
        let no_rates = || ModelledError::NoRates { machine: machine.name.clone() };
        let rates = described.rates.as_ref().ok_or_else(no_rates)?;
        let resolved = resolved(experiment, configuration, machine)?;
        if lent && resolved.vms.len() > 1 {
            without_network.insert(machine.name.clone());
        }
        let ground = Ground {
            experiment,
            configuration,
            resolved: &resolved,
            machine,
            rates,
            profiles: inputs.profiles,
            seed: inputs.seed,
        };
        let published_on = configuration.machine.as_ref().or(experiment.machine.as_ref());
        let is_published_machine = published_on.is_some_and(|name| is_of(inputs, name, machine));
        let fitted = cross_fit.as_ref().filter(|(name, _)| *name == machine.name).map(|(_, fitted)| fitted);
        let (figures, load) = both(&ground, fitted)?;
        prediction.figures.extend(figures);
        prediction.loads.extend(load);
        prediction.configurations.push(PredictedConfiguration {
            name: configuration.name.clone(),
            shape: resolved.shape(),
            native: resolved.vms.is_empty(),
            machine: machine.name.clone(),
            homes: resolved.vms.iter().map(homes).collect(),
            is_published_machine,
        });
    }
    prediction.notes =
        super::notes::notes(experiment, &prediction.configurations, inputs.on.map(|on| on.machine.name.as_str()));
    let own = experiment.machine.as_deref().unwrap_or_default();
    let lent = without_network.iter().map(|machine| super::notes::lent_network(machine, own));
    prediction.notes.extend(lent);
    prediction.cells = super::cells::cells(experiment, &prediction);
    if prediction.configurations.iter().all(|configuration| configuration.is_published_machine) {
        prediction.cells.extend(applications::cells(experiment, &prediction.figures));
    }
    prediction.statements = outcomes(experiment, &prediction)?;
    Ok(prediction)
}

/// Gives a machine whose network nobody knows that of the experiment's own machine, where the
/// workload sends messages; whether it did.
fn lend_network(inputs: &Inputs, described: &mut Described) -> bool {
    let sends = |profile: &WorkloadProfile| profile.application.as_ref().is_some_and(|one| one.messages.is_some());
    let Some(rates) = described.rates.as_mut().filter(|_| inputs.profiles.iter().any(sends)) else { return false };
    if rates.network.is_some() {
        return false;
    }
    let own = inputs.experiment.machine.as_ref().and_then(|name| (inputs.machines)(name));
    rates.network = own.and_then(|own| own.rates?.network);
    rates.network.is_some()
}

fn homes(vm: &ResolvedVm) -> String {
    let clients: Vec<String> = vm.plan.placement.clients.iter().map(|client| client.home.to_string()).collect();
    clients.join(" | ")
}

/// Whether the experiment's own figures may be used to fit: they are of the machine that it runs
/// on.
fn on_published_machine(inputs: &Inputs) -> bool {
    let own = inputs.experiment.machine.as_deref();
    own.is_some_and(|own| inputs.on.is_none_or(|on| is_of(inputs, own, &on.machine)))
}

/// Whether an experiment's name of a machine, or its file, is that of this one.
fn is_of(inputs: &Inputs, named: &str, machine: &Machine) -> bool {
    machine.name == named || (inputs.machines)(named).is_some_and(|described| described.machine.name == machine.name)
}

/// Fits anew what is calibrated on the figures that the experiment names, with a solver: the
/// machine's name and the values. `None` where the experiment names no such figures.
///
/// # Errors
/// Those of [`predict`].
pub fn refit(inputs: &Inputs, solver: &mut dyn RateSolver) -> Result<Option<(String, Fitted)>, ModelledError> {
    let experiment = inputs.experiment;
    let Some(kernel) = inputs.profiles.first().and_then(|profile| profile.kernels.first()) else { return Ok(None) };
    let Some(published) = fit::calibration(experiment, &kernel.name) else { return Ok(None) };
    let mut configurations = experiment.configurations.iter();
    let Some(configuration) = configurations.find(|one| one.name == published.configuration) else { return Ok(None) };
    let described = machine_of(inputs, configuration)?;
    let machine = &described.machine;
    let no_rates = || ModelledError::NoRates { machine: machine.name.clone() };
    let rates = described.rates.as_ref().ok_or_else(no_rates)?;
    let resolved = resolved(experiment, configuration, machine)?;
    let (profiles, seed) = (inputs.profiles, inputs.seed);
    let ground = Ground { experiment, configuration, resolved: &resolved, machine, rates, profiles, seed };
    Ok(fit::fit(&ground, experiment, solver)?.map(|fitted| (machine.name.clone(), fitted)))
}

fn empty(inputs: &Inputs) -> Prediction {
    Prediction {
        modelled: true,
        name: inputs.experiment.name.clone(),
        title: inputs.experiment.title.clone(),
        solver: Amva::default().name().to_owned(),
        cross_check_solver: MaxMin::default().name().to_owned(),
        seed: inputs.seed,
        homenode: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("HOMENODE_COMMIT").map(str::to_owned),
        notes: Vec::new(),
        configurations: Vec::new(),
        figures: Vec::new(),
        cells: Vec::new(),
        statements: Vec::new(),
        loads: Vec::new(),
        beside: None,
    }
}

fn machine_of(inputs: &Inputs, configuration: &Configuration) -> Result<Described, ModelledError> {
    let (field, name) = match (&configuration.machine, inputs.on, &inputs.experiment.machine) {
        (Some(name), _, _) => (format!("configuration \"{}\": machine", configuration.name), name),
        (None, Some(on), _) => return Ok(on.clone()),
        (None, None, Some(name)) => ("machine".to_owned(), name),
        (None, None, None) => {
            let problem = "the experiment names no machine: name one with --on, or write machine = \"...\"".to_owned();
            return Err(ModelledError::Field { field: format!("{}: machine", inputs.experiment.name), problem });
        }
    };
    let known = || topology::read::shipped_names().collect::<Vec<_>>().join(", ");
    (inputs.machines)(name).ok_or_else(|| ModelledError::Unknown {
        field,
        value: name.clone(),
        valid: format!("no such machine comes with homenode; there are {}", known()),
    })
}

/// One configuration, sized and placed on the machine as it is when nothing else runs.
fn resolved(
    experiment: &Experiment,
    configuration: &Configuration,
    machine: &Machine,
) -> Result<ResolvedConfiguration, ModelledError> {
    let available: Bytes = machine.nodes.iter().map(|node| node.memory).sum();
    if let (Some(memory), crate::experiment::Vms::Count(count)) = (configuration.memory.fixed(), configuration.vms) {
        let wanted = Bytes(memory.0.saturating_mul(u64::from(count)));
        if wanted > available {
            let (configuration, machine) = (configuration.name.clone(), machine.name.clone());
            return Err(ModelledError::Memory { configuration, field: "memory", wanted, machine, has: available });
        }
    }
    let mut alone = configuration.clone();
    alone.modelled.only = false;
    let one = Experiment { configurations: vec![alone], ..experiment.of_applications_themselves() };
    let host = Host { machine, available, emulated: false };
    let planner =
        |machine: &Machine, specs: &[vm::VmSpec]| scheduler::plan_together(machine, &Default::default(), specs);
    let all = resolve(&one, &host, &planner)?;
    all.configurations.into_iter().next().ok_or_else(|| ModelledError::Field {
        field: "configuration".to_owned(),
        problem: "an experiment needs at least one".to_owned(),
    })
}

/// Figures by the queueing network, with those of max-min fairness as their cross-check.
fn both(ground: &Ground, fitted: Option<&Fitted>) -> Result<(Vec<Figure>, Option<Load>), ModelledError> {
    let model = MachineModel::new(ground.machine, ground.rates)?;
    let (mut figures, load) = one(&ground.setting(&model), &mut Amva::default())?;
    let (model, profiles) = match fitted {
        None => (model, ground.profiles.to_vec()),
        Some(fitted) => {
            let mut profiles = ground.profiles.to_vec();
            for (kernel, lines) in profiles[0].kernels.iter_mut().zip(&fitted.lines_in_flight) {
                kernel.lines_in_flight.value = *lines;
            }
            (MachineModel::new(ground.machine, &fitted.rates(ground.rates))?, profiles)
        }
    };
    let (others, _) = one(&Setting { profiles: &profiles, ..ground.setting(&model) }, &mut MaxMin::default())?;
    for figure in &mut figures {
        let cross_check = others.iter().find(|other| other.is_beside(figure)).map(|other| other.value);
        figure.provenance = Provenance::Modelled { cross_check };
    }
    Ok((figures, load))
}

fn one(setting: &Setting, solver: &mut dyn RateSolver) -> Result<(Vec<Figure>, Option<Load>), ModelledError> {
    match setting.experiment.workload.as_str() {
        "stream" => stream::stream(setting, solver),
        NUMA_MATRIX | "chase" => stream::matrix(setting, solver).map(|figures| (figures, None)),
        APPLICATION => applications::predict(setting, solver),
        other => Err(ModelledError::Unknown {
            field: "workload".to_owned(),
            value: other.to_owned(),
            valid: "stream, chase, numa_matrix or application: the model knows no other".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulator::{Active, Classes, SolveError};

    /// Never gets there.
    struct Lost;

    impl RateSolver for Lost {
        fn rates(&mut self, _: &Classes, _: &[Active], _: &mut Vec<f64>) -> Result<(), SolveError> {
            Err(SolveError::NoConvergence { iterations: 7, change: 0.5 })
        }

        fn forget(&mut self) {}

        fn name(&self) -> &'static str {
            "lost"
        }
    }

    #[test]
    fn a_solver_that_does_not_converge_gives_no_number_and_is_named() {
        for memory in ["local", "random_pages"] {
            let text = format!(
                "name = \"small\"\ntitle = \"Small\"\nworkload = \"stream\"\nthreads = [4]\n[[configuration]]\nname = \
                \"native\"\nruns = \"native\"\nmodelled = {{ memory = \"{memory}\" }}\n"
            );
            let experiment = crate::parse::parse(&text, std::path::Path::new("small.toml")).expect("valid");
            let described = topology::read::shipped_described("hp-dl380-g6").expect("shipped").expect("valid");
            let rates = described.rates.expect("rates");
            let configuration = &experiment.configurations[0];
            let resolved = resolved(&experiment, configuration, &described.machine).expect("fits");
            let profiles = [crate::profiles::find("stream-ordinary").expect("shipped")];
            let model = MachineModel::new(&described.machine, &rates).expect("a model");
            let machine = &described.machine;
            let ground = Ground {
                experiment: &experiment,
                configuration,
                resolved: &resolved,
                machine,
                rates: &rates,
                profiles: &profiles,
                seed: 1,
            };
            let message = one(&ground.setting(&model), &mut Lost).expect_err("no number").to_string();
            for part in ["configuration \"native\"", "Copy", "did not converge", "7"] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }
}
