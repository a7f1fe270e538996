//! What the texts for several stacks share: their first lines, the sets of CPUs and nodes of a
//! whole VM, and the words that none of them can hold.

use super::comment::{Loss, lines};
use super::{BootFiles, Emission, EmitError};
use std::path::Path;
use topology::{Bytes, CpuId, CpuSet, NodeSet};
use vm::spec::{Card, Console, DiskFormat, Network, Outlet, SwitchName, Vhost};
use vm::{Client, MemoryPolicy, Plan, VirtualNode};

/// The comments that begin a text: what it is, where the VM lives, warnings of the plan, and what
/// is lost. `usage` are sentences, one a line.
pub(super) fn heading(emission: &Emission<'_>, usage: &[String], losses: &[Loss]) -> String {
    let plan = emission.plan;
    let mut text = format!("# VM {} on {}, planned by homenode.\n", plan.vm, one_line(&emission.machine.name));
    for sentence in usage {
        text += &format!("# {}\n", one_line(sentence));
    }
    if let Some(user) = &emission.spec.run_as {
        let said = "it is what `homenode run` starts QEMU as; here QEMU's user is the one that this stack has";
        text += &format!("# run_as = \"{}\" is not in this text: {said}.\n", one_line(user));
    }
    for client in &plan.placement.clients {
        text += &format!("# {}\n", home_of(plan, client));
    }
    for warning in &plan.warnings {
        text += &format!("# WARNING: {}\n", one_line(warning));
    }
    let growth = growth_loss(emission);
    text + &lines(losses, "# ") + &lines(growth.as_slice(), "# ")
}

/// How memory lies, for a stack that has no word for it.
pub(super) fn policy_word(policy: MemoryPolicy) -> &'static str {
    match policy {
        MemoryPolicy::Bind => "bound",
        MemoryPolicy::Interleave => "interleaved",
        MemoryPolicy::Preferred => "elsewhere once its node is full",
        MemoryPolicy::Default => "left to the kernel",
    }
}

/// Whether a plan leaves room to grow.
pub(super) fn may_grow(plan: &Plan) -> bool {
    plan.topology.nodes.iter().any(|node| !node.absent.is_empty() || node.growth.0 > 0)
}

/// That a plan leaves no room to grow of which a stack cannot be told.
///
/// # Errors
/// The fields that it cannot be told of.
pub(super) fn check_growth(plan: &Plan, carries_vcpus: bool, carries_memory: bool) -> Result<(), EmitError> {
    let vcpus = !carries_vcpus && plan.topology.nodes.iter().any(|node| !node.absent.is_empty());
    let memory = !carries_memory && plan.topology.nodes.iter().any(|node| node.growth.0 > 0);
    let fields = match (vcpus, memory) {
        (false, false) => return Ok(()),
        (true, false) => "max_vcpus",
        (false, true) => "max_memory",
        (true, true) => "max_vcpus, max_memory",
    };
    Err(EmitError(format!("{fields}: this stack cannot be told of it: plan the VM without")))
}

/// What a stack loses whose text holds less than the VM may grow to.
fn growth_loss(emission: &Emission<'_>) -> Option<Loss> {
    let Emission { spec, plan, .. } = *emission;
    let vcpus = spec.most_vcpus() > plan.topology.max_vcpus();
    let memory = spec.most_memory() > plan.topology.max_memory();
    let (most, fields) = match (vcpus, memory) {
        (false, false) => return None,
        (true, false) => (format!("{} vCPUs", spec.most_vcpus()), "max_vcpus"),
        (false, true) => (spec.most_memory().to_string(), "max_memory"),
        (true, true) => (format!("{} vCPUs and {}", spec.most_vcpus(), spec.most_memory()), "max_vcpus, max_memory"),
    };
    Some(Loss::new(
        format!("The VM may grow to {most} ({fields}): growth is not carried over."),
        "This text is planned for what the VM starts with. To have more it is planned anew and powered on again.",
    ))
}

/// `Client 0: virtual node 0 with vCPUs 0-7 and 8 GiB lives on node 0, CPUs 0-7.`
fn home_of(plan: &Plan, client: &Client) -> String {
    let nodes: Vec<&VirtualNode> =
        plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id)).collect();
    let ids: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
    let memory: Bytes = nodes.iter().map(|node| node.memory).sum();
    let growth: Bytes = nodes.iter().map(|node| node.growth).sum();
    let later: CpuSet = nodes.iter().flat_map(|node| node.absent.iter().map(|&vcpu| CpuId(vcpu))).collect();
    let later = match (later.is_empty(), growth.0) {
        (true, 0) => String::new(),
        (false, 0) => format!(" (vCPUs {later} later)"),
        (true, _) => format!(" ({growth} later)"),
        (false, _) => format!(" (vCPUs {later} and {growth} later)"),
    };
    let bound = match client.memory_policy {
        MemoryPolicy::Bind => "",
        MemoryPolicy::Interleave => ", memory interleaved",
        MemoryPolicy::Preferred => ", memory elsewhere once that is full",
        MemoryPolicy::Default => ", memory where the kernel likes",
    };
    format!(
        "Client {}: virtual node {} with vCPUs {} and {memory}{later} lives on node {}{bound}, CPUs {}.",
        client.id,
        ids.join(", "),
        nodes.iter().flat_map(|node| node.present()).map(CpuId).collect::<CpuSet>(),
        client.home,
        match (client.vcpu_cpus.is_empty(), client.groups.len()) {
            (false, _) => format!("{}, one each", bound_cpus(client)),
            (true, 0) => client.cpus.to_string(),
            (true, groups) => format!("{} in {groups} groups by cache", client.cpus),
        }
    )
}

/// The hardware threads that a client's vCPUs are bound to 1:1.
fn bound_cpus(client: &Client) -> CpuSet {
    client.vcpu_cpus.values().copied().collect()
}

/// Whether vCPUs are bound 1:1.
pub(super) fn one_cpu_each(plan: &Plan) -> bool {
    plan.placement.clients.iter().any(|client| !client.vcpu_cpus.is_empty())
}

/// Whether vCPUs of a client have different CPUs.
pub(super) fn divides_clients(plan: &Plan) -> bool {
    plan.placement.clients.iter().any(Client::divides_its_cpus)
}

/// What is lost of groups that are bound to caches, where a stack binds no single vCPU.
pub(super) fn groups_lost(plan: &Plan, stack: &str) -> Option<Loss> {
    let groups: usize = plan.placement.clients.iter().map(|client| client.groups.len()).sum();
    (groups > 0).then(|| {
        Loss::new(
            format!("{stack} binds no vCPUs to a last-level cache, and the plan has {groups} groups that are."),
            "The guest is told of caches by its sockets, and its vCPUs change places between those of their homes.",
        )
    })
}

/// What is lost of dies, where a stack has no word for them.
pub(super) fn dies_lost(plan: &Plan, stack: &str) -> Option<Loss> {
    let dies = plan.topology.dies_per_socket;
    (dies > 1).then(|| {
        Loss::new(
            format!("{stack} has no word for dies: the plan has {dies} in each socket, one for each last-level cache."),
            "The guest takes all vCPUs of a socket to share one cache.",
        )
    })
}

/// What is lost of hardware threads of a virtual core, where a stack has no word for them.
pub(super) fn threads_lost(plan: &Plan, stack: &str) -> Option<Loss> {
    let threads = plan.topology.threads_per_core;
    (threads > 1).then(|| {
        Loss::new(
            format!("{stack} has no word for hardware threads: the plan has {threads} in each virtual core."),
            "The guest takes each vCPU for a core, and puts its busiest threads side by side on one.",
        )
    })
}

/// What is lost of memory on nodes without CPUs by bandwidth: no stack divides memory by weight.
pub(super) fn far_lost(emission: &Emission<'_>, stack: &str) -> Option<Loss> {
    let far = emission.plan.placement.clients.iter().flat_map(|client| &client.far);
    let nodes: NodeSet = far.map(|&(node, _)| node).collect();
    (!nodes.is_empty()).then(|| {
        Loss::new(
            format!("{stack} divides no memory by bandwidth, and the plan has parts on node {nodes}."),
            "Memory that is bound to these nodes fills the nearest first: `homenode run` divides it.",
        )
    })
}

/// Where a stack has one set of CPUs for the whole VM: that.
pub(super) fn one_set_of_cpus(plan: &Plan) -> CpuSet {
    if one_cpu_each(plan) { plan.bound_cpus() } else { plan.cpus() }
}

/// A text that stays within its line of comment.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The vCPUs that a virtual node has or may get.
pub(super) fn vcpus(node: &VirtualNode) -> CpuSet {
    node.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect()
}

/// The vCPUs that a client has or may get.
pub(super) fn vcpus_of(plan: &Plan, client: &Client) -> CpuSet {
    let nodes = plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
    nodes.fold(CpuSet::new(), |all, node| all.union(&vcpus(node)))
}

/// Whether one set of CPUs for the whole VM says less than the plan does.
pub(super) fn several_cpu_sets(plan: &Plan) -> bool {
    plan.placement.clients.windows(2).any(|pair| pair[0].cpus != pair[1].cpus)
}

/// All memory that the VM starts with.
pub(super) fn memory(plan: &Plan) -> Bytes {
    plan.topology.nodes.iter().map(|node| node.memory).sum()
}

/// The word that QEMU, and every stack, has for it.
pub(super) fn disk_format(format: DiskFormat) -> &'static str {
    match format {
        DiskFormat::Qcow2 => "qcow2",
        DiskFormat::Raw => "raw",
    }
}

/// A switch is in no network of the host's, so no other stack can plug a card into it.
pub(super) fn switch_of_ours(stack: &str, switch: &SwitchName) -> Loss {
    Loss::new(
        format!("{stack} knows no switch of homenode's ({switch}), which is in a network namespace of its own."),
        "make a bridge or a network for it there, and name that in this text.",
    )
}

/// What a spec says of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardWord {
    Queues,
    Mac,
    Vhost,
}

impl CardWord {
    /// As it is written, where the card is not as usual.
    fn of(self, card: &Card) -> Option<String> {
        match self {
            Self::Queues => (card.queues > 1).then(|| format!("queues = {}", card.queues)),
            Self::Mac => card.mac.map(|mac| format!("mac = \"{mac}\"")),
            Self::Vhost => match card.vhost {
                Vhost::Auto => None,
                Vhost::On => Some("vhost = \"on\"".to_owned()),
                Vhost::Off => Some("vhost = \"off\"".to_owned()),
            },
        }
    }
}

/// What a stack's text does not say of these cards, the spec's first ones; `unsaid`: what it has no
/// word for.
pub(super) fn cards_as_usual(stack: &str, networks: &[Network], unsaid: &[CardWord]) -> Option<Loss> {
    let of = |(index, network): (usize, &Network)| {
        let Network::Plugged { card, .. } = network else { return Vec::new() };
        let words = unsaid.iter().filter_map(|word| word.of(card));
        words.map(|word| format!("network[{index}].{word}")).collect()
    };
    let lost: Vec<String> = networks.iter().enumerate().flat_map(of).collect();
    (!lost.is_empty()).then(|| {
        Loss::new(
            format!("{stack} is not told what the spec says of network cards: {}.", lost.join(", ")),
            "there they are as its cards usually are.",
        )
    })
}

/// What a stack whose networks are a cloud's own says of a card that is plugged into something of
/// one host.
pub(super) fn of_one_host(stack: &str, into: &Outlet) -> Loss {
    let what = match into {
        Outlet::Switch(switch) => return switch_of_ours(stack, switch),
        Outlet::Bridge(bridge) => format!("the bridge {bridge}"),
        Outlet::LibvirtNetwork(network) => format!("libvirt's network {network}"),
        Outlet::Macvtap(card) => format!("the card {card}"),
    };
    Loss::new(
        format!("{stack} plugs nothing into {what} of one host: its networks are its own."),
        "choose a network of it that leads there.",
    )
}

/// The path as text.
///
/// # Errors
/// It is not UTF-8, or it has a character that would end a line: no text can hold it.
pub(super) fn path<'a>(field: &str, path: &'a Path) -> Result<&'a str, EmitError> {
    let Some(text) = path.to_str() else {
        return Err(EmitError(format!(
            "{field} = {path:?}: the path is not UTF-8, so that it cannot be written in a text"
        )));
    };
    word(field, text)
}

/// The word itself.
///
/// # Errors
/// It has a control character, such as a line's end.
pub(super) fn word<'a>(field: &str, text: &'a str) -> Result<&'a str, EmitError> {
    if text.chars().any(char::is_control) {
        return Err(EmitError(format!(
            "{field} = {text:?}: it has a line's end or another control character, which the text cannot hold: rename \
            it"
        )));
    }
    Ok(text)
}

/// Checks every file name of the spec and the kernel's command line.
///
/// # Errors
/// The first that no text can hold, with its field.
pub(super) fn check_words(emission: &Emission<'_>) -> Result<(), EmitError> {
    for (index, disk) in emission.spec.disks.iter().enumerate() {
        path(&format!("disk[{index}].path"), &disk.path)?;
    }
    if let Console::File { path: log } = &emission.spec.console {
        path("console.path", log)?;
    }
    let BootFiles { kernel, initrd, command_line, flash: _ } = emission.boot;
    for (field, file) in [("boot.kernel", kernel), ("boot.initrd", initrd)] {
        file.as_deref().map_or(Ok(""), |file| path(field, file))?;
    }
    word("boot.command_line", command_line).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn words_that_end_a_line_are_refused_by_field() {
        let refused = path("disk[1].path", Path::new("/a\nb")).unwrap_err().to_string();
        assert!(refused.starts_with("disk[1].path = \"/a\\nb\": it has a line's end"), "{refused}");
        assert!(word("boot.command_line", "a\rb").is_err() && word("boot.command_line", "a\u{1b}b").is_err());
        assert_eq!(word("boot.command_line", "it's 100 % \"odd\", é"), Ok("it's 100 % \"odd\", é"));
        let bytes = Path::new(OsStr::from_bytes(b"/a\xff"));
        assert!(path("boot.kernel", bytes).unwrap_err().to_string().contains("not UTF-8"));
        assert_eq!(one_line("a\nb\tc"), "a b c");
    }
}
