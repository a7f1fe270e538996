//! The text of a configuration: which lines are its own, which wait for the next start, and which
//! Proxmox leaves out.
//!
//! **Problem.** qemu-server takes a line that it cannot read for none: it warns, starts the VM
//! without it, and drops it when it writes the configuration again. And much that is no
//! configuration of a VM has lines of `key: value`: a container's, YAML.
//!
//! **Rule.** A line is one as `parse_vm_config` of qemu-server 9.2 has it: a key of small letters,
//! `-` and `_` with a number at its end, not indented. Sections in brackets end the VM's own lines:
//! snapshots are other VMs, `[PENDING]` is what counts from the next start on. A text is a
//! configuration where most of its own lines have keys that Proxmox knows.
//!
//! **Example.** `affinty: 0-3` is left out, since `affinity` is meant; the VM floats.

use super::conf::{Conf, LeftOut, Line};
use super::values::is_boolean;
use crate::domain::{DomainError, Problem};
use std::collections::BTreeMap;
use topology::input::excerpt;

/// Options of a VM without a number at the end of their names (`$confdesc` of QemuServer.pm), and
/// what `qm config` prints beside them.
const KEYS: &str = "acpi affinity agent allow-ksm amd-sev arch args audio autostart balloon bios boot bootdisk cdrom \
    cicustom cipassword citype ciupgrade ciuser cores cpu cpulimit cpuunits description digest freeze hookscript \
    hotplug hugepages intel-tdx ivshmem keephugepages keyboard kvm localtime lock machine memory meta \
    migrate_downtime migrate_speed name nameserver numa onboot ostype parent protection reboot \
    running-nets-host-mtu runningcpu runningmachine scsihw searchdomain shares smp snapstate snaptime sockets \
    spice_enhancements sshkeys startdate startup tablet tags tdf template vcpus vga vmgenid vmstate vmstatestorage \
    watchdog";
/// Those with one: `net0`.
const NUMBERED: &str = "audio efidisk hostpci ide ipconfig net numa parallel rng sata scsi serial smbios tpmstate \
    unused usb virtio virtiofs";
/// Options that only a container has (`$confdesc` of pve-container).
const OF_CONTAINERS: [&str; 7] = ["rootfs", "unprivileged", "hostname", "swap", "cmode", "console", "tty"];

/// Whether Proxmox knows an option.
fn is_known(key: &str) -> bool {
    let name = key.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let has = |names: &str, name: &str| names.split_whitespace().any(|one| one == name);
    has(KEYS, key) || (name != key && has(NUMBERED, name))
}

/// `key: value` as qemu-server has it.
fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let name = key.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let is_key = name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-' || letter == '_');
    let value = value.trim();
    (is_key && !value.is_empty()).then_some((key, value))
}

/// The name of a section.
fn section(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix('[')?.strip_suffix(']').filter(|name| !name.contains(']'))
}

fn is_comment(line: &str) -> bool {
    line.starts_with('#') || line.trim().is_empty()
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::check) enum Kind {
    /// A configuration of a VM.
    Configuration,
    /// XML, or such as wants to be.
    Xml,
    /// Something else: what it seems to be, and what to do instead.
    Else(&'static str),
}

/// What a text is, by how it is written.
pub(in crate::check) fn kind(text: &str) -> Kind {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if start.starts_with('<') {
        return Kind::Xml;
    }
    if start.starts_with("#!") {
        return Kind::Else("a script: `homenode check` judges what it starts, once that runs (name, process number)");
    }
    let own: Vec<&str> =
        text.lines().take_while(|line| section(line).is_none()).filter(|line| !is_comment(line)).collect();
    let keys: Vec<&str> = own.iter().filter_map(|line| Some(pair(line)?.0)).collect();
    let of_container = keys.iter().filter(|key| OF_CONTAINERS.contains(key) || key.starts_with("mp")).count();
    if own.iter().any(|line| line.starts_with("lxc.")) || of_container > 1 || keys.contains(&"rootfs") {
        return Kind::Else("the configuration of a container (LXC), which is no VM: it has no virtual nodes");
    }
    if start.starts_with(['{']) {
        return Kind::Else("JSON");
    }
    let of_yaml = |line: &&str| {
        let line = line.trim_end();
        ["---", "apiVersion:", "kind:", "- "].iter().any(|begins| line.starts_with(begins))
    };
    if own.iter().any(of_yaml) {
        return Kind::Else(
            "YAML. Of KubeVirt's VMs the domain is judged, which its virt-launcher has: `virsh dumpxml 1` in its pod",
        );
    }
    let known = keys.iter().filter(|key| is_known(key)).count();
    match known * 2 > own.len() {
        true => Kind::Configuration,
        false => Kind::Else("no configuration of Proxmox VE: most of its lines have no option of a VM"),
    }
}

/// The VM's own lines of a text, what waits for the next start, and what is left out.
///
/// # Errors
/// A size that is none: without it nothing can be judged.
pub(super) fn read(text: &str, file: &str) -> Result<Conf, DomainError> {
    let mut conf = Conf::new(file);
    let mut pending = BTreeMap::new();
    let mut gone = Vec::new();
    let mut within = Within::Own;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(name) = section(line) {
            within = if name.eq_ignore_ascii_case("pending") { Within::Pending } else { Within::Other };
            continue;
        }
        if is_comment(line) || within == Within::Other {
            continue;
        }
        let Some((key, value)) = pair(line) else {
            if within == Within::Own {
                let why = format!("unable to parse config: {}", excerpt(line));
                conf.left_out.push(LeftOut { line: number, key: excerpt(line), why, instead: None });
            }
            continue;
        };
        if within == Within::Pending && key == "delete" {
            let keys = value.split([',', ' ', '\t']).map(|key| key.trim_start_matches('!'));
            gone.extend(keys.filter(|key| !key.is_empty()).map(str::to_owned));
            continue;
        }
        let line = Line { line: number, value: value.to_owned() };
        match within {
            Within::Own => add(&mut conf, key, line)?,
            _ => drop(pending.insert(key.to_owned(), line)),
        }
    }
    if !pending.is_empty() || !gone.is_empty() {
        let mut next = Conf { values: conf.values.clone(), left_out: conf.left_out.clone(), ..Conf::new(file) };
        next.values.retain(|key, _| !gone.contains(key));
        for (key, line) in pending {
            add(&mut next, &key, line)?;
        }
        conf.next = Some(Box::new(next));
    }
    Ok(conf)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Own,
    Pending,
    Other,
}

/// A line that Proxmox takes, or one that it leaves out.
fn add(conf: &mut Conf, key: &str, line: Line) -> Result<(), DomainError> {
    conf.left_out.retain(|left| left.key != key);
    if !is_known(key) {
        let nearest = KEYS.split_whitespace().find(|known| is_near(known, key)).map(str::to_owned);
        let why = format!("unknown setting '{}'", excerpt(key));
        let instead = nearest.map(|known| (known, line.value.clone()));
        conf.left_out.push(LeftOut { line: line.line, key: excerpt(key), why, instead });
        return Ok(());
    }
    if let Some(valid) = size(key, &line.value) {
        let problem = Problem::Proxmox { line: line.line, key: key.to_owned(), value: line.value, valid };
        return Err(DomainError::new(&conf.file, problem));
    }
    match fault(key, &line.value) {
        None => drop(conf.values.insert(key.to_owned(), line)),
        Some(why) => {
            // A line of the same option that was read before counts still.
            let instead = super::numa::repaired(key, &line.value).map(|value| (key.to_owned(), value));
            conf.left_out.push(LeftOut { line: line.line, key: key.to_owned(), why, instead });
        }
    }
    Ok(())
}

/// Of a size that is none: what would be valid.
fn size(key: &str, value: &str) -> Option<String> {
    let (least, what) = match key {
        "sockets" | "cores" | "smp" => (1, "a number from 1"),
        "vcpus" => (0, "a number from 0"),
        "memory" => (16, "MiB, a number from 16"),
        _ => return None,
    };
    let number = match key {
        "memory" => super::values::current(value),
        _ => super::values::whole(value),
    };
    let is_one = number.is_some_and(|number| (least..=super::MOST).contains(&number));
    (!is_one).then(|| what.to_owned())
}

/// Why Proxmox cannot read a value, in its words.
fn fault(key: &str, value: &str) -> Option<String> {
    let numbered = key.strip_prefix("numa").is_some_and(|id| !id.is_empty());
    match key {
        _ if numbered => super::numa::NumaNode::read(value).err().map(|why| why.to_string()),
        "numa" | "template" | "acpi" => {
            (!is_boolean(value)).then(|| format!("type check ('boolean') failed - got '{}'", excerpt(value)))
        }
        "affinity" => super::values::cpu_set(value).is_none().then(|| "unable to parse cpuset option".to_owned()),
        "hotplug" => super::values::hotplug(value).err().map(|why| why.to_string()),
        "hugepages" => {
            let is_one = ["any", "2", "1024"].contains(&value.trim_matches('"'));
            (!is_one)
                .then(|| format!("value '{}' does not have a value in the enumeration 'any, 2, 1024'", excerpt(value)))
        }
        _ => None,
    }
}

/// Whether a word is a slip of another: one letter more, less or other, or two that changed places.
pub(super) fn is_near(right: &str, word: &str) -> bool {
    let (right, word): (Vec<char>, Vec<char>) = (right.chars().collect(), word.chars().collect());
    if right.len() < 4 || right == word {
        return false;
    }
    let same = right.iter().zip(&word).take_while(|(one, other)| one == other).count();
    let (rest, other) = (&right[same..], &word[same..]);
    let swapped = rest.len() > 1
        && other.len() == rest.len()
        && rest[0] == other[1]
        && rest[1] == other[0]
        && rest[2..] == other[2..];
    let tail = |slice: &'_ [char]| slice.get(1..).map(<[char]>::to_vec);
    swapped
        || tail(rest).is_some_and(|rest| rest == other)
        || tail(other).is_some_and(|other| rest == other.as_slice())
        || (tail(rest).is_some() && tail(rest) == tail(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_told_by_its_lines() {
        let else_of = |text: &str| matches!(kind(text), Kind::Else(_));
        assert_eq!(kind("#a comment\ncores: 2\nmemory: current=512\n[before]\nodd\n"), Kind::Configuration);
        assert_eq!(kind("net0: virtio,bridge=vmbr0\nscsi0: local:1\nhostpci1: 01:00\n"), Kind::Configuration);
        assert_eq!(kind("\n <domain/>"), Kind::Xml);
        assert!(else_of("apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\n"));
        assert!(else_of("name: a\nmemory: 4096\nspec:\n  domain:\n    cpu: 4\n  x: 1\n"));
        assert!(else_of("arch: amd64\ncores: 2\nhostname: a\nmemory: 512\nrootfs: local:8\nostype: debian\n"));
        assert!(else_of("#!/bin/sh\nname: a\n") && else_of("qm set 1 --cores 2\necho a: b\n") && else_of("{\"a\": 1}"));
        assert!(else_of("Name: a\nMemory: 3\n") && else_of("") && else_of("name = a\ncores = 2\n"));
    }

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        for slip in ["affinty", "affinit", "afinity", "affiinty", "affinityy", "affimity"] {
            assert!(is_near("affinity", slip), "{slip}");
        }
        for other in ["affinity", "agent", "fin", ""] {
            assert!(!is_near("affinity", other), "{other}");
        }
    }
}
