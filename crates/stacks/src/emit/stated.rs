//! What a spec says to homenode's balancer, in texts for other stacks: as the mark that the stack
//! hands on to QEMU, or else as what is lost, with the rule that says the same.

use super::Emission;
use super::comment::Loss;
use vm::spec::{BandwidthNeed, Spread, VcpuBinding};
use vm::{Stated, VmSpec};

/// The words of the spec, where there are any.
pub(super) fn stated(spec: &VmSpec) -> Option<Stated> {
    Some(Stated::of(&spec.policy)).filter(Stated::says_something)
}

/// What is lost of them where the stack hands nothing on. A VM whose vCPUs are bound 1:1 is seen to
/// be latency-sensitive, if `binds` says that the stack binds them.
pub(super) fn stated_lost(emission: &Emission<'_>, stack: &str, binds: bool) -> Option<Loss> {
    let policy = &emission.spec.policy;
    let seen = binds && policy.vcpu_binding == VcpuBinding::Core;
    let stated = Stated { latency_sensitive: policy.counts_full() && !seen, ..Stated::of(policy) };
    let words = rule(&stated);
    (!words.is_empty()).then(|| {
        Loss::new(
            format!("{stack} has no word for what homenode's balancer is told of a VM: {}.", words.join(", ")),
            "The balancer goes by what it sees, unless its policy file has a rule: [[vm]] name = \"...\" with these \
             lines.",
        )
    })
}

/// The same where the stack hands the words on but binds no vCPU: what a VM with a CPU for each
/// vCPU says by that.
pub(super) fn binding_lost(emission: &Emission<'_>, stack: &str) -> Option<Loss> {
    let policy = &emission.spec.policy;
    (policy.counts_full() && !policy.latency_sensitive).then(|| {
        Loss::new(
            format!("{stack} binds no vCPU, so that homenode's balancer does not see that all of them count as busy."),
            "The balancer counts what the VM uses; policy.latency_sensitive = true tells it.",
        )
    })
}

/// As fields of a rule in the balancer's policy file.
fn rule(stated: &Stated) -> Vec<String> {
    let placement = match stated.placement {
        Spread::Auto => None,
        Spread::Together => Some("together"),
        Spread::Apart | Spread::MostVirtualNodes => Some("apart"),
    };
    let bandwidth = Some(stated.bandwidth).filter(|need| *need != BandwidthNeed::Auto);
    let lines = [
        placement.map(|word| format!("placement = \"{word}\"")),
        bandwidth.map(|need| format!("bandwidth = \"{need}\"")),
        stated.node_affinity.as_ref().map(|nodes| format!("node_affinity = \"{nodes}\"")),
        stated.near_device.then(|| "near_device = true".to_owned()),
        stated.latency_sensitive.then(|| "latency_sensitive = true".to_owned()),
        stated.prefer_ht.then(|| "prefer_ht = true".to_owned()),
        stated.max_vcpus_per_node.map(|most| format!("max_vcpus_per_node = {most}")),
    ];
    lines.into_iter().flatten().collect()
}
