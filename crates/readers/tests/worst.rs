//! The worst megabytes that we could think of: deep, wide, long, repeated, reversed.
//!
//! The fuzzer's build is optimised, and this one is not: its code takes some five times as long,
//! and so it may.

use crate::replay::{LONGEST, all_within_bounds};
use readers::LONGEST_INPUT;
use std::fmt::Write;

/// How many times as long code may take that is not optimised.
const UNOPTIMISED: u32 = 5;

/// How long an input is, in bytes.
#[derive(Clone, Copy)]
struct Length(usize);

impl Length {
    /// `before`, as many `middle` as fit, `after`.
    fn filled(self, before: &str, middle: &str, after: &str) -> String {
        let room = self.0.saturating_sub(before.len() + after.len());
        format!("{before}{}{after}", middle.repeat(room / middle.len()))
    }

    /// `before`, numbered parts as long as they fit, `after`.
    fn numbered(self, before: &str, part: impl Fn(usize) -> String, after: &str) -> String {
        let mut text = before.to_owned();
        for number in 0.. {
            let next = part(number);
            if text.len() + next.len() + after.len() > self.0 {
                break;
            }
            text += &next;
        }
        text + after
    }
}

/// Opened `depth` times, and closed as often.
fn nested(open: &str, close: &str, depth: usize) -> String {
    open.repeat(depth) + &close.repeat(depth)
}

/// What is bad for any reader.
fn anything(to: Length) -> Vec<String> {
    vec![
        to.filled("", "\n", ""),
        to.filled("", "a", ""),
        to.filled("", "9", ""),
        to.filled("", "\u{e4}", ""),
        to.filled("", "\u{0}", ""),
        to.filled("", "\u{1b}[31m\n", ""),
        to.filled("", "a: b\n", ""),
        to.filled("", "a=b\n", ""),
        to.filled("", "@ a\n", ""),
        to.numbered("", |number| format!("@ proc/{number}/cmdline\n"), ""),
        nested("[", "]", to.0 / 2),
        nested("{\"a\":", "}", to.0 / 6),
    ]
}

/// Lists of CPUs and nodes.
const LISTS: [&str; 6] = ["0-4294967295", "4294967295-0", "0-8191,0-8191", "-", "1-", "18446744073709551616"];

fn toml(to: Length, table: &str, key: &str) -> Vec<String> {
    let long = "k".repeat(to.0 / 2);
    let mut texts = vec![
        nested("a = [", "]", 1) + &nested("[", "]", to.0 / 2 - 8),
        "a = ".to_owned() + &nested("{a=", "}", to.0 / 4 - 8),
        to.filled("a", ".a", " = 1"),
        to.filled("a = [", "1,", "1]"),
        to.filled("a = [", "[],", "1]"),
        to.filled("a = \"", "\\u001b", "\""),
        to.filled("", "a = 1\n", ""),
        to.filled("", &format!("[[{table}]]\n"), ""),
        to.filled("", &format!("[[{table}]]\n{key} = 1\n"), ""),
        to.numbered("", |number| format!("[a{number}]\n"), ""),
        to.numbered("", |number| format!("a{number} = {{}}\n"), ""),
        to.filled(&format!("{long} = ["), "1,", "1]"),
        to.filled(&format!("[{long}]\n"), "[[a]]\n", ""),
        to.filled(&format!("{key} = "), "9", ""),
        to.filled(&format!("{key} = \""), "9", "\""),
        to.filled(&format!("{key} = \""), "0-1,", "0\""),
        to.filled(&format!("{key} = 1."), "0", "e308"),
    ];
    texts.push(to.filled(&format!("[[{table}]]\n{key} = \""), "0-65535,", "0\"\n"));
    texts.extend(LISTS.map(|list| format!("[[{table}]]\n{key} = \"{list}\"\n")));
    texts
}

fn xml(to: Length, root: &str, list: &str) -> Vec<String> {
    let (open, close) = (format!("<{root}>"), format!("</{root}>"));
    let attributes = |number: usize| format!(" a{number}=''");
    let mut texts = vec![
        to.filled(&open, "<a>", ""),
        open.clone() + &nested("<a>", "</a>", to.0 / 8) + &close,
        to.filled(&open, "<a/>", &close),
        to.filled(&open, "<a b='c'/>", &close),
        to.numbered(&format!("<{root}"), attributes, "/>"),
        to.numbered(
            &open,
            |number| format!("<a{}/>", (0..60).map(|at| attributes(at + number)).collect::<String>()),
            &close,
        ),
        to.numbered(&format!("<{root}"), |number| format!(" xmlns:a{number}='a{number}'"), "/>"),
        to.filled(&format!("{open}<!--"), "a", &format!("-->{close}")),
        to.filled(&open, "<!-- -->", &close),
        to.filled(&open, "<?a?>", &close),
        to.filled(&open, "&lt;", &close),
        to.filled(&open, "&#x1b;", &close),
        to.filled(&open, "a\n<b/>", &close),
        to.filled(&format!("{open}<name>"), "n", &format!("</name>{close}")),
        to.filled(&format!("{open}{close}"), &format!("{open}{close}"), ""),
        to.filled("<!DOCTYPE a [<!ENTITY a 'a'>", "<!ENTITY b '&a;&a;'>", "]>") + &open + &close,
        to.filled("<![CDATA[", "a", "]]>"),
        to.filled(&format!("{open}<a b='"), "\n", &format!("'/>{close}")),
    ];
    texts.extend(LISTS.map(|value| format!("{open}{}{close}", list.replace('?', value))));
    texts.push(to.filled(&open, &list.replace('?', "0-63"), &close));
    if let Some((before, after)) = list.split_once('?') {
        texts.push(to.filled(&format!("{open}{before}"), "0-65535,", &format!("1{after}{close}")));
    }
    texts
}

fn domain(to: Length) -> Vec<String> {
    const HEAD: &str = "<domain type='kvm'><name>a</name><memory unit='GiB'>1</memory>";
    let of = |parts: &str| format!("{HEAD}{parts}</domain>");
    let pin = |vcpu: usize| format!("<vcpupin vcpu='{vcpu}' cpuset='0-511'/>");
    let cell = |id: usize| format!("<cell id='{id}' cpus='{id}' memory='9' unit='GiB'/>");
    let siblings: String = (0..128).map(|id| format!("<sibling id='{id}' value='20'/>")).collect();
    let full = |id: usize| format!("<cell cpus='{id}' memory='1' unit='GiB'><distances>{siblings}</distances></cell>");
    let mut texts = xml(to, "domain", "<memory>1048576</memory><vcpu cpuset='?'>4</vcpu>");
    texts.extend([
        to.numbered(&format!("{HEAD}<vcpu>4096</vcpu><cputune>"), pin, "</cputune></domain>"),
        of(&format!("<vcpu>4096</vcpu><cputune>{}</cputune>", (0..4096).map(pin).collect::<String>())),
        to.numbered(&format!("{HEAD}<vcpu>128</vcpu><cpu><numa>"), cell, "</numa></cpu></domain>"),
        of(&format!("<vcpu>128</vcpu><cpu><numa>{}</numa></cpu>", (0..128).map(cell).collect::<String>())),
        of(&format!("<vcpu>128</vcpu><cpu><numa>{}</numa></cpu>", (0..128).map(full).collect::<String>())),
        of("<vcpu>4294967295</vcpu>"),
        of("<vcpu>16384</vcpu><iothreads>16384</iothreads>"),
        of("<iothreads>4294967295</iothreads>"),
        of("<vcpu>4</vcpu><cpu><topology sockets='65536' cores='65536' threads='1'/></cpu>"),
        to.filled(&format!("{HEAD}<vcpu cpuset='"), "0-4095,^1,", "1'>1</vcpu></domain>"),
        to.filled(&format!("{HEAD}<iothreadids>"), "<iothread id='1'/>", "</iothreadids></domain>"),
        to.filled(HEAD, "<cpu><numa/></cpu>", "</domain>"),
        to.filled(HEAD, "<cputune><emulatorpin cpuset='0'/></cputune>", "</domain>"),
        to.filled(&format!("{HEAD}<devices>"), "<hostdev type='pci'/>", "</devices></domain>"),
        to.filled("<domain><memory unit='EiB'>", "9", "</memory></domain>"),
        "<domain><memory unit='EiB'>15</memory><vcpu>1</vcpu></domain>".to_owned(),
        "<domain><memory unit='bytes'>1</memory><vcpu>16384</vcpu></domain>".to_owned(),
    ]);
    texts
}

fn command_line(to: Length) -> Vec<String> {
    const QEMU: &str = "qemu-system-x86_64\n";
    let mut texts = vec![
        to.filled(QEMU, "-numa\nnode\n", ""),
        to.filled(QEMU, "-numa\nnode,cpus=0-4095\n", ""),
        to.filled(&format!("{QEMU}-smp\n4096\n-numa\nnode\n"), "-numa\ncpu,node-id=0\n", ""),
        to.filled(QEMU, "-numa\ndist,src=0,dst=0,val=10\n", ""),
        to.filled(QEMU, "-device\nvfio-pci,host=0\n", ""),
        to.numbered(QEMU, |id| format!("-object\nmemory-backend-ram,id=m{id},size=1G\n-numa\nnode,memdev=m{id}\n"), ""),
        to.numbered(QEMU, |id| format!("-object\nmemory-backend-ram,id=m{id}\n-device\npc-dimm,memdev=m{id}\n"), ""),
        to.filled(&format!("{QEMU}-smp\n"), ",", ""),
        to.filled(&format!("{QEMU}-name\n"), "a,,", ""),
        to.filled(&format!("{QEMU}-object\nmemory-backend-ram,id=a,size=1G,host-nodes=0"), ",host-nodes=0-1023", ""),
        to.filled(&format!("{QEMU}-object\n{{\"qom-type\":\"memory-backend-ram\",\"host-nodes\":["), "0,", "0]}"),
        format!("{QEMU}-object\n{}1{}\n", "{\"a\":".repeat(150_000), "}".repeat(150_000)),
        to.filled(&format!("{QEMU}-object\n"), "[", ""),
        to.filled(QEMU, "-m\n18446744073709551615T\n", ""),
    ];
    for smp in [
        "4294967295",
        "0",
        "4096,maxcpus=4294967295",
        "sockets=65536,cores=65536,threads=65536",
        "-1",
        "4096,threads=0",
    ] {
        texts.push(format!(
            "{QEMU}-smp\n{smp}\n-numa\nnode,cpus=0-4294967295\n-numa\nnode,cpus=9-0\n-numa\ncpu,node-id=1\n"
        ));
    }
    texts
}

fn synthetic(to: Length) -> Vec<String> {
    let mut texts = vec![
        to.filled("", "pu:1 ", ""),
        to.filled("", "core:1 ", "pu:1"),
        to.filled("", "group:1 ", "pu:1"),
        to.filled("pack:2 ", "[numa] ", "pu:1"),
        to.filled("pack:", "9", " pu:1"),
        to.filled("pack:2 [numa(memory=", "9", "GB)] pu:1"),
        to.filled("pu:8192(indexes=", "0,", "0)"),
        to.filled("pu:8192(indexes=", "1*1:", "1)"),
        to.filled("pu:8192(", "size=1 ", ")"),
        nested("[", "]", to.0 / 2),
        nested("(", ")", to.0 / 2),
        to.numbered("pu:8192(indexes=", |number| format!("{number},"), "0)"),
    ];
    let counts = ["4294967295", "65536", "8192", "8193", "1024", "0", "18446744073709551616"];
    texts.extend(counts.map(|count| format!("pack:{count} core:{count} pu:{count}")));
    texts.extend(counts.map(|count| format!("numa:{count} pu:1")));
    texts.extend(counts.map(|count| format!("pack:1 [numa] pu:8192(indexes={count}*{count}:{count}*{count})")));
    texts.extend((0..64).map(|number| to.filled("pack:2 [numa", &" ".repeat(number + 1), "] pu:1")));
    texts
}

/// A captured tree with some files.
fn captured(to: Length) -> Vec<String> {
    const CPU: &str = "sys/devices/system/cpu";
    const NODE: &str = "sys/devices/system/node";
    let host = |list: &str| {
        let mut text = format!(
            "@ {CPU}/online\n{list}\n@ {CPU}/present\n{list}\n@ {CPU}/possible\n{list}\n@ {NODE}/online\n{list}\n"
        );
        let _ = write!(text, "@ {NODE}/has_cpu\n{list}\n@ {NODE}/node0/cpulist\n{list}\n@ {NODE}/node0/distance\n10\n");
        let _ = write!(
            text,
            "@ {CPU}/cpu0/topology/core_cpus_list\n{list}\n@ {CPU}/cpu0/cache/index3/shared_cpu_list\n{list}\n"
        );
        text
    };
    let mut texts: Vec<String> = LISTS.iter().map(|list| host(list)).collect();
    texts.extend([
        host(&"0-1,".repeat(to.0 / 64)),
        host(&"0-65535,".repeat(to.0 / 128)),
        to.filled(&format!("{}@ {NODE}/node0/meminfo\n", host("0")), "Node 0 MemTotal: 18446744073709551615 kB\n", ""),
        to.filled(&format!("{}@ proc/cpuinfo\n", host("0")), "processor: 0\n", ""),
        to.filled(&format!("{}@ {NODE}/node0/distance\n", host("0")), "10 ", ""),
        to.filled(&format!("{}@ proc/self/status\nCpus_allowed_list: ", host("0")), "0,", "0"),
        to.numbered("", |cpu| format!("@ {CPU}/cpu{cpu}/topology/core_id\n0\n"), ""),
        to.numbered("", |node| format!("@ {NODE}/node{node}/cpulist\n0\n"), ""),
    ]);
    texts
}

/// Of an object that begins so.
fn json(to: Length, before: &str, field: &str) -> Vec<String> {
    let of = |open: &str, close: &str| {
        let depth = to.0.saturating_sub(100) / (open.len() + close.len());
        format!("{before}\"{field}\":{}", nested(open, close, depth))
    };
    vec![
        of("[", "]"),
        of("{\"a\":", "}"),
        to.filled(&format!("{before}\"{field}\":["), "[],", "[]]}"),
        to.filled(&format!("{before}\"{field}\":["), "{},", "{}]}"),
        to.filled(&format!("{before}\"{field}\":"), "9", "}"),
        to.filled(&format!("{before}\"{field}\":1e"), "9", "}"),
        to.filled(&format!("{before}\"{field}\":\""), "\\u0000", "\"}"),
        to.filled(before, &format!("\"{field}\":1,"), "\"a\":1}"),
        to.numbered(before, |number| format!("\"a{number}\":1,"), "\"a\":1}"),
        to.filled(before, "\n", "}"),
    ]
}

/// A hello of a machine with these lists.
fn agent(to: Length) -> Vec<String> {
    let hello = |nodes: &str, llcs: &str| {
        format!(
            "{{\"type\":\"hello\",\"protocol\":1,\"version\":\"\",\"kernel\":\"\",\"guest\":true,\"uptime_seconds\":1,\"machine\":{{\"nodes\":[{nodes}],\"llcs\":[{llcs}],\"llc_bytes\":1,\"sockets\":[],\"online\":\"0\",\"complaints\":[]}}}}\n"
        )
    };
    const NODE: &str = "{\"id\":0,\"cpus\":\"0-65535\",\"memory_bytes\":1,\"distances\":[]}";
    let half = Length(to.0 / 2 - 200);
    let mut texts = json(to, "{\"type\":\"failed\",\"job\":1,", "message");
    texts.extend([
        hello(&half.filled("", &format!("{NODE},"), NODE), &half.filled("", "\"0-65535\",", "\"0\"")),
        hello(NODE, &to.filled("\"", "0-65535,", "0\"")),
        to.filled("", "{\"type\":\"ready\",\"job\":1,\"repetition\":0}\n", ""),
    ]);
    texts.extend(LISTS.map(|list| hello(NODE, &format!("\"{list}\""))));
    texts
}

/// A monitor that greets and then says this.
fn monitor(to: Length) -> Vec<String> {
    const GREETING: &str = "{\"QMP\":{}}\n{\"return\":{}}\n{\"return\":{\"running\":true}}\n{\"return\":[]}\n";
    let mut texts = json(to, GREETING, "return");
    texts.extend([
        to.filled(GREETING, "{\"event\":\"RESET\"}\n", ""),
        to.filled(GREETING, "{}\n", ""),
        to.filled(&format!("{GREETING}{{\"return\":["), "{\"data\":{\"addr\":1,\"node\":0}},", "{}]}\n"),
        to.filled(&format!("{GREETING}{{\"error\":{{\"desc\":\""), "a", "\"}}\n"),
    ]);
    texts
}

/// Offers of large VMs.
fn offers(to: Length) -> Vec<String> {
    let offer = include_str!("../../../fuzz/seeds/migration/web.jsonl");
    let offer = offer.lines().find(|line| line.starts_with("{\"offer\"")).expect("the seed has one");
    let with = |field: &str, empty: &str, value: String| {
        let (before, after) = offer.split_once(field).expect(field);
        let (_, after) = after.split_once(empty).expect(empty);
        format!("{before}{field}{value}{after}")
    };
    let mut texts = json(to, "{\"offer\":{\"receipt\":\"\",", "manifest");
    texts.extend([
        with(
            "\"history\":",
            "]",
            format!("[{}]", to.filled("", "{\"at\":1,\"event\":\"paused\"},", "{\"at\":1,\"event\":\"paused\"}")),
        ),
        with("\"vcpus\":[", "]", to.numbered("", |vcpu| format!("{vcpu},"), "0]")),
        with("\"absent\":[", "]", to.filled("", "0,", "0]")),
        with("\"distances\":", "]]", to.filled("[", "[10],", "[10]]")),
    ]);
    texts
}

/// Words of virsh.
fn virsh(to: Length) -> Vec<String> {
    vec![
        to.filled("", "Domain: 'a'\n", ""),
        to.numbered("", |number| format!("Domain: 'a{number}'\n"), ""),
        to.numbered("Domain: 'a'\n", |number| format!("  vcpu.{number}.time=18446744073709551615\n"), ""),
        to.filled("", "Node 4294967295:\n2048KiB: 18446744073709551615\n", ""),
        to.filled("", "buffers: 18446744073709551615 KiB\n", ""),
        to.numbered("", |node| format!("{node}: 18446744073709551615 KiB\n"), ""),
    ]
}

/// A process that says it is QEMU, on a host of one CPU.
fn proc_tree(to: Length) -> Vec<String> {
    const HOST: &str = "@ sys/devices/system/cpu/online\n0\n@ sys/devices/system/node/node0/cpulist\n0\n@ \
        proc/7/stat\n7 (q) S 1 7 7 0 -1 1 9 0 0 0 12 34 0 0 20 0 4 0 500 22 3 1 0 0 0\n@ proc/7/task/7/comm\nq\n@ \
        proc/7/task/8/comm\nCPU 0/KVM\n";
    let with = |file: &str| format!("{HOST}@ proc/7/cmdline\nqemu-system-x86_64\0-m\x001G\0-smp\x004\0@ {file}\n");
    let mut texts = vec![
        to.filled(&format!("{HOST}@ proc/7/cmdline\nqemu-system-x86_64\0"), "-numa\0node,cpus=0-4095\0", ""),
        to.filled(&format!("{HOST}@ proc/7/cmdline\nqemu-system-x86_64\0"), "-smp\x004096\0-m\x009T\0", ""),
        to.filled(&with("proc/7/maps"), "7f0000000000-7f0040000000 rw-p 00000000 00:00 0 \n", ""),
        to.filled(&with("proc/7/maps"), "ffffffffffffffff-0 rw-p 00000000 00:00 0 \n", ""),
        to.numbered(
            &with("proc/7/maps"),
            |at| format!("{:x}-{:x} rw-s 00000000 00:0f 7 /a\n", at << 27, (at + 1) << 27),
            "",
        ),
        to.filled(&with("proc/7/stat"), "7 (q) S ", ""),
        to.filled(&with("proc/7/status"), "Uid:\t1\t1\n", ""),
        to.filled(&with("proc/7/status\nCpus_allowed_list:\t"), "0-65535,", "0\n"),
        to.filled(&with("proc/7/cgroup\n0::"), "/a", "\n"),
        to.filled(&with("proc/7/cgroup"), "0::/a\n", "\n"),
        to.filled(&with("proc/stat"), "cpu0 1 0 1 9\n", ""),
        to.filled(&with("proc/mounts"), "hugetlbfs /a hugetlbfs rw,pagesize=2M 0 0\n", ""),
        to.numbered(&with("proc/7/fd/0"), |task| format!("@ proc/7/task/{task}/comm\nCPU {task}/KVM\n"), ""),
        to.numbered(&with("proc/7/fd/0"), |pid| format!("@ proc/{pid}/cmdline\nqemu-kvm\0-smp\x004096\0"), ""),
    ];
    texts.extend(captured(to));
    texts
}

/// Inputs that are bad for this reader more than for others.
fn worst(to: Length, name: &str) -> Vec<String> {
    match name {
        "machine_archive" => Vec::new(),
        "machine_tree" => captured(to),
        "machine_hwloc" => {
            let mut texts = xml(to, "topology", "<object type='PU' os_index='0' cpuset='?'/>");
            texts.extend(xml(
                to,
                "topology",
                "<object type='Machine'><object type='NUMANode' nodeset='0x?'/><object \
                type='PU' os_index='4294967295' cpuset='0x1'/></object>",
            ));
            texts
        }
        "machine_libvirt" => xml(
            to,
            "capabilities",
            "<host><topology><cells num='1'><cell id='0'><cpus num='1'><cpu id='0' \
            siblings='?'/></cpus></cell></cells></topology></host>",
        ),
        "machine_file" => toml(to, "node", "cpus"),
        "machine_synthetic" => synthetic(to),
        "vm_spec" => toml(to, "disk", "vcpus"),
        "manifest" => json(to, "{\"format\":\"homenode.manifest\",\"version\":1,", "manifest"),
        "suspended" => json(to, "{\"saved_at\":1,\"life\":{},", "manifest"),
        "migration" => offers(to),
        "experiment" => toml(to, "configuration", "name"),
        "policy" => toml(to, "vm", "name"),
        "trace" => toml(to, "vm", "busy"),
        "profile" => toml(to, "kernel", "lines_in_flight"),
        "domain" | "domain_cure" => domain(to),
        "domain_edit" => domain(to)
            .iter()
            .map(|text| format!("set cputune/vcpupin[vcpu=0] cpuset 0\nremove cputune/vcpupin\n\n{text}"))
            .collect(),
        "proxmox" => vec![
            to.filled("cores: 4\n", "numa0: cpus=0-3,memory=1\n", ""),
            to.filled("cores: 4\nnuma: 1\nnuma0: cpus=", "0;", "0,memory=1\n"),
            to.filled("cores: 4\nname: ", "a", "\n"),
            to.filled("cores: ", "9", "\n"),
            "cores: 1024\nsockets: 1024\nmemory: 1073741824\nnuma: 1\n".to_owned(),
            "cores: 1048576\nmemory: 1\naffinity: 0-4294967295\n".to_owned(),
            "cores: 1048576\naffinity: 0-8191\n".to_owned(),
            "sockets: 1048576\nnuma: 1\n".to_owned(),
            "cores: 4\nnuma: 1\nnuma0: cpus=0-4294967295,memory=1,hostnodes=0-4294967295\n".to_owned(),
        ],
        "command_line" => command_line(to),
        "proc_tree" => proc_tree(to),
        "agent" => agent(to),
        "monitor" => monitor(to),
        "virsh" => virsh(to),
        "occupied" => {
            let mut texts = json(to, "{\"at\":0,\"nodes\":{},", "vms");
            texts.push(to.filled("", "<domain><memory>1</memory></domain>", ""));
            texts.extend(domain(to));
            texts
        }
        "state" => json(to, "@ balance.json\n{\"version\":1,\"boot\":\"boot\",", "vms"),
        "recording" => json(to, "{\"start\":{\"version\":1,", "machine"),
        "results" => json(to, "@ tables.json\n{}\n@ environment.json\n{}\n@ resolved.json\n{", "notes"),
        _ => panic!("{name}: say what is worst for it"),
    }
}

fn all_of(to: Length) {
    let longest = if cfg!(debug_assertions) { LONGEST * UNOPTIMISED } else { LONGEST };
    all_within_bounds(longest, |reader| {
        let named = |(index, input): (usize, String)| {
            let start: String = input.chars().take(60).collect();
            (format!("{index} {start:?}"), input.into_bytes())
        };
        anything(to).into_iter().chain(worst(to, reader.name)).enumerate().map(named).collect()
    });
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn the_worst_of_each_kind_is_read_within_bounds() {
    all_of(Length(LONGEST_INPUT / 32));
}

#[test]
#[ignore = "by hand: `cargo test -p readers worst -- --ignored --nocapture`; docs/fuzz.md says which are slow"]
fn the_worst_megabyte_of_each_kind_is_read_within_bounds() {
    all_of(Length(LONGEST_INPUT));
}
