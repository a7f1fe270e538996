//! Why the model gives no figure.

use crate::resolve::ResolveError;
use simulator::events::RunError;
use simulator::{ModelError, SolveError};
use topology::{Bytes, NodeSet};

fn on(nodes: &NodeSet) -> String {
    format!("{} {nodes}", if nodes.len() == 1 { "node" } else { "nodes" })
}

/// A prediction that cannot be made. It never comes with a number.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelledError {
    /// More threads than the machine, or the part of it where they have to run, has.
    #[error(
        "configuration \"{configuration}\": threads = {threads} puts {there} threads on {} of {machine}, where {has} \
        hardware threads are: lower it, let the VMs live elsewhere (policy.node_affinity), or take a larger machine",
        on(.nodes)
    )]
    Threads {
        /// The configuration.
        configuration: String,
        /// Threads in all.
        threads: u32,
        /// Where some of them have to run.
        nodes: NodeSet,
        /// How many.
        there: u32,
        /// The machine.
        machine: String,
        /// Hardware threads there.
        has: u32,
    },
    /// More memory than the machine has.
    #[error(
        "configuration \"{configuration}\": {field} asks for {wanted} of memory, and {machine} has {has}: lower it, or \
        take a larger machine"
    )]
    Memory {
        /// The configuration.
        configuration: String,
        /// The field.
        field: &'static str,
        /// What it asks for.
        wanted: Bytes,
        /// The machine.
        machine: String,
        /// What there is.
        has: Bytes,
    },
    /// The machine has no rates.
    #[error(
        "{machine}: it has no [rates], so that it cannot be modelled. `homenode calibrate` measures those of a host"
    )]
    NoRates {
        /// The machine.
        machine: String,
    },
    /// VMs exchange messages, and nobody says what these cost on the machine.
    #[error(
        "configuration \"{configuration}\": vms: its {vms} VMs exchange messages, and the machine file of {machine} has \
        no [rates.network]: add one (docs/machine-file.md), or measure it with homenode calibrate --network"
    )]
    NoNetwork {
        /// The configuration.
        configuration: String,
        /// VMs of it.
        vms: u32,
        /// The machine.
        machine: String,
    },
    /// A name that stands for nothing.
    #[error("{field} = \"{value}\": {valid}")]
    Unknown {
        /// The field.
        field: String,
        /// What it holds.
        value: String,
        /// What would be valid.
        valid: String,
    },
    /// A field that does not fit with the rest.
    #[error("{field}: {problem}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong and what would be valid.
        problem: String,
    },
    /// The machine cannot be modelled.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The experiment does not fit on the machine.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The rates cannot be computed.
    #[error("configuration \"{configuration}\", {figure}: {reason}")]
    Solve {
        /// The configuration.
        configuration: String,
        /// What was computed.
        figure: String,
        /// Why not.
        reason: SolveError,
    },
    /// A run over phases cannot go on.
    #[error("configuration \"{configuration}\", {figure}: {reason}")]
    Run {
        /// The configuration.
        configuration: String,
        /// What was computed.
        figure: String,
        /// Why not.
        reason: Box<RunError>,
    },
}
