//! A shell text that starts QEMU.

use super::common::{
    CardWord, cards_as_usual, check_words, divides_clients, far_lost, heading, may_grow, memory, several_cpu_sets,
    switch_of_ours, vcpus_of,
};
use super::{Emission, EmitError, Loss};
use ::qemu::command_line::{BootFiles, Channel, ConsoleLog, Flash, HostTraits, Variables, Wiring, arguments, as_shell};
use std::path::Path;
use topology::words::quoted;
use topology::{CpuId, CpuSet};
use vm::spec::{Boot, Console, DiskFormat, Firmware, Network, Outlet};
use vm::{Accelerator, Client, Plan, TcgThreads};

const PROGRAM: &str = "qemu-system-x86_64";

pub(super) fn text(emission: &Emission<'_>) -> Result<String, EmitError> {
    check_words(emission)?;
    let Emission { spec, plan, accelerator, .. } = *emission;
    let wiring = Wiring {
        monitor: None,
        console: Channel::Stdio,
        console_log: match &spec.console {
            Console::Terminal => None,
            Console::File { path } => Some(ConsoleLog::Path(path.clone())),
        },
        agent: None,
        taps: std::collections::BTreeMap::new(),
        paused: false,
    };
    let host = host_traits(emission);
    let (boot, own_variables) = firmware(emission);
    let arguments = arguments(spec, plan, &boot, &wiring, &host);
    // One thread that runs all vCPUs is bound by nobody: it may use all of their CPUs.
    let cpus = if binds_threads(plan, accelerator) { plan.qemu_cpus() } else { plan.cpus() };
    let binder = if binds_threads(plan, accelerator) { thread_binder(plan) } else { String::new() };
    let command = as_shell(Path::new(PROGRAM), &arguments);
    Ok(format!("{}\n{own_variables}{binder}taskset -c {} {command}\n", comments(emission), cpus))
}

/// What is booted, and the line that gives the VM variables of its own where UEFI boots it.
fn firmware(emission: &Emission<'_>) -> (BootFiles, String) {
    let mut boot = emission.boot.clone();
    if emission.spec.boot.firmware() == Firmware::Bios {
        return (boot, String::new());
    }
    let mut flash = boot.flash.take().unwrap_or_else(of_debian);
    let (Variables::ThrownAway(template) | Variables::File(template)) = &flash.variables else {
        return (boot, String::new());
    };
    let own = format!("{}-variables.fd", emission.spec.name);
    let from = quoted(&template.to_string_lossy());
    let line = format!("# What the guest tells its firmware stays in this file.\n[ -e {own} ] || cp {from} {own}\n");
    flash.variables = Variables::File(own.into());
    boot.flash = Some(flash);
    (boot, line)
}

/// Where Debian's package ovmf has it.
fn of_debian() -> Flash {
    Flash {
        code: "/usr/share/OVMF/OVMF_CODE_4M.fd".into(),
        code_format: DiskFormat::Raw,
        variables: Variables::ThrownAway("/usr/share/OVMF/OVMF_VARS_4M.fd".into()),
        variables_format: DiskFormat::Raw,
    }
}

/// Those of the machine that the plan is for.
fn host_traits(emission: &Emission<'_>) -> HostTraits {
    let amd = emission.is_for_amd();
    HostTraits { accelerator: emission.accelerator.clone(), numa: true, amd, sandbox: true }
}

/// Whether vCPUs have homes of their own and threads of their own.
fn binds_threads(plan: &Plan, accelerator: &Accelerator) -> bool {
    (several_cpu_sets(plan) || divides_clients(plan)) && !shares_a_thread(accelerator)
}

fn shares_a_thread(accelerator: &Accelerator) -> bool {
    matches!(accelerator, Accelerator::Tcg { threads: TcgThreads::Single, .. })
}

fn comments(emission: &Emission<'_>) -> String {
    let mut usage = vec![format!(
        "Run this text with sh on an x86-64 host. It needs {PROGRAM} 7.2 or newer and taskset (util-linux); the \
        console is the terminal. QEMU runs as whoever runs it."
    )];
    if let Accelerator::Tcg { .. } = emission.accelerator {
        usage.push(format!("NO HARDWARE VIRTUALIZATION: {}.", emission.accelerator));
    }
    if let Boot::TinyGuest { .. } = emission.spec.boot {
        usage.push("The kernel and the initramfs of the tiny guest lie on the machine that printed this.".to_owned());
    }
    if emission.spec.boot.firmware() == Firmware::Uefi {
        usage.push(
            "UEFI's files are those of Debian's package ovmf, or of the host that printed this; elsewhere \
             /usr/share/qemu/firmware/*.json names them."
                .to_owned(),
        );
    }
    heading(emission, &usage, &losses(emission))
}

fn losses(emission: &Emission<'_>) -> Vec<Loss> {
    let mut losses = Vec::new();
    let plan = emission.plan;
    if several_cpu_sets(plan) || divides_clients(plan) {
        losses.push(if shares_a_thread(emission.accelerator) {
            Loss::new(
                "Under emulation one thread runs all vCPUs of a VM of this width.",
                "It runs on the CPUs of any home, so that a vCPU's memory is remote now and then.",
            )
        } else {
            Loss::new(
                "QEMU's command line binds no vCPU: the loop below does it, once QEMU has started its threads.",
                "Until then (it looks every second) vCPUs run on the CPUs of any home of this VM.",
            )
        });
    }
    losses.extend(far_lost(emission, "QEMU's command line"));
    losses.push(Loss::new(
        "QEMU's own threads (I/O, display) get no CPUs of their own.",
        "They run on the CPUs of the VM's homes, beside its vCPUs, as under `homenode run`.",
    ));
    if may_grow(plan) {
        losses.push(Loss::new(
            "A command line plugs nothing in: it only has the places for what may come.",
            "Add a monitor (-qmp), tell it what to plug in (device_add), and bind what comes. `homenode vm set` does \
            it for VMs that homenode keeps.",
        ));
    }
    losses.extend(
        emission
            .spec
            .networks
            .iter()
            .enumerate()
            .filter_map(|(index, card)| plugged_in(&emission.spec.name, index, card)),
    );
    losses.extend(cards_as_usual("QEMU", &emission.spec.networks, &[CardWord::Queues, CardWord::Vhost]));
    losses.push(Loss::new(
        "A command line fixes homes once, and nobody reads back where the VM is.",
        "When a node fills up, the VM stays where it is. `homenode balance` moves it; `homenode doctor` reads back.",
    ));
    losses
}

/// Who must plug a card in that a command line has no device for.
fn plugged_in(vm: &str, index: usize, network: &Network) -> Option<Loss> {
    let Network::Plugged { into, card } = network else { return None };
    Some(match into {
        Outlet::Switch(switch) => switch_of_ours("QEMU", switch),
        Outlet::Bridge(bridge) => Loss::new(
            format!("QEMU's own helper plugs card {index} into the bridge {bridge}."),
            format!("Without root /etc/qemu/bridge.conf must say: allow {bridge}, and the helper be root's (setuid)."),
        ),
        Outlet::LibvirtNetwork(network) => Loss::new(
            format!("QEMU knows no network of libvirt ({network}): card {index} is plugged into the bridge virbr0."),
            format!("That is the bridge of the network default; `virsh net-info {network}` says which this one has."),
        ),
        Outlet::Macvtap(host) => Loss::new(
            format!(
                "QEMU makes no macvtap device: card {index} is descriptor {} of whoever runs this text.",
                3 + index
            ),
            format!(
                "Before: ip link add link {host} name tap-{index} address {} up type macvtap mode bridge; then sh TEXT \
                 {}<>/dev/tapN, N from /sys/class/net/tap-{index}/ifindex. It stays until: ip link delete tap-{index}.",
                card.address(vm, index),
                3 + index
            ),
        ),
    })
}

/// Seconds that the loop waits for QEMU's threads: QEMU fills the VM's memory first, at 100 MiB/s
/// on the slowest host we know.
fn patience_s(plan: &Plan) -> u64 {
    60 + memory(plan).mib() / 100
}

/// A loop in the background that lets each vCPU's thread run on its client's CPUs only. QEMU calls
/// the threads `CPU 7/KVM` because of `debug-threads=on`; the VM is found by that same argument.
fn thread_binder(plan: &Plan) -> String {
    let vm = &plan.vm;
    let last = plan.topology.nodes.iter().flat_map(|node| node.present()).max().unwrap_or_default();
    let homes: String = plan.placement.clients.iter().map(|client| ranges(plan, client)).collect();
    let seconds = patience_s(plan);
    format!(
        r#"# Brings each vCPU home, as soon as QEMU has started its thread.
bind_vcpus() {{
    for thread in "$1"/task/*; do
        {{ read -r name <"$thread/comm"; }} 2>/dev/null || continue
        case $name in 'CPU '*) vcpu=${{name#CPU }} vcpu=${{vcpu%%/*}} cpus= ;; *) continue ;; esac
{homes}        taskset -pc "$cpus" "${{thread##*/}}" >/dev/null
    done
}}
(
    for second in $(seq {seconds}); do
        for vm in /proc/[0-9]*; do
            {{ read -r name <"$vm/comm"; }} 2>/dev/null || continue
            case $name in qemu-system-*) ;; *) continue ;; esac
            tr '\0' '\n' <"$vm/cmdline" | grep -Fqx '{vm},debug-threads=on' || continue
            grep -qs '^CPU {last}/' "$vm"/task/*/comm && bind_vcpus "$vm" && exit
        done
        kill -0 $$ 2>/dev/null || exit
        sleep 1
    done
    echo 'VM {vm}: QEMU has started no vCPU in {seconds} s: none was brought home' >&2
) &

"#
    )
}

/// The lines that choose the CPUs of a client's vCPUs; of groups, and of those that have one CPU,
/// after the others.
fn ranges(plan: &Plan, client: &Client) -> String {
    let mut lines = chosen(&vcpus_of(plan, client), &client.cpus);
    for group in &client.groups {
        lines += &chosen(&group.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect(), &group.cpus);
    }
    for (vcpu, cpu) in &client.vcpu_cpus {
        lines += &format!("        if [ \"$vcpu\" -eq {vcpu} ]; then cpus={cpu}; fi\n");
    }
    lines
}

fn chosen(vcpus: &CpuSet, cpus: &CpuSet) -> String {
    let vcpus = vcpus.to_string();
    let ranges = vcpus.split(',').filter(|range| !range.is_empty());
    let line = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        format!("        if [ \"$vcpu\" -ge {first} ] && [ \"$vcpu\" -le {last} ]; then cpus={cpus}; fi\n")
    };
    ranges.map(line).collect()
}
