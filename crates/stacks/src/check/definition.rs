//! A definition of a VM in the language of a stack that has VMs.

use super::proxmox::{self, Configuration};
use super::{CheckedDomain, shaped};
use crate::domain::{self, DomainError, Problem};
use judge::{Finding, ShapedVm};
use scheduler::Occupancy;
use topology::Machine;

/// A definition.
#[derive(Clone, Debug)]
pub struct Definition {
    text: String,
    file: String,
    of: Of,
}

/// Whose it is.
#[derive(Clone, Debug)]
enum Of {
    Libvirt(Box<ShapedVm>),
    Proxmox(Box<Configuration>),
}

impl Definition {
    /// Reads libvirt's domain XML, or a configuration of Proxmox VE (`ID.conf`): which, the text
    /// says.
    ///
    /// # Errors
    /// It is neither: file, place, what it seems to be and what would be valid.
    pub fn read(text: String, file: String) -> Result<Self, DomainError> {
        let of = match proxmox::kind(&text) {
            proxmox::Kind::Configuration => Of::Proxmox(Box::new(Configuration::read(&text, &file)?)),
            proxmox::Kind::Xml => Of::Libvirt(Box::new(shaped(&domain::parse(&text, &file)?, &text))),
            proxmox::Kind::Else(what) => return Err(DomainError::new(&file, Problem::NoDefinition(what))),
        };
        Ok(Self { text, file, of })
    }

    /// Where it comes from.
    pub fn source(&self) -> &str {
        &self.file
    }

    /// The VM that it defines.
    pub fn shaped(&self) -> &ShapedVm {
        match &self.of {
            Of::Libvirt(vm) => vm,
            Of::Proxmox(configuration) => configuration.shaped(),
        }
    }

    /// Whether it is a template of VMs (Proxmox VE): one that never runs, and holds nothing.
    pub fn is_template(&self) -> bool {
        matches!(&self.of, Of::Proxmox(configuration) if configuration.is_template())
    }

    /// The XML of a domain; `None` for what is none.
    pub fn domain(&self) -> Option<&str> {
        matches!(self.of, Of::Libvirt(_)).then_some(self.text.as_str())
    }

    /// What is wrong with it for a machine, beside what others hold; each finding with its cure in
    /// the stack's language.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn check(&self, machine: &Machine, others: &Occupancy) -> Result<Vec<Finding>, DomainError> {
        if let Of::Proxmox(configuration) = &self.of {
            return Ok(configuration.check(machine, others));
        }
        Ok(CheckedDomain::new(machine, others, &self.text, &self.file)?.findings)
    }

    /// Lines of a Proxmox VE configuration that bring the VM to its home, without those that it has
    /// already, and the `qm set` that writes the same.
    ///
    /// # Errors
    /// It is no such configuration, or no home can be named for the VM.
    pub fn proxmox_numa_lines(&self, machine: &Machine, others: &Occupancy) -> Result<String, DomainError> {
        match &self.of {
            Of::Libvirt(_) => Err(DomainError::new(&self.file, Problem::NotProxmox)),
            Of::Proxmox(configuration) => configuration.numa_lines(machine, others),
        }
    }
}
