//! Why a VM that runs cannot get the size that is wanted.

use topology::Bytes;

/// Of a VM that runs, and of one that is stopped: what it is powered on with next.
const STAYS: &str = "what the VM has at power-on stays until `homenode vm resize-topology` sizes it \
    anew; only what was plugged in since can be taken away";

/// How a VM may grow further than it was first powered on for.
const MORE: &str = "; for more raise it in the file of its spec, `homenode vm resize-topology`, and `homenode run` \
    that file once the VM is stopped";

/// Why a VM that runs cannot get the size that is wanted. Each names the field, the value and what
/// would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowthError {
    /// More vCPUs than the VM, or its named nodes, may have.
    #[error("vcpus = {wanted}: {}", most_vcpus(*most, *named))]
    TooManyVcpus {
        /// vCPUs in all that are wanted.
        wanted: u32,
        /// vCPUs in all that would be valid at most.
        most: u32,
        /// Whether the user named the virtual nodes that may change.
        named: bool,
    },
    /// Fewer vCPUs than there were at power-on, or than unplugging from the named nodes leaves.
    #[error("vcpus = {wanted}: {least} is the least{}: {STAYS}", by_named(*named))]
    TooFewVcpus {
        /// vCPUs in all that are wanted.
        wanted: u32,
        /// vCPUs in all that would be valid at least.
        least: u32,
        /// Whether the user named the virtual nodes that may change.
        named: bool,
    },
    /// More memory than the VM, or its named nodes, may have.
    #[error("memory = {}: {}", exactly(*wanted), most_memory(*most, *block, *named))]
    TooMuchMemory {
        /// Memory in all that is wanted.
        wanted: Bytes,
        /// Memory in all that would be valid at most.
        most: Bytes,
        /// Memory is added in multiples of this.
        block: Bytes,
        /// Whether the user named the virtual nodes that may change.
        named: bool,
    },
    /// Less memory than there was at power-on, or than taking from the named nodes leaves.
    #[error(
        "memory = {}: {} is the least{}: {STAYS}{}",
        exactly(*wanted), exactly(*least), by_named(*named), but_dimms(*dimms)
    )]
    TooLittleMemory {
        /// Memory in all that is wanted.
        wanted: Bytes,
        /// Memory in all that would be valid at least.
        least: Bytes,
        /// Whether the user named the virtual nodes that may change.
        named: bool,
        /// What the VM has in DIMMs.
        dimms: Bytes,
    },
    /// Memory comes in whole blocks.
    #[error(
        "memory = {}: memory is plugged in blocks of {block}; {} and {} are the next that are valid",
        exactly(*wanted), exactly(*below), exactly(*above)
    )]
    NotWholeBlocks {
        /// Memory in all that is wanted.
        wanted: Bytes,
        /// The block.
        block: Bytes,
        /// The next valid amount below.
        below: Bytes,
        /// The next valid amount above.
        above: Bytes,
    },
    /// The VM has no such virtual node.
    #[error("nodes: the VM has no virtual node {node}; it has {}", list(valid))]
    NoNode {
        /// What was named.
        node: u32,
        /// Its virtual nodes.
        valid: Vec<u32>,
    },
}

/// As a spec writes it, without rounding.
fn exactly(bytes: Bytes) -> String {
    let whole = [(30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")];
    let (shift, unit) = whole.into_iter().find(|(shift, _)| bytes.0.is_multiple_of(1 << shift)).unwrap_or((0, "B"));
    format!("\"{} {unit}\"", bytes.0 >> shift)
}

fn most_vcpus(most: u32, named: bool) -> String {
    match named {
        true => format!("with the named virtual nodes at their largest the VM has {most}"),
        false => {
            format!(
                "the VM may have {most} at most (max_vcpus of its spec, as it was when it was first powered on){MORE}"
            )
        }
    }
}

fn most_memory(most: Bytes, block: Bytes, named: bool) -> String {
    let (most, blocks) = (exactly(most), format!("in blocks of {block}"));
    match named {
        true => format!("with the named virtual nodes at their largest, {blocks}, the VM has {most}"),
        false => format!(
            "the VM may have {most} at most, {blocks} (max_memory of its spec, as it was when it was first powered \
            on){MORE}"
        ),
    }
}

fn by_named(named: bool) -> &'static str {
    if named { " with the named virtual nodes" } else { "" }
}

fn but_dimms(dimms: Bytes) -> String {
    if dimms.0 > 0 { format!(", and no DIMM: of those it has {}", exactly(dimms)) } else { String::new() }
}

fn list(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
