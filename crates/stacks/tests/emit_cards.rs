//! Network cards, in the words of each stack: what one has no word for, its text says.

use qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::emit::{Emission, Kind, emit};
use topology::read;
use vm::{Accelerator, VmSpec};

const BRIDGE: &str = "kind = \"bridge\"\nbridge = \"br0\"\n";
const MAC: &str = "52:54:00:00:00:01";

fn text(kind: Kind, card: &str) -> String {
    let machine = read::from_synthetic("pack:2 [numa(memory=24GiB)] core:4 pu:2").expect("a machine");
    let spec = format!(
        "name = \"vm\"\nvcpus = 2\nmemory = \"1 GiB\"\nboot.from = \"disk\"\n\
         [[disk]]\npath = \"/d.img\"\nformat = \"raw\"\n[[network]]\n{card}"
    );
    let spec = VmSpec::from_toml(&spec, "vm.toml").expect(card);
    let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
    let (boot, accelerator) = (BootFiles::default(), Accelerator::Kvm);
    emit(kind, &Emission { machine: &machine, spec: &spec, plan: &plan, boot: &boot, accelerator: &accelerator })
        .expect("a text")
        // A loss may be broken over lines.
        .replace("\n#   ", " ")
}

/// Each stack has these words for the card, or says that it is not told of them.
fn says(lines: &str, unsaid: &str, parts: &[(Kind, &str)]) {
    for &(kind, part) in parts {
        let text = text(kind, &format!("{BRIDGE}{lines}"));
        let part = if part.is_empty() { format!("of network cards: network[0].{unsaid}.") } else { part.to_owned() };
        assert!(text.contains(&part), "{kind:?} lacks {part}:\n{text}");
        assert!(!self::text(kind, BRIDGE).contains(&part), "{kind:?} says {part} of every card");
    }
}

#[test]
fn each_stack_says_what_it_can_of_a_card_and_names_the_rest() {
    let model = [
        (Kind::Qemu, "e1000,netdev=net0"),
        (Kind::Libvirt, "<model type=\"e1000\"/>"),
        (Kind::Proxmox, "net0: e1000="),
        (Kind::Nova, "hw_vif_model=e1000"),
        (Kind::Kubevirt, "model: e1000"),
    ];
    says("model = \"e1000\"\n", "", &model);
    let mac = [
        (Kind::Qemu, "mac=52:54:00:00:00:01"),
        (Kind::Libvirt, "<mac address=\"52:54:00:00:00:01\"/>"),
        (Kind::Proxmox, "virtio=52:54:00:00:00:01,bridge=br0"),
        (Kind::Nova, ""),
        (Kind::Kubevirt, ""),
    ];
    says(&format!("mac = \"{MAC}\"\n"), &format!("mac = \"{MAC}\""), &mac);
    let queues = [
        (Kind::Qemu, ""),
        (Kind::Libvirt, "<driver queues=\"2\"/>"),
        (Kind::Proxmox, ",queues=2"),
        (Kind::Nova, ""),
        (Kind::Kubevirt, ""),
    ];
    says("queues = 2\n", "queues = 2", &queues);
    let vhost = [
        (Kind::Qemu, ""),
        (Kind::Libvirt, "<driver name=\"qemu\"/>"),
        (Kind::Proxmox, ""),
        (Kind::Nova, ""),
        (Kind::Kubevirt, ""),
    ];
    says("vhost = \"off\"\n", "vhost = \"off\"", &vhost);
    // It has no card at all, and says so.
    assert!(text(Kind::CloudHypervisor, BRIDGE).contains("The guest has no network"));
}
