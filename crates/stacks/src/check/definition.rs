//! A definition of a VM in the language of a stack that has VMs.

use super::{CheckedDomain, proxmox, shaped};
use crate::domain::{self, DomainError, Problem};
use judge::{Finding, ShapedVm};
use scheduler::Occupancy;
use topology::Machine;

/// A definition.
#[derive(Clone, Debug)]
pub struct Definition {
    text: String,
    file: String,
    vm: ShapedVm,
    /// A configuration of Proxmox VE; else libvirt's domain XML.
    of_proxmox: bool,
}

impl Definition {
    /// Reads libvirt's domain XML, or a configuration of Proxmox VE (`ID.conf`): which, the text
    /// says.
    ///
    /// # Errors
    /// It is neither: file, place and what would be valid.
    pub fn read(text: String, file: String) -> Result<Self, DomainError> {
        let of_proxmox = proxmox::is_one(&text);
        let vm = match of_proxmox {
            true => proxmox::shaped(&text, &file)?,
            false => shaped(&domain::parse(&text, &file)?, &text),
        };
        Ok(Self { text, file, vm, of_proxmox })
    }

    /// Where it comes from.
    pub fn source(&self) -> &str {
        &self.file
    }

    /// The VM that it defines.
    pub fn shaped(&self) -> &ShapedVm {
        &self.vm
    }

    /// The XML of a domain; `None` for what is none.
    pub fn domain(&self) -> Option<&str> {
        (!self.of_proxmox).then_some(self.text.as_str())
    }

    /// What is wrong with it for a machine, beside what others hold; each finding with its cure in
    /// the stack's language.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn check(&self, machine: &Machine, others: &Occupancy) -> Result<Vec<Finding>, DomainError> {
        if self.of_proxmox {
            return Ok(proxmox::check(machine, others, &self.vm, &self.text, &self.file));
        }
        Ok(CheckedDomain::new(machine, others, &self.text, &self.file)?.findings)
    }

    /// Lines of a Proxmox VE configuration that bring the VM to its home, without those that it has
    /// already, and the `qm set` that writes the same.
    ///
    /// # Errors
    /// It is no such configuration, or no home can be named for the VM.
    pub fn proxmox_numa_lines(&self, machine: &Machine, others: &Occupancy) -> Result<String, DomainError> {
        if !self.of_proxmox {
            return Err(DomainError::new(&self.file, Problem::NotProxmox));
        }
        proxmox::numa_lines(machine, others, &self.vm, &self.text, &self.file)
    }
}
