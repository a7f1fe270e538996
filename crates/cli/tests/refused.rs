//! What libvirt itself refuses: `homenode check` finds it with libvirt's own words, and what it
//! cures is defined. A real libvirtd is asked of each.

use crate::common::libvirtd::Libvirtd;
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use std::process::Command;

/// Parts of a small domain.
#[derive(Clone, Copy)]
struct Parts<'a> {
    memory: &'a str,
    vcpu: &'a str,
    inside: &'a str,
    features: &'a str,
    cpu: &'a str,
    devices: &'a str,
}

const PLAIN: Parts<'_> = Parts {
    memory: "<memory unit='MiB'>64</memory>",
    vcpu: "<vcpu>4</vcpu>",
    inside: "",
    features: "<acpi/>",
    cpu: "",
    devices: "",
};
const CELLS: &str = "<cpu><numa><cell id='0' cpus='0-1' memory='32' unit='MiB'/><cell id='1' cpus='2-3' memory='32' \
                     unit='MiB'/></numa></cpu>";
const MOST: &str = "<maxMemory slots='4' unit='MiB'>1024</maxMemory><memory unit='MiB'>64</memory>";

impl Parts<'_> {
    fn domain(&self) -> String {
        let Self { memory, vcpu, inside, features, cpu, devices } = self;
        format!(
            "<domain type='qemu'>\n  <name>refused</name>\n  {memory}\n  {vcpu}\n  {inside}\n  <os><type arch='x86_64' \
             machine='q35'>hvm</type></os>\n  <features>{features}</features>\n  {cpu}\n  <devices>\n    \
             <emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}\n  </devices>\n</domain>\n"
        )
    }
}

fn dimm(inside: &str) -> String {
    format!("<memory model='dimm'><target><size unit='MiB'>128</size>{inside}</target></memory>")
}

fn virtio_mem(block: &str) -> String {
    format!(
        "<memory model='virtio-mem'><target><size unit='MiB'>128</size><node>0</node>{block}<requested \
         unit='MiB'>64</requested></target></memory>"
    )
}

/// Domains that libvirt refuses, and whether an edit mends them.
fn cases() -> Vec<(&'static str, String, bool)> {
    let inside = |inside: &str| Parts { inside, ..PLAIN }.domain();
    let cpu = |cpu: &str| Parts { cpu, ..PLAIN }.domain();
    let vcpu = |vcpu: &str| Parts { vcpu, ..PLAIN }.domain();
    let in_cells = |inside: &str| Parts { inside, cpu: CELLS, ..PLAIN }.domain();
    let devices = |memory, devices: &str| Parts { memory, devices, cpu: CELLS, ..PLAIN }.domain();
    let state = |id: u32, enabled: &str, hotpluggable: &str, more: &str| {
        format!("<vcpu id='{id}' enabled='{enabled}' hotpluggable='{hotpluggable}' {more}/>")
    };
    let states = |states: [String; 2]| vcpu(&format!("<vcpu current='1'>2</vcpu><vcpus>{}</vcpus>", states.concat()));
    let both = |states: [String; 2]| vcpu(&format!("<vcpu current='2'>2</vcpu><vcpus>{}</vcpus>", states.concat()));
    let disk = "<disk type='file' device='disk'><driver name='qemu' type='raw' iothread='3'/><source file='/dev/null'/>\
                <target dev='vda' bus='virtio'/></disk>";
    let mode = "<memory mode='restrictive' nodeset='0'/><memnode cellid='0' mode='strict' nodeset='0'/>";
    let nine = PLAIN.memory;
    vec![
        ("a pin without its iothread", inside("<cputune><iothreadpin iothread='1' cpuset='0'/></cputune>"), true),
        (
            "a pin of the second iothread of one",
            inside("<iothreads>1</iothreads><cputune><iothreadpin iothread='2' cpuset='0'/></cputune>"),
            true,
        ),
        (
            "a class without its iothread",
            inside("<cputune><iothreadsched iothreads='1' scheduler='batch'/></cputune>"),
            true,
        ),
        (
            "a class of two iothreads, of which one is there",
            inside("<iothreads>1</iothreads><cputune><iothreadsched iothreads='1-2' scheduler='batch'/></cputune>"),
            true,
        ),
        (
            "a disk without its iothread",
            Parts { inside: "<iothreads>1</iothreads>", devices: disk, ..PLAIN }.domain(),
            true,
        ),
        (
            "a controller without its iothread",
            Parts {
                devices: "<controller type='scsi' index='0' model='virtio-scsi'><driver iothread='2'/></controller>",
                ..PLAIN
            }
            .domain(),
            true,
        ),
        ("a class of a vCPU beyond", inside("<cputune><vcpusched vcpus='2-9' scheduler='batch'/></cputune>"), true),
        (
            "two classes of a vCPU",
            inside(
                "<cputune><vcpusched vcpus='0-1' scheduler='batch'/><vcpusched vcpus='1' scheduler='batch'/></cputune>",
            ),
            true,
        ),
        (
            "two pins of the emulator",
            inside("<cputune><emulatorpin cpuset='0'/><emulatorpin cpuset='0'/></cputune>"),
            false,
        ),
        ("a quota that is too short", inside("<cputune><quota>500</quota></cputune>"), false),
        ("fewer than the vCPUs", cpu("<cpu><topology sockets='1' cores='1' threads='2'/></cpu>"), true),
        ("more than the vCPUs", cpu("<cpu><topology sockets='4' cores='4' threads='2'/></cpu>"), true),
        ("dies too many", cpu("<cpu><topology sockets='1' dies='3' cores='2' threads='1'/></cpu>"), true),
        ("threads that do not divide", cpu("<cpu><topology sockets='1' cores='1' threads='3'/></cpu>"), true),
        (
            "a topology for those that are there",
            Parts {
                vcpu: "<vcpu current='2'>6</vcpu>",
                cpu: "<cpu><topology sockets='1' cores='1' threads='2'/></cpu>",
                ..PLAIN
            }
            .domain(),
            true,
        ),
        ("caches of a host", cpu("<cpu mode='host-model'><cache mode='passthrough'/></cpu>"), true),
        (
            "an emulated cache of level 2",
            cpu("<cpu mode='custom'><model>qemu64</model><cache mode='emulate' level='2'/></cpu>"),
            true,
        ),
        (
            "no cache of level 3",
            cpu("<cpu mode='custom'><model>qemu64</model><cache mode='disable' level='3'/></cpu>"),
            true,
        ),
        ("vCPU 0 later", states([state(0, "no", "yes", ""), state(1, "yes", "yes", "")]), true),
        ("vCPU 0 hotpluggable", states([state(0, "yes", "yes", ""), state(1, "no", "yes", "")]), true),
        ("a vCPU that never comes", states([state(0, "yes", "no", ""), state(1, "no", "no", "")]), true),
        ("an order of some", both([state(0, "yes", "no", "order='1'"), state(1, "yes", "yes", "")]), true),
        ("vCPU 0 second", both([state(0, "yes", "no", "order='2'"), state(1, "yes", "yes", "order='1'")]), true),
        (
            "one that stays behind one that may go",
            vcpu(&format!(
                "<vcpu current='3'>4</vcpu><vcpus>{}{}{}{}</vcpus>",
                state(0, "yes", "no", ""),
                state(1, "yes", "yes", ""),
                state(2, "yes", "no", ""),
                state(3, "no", "yes", "")
            )),
            true,
        ),
        ("300 vCPUs without an IOMMU", vcpu("<vcpu>256</vcpu>"), false),
        (
            "a memnode without cells",
            inside("<numatune><memnode cellid='0' mode='strict' nodeset='0'/></numatune>"),
            true,
        ),
        (
            "a memnode of no cell",
            in_cells("<numatune><memnode cellid='5' mode='strict' nodeset='0'/></numatune>"),
            true,
        ),
        ("restrictive memory, strict cells", in_cells(&format!("<numatune>{mode}</numatune>")), true),
        ("memory without nodes", inside("<numatune><memory mode='strict'/></numatune>"), true),
        (
            "pages of no cell",
            in_cells("<memoryBacking><hugepages><page size='2' unit='MiB' nodeset='5'/></hugepages></memoryBacking>"),
            true,
        ),
        (
            "two sizes for all",
            in_cells(
                "<memoryBacking><hugepages><page size='2' unit='MiB'/><page size='1' unit='GiB'/></hugepages></memoryBacking>",
            ),
            false,
        ),
        (
            "two sizes for one cell",
            in_cells(
                "<memoryBacking><hugepages><page size='2' unit='MiB' nodeset='0'/><page size='1' unit='GiB' \
                 nodeset='0-1'/></hugepages></memoryBacking>",
            ),
            false,
        ),
        (
            "huge pages of anonymous memory",
            inside("<memoryBacking><hugepages/><source type='anonymous'/></memoryBacking>"),
            true,
        ),
        (
            "huge pages on demand",
            inside("<memoryBacking><hugepages/><allocation mode='ondemand'/></memoryBacking>"),
            true,
        ),
        ("a DIMM without maxMemory", devices(nine, &dimm("<node>0</node>")), true),
        (
            "a DIMM without maxMemory and a cell",
            Parts { memory: "<memory unit='MiB'>192</memory>", devices: &dimm(""), ..PLAIN }.domain(),
            true,
        ),
        ("maxMemory without cells", Parts { memory: MOST, ..PLAIN }.domain(), true),
        (
            "maxMemory without slots",
            devices("<maxMemory unit='MiB'>1024</maxMemory><memory unit='MiB'>64</memory>", ""),
            true,
        ),
        ("a DIMM that names no cell", devices(MOST, &dimm("")), false),
        (
            "two DIMMs in one place",
            devices(&MOST.replace("'4'", "'1'"), &(dimm("<node>0</node>") + &dimm("<node>1</node>"))),
            true,
        ),
        ("virtio-mem without blocks", devices(MOST, &virtio_mem("")), true),
        ("virtio-mem of small blocks", devices(MOST, &virtio_mem("<block unit='MiB'>1</block>")), true),
        ("virtio-mem of odd blocks", devices(MOST, &virtio_mem("<block unit='MiB'>6</block>")), true),
        ("half a block", devices(MOST, &virtio_mem("<block unit='MiB'>2</block>").replace(">64<", ">65<")), false),
    ]
}

/// Domains that libvirt takes, and that look like those that it does not.
fn taken() -> Vec<String> {
    let inside = |inside: &str| Parts { inside, ..PLAIN }.domain();
    vec![
        PLAIN.domain(),
        inside("<iothreads>2</iothreads><cputune><iothreadpin iothread='2' cpuset='0'/></cputune>"),
        inside("<cputune><vcpupin vcpu='9' cpuset='0'/></cputune>"),
        inside("<cputune><period>100000</period><quota>-1</quota></cputune>"),
        Parts { cpu: "<cpu><topology sockets='1' dies='2' cores='2' threads='1'/></cpu>", ..PLAIN }.domain(),
        Parts {
            vcpu: "<vcpu current='2'>4</vcpu><vcpus><vcpu id='0' enabled='yes' hotpluggable='no'/><vcpu id='3' \
                       enabled='yes' hotpluggable='yes'/></vcpus>",
            ..PLAIN
        }
        .domain(),
        Parts { inside: "<numatune><memnode cellid='1' mode='strict' nodeset='0'/></numatune>", cpu: CELLS, ..PLAIN }
            .domain(),
        Parts {
            memory: MOST,
            cpu: CELLS,
            devices: &(dimm("<node>1</node>") + &virtio_mem("<block unit='MiB'>2</block>")),
            ..PLAIN
        }
        .domain(),
        inside("<memoryBacking><hugepages><page size='2' unit='MiB' nodeset='0'/></hugepages></memoryBacking>"),
        Parts { vcpu: "<vcpu>3</vcpu>", cpu: CELLS.replace("2-3", "2").as_str(), ..PLAIN }.domain(),
    ]
}

/// What libvirt says of a definition; `None`: taken.
fn says(libvirtd: &Libvirtd, text: &str) -> Option<String> {
    let path = libvirtd.path().join("refused.xml");
    std::fs::write(&path, text).expect("a file");
    let output = libvirtd.try_virsh(&["define", "--file", path.to_str().expect("UTF-8")]);
    if output.status.success() {
        libvirtd.virsh(&["undefine", "refused"]);
        return None;
    }
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn checked(text: &str) -> CheckedDomain {
    let machine = topology::read::shipped("hp-dl380-g6").expect("a machine").expect("a machine");
    CheckedDomain::new(&machine, &Occupancy::default(), text, "vm.xml")
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn what_libvirt_refuses_is_found_and_what_is_cured_is_taken() {
    let Some(libvirtd) = Libvirtd::start("refused") else { return };
    for (name, text, mends) in cases() {
        let said = says(&libvirtd, &text).unwrap_or_else(|| panic!("{name}: libvirt takes it"));
        let refused = CheckedDomain::refused(&text, "vm.xml").expect(name);
        let words = |finding: &judge::Finding| {
            let words = finding.seen.strip_prefix("libvirt says: ").unwrap_or(&finding.seen).to_owned();
            words.split(" (before ").next().unwrap_or_default().to_owned()
        };
        assert!(refused.iter().any(|finding| said.contains(&words(finding))), "{name}: {said}\n{refused:#?}");
        let cured = checked(&text).cured;
        let left = CheckedDomain::refused(&cured, "cured").expect(name);
        assert_eq!(left.is_empty(), mends, "{name}: {left:#?}\n{cured}");
        if mends {
            assert_eq!(says(&libvirtd, &cured), None, "{name}:\n{cured}");
            let (before, after) = (checked(&text).vm, checked(&cured).vm);
            assert_eq!((before.vcpus, before.present()), (after.vcpus, after.present()), "{name}\n{cured}");
        }
    }
    for text in taken() {
        assert_eq!(says(&libvirtd, &text), None, "{text}");
        let found = CheckedDomain::refused(&text, "vm.xml").expect("a domain");
        assert!(found.is_empty(), "{text}\n{found:#?}");
        let cured = checked(&text).cured;
        assert_eq!(says(&libvirtd, &cured), None, "{cured}");
    }
}

/// A cured text that libvirt would refuse is none: nothing is printed, and the exit code says so.
#[test]
fn a_cured_text_that_libvirt_refuses_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("vm.xml");
    let cured = |text: &str| {
        std::fs::write(&path, text).expect("a file");
        let file = path.to_str().expect("UTF-8");
        let arguments = ["check", file, "--on", "hp-dl380-g6", "--cured"];
        Command::new(env!("CARGO_BIN_EXE_homenode"))
            .env("LC_ALL", "C.UTF-8")
            .args(arguments)
            .output()
            .expect("homenode")
    };
    let refused = cured(&Parts { vcpu: "<vcpu>256</vcpu>", ..PLAIN }.domain());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), refused.stdout.is_empty()), (Some(1), true), "{said}");
    assert!(said.contains("libvirt") && said.contains("more than 255 vCPUs"), "{said}");
    let text = Parts { cpu: "<cpu><topology sockets='1' cores='1' threads='2'/></cpu>", ..PLAIN }.domain();
    let mended = cured(&text);
    let said = String::from_utf8_lossy(&mended.stdout);
    assert!(mended.status.success() && said.contains("sockets='2'"), "{said}");
}
