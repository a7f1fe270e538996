//! What a machine type decides that no option says.

use topology::Bytes;

/// Ubuntu's names of machine types of before QEMU 6.2.
const UBUNTU_BEFORE_6_2: &[&str] = &[
    "trusty", "utopic", "vivid", "wily", "xenial", "yakkety", "zesty", "artful", "bionic", "cosmic", "disco", "eoan",
    "focal", "groovy", "hirsute", "impish",
];

/// Whether its vCPUs without a word about their places are sockets of one core (`prefer_sockets` of
/// QEMU's smp_props): those of before 6.2 (`pc-q35-6.1`, `pc-i440fx-5.2+pve0`), of Red Hat those
/// before 8.6, of Ubuntu those before jammy.
pub(super) fn prefers_sockets(machine: Option<&str>) -> bool {
    let Some(version) = machine.and_then(|machine| machine.split('+').next()) else { return false };
    let parts = || version.split('-').skip(1);
    let before = |text: &str, limit: (u32, u32)| {
        let mut numbers = text.split('.').map(str::parse);
        matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < limit)
    };
    parts().any(|part| match part.strip_prefix("rhel") {
        Some(version) => before(version, (8, 6)),
        None => before(part, (6, 2)) || UBUNTU_BEFORE_6_2.contains(&part),
    })
}

/// Memory of a VM of which nobody says how much it has (`default_ram_size` of QEMU's machine
/// types); `None`: unknown. `program` tells which type is taken where none is named.
pub(super) fn usual_memory(machine: Option<&str>, program: &str) -> Option<Bytes> {
    const SMALL: Bytes = Bytes::from_mib(128);
    let is_of = |architectures: &[&str]| architectures.iter().any(|one| program.contains(one));
    let Some(machine) = machine else {
        let is_plain = matches!(program.rsplit('/').next(), Some("qemu-kvm" | "kvm"));
        return match is_plain || is_of(&["qemu-system-x86_64", "qemu-system-i386", "qemu-system-s390x"]) {
            true => Some(SMALL),
            false => is_of(&["qemu-system-ppc64"]).then_some(Bytes::from_mib(512)),
        };
    };
    let family = |name: &str| machine.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    match machine {
        _ if family("pseries") => Some(Bytes::from_mib(512)),
        _ if family("virt") && is_of(&["loongarch"]) => None,
        _ => ["pc", "q35", "isapc", "microvm", "virt", "s390-ccw-virtio"].into_iter().any(family).then_some(SMALL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_before_6_2_prefer_sockets() {
        for machine in
            ["pc-q35-6.1", "pc-i440fx-5.2+pve0", "virt-4.2", "pc-q35-rhel8.5.0", "pc-i440fx-focal-hpb", "pc-1.3"]
        {
            assert!(prefers_sockets(Some(machine)), "{machine}");
        }
        for machine in
            ["q35", "pc", "pc-q35-6.2", "pc-i440fx-10.0", "pc-q35-rhel9.4.0", "pc-q35-rhel8.6.0", "pc-q35-jammy"]
        {
            assert!(!prefers_sockets(Some(machine)), "{machine}");
        }
        assert!(!prefers_sockets(None));
    }

    #[test]
    fn memory_without_a_word_is_known_of_common_machines_only() {
        let mib = |machine: Option<&str>, program| usual_memory(machine, program).map(Bytes::mib);
        assert_eq!(mib(None, "/usr/bin/qemu-system-x86_64"), Some(128));
        assert_eq!(mib(None, "/opt/.qemu-system-x86_64-wrapped"), Some(128));
        assert_eq!([mib(None, "qemu-system-ppc64"), mib(Some("pseries-6.0"), "x")], [Some(512); 2]);
        assert_eq!([mib(Some("pc-q35-6.1"), "/opt/web"), mib(Some("virt"), "qemu-system-aarch64")], [Some(128); 2]);
        let unknown =
            [(None, "/opt/web"), (None, "qemu-system-aarch64"), (Some("sbsa-ref"), "x"), (Some("pcie-x"), "x")];
        assert!(unknown.iter().all(|(machine, program)| usual_memory(*machine, program).is_none()));
    }
}
