//! Lines of a Proxmox VE configuration (`/etc/pve/qemu-server/ID.conf`), as qemu-server 9.2 reads
//! them.

use super::common::{
    check_words, dies_lost, far_lost, groups_lost, heading, memory, one_cpu_each, one_set_of_cpus, several_cpu_sets,
    threads_lost, vcpus,
};
use super::in_order::{self, in_order};
use super::stated::{binding_lost, stated};
use super::{Emission, EmitError, Loss};
use crate::emit::proxmox_devices;
use topology::words::quoted;
use topology::{Bytes, Machine, NodeSet};
use vm::spec::Fill;
use vm::{MemoryPolicy, Plan, VirtualNode};

/// qemu-server's `$MAX_NUMA`.
const MOST_VIRTUAL_NODES: usize = 8;
/// Its smallest `memory`.
const LEAST_MEMORY: Bytes = Bytes::from_mib(16);
/// What a guest assumes of other nodes where QEMU is told no distance.
const ASSUMED_DISTANCE: u32 = 20;

pub(super) fn text(emission: &Emission<'_>) -> Result<String, EmitError> {
    check_words(emission)?;
    check(emission)?;
    let ordered = in_order(emission.plan);
    let emission = &Emission { plan: ordered.as_ref().unwrap_or(emission.plan), ..*emission };
    let Emission { spec, plan, .. } = *emission;
    let devices = proxmox_devices::devices(emission)?;
    let mut losses = losses(emission);
    losses.extend(devices.losses);
    losses.extend(ordered.is_some().then(|| in_order::loss("Proxmox")));
    let topology = &plan.topology;
    let mut lines = Vec::new();
    if is_dns_name(&spec.name) {
        lines.push(format!("name: {}", spec.name));
    }
    lines.extend(["ostype: l26", "machine: q35", "cpu: host"].map(str::to_owned));
    lines.push(format!("sockets: {}", topology.sockets));
    lines.push(format!("cores: {}", topology.cores_per_socket * topology.threads_per_core));
    let (present, most) = (topology.vcpus(), topology.max_vcpus());
    let grows = present < most;
    if grows {
        // The others are its default.
        lines.push(format!("vcpus: {present}"));
        lines.push("hotplug: network,disk,usb,cpu".to_owned());
    }
    lines.push("numa: 1".to_owned());
    lines.extend(topology.nodes.iter().map(|node| numa_line(plan, node)));
    lines.push(format!("memory: {}", memory(plan).mib()));
    lines.extend(plan.backing.huge_pages.map(|page| format!("hugepages: {}", page.mib())));
    lines.push("balloon: 0".to_owned());
    lines.push(format!("affinity: {}", one_set_of_cpus(plan)));
    lines.extend(devices.lines);
    lines.extend(custom_arguments(emission));
    let mut usage = vec![
        "Lines of /etc/pve/qemu-server/ID.conf. Create the VM first (`qm create ID`), append them as root, and start \
        it (`qm start ID`)."
            .to_owned(),
        "`hotplug` of the VM must not hold `memory`: Proxmox refuses it beside a NUMA topology of its own.".to_owned(),
    ];
    if grows {
        usage.push(format!(
            "`qm set ID --vcpus N` gives it N vCPUs while it runs, {most} at most; the guest must bring them online."
        ));
    }
    usage.extend(devices.usage);
    let comments = description(&heading(emission, &usage, &losses));
    Ok(format!("{comments}{}\n", lines.join("\n")))
}

/// Proxmox keeps comments as the VM's description, in which `%` and two hexadecimal digits are one
/// byte.
fn description(text: &str) -> String {
    let mut parts = text.split('%');
    let mut encoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_byte = part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
        encoded += if is_byte { "%25" } else { "%" };
        encoded += part;
    }
    encoded
}

/// What Proxmox refuses at the start of a VM.
fn check(emission: &Emission<'_>) -> Result<(), EmitError> {
    let Emission { spec, plan, machine, .. } = *emission;
    let (nodes, total) = (plan.topology.nodes.len(), memory(plan));
    if nodes > MOST_VIRTUAL_NODES {
        return Err(EmitError(format!(
            "policy: the plan has {nodes} virtual nodes, but Proxmox takes at most {MOST_VIRTUAL_NODES} (numa0 to \
            numa7): use fewer, larger ones (policy.virtual_nodes, policy.prefer_ht) or policy.vnuma = false"
        )));
    }
    if total < LEAST_MEMORY {
        return Err(EmitError(format!("memory = \"{total}\": Proxmox takes at least {LEAST_MEMORY}")));
    }
    if let Some(node) = plan.topology.nodes.iter().find(|node| node.memory.0 == 0 || node.vcpus.is_empty()) {
        return Err(EmitError(format!(
            "policy.virtual_nodes[{}]: Proxmox has no virtual nodes without vCPUs or memory",
            node.id
        )));
    }
    let cpus = online_cpus(machine);
    let most = plan.topology.max_vcpus();
    if most as usize > cpus {
        let field = if most > spec.vcpus { "max_vcpus" } else { "vcpus" };
        return Err(EmitError(format!(
            "{field} = {most}: Proxmox starts no VM with more vCPUs than its host has CPUs: {cpus} on {}",
            machine.name
        )));
    }
    Ok(())
}

fn online_cpus(machine: &Machine) -> usize {
    machine.threads.iter().filter(|thread| thread.online).count()
}

/// Proxmox's names are DNS names: labels of letters, digits and inner `-`, separated by dots.
fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| {
        let inner = label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
        inner && !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-')
    })
}

fn numa_line(plan: &Plan, node: &VirtualNode) -> String {
    let mut line = format!("numa{}: cpus={}", node.id, vcpus(node).to_string().replace(',', ";"));
    if let Some((home, policy)) = binding(plan, node) {
        line += &format!(",hostnodes={home}");
        return line + &format!(",memory={},policy={policy}", node.memory.mib());
    }
    line + &format!(",memory={}", node.memory.mib())
}

/// Home and policy, where Proxmox can be told of them.
fn binding(plan: &Plan, node: &VirtualNode) -> Option<(NodeSet, &'static str)> {
    let client = plan.client_of(node.id)?;
    let policy = match client.memory_policy {
        MemoryPolicy::Bind => "bind",
        MemoryPolicy::Interleave => "interleave",
        MemoryPolicy::Preferred => return client.home.first().map(|node| ([node].into_iter().collect(), "preferred")),
        MemoryPolicy::Default => return None,
    };
    (!has_gap(&client.home)).then(|| (client.home.clone(), policy))
}

/// Whether the set is more than one range. Proxmox hands `hostnodes=0;2` to QEMU as
/// `host-nodes=0,2`, which QEMU refuses.
pub(crate) fn has_gap(home: &NodeSet) -> bool {
    home.to_string().contains(',')
}

/// One `args` line: what Proxmox has no option for and QEMU has.
fn custom_arguments(emission: &Emission<'_>) -> Option<String> {
    let mut words = Vec::new();
    for (from, to, distance) in told_distances(emission.plan) {
        words.extend(["-numa".to_owned(), format!("dist,src={from},dst={to},val={distance}")]);
    }
    if let Some(stated) = stated(emission.spec) {
        words.extend(["-chardev".to_owned(), format!("null,id={}", stated.id(vm::stated::MARK))]);
    }
    let boot = emission.boot;
    if let Some(kernel) = &boot.kernel {
        words.extend(["-kernel".to_owned(), kernel.to_string_lossy().into_owned()]);
        if let Some(initrd) = &boot.initrd {
            words.extend(["-initrd".to_owned(), initrd.to_string_lossy().into_owned()]);
        }
        words.extend(["-append".to_owned(), boot.command_line.clone()]);
    }
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    (!quoted.is_empty()).then(|| format!("args: {}", quoted.join(" ")))
}

/// All distances, unless the guest assumes them anyway.
fn told_distances(plan: &Plan) -> Vec<(usize, usize, u32)> {
    let rows = plan.topology.distances.iter().enumerate();
    let all: Vec<(usize, usize, u32)> =
        rows.flat_map(|(from, row)| row.iter().enumerate().map(move |(to, &distance)| (from, to, distance))).collect();
    let assumed = all.iter().all(|&(from, to, distance)| from == to || distance == ASSUMED_DISTANCE);
    if assumed || !plan.topology.exposed { Vec::new() } else { all }
}

fn losses(emission: &Emission<'_>) -> Vec<Loss> {
    let Emission { spec, plan, .. } = *emission;
    let mut losses = Vec::new();
    if !is_dns_name(&spec.name) {
        losses.push(Loss::new(
            format!("Proxmox's names are DNS names, which {} is not.", spec.name),
            "The VM shows by its number only.",
        ));
    }
    if several_cpu_sets(plan) {
        losses.push(Loss::new(
            "Proxmox binds no single vCPU: `affinity` is one set of CPUs for the whole process.",
            "vCPUs run on the CPUs of any home of this VM, away from their memory, until `homenode balance` on that \
            host brings them home.",
        ));
    }
    for node in &plan.topology.nodes {
        if let Some(client) = plan.client_of(node.id).filter(|client| has_gap(&client.home)) {
            losses.push(Loss::new(
                format!(
                    "Proxmox hands QEMU only one range of host nodes rightly, and the home {} of virtual node {} has a \
                    gap.",
                    client.home, node.id
                ),
                "Its memory is bound to no node; policy.node_affinity with neighbouring numbers mends it.",
            ));
        }
    }
    if one_cpu_each(plan) {
        losses.push(Loss::new(
            "Proxmox binds no vCPU to one CPU: `affinity` holds those of all of them.",
            "vCPUs change places among them, and QEMU's own threads run there too.",
        ));
    }
    if plan.bound_cpus().iter().any(|cpu| emission.machine.isolated.contains(cpu)) {
        losses.push(Loss::new(
            format!("CPUs {} are isolated, and the kernel spreads nothing over isolated CPUs.", plan.bound_cpus()),
            "All threads of the VM stay on the first of them, until a hookscript binds each vCPU after the start \
            (taskset -cp CPU THREAD).",
        ));
    }
    losses.extend(threads_lost(plan, "Proxmox"));
    losses.extend(groups_lost(plan, "Proxmox"));
    losses.extend(dies_lost(plan, "Proxmox"));
    losses.extend(binding_lost(emission, "Proxmox"));
    losses.extend(far_lost(emission, "Proxmox"));
    losses.extend(filling(plan));
    let distances = (!told_distances(plan).is_empty()).then_some("the distances between virtual nodes");
    let kernel = emission.boot.kernel.as_ref().map(|_| "the kernel to boot");
    let stated = stated(emission.spec).map(|_| "what homenode's balancer is told");
    let custom: Vec<&str> = distances.into_iter().chain(stated).chain(kernel).collect();
    if !custom.is_empty() {
        losses.push(Loss::new(
            format!("Proxmox has no option for {}: `args` hands QEMU its own.", custom.join(" and ")),
            "Only root@pam may change `args`, and the web interface does not show it.",
        ));
    }
    losses
}

/// What of huge pages and of the time at which memory is taken Proxmox cannot be told.
fn filling(plan: &Plan) -> Option<Loss> {
    match (plan.backing.huge_pages, plan.backing.fill) {
        (None, Fill::AtStart) => Some(Loss::new(
            "Proxmox fills the memory at the start only with huge pages (`hugepages: 2` or `1024`, one host \
            node each).",
            "A home that is full shows only when the guest touches its memory; with policy=bind the host then \
            reclaims or kills.",
        )),
        (None, Fill::OnTouch) => None,
        (Some(_), _) => {
            let wide = plan.placement.clients.iter().find(|client| client.home.len() > 1)?;
            Some(Loss::new(
                format!(
                    "Proxmox takes huge pages of one host node for a virtual node; client {} has {}.",
                    wide.id, wide.home
                ),
                "It refuses to start the VM; policy.virtual_nodes with smaller nodes mends it.",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_proxmox_are_dns_names() {
        for name in ["a", "web-1.example", "A9"] {
            assert!(is_dns_name(name), "{name}");
        }
        for name in ["a_b", "a-", "a..b", "-a", "a.", ""] {
            assert!(!is_dns_name(name), "{name}");
        }
    }

    #[test]
    fn only_what_would_be_decoded_is_encoded() {
        assert_eq!(description("100 % odd, %4, %41, %%41, 5%"), "100 % odd, %4, %2541, %%2541, 5%");
    }

    #[test]
    fn a_set_with_a_gap_is_told_from_a_range() {
        assert!(has_gap(&"0,2".parse().unwrap()) && has_gap(&"0-1,3".parse().unwrap()));
        assert!(!has_gap(&"0-3".parse().unwrap()) && !has_gap(&"7".parse().unwrap()));
    }
}
