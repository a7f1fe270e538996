//! What of a plan and a spec Nova cannot be told.

use super::super::common::{
    CardWord, cards_as_usual, dies_lost, far_lost, groups_lost, of_one_host, one_cpu_each, policy_word,
};
use super::super::stated::stated_lost;
use super::super::{Emission, Loss};
use super::flavor::Shape;
use vm::MemoryPolicy;
use vm::spec::{Boot, Console, Fill, Network};

pub(super) fn losses(emission: &Emission<'_>, shape: Shape) -> Vec<Loss> {
    let mut losses: Vec<Loss> = groups_lost(emission.plan, "Nova").into_iter().collect();
    losses.extend(dies_lost(emission.plan, "Nova"));
    losses.extend(stated_lost(emission, "Nova", shape == Shape::Nodes));
    losses.extend(far_lost(emission, "Nova"));
    match shape {
        Shape::Floating => {
            losses.push(floating(emission));
            losses.extend(floating_pages(emission));
            losses.extend(floating_cpus(emission));
        }
        Shape::Nodes => {
            losses.push(homes(emission));
            losses.extend(straddling(emission));
            losses.extend(together(emission));
            losses.extend(policy(emission));
            losses.extend(on_touch(emission));
            losses.extend(distances(emission));
            losses.extend(threads(emission));
        }
    }
    losses.extend(boot(emission));
    losses.extend(disks(emission));
    losses.extend(network(emission));
    let first = emission.spec.networks.get(..1).unwrap_or_default();
    losses.extend(cards_as_usual("Nova", first, &[CardWord::Queues, CardWord::Mac, CardWord::Vhost]));
    if let Console::File { .. } = &emission.spec.console {
        losses.push(Loss::new(
            "Nova writes the console to a file of its own.",
            "openstack console log show prints it; the spec's file is not written.",
        ));
    }
    losses
}

fn floating(emission: &Emission<'_>) -> Loss {
    let policy = emission.plan.placement.clients.first().map(|client| client.memory_policy);
    Loss::new(
        format!(
            "Nova has no word for a guest without nodes that lives on nodes {}, nor for memory that is {}.",
            emission.plan.homes(),
            policy_word(policy.unwrap_or(MemoryPolicy::Bind))
        ),
        "the VM floats over the whole host, CPUs and memory; homenode balance on that host gives it a home.",
    )
}

fn floating_pages(emission: &Emission<'_>) -> Option<Loss> {
    let page = emission.plan.backing.huge_pages?;
    Some(Loss::new(
        format!(
            "With huge pages Nova puts a guest without nodes on one node of the host: pages of {page} are not \
            asked for."
        ),
        "its memory is of small pages.",
    ))
}

fn floating_cpus(emission: &Emission<'_>) -> Option<Loss> {
    one_cpu_each(emission.plan).then(|| {
        Loss::new(
            "With dedicated CPUs Nova puts a guest without nodes on one node of the host: they are not asked for.",
            "vCPUs share CPUs with others. hw:cpu_policy=dedicated gives each one of its own, where one node holds the \
            VM.",
        )
    })
}

/// A page size makes Nova count each node's memory.
fn on_touch(emission: &Emission<'_>) -> Option<Loss> {
    (emission.plan.backing.fill == Fill::OnTouch).then(|| {
        Loss::new(
            "Nova promises no more of a node's memory than it has, whatever ram_allocation_ratio says, as \
            soon as it counts nodes.",
            "the VM is refused where the plan overcommits memory.",
        )
    })
}

fn homes(emission: &Emission<'_>) -> Loss {
    let asked =
        if emission.spec.policy.node_affinity.is_some() { " policy.node_affinity too is without effect." } else { "" };
    Loss::new(
        format!("Nova names no node of the host: it takes those that fit and have least left free.{asked}"),
        format!(
            "the VM may live on other nodes than {}, far from each other or beside busy VMs while others idle; \
            [compute] packing_host_numa_cells_allocation_strategy = False in nova.conf takes the freest instead.",
            emission.plan.homes()
        ),
    )
}

fn straddling(emission: &Emission<'_>) -> Option<Loss> {
    let wide = emission.plan.placement.clients.iter().find(|client| client.home.len() > 1)?;
    Some(Loss::new(
        format!(
            "Nova puts each of the guest's nodes on one node of the host; client {} lives on nodes {}.",
            wide.id, wide.home
        ),
        "no host of this shape takes the flavor; plan for fewer vCPUs or less memory in a virtual node.",
    ))
}

/// Nova never puts two nodes of a guest on one node of the host.
fn together(emission: &Emission<'_>) -> Option<Loss> {
    let (wanted, homes) = (emission.plan.topology.nodes.len(), emission.plan.homes());
    let there = emission.machine.nodes.iter().filter(|node| !emission.machine.usable_cpus(node.id).is_empty()).count();
    (homes.len() < wanted).then(|| {
        Loss::new(
            format!(
                "Nova puts no two of the guest's nodes on one node of the host; the plan has {wanted} on nodes \
                {homes}."
            ),
            if there < wanted {
                format!(
                    "no host of this shape takes the flavor: it has {there} nodes with CPUs; plan with as many \
                    virtual nodes."
                )
            } else {
                format!(
                    "the VM is spread over {wanted} nodes, and memory is remote that would be local; plan with \
                    fewer virtual nodes."
                )
            },
        )
    })
}

fn policy(emission: &Emission<'_>) -> Option<Loss> {
    let other = emission.plan.placement.clients.iter().any(|client| client.memory_policy != MemoryPolicy::Bind);
    other.then(|| {
        Loss::new(
            "Nova always binds the memory of a node strictly.",
            "memory cannot go elsewhere when its node is full.",
        )
    })
}

fn distances(emission: &Emission<'_>) -> Option<Loss> {
    (emission.plan.topology.nodes.len() > 1).then(|| {
        Loss::new(
            "Nova takes no distances and tells the guest none.",
            "all remote nodes look equally far to the guest.",
        )
    })
}

fn threads(emission: &Emission<'_>) -> Option<Loss> {
    let siblings = emission.machine.threads_per_core() > 1 && !emission.spec.policy.prefer_ht;
    siblings.then(|| {
        Loss::new(
            "Nova counts hardware threads as CPUs; the plan counts a core for each vCPU.",
            "a node takes as many vCPUs as it has hardware threads, two on a core. Nova has no word for whole cores \
            (isolate means hosts without SMT): turn SMT off on the hosts, or plan with prefer_ht = true.",
        )
    })
}

fn boot(emission: &Emission<'_>) -> Option<Loss> {
    match emission.spec.boot {
        Boot::Disk { .. } | Boot::Definition => None,
        Boot::TinyGuest { .. } => {
            Some(Loss::new("homenode's tiny guest boots only under homenode.", "choose an image."))
        }
        Boot::Kernel { .. } => Some(Loss::new(
            "Nova boots a kernel only beside a disk image that names it.",
            "choose an image, with kernel_id, ramdisk_id and os_command_line as its properties.",
        )),
    }
}

fn disks(emission: &Emission<'_>) -> Option<Loss> {
    let booted = usize::from(emission.spec.boot.is_disk());
    let (more, special) = (emission.spec.disks.iter().skip(booted), emission.spec.disks.iter());
    let special = special.filter(|disk| disk.read_only || disk.snapshot).count();
    let more = more.count();
    (more + special > 0).then(|| {
        Loss::new(
            format!(
                "A flavor has no further disks ({more} in the spec), and none that is read-only or thrown away \
                ({special} in the spec)."
            ),
            "make volumes of them: openstack volume create --image, openstack server add volume.",
        )
    })
}

fn network(emission: &Emission<'_>) -> Option<Loss> {
    let forward = match emission.spec.networks.first()? {
        Network::User { forward } => forward,
        Network::Plugged { into, .. } => return Some(of_one_host("Nova", into)),
    };
    let ports: Vec<String> = forward.iter().map(|forward| format!("{} to {}", forward.host, forward.guest)).collect();
    let ports =
        if ports.is_empty() { String::new() } else { format!(" and its forwarded ports ({})", ports.join(", ")) };
    Some(Loss::new(
        format!("Nova has nothing like QEMU's user network{ports}."),
        "choose a network; a security group and a floating IP let others in.",
    ))
}
