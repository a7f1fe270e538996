//! A domain whose memory the balancer may bring to another home.
//!
//! **Problem.** `<numatune><memory mode='strict'>` is two things to libvirt: QEMU's memory policy,
//! and the `cpuset.mems` of the VM's cgroup (in system mode). Nobody can move memory out of that,
//! `homenode balance` included: the VM keeps its home for good, also where that fills up.
//!
//! **Rule.** Cures are static where a domain has no cells: there is nothing else to bind strictly.
//! The movable form prefers the same node, and libvirt confines nothing; with cells each is bound
//! by its own `<memnode>`, and `<memory>` goes. Several nodes without cells stay as they are:
//! libvirt before 9.0 prefers one only.
//!
//! **Properties.** Homes stay. Made movable twice it is as once.
//!
//! **Example.** `<memory mode='strict' nodeset='1'/>` becomes `<memory mode='preferred'
//! nodeset='1'/>`.
//!
//! Source: libvirt's `qemu_cgroup.c` (`qemuSetupCpusetMems`) and `qemu_process.c`.

use crate::domain::{self, Domain, DomainError, Edit, Step};
use topology::NodeSet;

/// Where the whole VM is confined to nodes.
fn confined(domain: &Domain) -> Option<&NodeSet> {
    let tune = domain.memory_tune.as_ref().filter(|tune| !tune.auto)?;
    tune.nodeset.as_ref().filter(|_| matches!(tune.mode.as_str(), "strict" | "restrictive"))
}

/// Whether nobody can move the memory of a domain to other nodes than those that it names.
///
/// # Errors
/// Those of [`domain::parse`].
pub(super) fn is_static(text: &str, file: &str) -> Result<bool, DomainError> {
    Ok(confined(&domain::parse(text, file)?).is_some())
}

/// The domain with its homes as they are, and with memory that the balancer may move.
///
/// # Errors
/// Those of [`domain::parse`].
pub fn movable(text: &str, file: &str) -> Result<String, DomainError> {
    let domain = domain::parse(text, file)?;
    let Some(nodes) = confined(&domain) else { return Ok(text.to_owned()) };
    let whole = || vec![Step::new("numatune"), Step::new("memory")];
    let set = |at: Vec<Step>, name: &str, value: String| Edit::SetAttribute { at, name: name.to_owned(), value };
    if domain.cells.is_empty() {
        let edit = set(whole(), "mode", "preferred".to_owned());
        return if nodes.len() == 1 { domain::apply(text, file, &[edit]) } else { Ok(text.to_owned()) };
    }
    let of_cell = |cell: &domain::Cell| {
        let at = || vec![Step::new("numatune"), Step::keyed("memnode", "cellid", cell.id)];
        let own = domain.memory_nodes.get(&cell.id);
        let mode = own.map(|own| own.mode.as_str()).filter(|mode| *mode != "restrictive").unwrap_or("strict");
        let named = own.and_then(|own| own.nodeset.as_ref()).unwrap_or(nodes);
        [set(at(), "mode", mode.to_owned()), set(at(), "nodeset", named.to_string())]
    };
    let edits: Vec<Edit> = domain.cells.iter().flat_map(of_cell).chain([Edit::Remove { at: whole() }]).collect();
    domain::apply(text, file, &edits)
}
