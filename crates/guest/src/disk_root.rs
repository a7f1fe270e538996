//! A guest with a distribution's programs: its root file system is a disk.
//!
//! **Problem.** Programs need their libraries, `/tmp`, a host name, a process that buries orphans.
//! An init of a distribution gives all that, and takes 10 s of a boot under emulation; and an agent
//! that is part of an image is as old as the image.
//!
//! **Rule.** Process 1 comes out of the initial RAM disk, as in every tiny guest. Where the
//! kernel's command line says `homenode.root=DEVICE` it mounts that disk, makes it the root, mounts
//! what programs expect, and starts this program again as the agent. From then on it only buries
//! orphans, and ends the guest when the agent has ended or the power button is pressed.
//!
//! **Properties.** The agent is the one that homenode brought, whatever the disk holds. All that
//! runs is asked to end before the guest powers off.

use anyhow::{Context, bail};
use linux::{GUEST_ENVIRONMENT, GUEST_FILES, sys};
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The words of the kernel's command line: the disk, and what the guest is called.
const ROOT: &str = "homenode.root=";
const NAME: &str = "homenode.name=";
/// How long the driver of a disk that is there may take to announce it: a large guest under TCG is
/// slow.
const DISK_WITHIN: Duration = Duration::from_secs(20);
/// How long programs may take to end when the guest does.
const END_WITHIN: Duration = Duration::from_secs(2);
/// What the kernel's command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    device: String,
    name: String,
}

impl Wanted {
    /// `None`: the guest has no disk of its own.
    pub(crate) fn of(command_line: &str) -> Option<Self> {
        let word = |begin: &str| command_line.split_whitespace().find_map(|word| word.strip_prefix(begin));
        let device = word(ROOT)?.to_owned();
        Some(Self { device, name: word(NAME).unwrap_or("homenode").to_owned() })
    }
}

/// Goes there, starts the agent, and returns when the guest is to end.
pub(crate) fn go_and_serve(wanted: &Wanted) -> anyhow::Result<()> {
    go(&wanted.device)?;
    prepare(&wanted.name);
    let agent = Command::new("/proc/self/exe").arg("--in-guest").env_clear().envs(GUEST_ENVIRONMENT).spawn();
    let agent = agent.context("the agent cannot be started")?.id();
    // One that cannot wait for its children has none left.
    while let Ok(Some(ended)) = sys::wait_for_any_child()
        && ended.pid != agent
    {}
    Ok(())
}

/// Asks all programs to end, and gives them some time for it.
pub(crate) fn end_programs() {
    sys::ask_all_to_end();
    let deadline = Instant::now() + END_WITHIN;
    // Kernel threads have no command line.
    let runs = |id: &str| fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|words| !words.is_empty());
    let is_process = |id: &str| id != "1" && id.bytes().all(|byte| byte.is_ascii_digit());
    while Instant::now() < deadline {
        let Ok(entries) = fs::read_dir("/proc") else { return };
        let mut ids = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        if !ids.any(|id| is_process(&id) && runs(&id)) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn go(device: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + DISK_WITHIN;
    while !Path::new(device).exists() {
        if Instant::now() > deadline {
            bail!("there is no disk {device}, which should hold the root file system");
        }
        thread::sleep(Duration::from_millis(5));
    }
    fs::create_dir_all("/root-disk").context("cannot make /root-disk")?;
    sys::mount_disk(&CString::new(device)?, c"/root-disk")
        .with_context(|| format!("{device} holds no root file system: an ext4 without partitions is needed"))?;
    for name in ["dev", "proc", "sys", "run", "tmp", "root"] {
        // One that is read-only has them, or says below what it lacks.
        let _ = fs::create_dir_all(Path::new("/root-disk").join(name));
    }
    sys::mount(c"tmpfs", c"/root-disk/run").context("cannot mount /run")?;
    bring().context("cannot bring the experiment's files")?;
    sys::go_to_root(c"/root-disk", &["dev", "proc", "sys"]).with_context(|| format!("cannot go to {device}"))
}

/// Shows what the initial RAM disk holds for the programs of the disk.
fn bring() -> anyhow::Result<()> {
    if !Path::new(GUEST_FILES).is_dir() {
        return Ok(());
    }
    let there = format!("/root-disk{GUEST_FILES}");
    fs::create_dir_all(&there)?;
    Ok(sys::show_directory(&CString::new(GUEST_FILES)?, &CString::new(there)?)?)
}

/// What programs expect. What cannot be had is said on the console: many need none of it.
fn prepare(name: &str) {
    let say = |what: &str, done: std::io::Result<()>| {
        if let Err(error) = done {
            println!("homenode-guest: {what}: {error}");
        }
    };
    for (kind, on, directory) in [(c"tmpfs", c"/dev/shm", "/dev/shm"), (c"devpts", c"/dev/pts", "/dev/pts")] {
        say(directory, fs::create_dir_all(directory).and_then(|()| sys::mount(kind, on)));
    }
    say("host name", sys::set_host_name(name));
    say("loopback interface", sys::bring_up_loopback());
    say("/etc/hosts", know_name(Path::new("/etc/hosts"), name));
}

/// A machine must find its own name: MPI looks it up.
fn know_name(hosts: &Path, name: &str) -> std::io::Result<()> {
    let known = fs::read_to_string(hosts).unwrap_or_default();
    let has = |wanted: &str| known.lines().any(|line| line.split_whitespace().skip(1).any(|word| word == wanted));
    let missing: Vec<&str> = ["localhost", name].into_iter().filter(|wanted| !has(wanted)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let end = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
    fs::write(hosts, format!("{known}{end}127.0.0.1 {}\n", missing.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_says_which_disk_and_which_name() {
        let wanted = |line: &str| Wanted::of(line).map(|wanted| (wanted.device, wanted.name));
        let of = |device: &str, name: &str| Some((device.to_owned(), name.to_owned()));
        assert_eq!(wanted("quiet homenode.root=/dev/vda homenode.name=web"), of("/dev/vda", "web"));
        assert_eq!(wanted("homenode.root=/dev/vda"), of("/dev/vda", "homenode"));
        assert_eq!(wanted("root=/dev/vda"), None);
    }

    #[test]
    fn a_name_is_added_once_and_what_stood_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = directory.path().join("hosts");
        fs::write(&hosts, "127.0.0.1 localhost").unwrap();
        know_name(&hosts, "web").unwrap();
        know_name(&hosts, "web").unwrap();
        assert_eq!(fs::read_to_string(&hosts).unwrap(), "127.0.0.1 localhost\n127.0.0.1 web\n");
        fs::remove_file(&hosts).unwrap();
        know_name(&hosts, "web").unwrap();
        assert_eq!(fs::read_to_string(&hosts).unwrap(), "127.0.0.1 localhost web\n");
    }
}
