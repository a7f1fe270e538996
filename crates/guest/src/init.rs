//! Process 1 of the tiny guest: brings up what a workload needs, serves homenode, powers off. What
//! is plugged in while it runs it brings up too, as udev does elsewhere.

use crate::disk_root::{self, Wanted};
use crate::{agent, console, pattern, port, power};
use anyhow::Context;
use linux::sys;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use topology::{CpuId, CpuSet};

/// Where the kernel shows its CPUs.
const CPUS: &str = "/sys/devices/system/cpu";
/// How often init looks whether a CPU was plugged in.
const LOOK_FOR_CPUS: Duration = Duration::from_millis(100);

/// Never returns: the guest ends with its init.
pub(crate) fn run() -> ! {
    // The first line is what `homenode run` waits for, so nothing comes before it.
    println!("homenode-guest: init {}", env!("CARGO_PKG_VERSION"));
    // A panic anywhere would leave a guest that neither answers nor ends.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        power_off();
    }));
    if let Err(error) = bring_up_and_serve() {
        println!("homenode-guest: {error:#}");
    }
    power_off()
}

/// The end of the guest, or of the agent alone where another is process 1.
fn end() -> ! {
    if std::process::id() == 1 { power_off() } else { std::process::exit(0) }
}

fn power_off() -> ! {
    disk_root::end_programs();
    let error = sys::power_off();
    println!("homenode-guest: cannot power off: {error}");
    // The kernel panics when init ends, and `panic=-1` ends QEMU.
    std::process::exit(1)
}

fn bring_up_and_serve() -> anyhow::Result<()> {
    for (kind, directory) in [(c"proc", c"/proc"), (c"sysfs", c"/sys"), (c"devtmpfs", c"/dev")] {
        sys::mount(kind, directory).with_context(|| format!("cannot mount {}", kind.to_string_lossy()))?;
    }
    // Only the kernel's emergencies may break into the console from here on.
    let _ = std::fs::write("/proc/sys/kernel/printk", "1\n");
    // Movable: it can be given back. A kernel without memory hot-plug has no such file.
    let _ = std::fs::write("/sys/devices/system/memory/auto_online_blocks", "online_movable");
    let mut troubles = load_modules(Path::new("/modules"));
    troubles.extend(bring_up_cpus(Path::new(CPUS)));
    std::thread::spawn(watch_cpus);
    power::watch(|| {
        println!("homenode-guest: power button");
        power_off();
    });
    let command_line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if let Some(wanted) = Wanted::of(&command_line) {
        troubles.iter().for_each(|trouble| println!("homenode-guest: {trouble}"));
        return disk_root::go_and_serve(&wanted);
    }
    serve(&troubles, &command_line)
}

/// The agent of a guest whose process 1 is another: when it ends, that one ends the guest.
pub(crate) fn serve_beside() -> anyhow::Result<()> {
    serve(&[], &std::fs::read_to_string("/proc/cmdline").unwrap_or_default())
}

fn serve(troubles: &[String], command_line: &str) -> anyhow::Result<()> {
    let machine = topology::read::live().context("this kernel's topology cannot be read")?;
    let Some(port) = port::find() else {
        for trouble in troubles {
            println!("homenode-guest: {trouble}");
        }
        if let Some(mib) = pattern::wanted(command_line) {
            pattern::start(&machine, mib);
        }
        console::serve(&machine);
        return Ok(());
    };
    let (input, output) = port::open(&port).with_context(|| format!("cannot open {}", port.display()))?;
    agent::serve(&machine, input, output, true, || {
        println!("homenode-guest: homenode is gone");
        end();
    })
}

/// Brings up CPUs as they are plugged in.
fn watch_cpus() {
    let mut troubles = Vec::new();
    loop {
        std::thread::sleep(LOOK_FOR_CPUS);
        let now = bring_up_cpus(Path::new(CPUS));
        if now != troubles {
            now.iter().for_each(|trouble| println!("homenode-guest: {trouble}"));
            troubles = now;
        }
    }
}

/// Brings up the CPUs that the kernel left offline (`maxcpus=1`); what stayed offline, as
/// sentences.
fn bring_up_cpus(directory: &Path) -> Vec<String> {
    let Ok(present) = std::fs::read_to_string(directory.join("present")) else { return Vec::new() };
    let Ok(present) = present.parse::<CpuSet>() else { return Vec::new() };
    let bring_up = |cpu: CpuId| {
        let switch = directory.join(format!("cpu{cpu}/online"));
        // CPU 0 has no switch: it is always online.
        let online = std::fs::read_to_string(&switch).map_or(true, |state| state.trim() == "1");
        if online { Ok(()) } else { std::fs::write(switch, "1") }
    };
    present
        .iter()
        .filter_map(|cpu| bring_up(cpu).err().map(|error| format!("CPU {cpu} stays offline: {error}")))
        .collect()
}

/// Loads the modules that the image lists; what could not be loaded, as sentences.
fn load_modules(directory: &Path) -> Vec<String> {
    // A kernel with everything built in comes without the list.
    let Ok(order) = std::fs::read_to_string(directory.join("order")) else { return Vec::new() };
    let load = |name: &str| File::open(directory.join(name)).and_then(|file| sys::load_module(&file));
    let trouble = |name: &str| load(name).err().map(|error| format!("module {name} cannot be loaded: {error}"));
    order.lines().filter_map(trouble).collect()
}
