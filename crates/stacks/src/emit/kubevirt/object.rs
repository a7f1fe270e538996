//! The part of KubeVirt's VirtualMachine (`kubevirt.io/v1`) that a plan is written in. Names and
//! nesting are KubeVirt's.

use serde::{Deserialize, Serialize};

/// The whole object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VirtualMachine {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metadata {
    pub(super) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    pub(super) run_strategy: String,
    pub(super) template: Template,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Template {
    pub(super) spec: Instance,
}

/// What KubeVirt calls a VirtualMachineInstance's spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instance {
    pub(super) domain: Domain,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) networks: Vec<Network>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) volumes: Vec<Volume>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Domain {
    pub(super) cpu: Cpu,
    pub(super) memory: Memory,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) firmware: Option<Firmware>,
    pub(super) devices: Devices,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Cpu {
    pub(super) model: String,
    pub(super) sockets: u32,
    /// As many as `sockets`: else KubeVirt adds four times as many sockets, switched off, for
    /// hot-plug.
    pub(super) max_sockets: u32,
    pub(super) cores: u32,
    pub(super) threads: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) features: Vec<CpuFeature>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) dedicated_cpu_placement: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) isolate_emulator_thread: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) numa: Option<Numa>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CpuFeature {
    pub(super) name: String,
    pub(super) policy: String,
}

impl CpuFeature {
    /// AMD's topology leaf, without which a guest sees no hardware threads.
    pub(super) fn topoext() -> Self {
        Self { name: "topoext".to_owned(), policy: "require".to_owned() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Numa {
    pub(super) guest_mapping_passthrough: Empty,
}

/// `{}`: a choice without settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Empty {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    /// A Kubernetes quantity: `16Gi`.
    pub(super) guest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hugepages: Option<HugePages>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HugePages {
    pub(super) page_size: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Firmware {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kernel_boot: Option<KernelBoot>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bootloader: Option<Bootloader>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Bootloader {
    pub(super) efi: Efi,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Efi {
    /// KubeVirt's default is that there is Secure Boot.
    pub(super) secure_boot: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KernelBoot {
    pub(super) kernel_args: String,
    pub(super) container: KernelContainer,
}

/// The container image that holds the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KernelContainer {
    pub(super) image: String,
    pub(super) kernel_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) initrd_path: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Devices {
    pub(super) autoattach_graphics_device: bool,
    pub(super) autoattach_mem_balloon: bool,
    /// False where the VM has no network card; KubeVirt adds one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) autoattach_pod_interface: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) log_serial_console: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) disks: Vec<Disk>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Disk {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot_order: Option<u32>,
    pub(super) disk: DiskTarget,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiskTarget {
    pub(super) bus: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) readonly: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) masquerade: Empty,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Port {
    pub(super) port: u16,
    pub(super) protocol: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) pod: Empty,
}

/// A volume: one of its two sources is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Volume {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) persistent_volume_claim: Option<Claim>,
    /// Writes go to a file that ends with the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ephemeral: Option<Ephemeral>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) claim_name: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Ephemeral {
    pub(super) persistent_volume_claim: Claim,
}

/// What serde asks of a field that is left out when false.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}
