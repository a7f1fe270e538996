//! Processes that work for one VM beside QEMU: virtiofsd, swtpm, vhost-user devices.
//!
//! **Problem.** They fill and empty the guest's memory as QEMU's own threads do, and are processes
//! of their own: nothing in `/proc` of QEMU names them.
//!
//! **Rule.** What connects them is a socket. QEMU's command line names those of its vhost-user
//! devices and of its TPM (`-chardev socket,path=`, used by `vhost-user...` or `-tpmdev emulator`).
//! A process is the VM's where its own command line names one of these, or where it has one open
//! that is bound there (`/proc/PID/net/unix` and its descriptors); and so are its children. It must
//! not work for others: no socket that it listens on is named by another QEMU, and one that was
//! found by its descriptors alone listens on nothing else at all. Of a VM whose user is not root
//! the process must be that user's.
//!
//! **Properties.** A switch that serves many VMs (OVS, VPP, SPDK) is nobody's: it listens on
//! sockets of its own, or of several VMs. What cannot be read is not found.
//!
//! **Example.** QEMU has `-chardev socket,id=fs,path=/run/vm1/fs.sock -device
//! vhost-user-fs-pci,chardev=fs`, and a process `virtiofsd --socket-path=/run/vm1/fs.sock`: it is
//! vm1's, and so is its child, which serves.

use super::owner;
use crate::error::read_text;
use crate::proc_text::stat_field;
use crate::root::{Root, numbered_entries};
use crate::users::Users;
use ::vm::qemu::is_qemu;
use std::collections::{BTreeMap, BTreeSet};

/// Bits of a socket that is listened on, in `/proc/net/unix` (`__SO_ACCEPTCON`).
const LISTENS: u32 = 1 << 16;
/// Descriptors of a process that are looked at.
const MOST_DESCRIPTORS: usize = 4096;

/// A process that works for a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Helper {
    /// Its number.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) name: String,
}

impl Helper {
    /// Its threads now.
    pub(crate) fn threads(&self, root: &Root) -> Vec<u32> {
        numbered_entries(&root.process(self.pid, "task")).unwrap_or_default()
    }
}

/// The sockets by which helpers are connected, from QEMU's arguments.
pub(crate) fn sockets(arguments: &[String]) -> BTreeSet<String> {
    let chardevs = arguments.windows(2).filter(|pair| pair[0] == "-chardev").map(|pair| pair[1].as_str());
    let of = |chardev: &str| {
        let field = |name: &str| field(chardev, name);
        let id = field("id")?;
        let path = field("path")?;
        let uses = |argument: &String| {
            let whose = argument.contains("vhost-user")
                || argument.starts_with("emulator")
                || argument.contains("\"emulator\"");
            whose && self::field(argument, "chardev").as_deref() == Some(&id)
        };
        (path.starts_with('/') && arguments.iter().any(uses)).then_some(path)
    };
    chardevs.filter_map(of).collect()
}

/// A field of an option, in either form: `id=fs,path=/x` or `{"id":"fs","data":{"path":"/x"}}`.
fn field(option: &str, name: &str) -> Option<String> {
    if option.starts_with('{') {
        let (_, rest) = option.split_once(&format!("\"{name}\":\""))?;
        return Some(rest.split('"').next()?.to_owned());
    }
    option.split(',').find_map(|part| Some(part.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

/// The processes that work for the VM of QEMU `pid`, by rising number.
pub(crate) fn of(root: &Root, pid: u32, owner_uid: Option<u32>) -> Vec<Helper> {
    let own = sockets(&arguments(root, pid));
    if own.is_empty() {
        return Vec::new();
    }
    let processes = Processes::read(root, pid);
    let bound = Bound::read(root, pid);
    let others: BTreeSet<&String> = processes.qemus.iter().flatten().collect();
    let mut found = BTreeSet::new();
    for (&process, words) in &processes.words {
        let named = words.iter().any(|word| own.iter().any(|path| names(word, path)));
        let has = || bound.of_process(root, process);
        let is_its = match named {
            true => has().iter().all(|(path, _)| !others.contains(path)),
            false => {
                let has = has();
                let any = has.iter().any(|(path, _)| own.contains(path));
                any && has.iter().all(|(path, listens)| !listens || own.contains(path))
            }
        };
        if is_its && may_be_its(root, process, owner_uid) {
            found.insert(process);
        }
    }
    // A parent's number may be higher than its child's.
    let mut before = 0;
    while found.len() > before {
        before = found.len();
        let its = |(child, parent): (&u32, &u32)| found.contains(parent).then_some(*child);
        let children: Vec<u32> = processes.parents.iter().filter_map(its).collect();
        found.extend(children);
    }
    let name = |pid: u32| {
        read_text(&root.process(pid, "comm")).ok().map(|name| Helper { pid, name: name.trim_end().to_owned() })
    };
    found.into_iter().filter_map(name).collect()
}

/// Whether a word of a command line names a path: alone, or as a value.
fn names(word: &str, path: &str) -> bool {
    word.split([',', '=', ' ', '"']).any(|part| part == path)
}

/// Nobody gets somebody else's process moved by naming its socket.
fn may_be_its(root: &Root, process: u32, owner_uid: Option<u32>) -> bool {
    let trusted = owner_uid.is_some_and(|owner| Users::read(root).trusted_by(0).has(owner));
    trusted || read_text(&root.process(process, "status")).ok().and_then(|status| owner::of(&status)) == owner_uid
}

fn arguments(root: &Root, pid: u32) -> Vec<String> {
    crate::vm::arguments(root, pid).unwrap_or_default()
}

/// All processes beside one QEMU.
struct Processes {
    /// Words of those that are no QEMU and no thread of the kernel.
    words: BTreeMap<u32, Vec<String>>,
    /// Sockets of every other QEMU's helpers.
    qemus: Vec<BTreeSet<String>>,
    parents: BTreeMap<u32, u32>,
}

impl Processes {
    fn read(root: &Root, but: u32) -> Self {
        let mut all = Self { words: BTreeMap::new(), qemus: Vec::new(), parents: BTreeMap::new() };
        for pid in numbered_entries(&root.join("proc")).unwrap_or_default() {
            if pid == but || pid == 1 {
                continue;
            }
            let words = arguments(root, pid);
            let Some(program) = words.first() else { continue };
            if is_qemu(program) {
                all.qemus.push(sockets(&words));
                continue;
            }
            let stat = read_text(&root.process(pid, "stat")).unwrap_or_default();
            if let Some(parent) = stat_field(&stat, 4) {
                all.parents.insert(pid, parent);
            }
            all.words.insert(pid, words);
        }
        all
    }
}

/// Sockets with a path, by inode: the path, and whether it is listened on.
struct Bound(BTreeMap<u64, (String, bool)>);

impl Bound {
    fn read(root: &Root, pid: u32) -> Self {
        let text = read_text(&root.process(pid, "net/unix")).unwrap_or_default();
        Self(text.lines().filter_map(socket).collect())
    }

    /// Those that a process has open.
    fn of_process(&self, root: &Root, pid: u32) -> Vec<(String, bool)> {
        let Ok(open) = std::fs::read_dir(root.process(pid, "fd")) else { return Vec::new() };
        let inode = |entry: std::fs::DirEntry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        let inodes = open.flatten().take(MOST_DESCRIPTORS).filter_map(inode);
        inodes.filter_map(|inode: u64| self.0.get(&inode).cloned()).collect()
    }
}

/// `0000: 00000002 00000000 00010000 0001 01 31336 /run/x.sock`.
fn socket(line: &str) -> Option<(u64, (String, bool))> {
    // Inodes are padded with spaces; a socket without a path has seven words.
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, flags, _, _, inode, path] = words[..] else { return None };
    let listens = u32::from_str_radix(flags, 16).ok()? & LISTENS != 0;
    Some((inode.parse().ok()?, (path.to_owned(), listens)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn sockets_of_helpers_are_told_from_others() {
        let line = "qemu -chardev socket,id=fs,path=/run/fs.sock -device vhost-user-fs-pci,chardev=fs,tag=x \
            -chardev socket,id=tpm,path=/run/tpm.sock -tpmdev emulator,id=t,chardev=tpm \
            -chardev socket,id=serial,path=/run/console -serial chardev:serial \
            -chardev socket,id=rel,path=x.sock -device vhost-user-blk-pci,chardev=rel \
            -chardev {\"backend\":\"socket\",\"id\":\"j\",\"path\":\"/run/j.sock\"} \
            -device {\"driver\":\"vhost-user-gpu\",\"chardev\":\"j\"}";
        let found: Vec<String> = sockets(&words(line)).into_iter().collect();
        assert_eq!(found, ["/run/fs.sock", "/run/j.sock", "/run/tpm.sock"]);
    }

    #[test]
    fn a_helper_is_the_vms_whose_socket_it_names_and_so_is_its_child() {
        let qemu = |path: &str| {
            format!("qemu-system-x86_64\0-chardev\0socket,id=a,path={path}\0-device\0vhost-user-fs-pci,chardev=a\0")
        };
        let (one, two) = (qemu("/run/1.sock"), qemu("/run/2.sock"));
        let status = "Name:\tx\nUid:\t0\t0\t0\t0\n";
        let (_directory, root) = tree(&[
            ("etc/passwd", "root:x:0:0::/:/bin/sh\n"),
            ("proc/10/cmdline", &one),
            ("proc/20/cmdline", &two),
            ("proc/30/cmdline", "/usr/libexec/virtiofsd\0--socket-path=/run/1.sock\0"),
            ("proc/30/comm", "virtiofsd\n"),
            ("proc/30/stat", "30 (virtiofsd) S 1 1 1"),
            ("proc/30/status", status),
            ("proc/25/cmdline", "/usr/libexec/virtiofsd\0--socket-path=/run/1.sock\0"),
            ("proc/25/comm", "virtiofsd\n"),
            ("proc/25/stat", "25 (virtiofsd) S 30 1 1"),
            ("proc/25/status", status),
            ("proc/40/cmdline", "sleep\0/run/1.sock.old\0"),
            ("proc/40/comm", "sleep\n"),
            ("proc/40/stat", "40 (sleep) S 1 1 1"),
            ("proc/40/status", status),
        ]);
        let of =
            |pid: u32, owner: Option<u32>| of(&root, pid, owner).into_iter().map(|one| one.pid).collect::<Vec<u32>>();
        assert_eq!(of(10, Some(0)), [25, 30]);
        assert!(of(20, Some(0)).is_empty());
        // Root's process is not that of a VM of user 1000, whatever socket that names.
        assert!(of(10, Some(1000)).is_empty());
    }

    #[test]
    fn a_line_of_the_kernels_table_of_sockets_is_read() {
        let line = "00000000142e3b99: 00000002 00000000 00010000 0001 01 31336 /run/x.sock";
        assert_eq!(socket(line), Some((31336, ("/run/x.sock".to_owned(), true))));
        assert_eq!(socket("00000000142e3b99: 00000003 00000000 00000000 0001 03 149057"), None);
    }
}
