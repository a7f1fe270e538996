//! What of an experiment file only the model reads, checked. Each fault is a field, what it holds,
//! and what would be valid.

use crate::applications;
use crate::experiment::Experiment;
use crate::validation::statement::{Kind, Selection, Statement};
use std::collections::BTreeSet;

pub(crate) type Fault = Option<(String, String, String)>;

fn fault(field: impl Into<String>, value: impl std::fmt::Display, valid: impl Into<String>) -> Fault {
    Some((field.into(), value.to_string(), valid.into()))
}

pub(crate) fn first_fault(experiment: &Experiment) -> Fault {
    machines(experiment)
        .or_else(|| workload(experiment))
        .or_else(|| settings(experiment))
        .or_else(|| statements(experiment))
}

fn machines(experiment: &Experiment) -> Fault {
    let own = experiment.machine.iter().map(|name| ("machine".to_owned(), name));
    let of_configurations = experiment.configurations.iter().enumerate().filter_map(|(index, configuration)| {
        Some((format!("configuration[{index}].machine"), configuration.machine.as_ref()?))
    });
    let known: Vec<&str> = topology::read::shipped_names().collect();
    let mut all = own.chain(of_configurations);
    let (field, name) = all.find(|(_, name)| !known.contains(&name.as_str()) && !is_file(name))?;
    let valid = format!("a machine file (.toml), or a machine that comes with homenode: {}", known.join(", "));
    fault(field, format!("{name:?}"), valid)
}

/// Whether a machine is named by its file.
pub(crate) fn is_file(name: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

fn workload(experiment: &Experiment) -> Fault {
    let is_application = experiment.is_application();
    match (&experiment.application, is_application) {
        (Some(section), true) => applications::first_fault(experiment, section),
        (None, true) => fault("workload", "\"application\"", "an [application] section too, with its profiles"),
        (Some(_), false) => fault("application", "a section", "workload = \"application\", to which it belongs"),
        (None, false) => None,
    }
}

fn settings(experiment: &Experiment) -> Fault {
    if let Some(share) = &experiment.native_os.random_thread_share
        && !(0.0..=1.0).contains(&share.value)
    {
        return fault("native_os.random_thread_share.value", share.value, "a probability from 0 to 1");
    }
    experiment.configurations.iter().enumerate().find_map(|(index, configuration)| {
        let field = |name: &str| format!("configuration[{index}].modelled.{name}");
        let modelled = &configuration.modelled;
        if let Some(droop) = modelled.row_conflict_droop.as_ref().filter(|droop| !(0.0..=0.2).contains(&droop.value)) {
            return fault(field("row_conflict_droop.value"), droop.value, "a share from 0 to 0.2");
        }
        None
    })
}

fn statements(experiment: &Experiment) -> Fault {
    let mut ids = BTreeSet::new();
    experiment.statements.iter().enumerate().find_map(|(index, statement)| {
        let field = |name: &str| format!("statement[{index}].{name}");
        if statement.id.trim().is_empty() || !ids.insert(&statement.id) {
            return fault(field("id"), format!("{:?}", statement.id), "an id that no other statement has");
        }
        kind(statement, &field).or_else(|| {
            let unknown = |selection: &&Selection| {
                !experiment.configurations.iter().any(|configuration| configuration.name == selection.configuration)
            };
            let all = || statement.of.iter().chain(&statement.against).chain(&statement.order);
            let selection = all().find(unknown)?;
            let names: Vec<&str> = experiment.configurations.iter().map(|known| known.name.as_str()).collect();
            let valid = format!("in of, against and order one of the configurations: {}", names.join(", "));
            fault(field("id"), format!("{:?} with {:?}", statement.id, selection.configuration), valid)
        })
    })
}

fn kind(statement: &Statement, field: &impl Fn(&str) -> String) -> Fault {
    match statement.kind {
        Kind::Value if statement.of.is_none() || statement.published.is_none() || statement.tolerance.is_none() => {
            fault(field("kind"), "\"value\"", "of, published and tolerance too")
        }
        Kind::Inequality if statement.of.is_none() || (statement.below.is_none() && statement.above.is_none()) => {
            fault(field("kind"), "\"inequality\"", "of, and below or above too")
        }
        Kind::Ordinal if statement.order.len() < 2 => {
            fault(field("kind"), "\"ordinal\"", "order too: two or more, the largest first")
        }
        _ => None,
    }
}
