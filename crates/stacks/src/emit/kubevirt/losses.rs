//! What of a plan and a spec KubeVirt cannot be told.

use super::super::common::{
    CardWord, cards_as_usual, dies_lost, far_lost, groups_lost, of_one_host, one_cpu_each, one_line, policy_word,
    vcpus_of,
};
use super::super::stated::stated_lost;
use super::super::{Emission, Loss};
use super::binding::{Binding, most_in_pages};
use super::build::{boot_claim, quantity};
use topology::Bytes;
use vm::MemoryPolicy;
use vm::spec::{Boot, Console, Fill, Firmware, Network};

/// Of the virtual topology and the placement.
pub(super) fn of_the_plan(emission: &Emission<'_>, binding: &Binding) -> Vec<Loss> {
    if !binding.passthrough {
        let (groups, dies) = (groups_lost(emission.plan, "KubeVirt"), dies_lost(emission.plan, "KubeVirt"));
        let stated = stated_lost(emission, "KubeVirt", false);
        let floats = binding.too_large.map_or_else(|| floating(emission), |share| too_large(emission, binding, share));
        let all = [Some(floats), no_cpu_each(emission), groups, dies, stated];
        return all.into_iter().flatten().collect();
    }
    let mut losses = vec![homes(emission)];
    losses.extend(full_nodes(emission));
    losses.extend(count_of_nodes(emission, binding));
    losses.extend(shares(emission, binding));
    losses.extend(groups_lost(emission.plan, "KubeVirt"));
    losses.extend(dies_lost(emission.plan, "KubeVirt"));
    losses.extend(stated_lost(emission, "KubeVirt", true));
    losses.extend(far_lost(emission, "KubeVirt"));
    losses.extend(policy(emission));
    losses.extend(distances(emission));
    losses.push(pins(emission, binding));
    losses.extend(on_touch(emission));
    losses.extend(rounded(emission, binding));
    losses
}

fn floating(emission: &Emission<'_>) -> Loss {
    let policies: Vec<&str> =
        emission.plan.placement.clients.iter().map(|client| policy_word(client.memory_policy)).collect();
    Loss::new(
        format!(
            "KubeVirt binds vCPUs and memory only together with telling the guest its nodes, and has no word for \
            memory that is {} over nodes {}.",
            policies.first().unwrap_or(&"bound"),
            emission.plan.homes()
        ),
        "the VM floats over the whole cluster node, CPUs and memory; homenode balance on that node gives it a home.",
    )
}

/// The kubelet takes nodes by CPUs alone, and their memory must hold the VM.
fn too_large(emission: &Emission<'_>, binding: &Binding, share: Bytes) -> Loss {
    let (nodes, most) = (binding.kubelet_nodes, most_in_pages(emission.machine, binding.kubelet_nodes));
    Loss::new(
        format!(
            "KubeVirt gives a VM memory on the nodes of its CPUs only, and the kubelet takes the fewest that have {} \
            hardware threads: {nodes}, with {share} in huge pages on each; no more than {} of a node of {} can be that.",
            emission.spec.vcpus,
            Bytes(most),
            one_line(&emission.machine.name)
        ),
        "the object asks for no nodes, and the VM floats over the whole cluster node, CPUs and memory: homenode balance \
        on that node gives it a home. Less memory, or more vCPUs, would make it one that KubeVirt binds.",
    )
}

fn homes(emission: &Emission<'_>) -> Loss {
    let asked =
        if emission.spec.policy.node_affinity.is_some() { " policy.node_affinity too is without effect." } else { "" };
    Loss::new(
        format!(
            "KubeVirt names no NUMA node: the kubelet chooses the CPUs, and with them the nodes, at each start.{asked}"
        ),
        format!(
            "the VM may live on other nodes than {}, farther from each other, and see other nodes after a restart \
            elsewhere.",
            emission.plan.homes()
        ),
    )
}

/// The kubelet's static policy starts only where some CPU is kept from all pods.
fn full_nodes(emission: &Emission<'_>) -> Option<Loss> {
    let full = emission
        .plan
        .placement
        .clients
        .iter()
        .find(|client| vcpus_of(emission.plan, client).len() >= client.cpus.len())?;
    Some(Loss::new(
        format!(
            "A kubelet that gives VMs CPUs of their own keeps at least one for the host, and the plan uses all {} of \
            node {}.",
            full.cpus.len(),
            full.home
        ),
        "with the CPU kept on that node the VM does not fit as planned; plan with fewer vCPUs, or keep a CPU of \
        another node.",
    ))
}

/// The kubelet counts hardware threads, and gives the fewest nodes that have enough of them.
fn count_of_nodes(emission: &Emission<'_>, binding: &Binding) -> Option<Loss> {
    let (vcpus, nodes) = (emission.spec.vcpus, emission.plan.topology.nodes.len());
    let siblings = emission.machine.threads_per_core() > 1 && !emission.spec.policy.prefer_ht;
    if binding.kubelet_nodes != nodes {
        let given = binding.kubelet_nodes;
        return Some(Loss::new(
            format!(
                "The kubelet counts hardware threads, not cores, and takes the fewest nodes that have {vcpus}: \
                {given}, where the plan has {nodes}."
            ),
            format!(
                "the guest sees {given} node{}, not {nodes}. Where the count of cores matters, turn SMT off on those \
                cluster nodes; else plan with prefer_ht = true or policy.virtual_nodes.",
                if given == 1 { "" } else { "s" }
            ),
        ));
    }
    siblings.then(|| {
        Loss::new(
            "The kubelet hands out both hardware threads of a core, where the plan counts a core for each vCPU.",
            "the VM gets half as many cores as planned; prefer_ht = true plans for that.",
        )
    })
}

/// KubeVirt's shares: equal, in whole pages, what is left to the first nodes.
fn shares(emission: &Emission<'_>, binding: &Binding) -> Option<Loss> {
    let nodes = &emission.plan.topology.nodes;
    if nodes.len() != binding.kubelet_nodes {
        return None;
    }
    let equal = |index: usize| binding.pages_of(index) * binding.page.0;
    let same_memory = nodes.iter().enumerate().all(|(index, node)| node.memory.0 == equal(index));
    let same_vcpus = nodes.windows(2).all(|pair| pair[0].vcpus.len() == pair[1].vcpus.len());
    if same_memory && same_vcpus {
        return None;
    }
    let planned: Vec<String> =
        nodes.iter().map(|node| format!("{} vCPUs and {}", node.vcpus.len(), node.memory)).collect();
    Some(Loss::new(
        format!(
            "KubeVirt's nodes are equal: memory is divided evenly and the kubelet divides the CPUs; the plan has {}.",
            planned.join(", ")
        ),
        format!(
            "each node gets about {} and {} vCPUs: a node that has less than that free cannot take its share, and the \
            VM does not start.",
            Bytes(equal(0)),
            emission.spec.vcpus as usize / nodes.len()
        ),
    ))
}

fn policy(emission: &Emission<'_>) -> Option<Loss> {
    let other = emission.plan.placement.clients.iter().find(|client| client.memory_policy != MemoryPolicy::Bind)?;
    Some(Loss::new(
        format!(
            "KubeVirt binds the memory of a guest that sees its nodes; memory that is {} has no word.",
            policy_word(other.memory_policy)
        ),
        "each virtual node's memory is on one machine node, strictly: it cannot go elsewhere when that node is full.",
    ))
}

fn distances(emission: &Emission<'_>) -> Option<Loss> {
    (emission.plan.topology.nodes.len() > 1).then(|| {
        Loss::new(
            "KubeVirt takes no distances. Releases with its pull request 18829 (merged in August 2026) tell the guest \
            those of the nodes that the VM got; earlier ones tell it none.",
            "before it, all remote nodes look equally far to the guest.",
        )
    })
}

/// Of a VM that floats.
fn no_cpu_each(emission: &Emission<'_>) -> Option<Loss> {
    one_cpu_each(emission.plan).then(|| {
        Loss::new(
            "The plan has a CPU for each vCPU; the object does not ask for them, since the kubelet would take \
            them of any node.",
            "vCPUs share CPUs with others. dedicatedCpuPlacement: true gives each a CPU of its own.",
        )
    })
}

fn on_touch(emission: &Emission<'_>) -> Option<Loss> {
    (emission.plan.backing.fill == Fill::OnTouch).then(|| {
        Loss::new(
            "KubeVirt tells a guest its nodes only with huge pages, which are taken at the start.",
            "no memory is overcommitted: a cluster node needs free huge pages for all of it.",
        )
    })
}

fn pins(emission: &Emission<'_>, binding: &Binding) -> Loss {
    let own = if binding.emulator_apart {
        "QEMU's own threads get one CPU more than the plan counts (isolateEmulatorThread; with full-pcpus-only also \
        KubeVirt's AlignCPUs)"
    } else {
        "QEMU's own threads run on the vCPUs' CPUs (isolateEmulatorThread would make the shares of the nodes unequal, \
        or no CPU is left for it)"
    };
    if one_cpu_each(emission.plan) {
        return Loss::new(
            "KubeVirt pins each vCPU to a CPU that the kubelet chooses, siblings of one core first, and wants \
            huge pages.",
            format!("two vCPUs share a core where the plan has whole cores first; {own}."),
        );
    }
    Loss::new(
        "KubeVirt pins each vCPU to one CPU that nobody else gets, not to all CPUs of its home, and wants huge pages.",
        format!("an idle CPU of the home helps no other vCPU or VM; {own}."),
    )
}

fn rounded(emission: &Emission<'_>, binding: &Binding) -> Option<Loss> {
    let whole: Bytes = emission.plan.topology.nodes.iter().map(|node| node.memory).sum();
    (whole != binding.memory).then(|| {
        Loss::new(
            format!("{} is not a whole number of pages of {}.", quantity(whole), quantity(binding.page)),
            format!("nothing: the guest gets {}.", quantity(binding.memory)),
        )
    })
}

/// Of what the VM boots and has attached.
pub(super) fn of_the_devices(emission: &Emission<'_>, name: &str) -> Vec<Loss> {
    let mut losses = Vec::new();
    if emission.spec.name != name {
        losses.push(Loss::new(
            format!("Kubernetes takes no VM called {}.", emission.spec.name),
            format!("its name there is {name}; another VM with that name in the namespace would be overwritten."),
        ));
    }
    losses.extend(boot(emission, name));
    losses.extend(files(emission));
    losses.extend(network(emission));
    if let Console::File { path } = &emission.spec.console {
        losses.push(Loss::new(
            format!("KubeVirt writes no console to {}.", one_line(&path.display().to_string())),
            "the console is in the log of the pod's container guest-console-log (kubectl logs).",
        ));
    }
    losses
}

fn boot(emission: &Emission<'_>, name: &str) -> Option<Loss> {
    match &emission.spec.boot {
        Boot::TinyGuest { .. } => Some(Loss::new(
            "homenode's tiny guest boots only under homenode.",
            format!(
                "the VM boots the claim {}, which is yours to fill: virtctl image-upload pvc {} --image-path=IMAGE \
                --size=SIZE",
                boot_claim(name),
                boot_claim(name)
            ),
        )),
        Boot::Kernel { kernel, initrd, .. } => {
            let file = |path: &std::path::Path| one_line(&path.display().to_string());
            let initrd =
                initrd.as_ref().map(|initrd| format!(", {} as /boot/initrd", file(initrd))).unwrap_or_default();
            Some(Loss::new(
                "KubeVirt boots a kernel out of a container image, not out of a file.",
                format!(
                    "registry.invalid/{name}-kernel:latest is a placeholder: build an image with {} as \
                    /boot/kernel{initrd}, push it, and write its name there.",
                    file(kernel)
                ),
            ))
        }
        Boot::Disk { firmware: Firmware::Bios } | Boot::Definition => None,
        Boot::Disk { firmware: Firmware::Uefi } => Some(Loss::new(
            "KubeVirt keeps variables of UEFI only where the cluster has storage for them (VMPersistentState).",
            "What the guest tells its firmware is lost when the VM ends; efi.persistent: true keeps it there.",
        )),
    }
}

fn files(emission: &Emission<'_>) -> Option<Loss> {
    (!emission.spec.disks.is_empty()).then(|| {
        Loss::new(
            "A cluster node reads no image file of this host.",
            "each disk is a claim that must be filled first (the commands above); CDI turns qcow2 into raw.",
        )
    })
}

fn network(emission: &Emission<'_>) -> Vec<Loss> {
    let mut losses = Vec::new();
    let Some(first) = emission.spec.networks.first() else { return losses };
    let forward = first.forwards();
    if let Network::Plugged { into, .. } = first {
        losses.push(of_one_host("KubeVirt", into));
    } else if forward.is_empty() {
        losses.push(Loss::new(
            "KubeVirt's pod network lets the cluster in.",
            "other pods reach every port of the guest, where QEMU's user network lets nobody in; a NetworkPolicy keeps \
            them out.",
        ));
    } else {
        let ports: Vec<String> =
            forward.iter().map(|forward| format!("{} to {}", forward.host, forward.guest)).collect();
        losses.push(Loss::new(
            format!("Ports of the host's loopback address lead into no pod ({}).", ports.join(", ")),
            "kubectl reaches the guest's ports with: virtctl port-forward; other pods reach them at the pod's address.",
        ));
    }
    losses.extend(cards_as_usual(
        "KubeVirt",
        &emission.spec.networks[..1],
        &[CardWord::Queues, CardWord::Mac, CardWord::Vhost],
    ));
    if emission.spec.networks.len() > 1 {
        losses.push(Loss::new(
            format!("A pod has one pod network; the spec has {} networks.", emission.spec.networks.len()),
            "only the first network card is there; further ones need a network of Multus.",
        ));
    }
    losses
}
