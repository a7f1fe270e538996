//! A definition of a VM in the language of a stack that has VMs.

use super::{CheckedDomain, shaped};
use crate::domain::{self, DomainError};
use judge::{Finding, ShapedVm};
use scheduler::Occupancy;
use topology::Machine;

/// A definition.
#[derive(Clone, Debug)]
pub enum Definition {
    /// libvirt's domain XML.
    Domain {
        /// The XML.
        text: String,
        /// What patches and errors call it.
        file: String,
        /// What it says.
        vm: Box<ShapedVm>,
    },
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    /// It is none: file, place and what would be valid.
    pub fn read(text: String, file: String) -> Result<Self, DomainError> {
        let vm = Box::new(shaped(&domain::parse(&text, &file)?, &text));
        Ok(Self::Domain { text, file, vm })
    }

    /// Where it comes from.
    pub fn source(&self) -> &str {
        match self {
            Self::Domain { file, .. } => file,
        }
    }

    /// The VM that it defines.
    pub fn shaped(&self) -> ShapedVm {
        match self {
            Self::Domain { vm, .. } => (**vm).clone(),
        }
    }

    /// What is wrong with it for a machine, beside what others hold; each finding with its cure in the stack's language.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn check(&self, machine: &Machine, others: &Occupancy) -> Result<Vec<Finding>, DomainError> {
        match self {
            Self::Domain { text, file, .. } => Ok(CheckedDomain::new(machine, others, text, file)?.findings),
        }
    }
}
