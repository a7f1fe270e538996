//! A VM that UEFI boots, as each stack is told.

use super::cases::{uefi, without_comments};
use stacks::emit::Kind;

#[test]
fn each_stack_is_told_of_uefi_and_without_it_none() {
    let case = uefi();
    let mut bios = uefi();
    bios.spec.boot = vm::spec::Boot::BIOS_DISK;
    for (kind, told) in [
        (Kind::Qemu, "[ -e uefi-variables.fd ] || cp /usr/share/OVMF/OVMF_VARS_4M.fd uefi-variables.fd"),
        (Kind::Qemu, "if=pflash,unit=1,file=./uefi-variables.fd,format=raw"),
        (Kind::Libvirt, "<os firmware=\"efi\">"),
        (Kind::Libvirt, "<feature enabled=\"no\" name=\"secure-boot\"/>"),
        (Kind::Proxmox, "bios: ovmf"),
        (Kind::Nova, "--property hw_firmware_type=uefi"),
        (Kind::Kubevirt, "secureBoot: false"),
    ] {
        let code = |text: String| without_comments(&text).join("\n");
        let text = code(case.text(kind).expect("a text"));
        assert!(text.contains(told), "{told} is not in {text}");
        let other = code(bios.text(kind).expect("a text"));
        assert!(!other.contains(told), "{told} is in {other}");
    }
    // They keep no variables, or make their file only when told.
    for (kind, lost) in [
        (Kind::Proxmox, "--efidisk0 STORAGE:1,efitype=4m,pre-enrolled-keys=0"),
        (Kind::Kubevirt, "efi.persistent: true"),
        (Kind::CloudHypervisor, "keeps no variables of its firmware"),
    ] {
        let text = case.text(kind).expect("a text");
        assert!(text.contains(lost), "{lost} is not in {text}");
    }
}
