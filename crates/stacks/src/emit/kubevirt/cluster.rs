//! What a cluster must be set to before the VM gets what the object asks for, as comments.

use super::super::Emission;
use super::super::common::{all_homes, one_line};
use super::binding::Binding;
use super::build::quantity;
use scheduler::Client;
use std::fmt::Write as _;

/// Comment lines; empty where the object asks for nothing.
pub(super) fn needs(emission: &Emission<'_>, binding: &Binding) -> String {
    if !binding.passthrough {
        return String::new();
    }
    let wide = emission.plan.topology.nodes.len() > 1;
    let mut text = String::from("# To set on the cluster first:\n");
    text += "#   KubeVirt (custom resource kubevirt, spec.configuration.developerConfiguration.featureGates): CPUManager, NUMA\n";
    text +=
        &format!("#   The kubelet of each cluster node that has the shape of {}:\n", one_line(&emission.machine.name));
    text += "#     cpuManagerPolicy: static\n";
    if wide {
        text += "#     cpuManagerPolicyOptions: {distribute-cpus-across-numa: \"true\"}   (else it fills one node and spills the rest)\n";
    }
    text += "#     memoryManagerPolicy: Static   (with reservedMemory for each node)\n";
    text += "#     topologyManagerPolicy: restricted   (the fewest nodes that have as many CPUs, or no start)\n";
    text += "#     reservedSystemCPUs: CPUs of every node for the host, so that no pod gets them\n";
    text += &format!("#   Huge pages of {} there, set aside before the kubelet starts:\n", quantity(binding.page));
    for client in &emission.plan.placement.clients {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "#     {}", pages(emission, binding, client));
    }
    text += &format!(
        "#   Cluster nodes of another shape kept away, by a label and spec.template.spec.nodeSelector: the plan is for nodes {}.\n",
        all_homes(emission.plan)
    );
    text
}

/// `4096 on node 0 (/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages)`
fn pages(emission: &Emission<'_>, binding: &Binding, client: &Client) -> String {
    let nodes =
        emission.plan.topology.nodes.iter().enumerate().filter(|(_, node)| client.virtual_nodes.contains(&node.id));
    let count: u64 = nodes.map(|(index, _)| binding.pages_of(index)).sum();
    let file = |node: u32| {
        format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages", binding.page.0 / 1024)
    };
    let files: Vec<String> = client.home.iter().map(|home| file(home.0)).collect();
    format!("{count} on node {} ({})", client.home, files.join(", "))
}
