//! Reading domains: what libvirt writes, what people write, and what nobody should have to read.

use judge::HugePages;
use stacks::domain::{LONGEST_TEXT, MemoryTune, parse};
use std::fmt::Write;
use topology::{Bytes, CpuSet, NodeSet};
use vm::qemu::{GuestCaches, GuestCpus};

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list")
}

fn nodes(list: &str) -> NodeSet {
    list.parse().expect("a list")
}

/// As `virsh dumpxml` prints a running domain, shortened.
const RUNNING: &str = r#"<domain type='kvm' id='3' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web &amp; db</name>
  <uuid>8b2b0c5e-1b5a-4a51-9c36-5ea7ec1b6c11</uuid>
  <memory unit='KiB'>4194304</memory>
  <currentMemory unit='KiB'>2097152</currentMemory>
  <memoryBacking>
    <hugepages>
      <page size='2048' unit='KiB' nodeset='0'/>
      <page size='1' unit='G'/>
    </hugepages>
    <locked/>
  </memoryBacking>
  <vcpu placement='static' cpuset='0-7,^2' current='2'>4</vcpu>
  <iothreads>2</iothreads>
  <cputune>
    <vcpupin vcpu='0' cpuset='0-3'/>
    <vcpupin vcpu='3' cpuset='4-7,^5'/>
    <emulatorpin cpuset='0-1'/>
    <iothreadpin iothread='2' cpuset='7'/>
  </cputune>
  <numatune>
    <memory mode='strict' nodeset='0-1'/>
    <memnode cellid='1' mode='preferred' nodeset='1'/>
  </numatune>
  <resource><partition>/machine</partition></resource>
  <cpu mode='host-passthrough' check='none' migratable='on'>
    <topology sockets='2' dies='1' cores='2' threads='1'/>
    <cache mode='passthrough'/>
    <numa>
      <cell id='0' cpus='0-1' memory='2097152' unit='KiB'>
        <distances><sibling id='0' value='10'/><sibling id='1' value='21'/></distances>
      </cell>
      <cell id='1' cpus='2-3' memory='2' unit='GiB'/>
    </numa>
  </cpu>
  <devices>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source><address domain='0x0000' bus='0x3b' slot='0x00' function='0x1'/></source>
      <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
    </hostdev>
    <interface type='hostdev'><source><address type='pci' bus='175' slot='0x10'/></source></interface>
    <hostdev mode='subsystem' type='usb'><source><vendor id='0x1'/></source></hostdev>
  </devices>
  <qemu:commandline><qemu:memory unit='no'/><qemu:arg value='-no-hpet'/></qemu:commandline>
</domain>
"#;

#[test]
fn a_running_domain_is_read_whole() {
    let domain = parse(RUNNING, "web.xml").expect("valid");
    assert_eq!((domain.name.as_str(), domain.kind.as_str(), domain.vcpus), ("web & db", "kvm", 4));
    assert_eq!(domain.uuid.as_deref(), Some("8b2b0c5e-1b5a-4a51-9c36-5ea7ec1b6c11"));
    assert_eq!(domain.memory, Bytes(4 << 30));
    assert_eq!(domain.vcpu_cpuset, Some(cpus("0-1,3-7")));
    assert!(!domain.vcpu_placement_auto && domain.locked);
    assert_eq!(domain.vcpu_pins, [(0, cpus("0-3")), (3, cpus("4,6-7"))].into());
    assert_eq!((&domain.iothreads, &domain.iothread_pins), (&[1, 2].into(), &[(2, cpus("7"))].into()));
    assert_eq!(domain.emulator_pin, Some(cpus("0-1")));
    let tune = |mode: &str, list| MemoryTune { mode: mode.to_owned(), nodeset: Some(nodes(list)), auto: false };
    assert_eq!(domain.memory_tune, Some(tune("strict", "0-1")));
    assert_eq!(domain.memory_nodes, [(1, tune("preferred", "1"))].into());
    assert_eq!(domain.cpu_mode.as_deref(), Some("host-passthrough"));
    let caches = GuestCaches::Passthrough;
    assert_eq!(domain.guest, GuestCpus { sockets: 2, dies: 1, cores: 2, threads: 1, caches });
    assert_eq!(domain.cells.len(), 2);
    assert_eq!(domain.cells[0].distances, [(0, 10), (1, 21)].into());
    assert_eq!((&domain.cells[1].vcpus, domain.cells[1].memory), (&cpus("2-3"), Bytes(2 << 30)));
    let page = |size, cells: Option<&str>| HugePages { size: Some(Bytes(size)), cells: cells.map(nodes) };
    assert_eq!(domain.huge_pages, [page(2 << 20, Some("0")), page(1 << 30, None)]);
    // 175 = 0xaf: libvirt takes both notations.
    assert_eq!(domain.host_devices, ["0000:3b:00.1", "0000:af:10.0"]);
}

#[test]
fn what_is_left_out_is_as_libvirt_takes_it() {
    let text = "\u{feff}<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- mine -->\n<domain type=\"qemu\"><name>x</name>\
                <vcpu placement='auto'>2</vcpu><numatune><memory/></numatune><cpu><numa>\
                <cell memory='1' unit='GiB' cpus='0'/><cell memory='1' unit='GiB'/></numa></cpu>\
                <memoryBacking><hugepages/></memoryBacking></domain>";
    let domain = parse(text, "x.xml").expect("valid");
    assert_eq!(domain.memory, Bytes(2 << 30)); // of its cells
    assert_eq!(domain.memory_tune, Some(MemoryTune { mode: "strict".to_owned(), nodeset: None, auto: true }));
    assert_eq!(domain.cells.iter().map(|cell| (cell.id, cell.vcpus.len())).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
    assert_eq!(domain.huge_pages, [HugePages { size: None, cells: None }]);
    assert_eq!(parse("<domain><memory>1024</memory></domain>", "x").expect("valid").vcpus, 1);
}

#[test]
fn iothreads_have_the_numbers_that_libvirt_gives_them() {
    let ids = |inside: &str| parse(&with(inside), "x.xml").expect(inside).iothreads.into_iter().collect::<Vec<_>>();
    let named = "<iothreadids><iothread id='2'/><iothread id='6'/></iothreadids>";
    assert_eq!(ids(named), [2, 6]);
    assert_eq!(ids(&format!("<iothreads>1</iothreads>{named}")), [2, 6]);
    assert_eq!(ids(&format!("<iothreads>4</iothreads>{named}")), [1, 2, 3, 6]);
    assert_eq!(ids("<iothreads>2</iothreads>"), [1, 2]);
    assert!(ids("").is_empty());
}

/// A domain with this inside.
fn with(inside: &str) -> String {
    format!("<domain>\n<memory>1024</memory>\n<vcpu>4</vcpu>\n{inside}</domain>")
}

#[test]
fn what_libvirt_would_refuse_is_refused_with_its_place() {
    let cases = [
        (
            "<cputune><vcpupin vcpu='x' cpuset='0'/></cputune>",
            "line 4: domain/cputune/vcpupin: vcpu=\"x\": expected a whole number",
        ),
        ("<cputune><vcpupin vcpu='0'/></cputune>", "the attribute cpuset is missing"),
        ("<cputune><vcpupin vcpu='0' cpuset='0-'/></cputune>", "expected a list such as 0-3,^2"),
        ("<cputune><vcpupin vcpu='0' cpuset='0-4000000000'/></cputune>", "under 16384"),
        (
            "<cputune>\n<vcpupin vcpu='0' cpuset='0'/>\n<vcpupin vcpu='0' cpuset='1'/></cputune>",
            "line 6: domain/cputune/vcpupin: vcpu 0 has a pin",
        ),
        (
            "<numatune><memory mode='nearby' nodeset='0'/></numatune>",
            "mode=\"nearby\": expected strict, preferred, interleave",
        ),
        ("<numatune><memnode cellid='4294967296' nodeset='0'/></numatune>", "from 0 to 127"),
        ("<numatune><memnode cellid='0'/></numatune>", "the attribute nodeset is missing"),
        ("<cpu><numa><cell id='7' cpus='0' memory='1'/></numa></cpu>", "id=\"7\": expected a whole number from 0 to 0"),
        ("<cpu><numa><cell cpus='0-4' memory='1'/></numa></cpu>", "there is no vCPU 4: <vcpu> is 4"),
        (
            "<cpu><numa><cell cpus='0-1' memory='1'/><cell cpus='1' memory='1'/></numa></cpu>",
            "vCPU 1 is in another cell",
        ),
        ("<cpu><numa><cell id='0' memory='1'/><cell id='0' memory='1'/></numa></cpu>", "there is a cell 0 already"),
        ("<cpu><numa><cell cpus='0'/></numa></cpu>", "the attribute memory is missing"),
        (
            "<cpu><numa><cell memory='1'><distances><sibling id='0' value='20'/></distances></cell></numa></cpu>",
            "expected 10 for the cell itself",
        ),
        ("<cpu><topology sockets='4096' cores='2' clusters='4096' threads='4096'/></cpu>", "QEMU takes at most 4096"),
        ("<cpu><topology sockets='0'/></cpu>", "sockets=\"0\": expected at least 1"),
        (
            "<devices><hostdev type='pci'><source><address bus='0x100'/></source></hostdev></devices>",
            "from 0x0 to 0xff",
        ),
        ("<name>a&#10;b</name>", "line 4: domain/name: libvirt takes no name with a line's end"),
        ("<iothreads>99999999</iothreads>", "from 0 to 4096"),
        ("<cputune><emulatorpin cpuset='0-16383,^1,0'/></cputune>", "it names numbers again and again"),
        ("<iothreadids><iothread id='0'/></iothreadids>", "id=\"0\": iothreads are numbered from 1"),
        ("<iothreadids><iothread id='4'/><iothread id='4'/></iothreadids>", "there is an iothread 4 already"),
    ];
    for (inside, expected) in cases {
        let error = parse(&with(inside), "x.xml").expect_err(inside).to_string();
        assert!(error.starts_with("x.xml: line ") && error.contains(expected), "{inside}\n{error}");
    }
    for (text, expected) in [
        ("<domain><memory>1</memory><vcpu>0</vcpu></domain>", "at least 1 vCPU"),
        ("<domain><memory>1</memory><vcpu>4097</vcpu></domain>", "from 0 to 4096"),
        ("<domain><memory unit='furlong'>1</memory></domain>", "unit \"furlong\" is none of"),
        ("<domain/>", "it has no memory"),
        ("<domstatus><domain/></domstatus>", "the outermost element is <domstatus>"),
        ("{ \"json\": 1 }", "not XML"),
        ("", "not XML"),
        ("<domain><memory>1</memory>", "not XML"),
    ] {
        let error = parse(text, "x.xml").expect_err(text).to_string();
        assert!(error.starts_with("x.xml: ") && error.contains(expected), "{text}\n{error}");
    }
}

fn refused(text: &str) -> String {
    parse(text, "x.xml").expect_err("hostile").to_string()
}

#[test]
fn a_text_that_attacks_its_reader_is_refused() {
    let entities = "<!DOCTYPE domain [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \
        \"&a;&a;&a;&a;&a;&a;&a;&a;\">]><domain><name>&b;</name></domain>";
    assert!(refused(entities).contains("line 1: a document type (<!DOCTYPE>)"), "{}", refused(entities));
    let file = "<!DOCTYPE d [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>\n<domain><name>&x;</name></domain>";
    assert!(refused(file).contains("document type"));
    assert!(refused("<domain><name>&x;</name></domain>").contains("not XML"));

    let long = format!("<domain><name a='{}'/></domain>", "x".repeat(LONGEST_TEXT));
    assert!(refused(&long).contains("libvirt takes at most 4194304"));
    let deep = format!("<domain>{}{}</domain>", "<a>".repeat(400_000), "</a>".repeat(400_000));
    assert!(refused(&deep).contains("nested deeper than 512"));
    let mut wide = "<domain><a".to_owned();
    (0..300_000).for_each(|index| write!(wide, " a{index}=''").expect("memory"));
    assert!(refused(&(wide + "/></domain>")).contains("more than 64 attributes"));
    let mut spaces = "<domain>".to_owned();
    (0..50_000).for_each(|index| write!(spaces, "<x:a xmlns:x='u{index}'/>").expect("memory"));
    assert!(refused(&(spaces + "</domain>")).contains("more than 32 namespaces"));
}

#[test]
fn a_large_domain_is_no_attack() {
    let mut text = "<domain><memory>1024</memory><vcpu>4096</vcpu><cputune>".to_owned();
    (0..4096).for_each(|vcpu| write!(text, "<vcpupin vcpu='{vcpu}' cpuset='0-127,256-383'/>").expect("memory"));
    text += "</cputune></domain>";
    assert_eq!(parse(&text, "x").expect("valid").vcpu_pins.len(), 4096);
}

#[test]
fn an_error_shows_no_more_of_a_value_than_fits_a_line() {
    let text = with(&format!("<cputune><vcpupin vcpu='{}\u{1b}' cpuset='0'/></cputune>", "9".repeat(1_000_000)));
    // An escape character is not XML at all; without it the value is cut.
    assert!(refused(&text).len() < 300);
    assert!(refused(&text.replace('\u{1b}', "")).len() < 300);
}
