//! A real libvirtd of the tests' own: session mode, everything it writes in one directory, as an
//! unprivileged user where the tests run as root. It ends with the value, and its VMs with it; if
//! the tests are killed, the kernel ends it.
//!
//! Tests of other crates use it too: `#[path = "../../cli/tests/common/libvirtd.rs"] mod
//! libvirtd;`.

#![allow(dead_code, reason = "not every crate uses all of it")]

use linux::sys::{ChildSetup, ProcessHandle, Tie};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long the daemon may take until it answers.
const READY: Duration = Duration::from_secs(120);
const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

pub(crate) struct Libvirtd {
    directory: tempfile::TempDir,
    daemon: Child,
}

impl Libvirtd {
    /// Starts it and waits until it answers. `None`, with a word on standard error, where libvirt
    /// is not installed.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let mut this = Self::begin(test, "")?;
        this.wait_until(|this| this.try_virsh(&["uri"]).status.success());
        Some(this)
    }

    /// One that lets nobody in: it asks for a password that nobody has.
    pub(crate) fn start_refusing(test: &str) -> Option<Self> {
        let mut this = Self::begin(test, "auth_unix_rw = \"sasl\"\nauth_unix_ro = \"sasl\"\n")?;
        this.wait_until(|this| std::os::unix::net::UnixStream::connect(this.socket()).is_ok());
        Some(this)
    }

    fn begin(test: &str, settings: &str) -> Option<Self> {
        for program in ["libvirtd", "virsh", "setpriv", "qemu-system-x86_64"] {
            if program_in_path(program).is_none() {
                eprintln!("SKIPPED {test}: no {program}");
                return None;
            }
        }
        let directory = tempfile::Builder::new().prefix("hnvirt").tempdir().expect("a directory");
        // The user of its QEMU reads files there.
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("permissions");
        let user = unprivileged();
        for name in ["run", "config", "config/libvirt", "cache", "data"] {
            let path = directory.path().join(name);
            DirBuilder::new().mode(0o700).create(&path).expect("a directory");
            if let Some((uid, gid)) = user {
                chown(&path, Some(uid), Some(gid)).expect("an owner");
            }
        }
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
        // Without virtlogd, and without a security driver of the system's.
        write("config/libvirt/qemu.conf", "stdio_handler = \"file\"\nsecurity_driver = \"none\"\n");
        let log = directory.path().join("data/log");
        // Of one host each: libvirt sends no domain to the host that it is on.
        let host = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a UUID");
        let host = format!("host_uuid = \"{}\"\n", host.trim());
        write("libvirtd.conf", &format!("log_outputs = \"3:file:{}\"\n{host}{settings}", log.display()));
        let daemon = daemon(directory.path(), user);
        Some(Self { directory, daemon })
    }

    fn wait_until(&mut self, ready: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + READY;
        while !ready(self) {
            let ended = self.daemon.try_wait().expect("a child");
            assert!(ended.is_none(), "libvirtd ended: {ended:?}\n{}", self.log());
            assert!(Instant::now() < deadline, "libvirtd does not answer\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What it says of itself.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("data/log")).unwrap_or_default()
    }

    /// For `--connect`.
    pub(crate) fn uri(&self) -> String {
        format!("qemu+unix:///session?socket={}", self.socket().display())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("run/libvirt/libvirt-sock")
    }

    /// Where it writes the numbers of its VMs' processes.
    pub(crate) fn pid_files(&self) -> PathBuf {
        self.path().join("run/libvirt/qemu/run")
    }

    /// The user that it runs as.
    pub(crate) fn user(&self) -> u32 {
        unprivileged().map_or_else(linux::sys::effective_user_id, |(user, _)| user)
    }

    /// A directory whose files its QEMU may read.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The spec of a VM of two virtual nodes of a vCPU and 32 MiB each, which may each grow by a
    /// vCPU and to so many MiB. Its disk is here, and its firmware finds nothing to boot on it.
    pub(crate) fn growing_spec(&self, name: &str, most_mib: u64) -> String {
        let disk = self.path().join(format!("{name}.img"));
        std::fs::write(&disk, vec![0_u8; 1 << 20]).expect("a disk");
        std::fs::set_permissions(&disk, Permissions::from_mode(0o666)).expect("permissions");
        let node = format!("{{ vcpus = 1, memory = \"32 MiB\", max_vcpus = 2, max_memory = \"{most_mib} MiB\" }}");
        format!(
            "name = \"{name}\"\nvcpus = 2\nmax_vcpus = 4\nmemory = \"64 MiB\"\nmax_memory = \"{} MiB\"\n\
             policy.virtual_nodes = [{node}, {node}]\nboot.from = \"disk\"\n\
             [[disk]]\npath = \"{}\"\nformat = \"raw\"\n",
            2 * most_mib,
            disk.display()
        )
    }

    /// Stops the daemon, so that it answers nobody.
    pub(crate) fn stop_daemon(&self) {
        ProcessHandle::open(self.daemon.id()).and_then(|daemon| daemon.signal(SIGSTOP)).expect("a process to stop");
    }

    /// Ends the daemon alone: its VMs run on, without a manager.
    pub(crate) fn end_daemon(&mut self) {
        self.daemon.kill().expect("a process to end");
        self.daemon.wait().expect("a child");
    }

    /// What `virsh` prints; it must succeed.
    pub(crate) fn virsh(&self, command: &[&str]) -> String {
        let output = self.try_virsh(command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "virsh {command:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What becomes of a `virsh`.
    pub(crate) fn try_virsh(&self, command: &[&str]) -> Output {
        let mut virsh = Command::new("virsh");
        virsh.args(["--quiet", "--connect", &self.uri()]).args(command).env("LC_ALL", "C").stdin(Stdio::null());
        virsh.output().expect("virsh")
    }

    /// Starts a transient domain from its XML.
    pub(crate) fn create(&self, xml: &str) {
        let path = self.path().join("domain.xml");
        std::fs::write(&path, xml).expect("a file");
        self.virsh(&["create", "--file", path.to_str().expect("UTF-8")]);
    }

    /// The tiny guest's files, copied to where its QEMU may read them: for `HOMENODE_GUEST_DIR`.
    /// `None`, with a word on standard error, where they were not built.
    pub(crate) fn guest(&self, test: &str, built: &Path) -> Option<PathBuf> {
        if !built.join("vmlinux").is_file() {
            eprintln!("SKIPPED {test}: no tiny guest; run scripts/guest-image");
            return None;
        }
        let copy = self.path().join("guest");
        let status = Command::new("cp").arg("-rL").arg(built).arg(&copy).status().expect("cp");
        assert!(status.success(), "the tiny guest cannot be copied");
        let status = Command::new("chmod").args(["-R", "a+rX"]).arg(&copy).status().expect("chmod");
        assert!(status.success(), "the tiny guest cannot be made readable");
        Some(copy)
    }

    /// Its QEMU processes: those that have a file below its directory on their command line.
    pub(crate) fn qemus(&self) -> Vec<u32> {
        let below = self.path().display().to_string();
        let ours = |pid: &u32| {
            let words = linux::process::command_line(*pid).unwrap_or_default();
            words.first().is_some_and(|program| vm::qemu::is_qemu(program))
                && words.iter().any(|word| word.contains(&below))
        };
        linux::process::all().unwrap_or_default().into_iter().filter(ours).collect()
    }
}

impl Drop for Libvirtd {
    fn drop(&mut self) {
        // The daemon first: it starts nothing more then. Both may have ended by themselves.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        for pid in self.qemus() {
            let _ = ProcessHandle::open(pid).and_then(|qemu| qemu.signal(SIGKILL));
        }
    }
}

/// Whom the daemon runs as: nobody where we are root, else ourselves.
fn unprivileged() -> Option<(u32, u32)> {
    let number = |option: &str| {
        let output = Command::new("id").args([option, "nobody"]).output().expect("id");
        String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().expect("a user named nobody")
    };
    (linux::sys::effective_user_id() == 0).then(|| (number("-u"), number("-g")))
}

fn daemon(directory: &Path, user: Option<(u32, u32)>) -> Child {
    let mut command = Command::new("setpriv");
    if let Some((uid, gid)) = user {
        command.args([&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups"]);
    }
    // Set again by setpriv: the kernel forgets the signal when the user changes.
    command.args(["--pdeathsig", "KILL", "--"]).arg(program_in_path("libvirtd").expect("it was found before"));
    command.arg("-f").arg(directory.join("libvirtd.conf"));
    command.env("HOME", directory).env("XDG_RUNTIME_DIR", directory.join("run"));
    command.env("XDG_CONFIG_HOME", directory.join("config")).env("XDG_CACHE_HOME", directory.join("cache"));
    command.env("XDG_DATA_HOME", directory.join("data"));
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user: None };
    linux::sys::spawn(command, setup).expect("setpriv")
}

/// Daemons are where an ordinary user's PATH does not look.
fn program_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|directory| directory.join(program)).find(|path| path.exists())
}
