//! Domains: what is legal, what is odd, and what no person would write. What libvirt makes of each
//! is asked of libvirt itself.

use super::choices::Choices;
use super::text::{Element, element, written};

/// The text of a domain.
pub(super) fn domain(choices: &mut Choices<'_>) -> String {
    let shape = Shape::drawn(choices);
    let mut root = element("domain").with("type", "test").add(element("name").text(NAME));
    root = root.all(words(choices)).all(memory(&shape, choices)).all(backing(&shape, choices));
    root = root.all(vcpus(&shape, choices)).all(iothreads(&shape, choices)).all(cputune(&shape, choices));
    root = root.all(numatune(&shape, choices)).add(element("os").add(element("type").text("hvm")));
    root = root.all(cpu(&shape, choices)).all(devices(&shape, choices));
    if choices.percent(10) {
        root.shuffle(choices);
    }
    if choices.percent(6) {
        root = root.with("xmlns:qemu", "http://libvirt.org/schemas/domain/qemu/1.0");
        let argument = |value| element("qemu:arg").with("value", value);
        root = root.add(element("qemu:commandline").add(argument("-name")).add(argument("guest=<a> & 'b'")));
    }
    written(&root, choices)
}

/// Each is undefined again before the next.
pub(super) const NAME: &str = "drawn";

/// What elements must agree about.
struct Shape {
    /// `None`: no `<vcpu>`.
    vcpus: Option<u32>,
    vcpus_auto: bool,
    /// KiB.
    memory: u64,
    /// KiB of each memory device.
    devices: Vec<u64>,
    /// KiB and vCPUs of each.
    cells: Vec<(u64, Vec<u32>)>,
    iothreads: u32,
}

impl Shape {
    fn drawn(choices: &mut Choices<'_>) -> Self {
        let vcpus = (!choices.percent(10)).then(|| 1 + choices.below(20));
        let all = vcpus.unwrap_or(1);
        let memory = amount(choices, 48);
        let mut cells: Vec<(u64, Vec<u32>)> = Vec::new();
        if choices.percent(60) {
            let count = 1 + choices.below(4);
            let deal = choices.below(10);
            for cell in 0..count {
                let of = |vcpu: u32| match deal {
                    0..4 => vcpu * count / all,
                    4..6 => vcpu % count,
                    6 => vcpu * (count + 1) / all,
                    7 => (vcpu * 7 + vcpu / 3) % (count + 1),
                    8 => 0,
                    _ => vcpu / 2 % count,
                };
                let vcpus = (0..all).filter(|&vcpu| of(vcpu) == cell).collect();
                let even = memory / u64::from(count);
                cells.push((if choices.percent(70) { even } else { amount(choices, 16) }, vcpus));
            }
            if choices.percent(4) {
                cells[0].0 = 0;
            }
        }
        let devices = if choices.percent(10) { 1 + choices.below(2) } else { 0 };
        let devices = (0..devices).map(|_| u64::from(1 + choices.below(8)) << 17).collect();
        let iothreads = if choices.percent(30) { 1 + choices.below(3) } else { 0 };
        let vcpus_auto = vcpus.is_some() && choices.percent(6);
        Self { vcpus, vcpus_auto, memory, devices, cells, iothreads }
    }

    fn all(&self) -> u32 {
        self.vcpus.unwrap_or(1)
    }
}

/// KiB: whole GiB, whole MiB, or not even those.
fn amount(choices: &mut Choices<'_>, gib: u32) -> u64 {
    let whole = u64::from(1 + choices.below(gib)) << 20;
    match choices.below(8) {
        0..4 => whole,
        4 => whole + u64::from(1 + choices.below(1000)) * 1024,
        5 => whole / 3 / 1024 * 1024,
        6 => whole + u64::from(1 + choices.below(5000)),
        _ => u64::from(1 + choices.below(4000)),
    }
}

/// A size in one of libvirt's units, as its text and its unit.
fn size(kib: u64, choices: &mut Choices<'_>) -> (u64, Option<&'static str>) {
    match choices.below(8) {
        1 if kib.is_multiple_of(1 << 20) => (kib >> 20, Some(choices.one(&["GiB", "G"]))),
        2 if kib.is_multiple_of(1 << 10) => (kib >> 10, Some(choices.one(&["MiB", "M", "m"]))),
        // libvirt rounds up to whole KiB.
        3 => ((kib * 1024).saturating_sub(u64::from(choices.below(1000))), Some(choices.one(&["b", "bytes"]))),
        4 => (kib, None),
        5 => (kib * 1024 / 1000, Some("KB")),
        _ => (kib, Some(choices.one(&["KiB", "k"]))),
    }
}

fn words(choices: &mut Choices<'_>) -> Vec<Element> {
    let mut found = Vec::new();
    if choices.percent(10) {
        found.push(element("title").text("a title of <b> & 'c'"));
    }
    if choices.percent(10) {
        found.push(element("description").text("<vcpu>9</vcpu> \u{20ac}"));
    }
    if choices.percent(5) {
        let own = element("a:vcpu").with("xmlns:a", "urn:a").with("cpuset", "0-3").text(3);
        found.push(element("metadata").add(own));
    }
    found
}

fn memory(shape: &Shape, choices: &mut Choices<'_>) -> Vec<Element> {
    let mut found = Vec::new();
    let devices: u64 = shape.devices.iter().sum();
    let cells: u64 = shape.cells.iter().map(|cell| cell.0).sum();
    let all = shape.memory.max(cells) + devices;
    if devices > 0 || choices.percent(5) {
        found.push(element("maxMemory").with("slots", 16).with("unit", "KiB").text(all + (64 << 20)));
    }
    // libvirt takes what the cells add up to.
    if shape.cells.is_empty() || !choices.percent(5) {
        let (text, unit) = size(if choices.percent(80) { all } else { shape.memory + devices }, choices);
        found.push(element("memory").maybe("unit", unit).text(text));
    }
    if choices.percent(25) {
        let (text, unit) = size(all - u64::from(choices.below(4)) * all / 8, choices);
        found.push(element("currentMemory").maybe("unit", unit).text(text));
    }
    found
}

fn backing(shape: &Shape, choices: &mut Choices<'_>) -> Option<Element> {
    if !choices.percent(25) {
        return None;
    }
    let mut backing = element("memoryBacking");
    if choices.percent(50) {
        let mut pages = element("hugepages");
        if choices.percent(70) {
            let size = choices.one(&[2048, 1 << 20]);
            let cells = (!shape.cells.is_empty() && choices.percent(40)).then_some("0");
            pages = pages.add(element("page").with("size", size).with("unit", "KiB").maybe("nodeset", cells));
        }
        backing = backing.add(pages);
    }
    for name in ["nosharepages", "locked"] {
        if choices.percent(30) {
            backing = backing.add(element(name));
        }
    }
    if choices.percent(30) {
        backing = backing.add(element("source").with("type", "memfd"));
        backing = backing.add(element("access").with("mode", "shared"));
    }
    Some(backing)
}

fn range(choices: &mut Choices<'_>) -> String {
    let (first, more) = (choices.below(20), choices.below(6));
    match choices.below(10) {
        0 => first.to_string(),
        1 => format!("{first}-{},^{first},{}", first + more + 1, first + 9),
        2 => "0-4,^4".to_owned(),
        _ => format!("{first}-{}", first + more),
    }
}

fn vcpus(shape: &Shape, choices: &mut Choices<'_>) -> Vec<Element> {
    let Some(all) = shape.vcpus else { return Vec::new() };
    let current = choices.percent(12).then(|| 1 + choices.below(all));
    let placement = match (shape.vcpus_auto, choices.percent(30)) {
        (true, _) => Some("auto"),
        (false, true) => Some("static"),
        _ => None,
    };
    let cpuset = (!shape.vcpus_auto && choices.percent(20)).then(|| range(choices));
    let vcpu = element("vcpu").maybe("placement", placement).maybe("cpuset", cpuset).maybe("current", current);
    let mut found = vec![vcpu.text(all)];
    if let Some(current) = current.filter(|_| choices.percent(60)) {
        let each = (0..all).map(|id| {
            let enabled = if id < current { "yes" } else { "no" };
            let plugged = if id == 0 { "no" } else { "yes" };
            element("vcpu").with("id", id).with("enabled", enabled).with("hotpluggable", plugged)
        });
        found.push(element("vcpus").all(each.collect::<Vec<_>>()));
    }
    found
}

fn iothreads(shape: &Shape, choices: &mut Choices<'_>) -> Vec<Element> {
    if shape.iothreads == 0 {
        return Vec::new();
    }
    let mut found = vec![element("iothreads").text(shape.iothreads)];
    if choices.percent(30) {
        let each = (0..shape.iothreads).map(|id| element("iothread").with("id", 2 * id + 1));
        found.push(element("iothreadids").all(each.collect::<Vec<_>>()));
    }
    found
}

fn cputune(shape: &Shape, choices: &mut Choices<'_>) -> Vec<Element> {
    let mut tune = element("cputune");
    if choices.percent(15) {
        tune = tune.add(element("shares").text(2048));
    }
    let pinned = choices.one(&[0, 100, 100, 50]);
    let same = choices.percent(30).then(|| range(choices));
    for vcpu in 0..shape.all() {
        if choices.percent(pinned) {
            let cpus = same.clone().unwrap_or_else(|| range(choices));
            tune = tune.add(element("vcpupin").with("vcpu", vcpu).with("cpuset", cpus));
        }
    }
    if choices.percent(3) {
        tune = tune.add(element("vcpupin").with("vcpu", shape.all()).with("cpuset", 0));
    }
    if choices.percent(35) {
        tune = tune.add(element("emulatorpin").with("cpuset", range(choices)));
    }
    for id in 0..shape.iothreads {
        if choices.percent(50) {
            tune = tune.add(element("iothreadpin").with("iothread", id + 1).with("cpuset", range(choices)));
        }
    }
    if choices.percent(15) {
        tune.shuffle(choices);
    }
    let both = choices.percent(2).then(|| tune.clone());
    let wanted = !tune.is_empty() || choices.percent(10);
    wanted.then_some(tune).into_iter().chain(both).collect()
}

const MODES: [&str; 4] = ["strict", "preferred", "interleave", "restrictive"];

fn nodes(mode: &str, choices: &mut Choices<'_>) -> String {
    let (first, more) = (choices.below(3), choices.below(2));
    // libvirt takes one node for `preferred`.
    if mode == "preferred" || more == 0 { first.to_string() } else { format!("{first}-{}", first + more) }
}

fn numatune(shape: &Shape, choices: &mut Choices<'_>) -> Option<Element> {
    let mut tune = element("numatune");
    let whole = choices.one(&MODES);
    match choices.below(8) {
        0..3 => {
            let mode = (whole != "strict" || choices.percent(50)).then_some(whole);
            let memory = element("memory").maybe("mode", mode);
            tune = tune.add(memory.with("nodeset", nodes(whole, choices)));
        }
        3 => {
            let mode = choices.one(&["strict", "interleave"]);
            tune = tune.add(element("memory").with("mode", mode).with("placement", "auto"));
        }
        _ => {}
    }
    let one_mode = choices.percent(70).then_some(whole);
    for cell in 0..shape.cells.len() {
        if choices.percent(40) {
            let mode = one_mode.unwrap_or_else(|| choices.one(&MODES));
            let node = element("memnode").with("cellid", cell).with("mode", mode);
            tune = tune.add(node.with("nodeset", nodes(mode, choices)));
        }
    }
    (!tune.is_empty() || choices.percent(5)).then_some(tune)
}

fn cpu(shape: &Shape, choices: &mut Choices<'_>) -> Option<Element> {
    let mode = choices.one(&[None, Some("host-model"), Some("host-passthrough"), Some("custom")]);
    let mut cpu = element("cpu").maybe("mode", mode);
    if mode == Some("custom") {
        cpu = cpu.add(element("model").with("fallback", "allow").text("Skylake-Server"));
    }
    cpu = cpu.all(topology(shape, choices));
    if choices.percent(25) {
        let mode = choices.one(&["passthrough", "disable", "emulate"]);
        cpu = cpu.add(element("cache").maybe("level", (mode == "emulate").then_some(3)).with("mode", mode));
    }
    if mode.is_some() && choices.percent(30) {
        cpu = cpu.add(element("feature").with("policy", "require").with("name", "invtsc"));
    }
    if !shape.cells.is_empty() {
        cpu = cpu.add(numa(shape, choices));
    }
    if choices.percent(10) {
        cpu.shuffle(choices);
    }
    (!cpu.is_empty()).then_some(cpu)
}

fn topology(shape: &Shape, choices: &mut Choices<'_>) -> Option<Element> {
    if !choices.percent(50) {
        return None;
    }
    let mut left = shape.all();
    let mut part = |choices: &mut Choices<'_>, of: &[u32]| {
        let number = Some(choices.one(of)).filter(|number| left.is_multiple_of(*number)).unwrap_or(1);
        left /= number;
        number
    };
    let (threads, sockets) = (part(choices, &[1, 1, 2]), part(choices, &[1, 2, 3, 4]));
    let dies = choices.percent(15).then(|| part(choices, &[1, 2]));
    let clusters = choices.percent(2).then(|| part(choices, &[1, 2]));
    // More than there are: libvirt takes it, QEMU does not.
    let cores = if choices.percent(3) { left + 1 } else { left };
    let topology = element("topology").with("sockets", sockets).maybe("dies", dies).maybe("clusters", clusters);
    Some(topology.with("cores", cores).with("threads", threads))
}

fn numa(shape: &Shape, choices: &mut Choices<'_>) -> Element {
    let count = shape.cells.len();
    let mut numa = element("numa");
    let ids = choices.one(&[100, 100, 100, 0, 50]);
    let shared = choices.percent(10).then_some("shared");
    let distances = choices.one(&[0, 0, 30, 100]);
    for (id, (kib, vcpus)) in shape.cells.iter().enumerate() {
        let listed: Vec<String> = vcpus.iter().map(u32::to_string).collect();
        let listed = (!listed.is_empty()).then(|| listed.join(","));
        let (amount, unit) = size(*kib, choices);
        let cell = element("cell").maybe("id", choices.percent(ids).then_some(id)).maybe("cpus", listed);
        let mut cell = cell.with("memory", amount).maybe("unit", unit).maybe("memAccess", shared);
        if choices.percent(4) {
            cell = cell.with("discard", "yes");
        }
        let mut told = element("distances");
        for other in 0..count {
            if choices.percent(distances) {
                let value = if other == id { 10 } else { 11 + choices.below(30) };
                told = told.add(element("sibling").with("id", other).with("value", value));
            }
        }
        if !told.is_empty() {
            cell = cell.add(told);
        }
        if choices.percent(2) {
            let cache = element("cache").with("level", 3).with("associativity", "direct").with("policy", "writeback");
            let cache = cache.add(element("size").with("value", 8).with("unit", "MiB"));
            cell = cell.add(cache.add(element("line").with("value", 64).with("unit", "B")));
        }
        numa = numa.add(cell);
    }
    if ids == 100 && choices.percent(10) {
        numa.shuffle(choices);
    }
    if count > 1 && choices.percent(2) {
        let latency = element("latency").with("initiator", 0).with("target", 1).with("type", "access").with("value", 9);
        numa = numa.add(element("interconnects").add(latency));
    }
    numa
}

fn devices(shape: &Shape, choices: &mut Choices<'_>) -> Option<Element> {
    let mut devices = element("devices");
    if choices.percent(30) {
        let disk = element("disk").with("type", "file").with("device", "disk");
        let disk = disk.add(element("source").with("file", "/images/a & 'b'.qcow2"));
        devices = devices.add(disk.add(element("target").with("dev", "vda").with("bus", "virtio")));
    }
    for kib in &shape.devices {
        let mut target = element("target").add(element("size").with("unit", "KiB").text(kib));
        if choices.percent(85) {
            target = target.add(element("node").text(0));
        }
        devices = devices.add(element("memory").with("model", "dimm").add(target));
    }
    (!devices.is_empty() || choices.percent(20)).then_some(devices)
}
