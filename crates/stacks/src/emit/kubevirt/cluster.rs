//! What a cluster must be set to before the VM gets what the object asks for, as comments.

use super::super::Emission;
use super::super::common::one_line;
use super::binding::Binding;
use super::build::quantity;

/// Comment lines; empty where the object asks for nothing.
pub(super) fn needs(emission: &Emission<'_>, binding: &Binding) -> String {
    if !binding.passthrough {
        return String::new();
    }
    let mut text = String::from("# To set on the cluster first:\n");
    text += "#   KubeVirt (custom resource kubevirt, spec.configuration.developerConfiguration.featureGates): \
        CPUManager, NUMA\n";
    text +=
        &format!("#   The kubelet of each cluster node that has the shape of {}:\n", one_line(&emission.machine.name));
    text += "#     cpuManagerPolicy: static\n";
    if binding.kubelet_nodes > 1 {
        text += "#     cpuManagerPolicyOptions: {distribute-cpus-across-numa: \"true\"}   (else it fills one node and \
            spills the rest)\n";
    }
    text += "#     memoryManagerPolicy: Static   (with reservedMemory for each node)\n";
    text += "#     topologyManagerPolicy: restricted   (the fewest nodes that have as many CPUs, or no start)\n";
    text += "#     reservedSystemCPUs: CPUs of every node for the host, so that no pod gets them\n";
    let (size, kilobytes) = (quantity(binding.page), binding.page.0 / 1024);
    let each = binding.pages_of(0);
    text += &format!(
        "#   Huge pages there, set aside before the kubelet starts: {each} of {size} on each node that it may choose\n"
    );
    text += &format!("#     (/sys/devices/system/node/node*/hugepages/hugepages-{kilobytes}kB/nr_hugepages)\n");
    text += &format!(
        "#   Cluster nodes of another shape kept away, by a label and spec.template.spec.nodeSelector: the plan is for \
        nodes {}.\n",
        emission.plan.homes()
    );
    text
}
