//! An OpenStack Nova flavor, as commands of OpenStack's client. Nova confines each of the guest's
//! nodes to one node of its choice, CPUs and memory: that is a home. Which one cannot be said.

mod flavor;
mod losses;
#[cfg(test)]
mod tests;

use super::common::{check_words, disk_format, heading, one_cpu_each, one_line, path};
use super::{Emission, EmitError};
use topology::words::quoted;
use vm::VmSpec;
use vm::spec::{CardModel, Disk, Firmware, Network};

pub(super) fn text(emission: &Emission<'_>) -> Result<String, EmitError> {
    check_words(emission)?;
    let name = &emission.spec.name;
    let usage = vec![
        "Shell commands of OpenStack's client, for an administrator. Run them with: DISK_GIB=20 sh FILE".to_owned(),
        format!(
            "Then start the VM: openstack server create --flavor {} --image {} --network NETWORK {}",
            quoted(name),
            image_name(emission),
            quoted(name)
        ),
    ];
    let shape = flavor::Shape::of(emission);
    let mut text = heading(emission, &usage, &losses::losses(emission, shape)) + &cloud_needs(emission, shape);
    text += "set -eu\n";
    text += &flavor_command(emission, shape);
    if let Some(disk) = boot_disk(emission) {
        text += &image_command(name, disk, emission.spec)?;
    }
    text += &alternative(emission, shape);
    Ok(text)
}

/// The disk that becomes the image.
fn boot_disk<'a>(emission: &Emission<'a>) -> Option<&'a Disk> {
    emission.spec.disks.first().filter(|_| emission.spec.boot.is_disk())
}

fn image_name(emission: &Emission<'_>) -> String {
    boot_disk(emission).map_or("IMAGE".to_owned(), |_| quoted(&emission.spec.name))
}

fn flavor_command(emission: &Emission<'_>, shape: flavor::Shape) -> String {
    let (spec, plan) = (emission.spec, emission.plan);
    let memory: u64 = plan.topology.nodes.iter().map(|node| node.memory.mib()).sum();
    let mut text =
        format!("openstack flavor create --vcpus {} --ram {memory} --disk \"${{DISK_GIB:-20}}\"", spec.vcpus);
    text += &properties(&flavor::properties(emission, shape));
    text + &format!(" \\\n  {}\n", quoted(&spec.name))
}

fn image_command(name: &str, disk: &Disk, spec: &VmSpec) -> Result<String, EmitError> {
    let format = disk_format(disk.format);
    let file = quoted(path("disk[0].path", &disk.path)?);
    let uefi = (spec.boot.firmware() == Firmware::Uefi).then_some(("hw_firmware_type", "uefi"));
    // One for all cards of what boots from the image.
    let model = match spec.networks.first() {
        Some(Network::Plugged { card, .. }) => card.model.to_string(),
        _ => CardModel::Virtio.to_string(),
    };
    let devices = [("hw_disk_bus", "virtio"), ("hw_vif_model", &model)].into_iter().chain(uefi);
    let of_image: Vec<_> = devices.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Ok(format!(
        "openstack image create --disk-format {format} --container-format bare --file {file}{} \\\n  {}\n",
        properties(&of_image),
        quoted(name)
    ))
}

fn properties(properties: &[(String, String)]) -> String {
    properties.iter().map(|(key, value)| format!(" \\\n  --property {}", quoted(&format!("{key}={value}")))).collect()
}

/// What the cloud must have before the flavor means what it says.
fn cloud_needs(emission: &Emission<'_>, shape: flavor::Shape) -> String {
    let mut text = String::from("# To set on the cloud first (nova.conf):\n");
    if shape == flavor::Shape::Nodes {
        text += "#   scheduler: [filter_scheduler] enabled_filters with NUMATopologyFilter\n";
    }
    if one_cpu_each(emission.plan) && shape == flavor::Shape::Nodes {
        text += "#   compute hosts: [compute] cpu_dedicated_set, and cpu_shared_set for QEMU's own threads\n";
    }
    text += "#   compute hosts: [libvirt] virt_type = kvm, cpu_mode = host-passthrough\n";
    text +=
        "#   compute hosts: [DEFAULT] cpu_allocation_ratio = 1.0, else CPUs of the homes are promised several times\n";
    text += &format!(
        "#   hosts of another shape than {} kept away: a host aggregate, its property on the flavor as\n",
        one_line(&emission.machine.name)
    );
    text += "#   aggregate_instance_extra_specs:KEY, and AggregateInstanceExtraSpecsFilter among the enabled_filters\n";
    text
}

/// Commented: the same with CPUs of its own.
fn alternative(emission: &Emission<'_>, shape: flavor::Shape) -> String {
    if shape == flavor::Shape::Floating || one_cpu_each(emission.plan) {
        return String::new();
    }
    let set = format!(
        "openstack flavor set{} {}",
        flavor::dedicated(emission).map(|property| format!(" --property {property}")).concat(),
        quoted(&emission.spec.name)
    );
    format!(
        "# For a CPU of its own for each vCPU, instead of all CPUs of its home for all of them (compute hosts need \
        [compute]\n\
         # cpu_dedicated_set, and cpu_shared_set for QEMU's own threads):\n# {set}\n"
    )
}
