//! The number of vCPUs, which of them are there, and what the guest is told of them.

use super::{Refusal, at, first, is_of_qemu, number, set, steps, unset};
use crate::check::edits::states;
use crate::domain::{Domain, Edit};
use roxmltree::Node;
use topology::words::count;
use topology::{CpuId, CpuSet};
use vm::qemu::GuestCpus;

/// More need interrupts with wider numbers (x86).
const WITHOUT_WIDE_INTERRUPTS: u32 = 255;

pub(super) fn refusals(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    if !is_of_qemu(domain) {
        return Vec::new();
    }
    [topology(root, domain), cache(root), states_of(root, domain), many(root, domain)].into_iter().flatten().collect()
}

/// A product that is not the vCPUs that it may have.
fn topology(root: Node<'_, '_>, domain: &Domain) -> Option<Refusal> {
    let element = first(root, "cpu/topology")?;
    let GuestCpus { sockets, dies, cores, threads, .. } = domain.guest;
    let product = sockets * dies * cores * threads;
    let most = domain.vcpus;
    if product == most {
        return None;
    }
    let sentence = format!("its topology is for {}, and it may have {most}", count(product as usize, "vCPU"));
    let refusal = Refusal::new(sentence, "CPU topology doesn't match maximum vcpu count").at("cpu/topology", element);
    let at = || steps("cpu/topology");
    let per_socket = dies * cores * threads;
    if most.is_multiple_of(per_socket) {
        let fits = most / per_socket;
        let advice = format!("tell it of {} like those that it is told of", count(fits as usize, "socket"));
        return Some(refusal.mend(advice, [set(at(), "sockets", &fits)]));
    }
    let threads = if most.is_multiple_of(threads) { threads } else { 1 };
    let mut edits =
        vec![set(at(), "sockets", "1"), set(at(), "cores", &(most / threads)), set(at(), "threads", &threads)];
    edits.extend(["dies", "clusters", "modules"].map(|name| unset(at(), name)));
    Some(refusal.mend("tell it of one socket with all of them", edits))
}

/// Caches that libvirt gives to some CPUs only.
fn cache(root: Node<'_, '_>) -> Option<Refusal> {
    let element = first(root, "cpu/cache")?;
    let mode = element.attribute("mode")?;
    let cpu = first(root, "cpu").and_then(|cpu| cpu.attribute("mode")).unwrap_or("custom");
    let level = element.attribute("level");
    let at = || steps("cpu/cache");
    if mode == "passthrough" && !["host-passthrough", "maximum"].contains(&cpu) {
        let sentence = format!("it is told the caches of the host, and its CPU is {cpu}");
        let says = "CPU cache mode 'passthrough' can only be used with 'host-passthrough' / 'maximum' CPUs";
        let remove = Edit::Remove { at: at() };
        return Some(Refusal::new(sentence, says).at("cpu/cache", element).mend("leave the caches to QEMU", [remove]));
    }
    if mode == "emulate" && level != Some("3") {
        let says = "CPU cache mode 'emulate' can only be used with level='3'";
        let refusal =
            Refusal::new("it is told an emulated cache of another level than 3", says).at("cpu/cache", element);
        return Some(refusal.mend("say level 3", [set(at(), "level", "3")]));
    }
    if mode != "emulate" && level.is_some() {
        let says = format!("unsupported CPU cache level for mode '{mode}'");
        let refusal = Refusal::new(format!("a level is written of its caches, which are {mode}"), says);
        return Some(refusal.at("cpu/cache", element).mend("leave the level out", [unset(at(), "level")]));
    }
    None
}

/// A vCPU of `<vcpus>`.
struct State {
    id: u32,
    there: bool,
    hotpluggable: bool,
    order: Option<u32>,
}

/// States of single vCPUs that exclude each other.
fn states_of(root: Node<'_, '_>, domain: &Domain) -> Option<Refusal> {
    let elements = at(root, "vcpus/vcpu");
    let state = |element: &Node<'_, '_>| {
        let is = |name: &str| element.attribute(name) == Some("yes");
        Some(State {
            id: number(*element, "id")?,
            there: is("enabled"),
            hotpluggable: is("hotpluggable"),
            order: number(*element, "order"),
        })
    };
    let mut states: Vec<State> = elements.iter().filter_map(state).collect();
    states.sort_by_key(|state| state.id);
    let (sentence, says) = contradiction(&states)?;
    // As many as before, and vCPU 0 is one of them.
    let there: CpuSet = states.iter().filter(|state| state.there).map(|state| CpuId(state.id)).collect();
    let kept = if there.contains(CpuId(0)) { there.len() } else { there.len().saturating_sub(1) };
    let there: CpuSet = std::iter::once(CpuId(0)).chain(there.iter().take(kept)).collect();
    let absent = (0..domain.vcpus).map(CpuId).filter(|&vcpu| !there.contains(vcpu)).collect();
    let refusal = Refusal::new(sentence, says).at("vcpus", *elements.first()?);
    Some(refusal.mend("say which vCPUs are there, vCPU 0 first", self::states(domain.vcpus, &absent)))
}

fn contradiction(states: &[State]) -> Option<(String, String)> {
    let zero = states.iter().find(|state| state.id == 0);
    if !states.is_empty() && zero.is_none_or(|zero| !zero.there) {
        return Some(("vCPU 0 is not there at the start".to_owned(), "vcpu 0 can't be offline".to_owned()));
    }
    if zero.is_some_and(|zero| zero.hotpluggable) {
        return Some(("vCPU 0 is hotpluggable".to_owned(), "vcpu0 can't be hotpluggable".to_owned()));
    }
    if let Some(never) = states.iter().find(|state| !state.there && !state.hotpluggable) {
        let says = format!("vcpu '{}' is both offline and not hotpluggable", never.id);
        return Some((format!("vCPU {} is not there, and can never come", never.id), says));
    }
    let there: Vec<&State> = states.iter().filter(|state| state.there).collect();
    let mut orders: Vec<u32> = there.iter().filter_map(|state| state.order).collect();
    if !orders.is_empty() && orders.len() < there.len() {
        let says = "all vcpus must have either set or unset order".to_owned();
        return Some(("some of its vCPUs have an order, and others none".to_owned(), says));
    }
    if zero.is_some_and(|zero| zero.order.is_some_and(|order| order != 1)) {
        return Some(("vCPU 0 is not the first in order".to_owned(), "vcpu0 must be enabled first".to_owned()));
    }
    orders.sort_unstable();
    if let Some(twice) = orders.windows(2).find(|pair| pair[0] == pair[1]) {
        let says = format!("duplicate vcpu order '{}'", twice[0]);
        return Some((format!("two vCPUs have the order {}", twice[0]), says));
    }
    // Those that stay come first: in their order, or by number.
    let mut in_order = there;
    in_order.sort_by_key(|state| (state.order, state.id));
    let rows = in_order.iter().enumerate();
    let late = rows.clone().find(|(row, state)| {
        let place = if state.order.is_some() { *row as u32 } else { state.id };
        let before = in_order.iter().take(*row).filter(|other| !other.hotpluggable).count() as u32;
        !state.hotpluggable && place != before
    });
    late.map(|(_, state)| {
        let says = "online non-hotpluggable vcpus need to be ordered prior to hotplugable vcpus".to_owned();
        (format!("vCPU {} is there for good, behind such as may go or are not there", state.id), says)
    })
}

fn many(root: Node<'_, '_>, domain: &Domain) -> Option<Refusal> {
    let kind = first(root, "os/type")?;
    let arch = kind.attribute("arch").unwrap_or("x86_64");
    let element = first(root, "vcpu")?;
    if domain.vcpus <= WITHOUT_WIDE_INTERRUPTS || arch != "x86_64" {
        return None;
    }
    let machine = kind.attribute("machine").unwrap_or("pc");
    if machine == "pc" || machine.starts_with("pc-i440fx") {
        let sentence = format!("{} in a machine of type {machine}", count(domain.vcpus as usize, "vCPU"));
        let refusal = Refusal::new(sentence, "Maximum CPUs greater than specified machine type limit 255");
        return Some(refusal.at("vcpu", element).mend("take machine type q35 (with an <iommu>), or 255 vCPUs", []));
    }
    let wide = |driver: &Node<'_, '_>| ["eim", "xtsup"].iter().any(|name| driver.attribute(*name) == Some("on"));
    let amd = at(root, "devices/iommu").iter().any(|iommu| iommu.attribute("model") == Some("amd"));
    if amd || at(root, "devices/iommu/driver").iter().any(wide) {
        return None;
    }
    let sentence = format!("{} without an IOMMU that has wide interrupts", count(domain.vcpus as usize, "vCPU"));
    let says = "more than 255 vCPUs require extended interrupt mode enabled on the iommu device";
    let advice = "add <ioapic driver='qemu'/> to <features>, and <iommu model='intel'><driver intremap='on' \
        eim='on'/></iommu> to <devices>";
    Some(Refusal::new(sentence, says).at("vcpu", element).mend(advice, []))
}
