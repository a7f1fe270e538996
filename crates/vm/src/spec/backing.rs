//! What the guest's memory is made of, and when it is taken.
//!
//! **Problem.** Memory that is filled at the start is proof that the home has room; but a host then
//! holds no more VMs than it has memory, whatever they use. And pages of 4 KiB cost time in page
//! tables.
//!
//! **Rule.** `fill = "on_touch"` takes a page when the guest first touches it. `huge_pages` takes
//! all memory from the nodes' pools of huge pages. Both at once are refused: what a pool lacks
//! cannot be reclaimed or swapped, so the guest would be killed at its first touch.
//!
//! **Example.** 3 GiB of pages of 1 GiB are three pages. 2560 MiB are none: 2 GiB and 3 GiB are
//! near.

use super::Shape;
use super::check::{Checked, ensure};
use serde::{Deserialize, Serialize};
use topology::Bytes;

/// How the guest's memory is backed by the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backing {
    /// When memory is taken.
    pub fill: Fill,
    /// Size of the huge pages, of each home node's pool. Default: ordinary pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<Bytes>,
}

/// When the guest's memory is taken from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// All of it, before the first instruction.
    #[default]
    AtStart,
    /// Each page when the guest first touches it. The VM may be promised more than is free.
    OnTouch,
}

/// Which CPUs a vCPU may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VcpuBinding {
    /// All CPUs of its home: the kernel schedules inside the node.
    #[default]
    Node,
    /// One hardware thread of its home, which no other vCPU that is bound so has.
    Core,
}

/// Sizes of huge pages on x86-64.
pub const HUGE_PAGE_SIZES: [Bytes; 2] = [Bytes::from_mib(2), Bytes::from_mib(1024)];

impl Backing {
    /// Whether the spec says nothing of it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Of a guest with so much memory, what is taken of the host's ordinary memory at the start:
    /// huge pages are taken from pools that the host has set aside already.
    pub fn filled_at_start(&self, guest: Bytes) -> Bytes {
        if self.fill == Fill::AtStart && self.huge_pages.is_none() { guest } else { Bytes(0) }
    }
}

pub(super) fn check(shape: &Shape) -> Checked {
    let Some(page) = shape.backing.huge_pages else { return Ok(()) };
    ensure(HUGE_PAGE_SIZES.contains(&page), "backing.huge_pages", || {
        format!("{page} is no size of huge pages: \"2 MiB\" and \"1 GiB\" are valid")
    })?;
    ensure(shape.backing.fill == Fill::AtStart, "backing.fill", || {
        "it does not go with backing.huge_pages: a page that its pool lacks when the guest first touches it ends \
         the guest; remove one of the two"
            .to_owned()
    })?;
    whole_pages(shape.memory, page, "memory")?;
    whole_pages(shape.most_memory(), page, "max_memory")?;
    if let Some(most) = shape.policy.max_vcpus_per_node {
        let (nodes, pages) = (u64::from(shape.vcpus.div_ceil(most)), shape.memory.0 / page.0);
        ensure(nodes <= pages, "policy.max_vcpus_per_node", || {
            format!("it makes {nodes} virtual nodes, which is more than the memory has pages of {page}: {pages}")
        })?;
    }
    for (index, node) in shape.policy.virtual_nodes.iter().flatten().enumerate() {
        whole_pages(node.memory, page, &format!("policy.virtual_nodes[{index}].memory"))?;
        whole_pages(node.most_memory(), page, &format!("policy.virtual_nodes[{index}].max_memory"))?;
    }
    Ok(())
}

fn whole_pages(memory: Bytes, page: Bytes, field: &str) -> Checked {
    ensure(memory >= page && memory.0.is_multiple_of(page.0), field, || {
        let (below, above) = (Bytes(memory.0 / page.0 * page.0), Bytes(memory.0.next_multiple_of(page.0)));
        let near = if below.0 == 0 { format!("{above} is") } else { format!("{below} and {above} are") };
        format!("{memory} is not whole huge pages of {page}: {near}")
    })
}
