//! Whom QEMU runs as, with a real QEMU: what the kernel says of its process, what it may not open,
//! and what a guest that broke out of it could do.

use crate::common::{Place, left_in, no_qemu, said_in, tiny_guest, unique, within_seconds};
use linux::sys::Credentials;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use vm::qemu_user::RESERVED;

impl Place {
    /// A VM that boots an empty disk, which it only reads; `first` are lines before its tables.
    fn read_only_spec(&self, name: &str, first: &str) -> String {
        let head = format!("name = \"{name}\"\nvcpus = 1\nmemory = \"64 MiB\"\nboot.from = \"disk\"\n{first}\n");
        let console = "console = { to = \"file\", path = \"console.log\" }\n";
        let disk = "[[disk]]\npath = \"disk.img\"\nformat = \"raw\"\nread_only = true\n";
        self.write(name, &format!("{head}{console}{disk}"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(&format!("{name}.toml"));
        std::fs::write(&path, text).expect("a spec");
        path.to_str().expect("UTF-8").to_owned()
    }

    fn said(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        said_in(&self.runtime(), arguments)
    }

    /// Starts it in the background: its process.
    fn start(&self, name: &str, spec: &str) -> u32 {
        let (code, _, errors) = self.said(&["run", spec, "--daemonize"]);
        assert_eq!(code, Some(0), "{errors}");
        let running = linux::examine_this_host().expect("/proc");
        running.vms.iter().find(|seen| seen.vm.name == name).expect("it runs").vm.pid
    }

    fn stop(&self, name: &str) {
        let (code, _, errors) = self.said(&["vm", "stop", name, "--force"]);
        assert_eq!((code, left_in(&self.runtime()).len()), (Some(0), 0), "{errors}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed leaves its VM to nobody.
        for name in left_in(&self.runtime()) {
            let _ = self.said(&["vm", "stop", &name, "--force"]);
        }
    }
}

/// Whether a test cannot run: it needs a QEMU, and root with root's rights.
fn not_root(test: &str) -> bool {
    let missing = linux::capabilities::missing_to_start_as_another();
    if let Some(missing) = missing {
        eprintln!("SKIPPED {test}: it takes root with {missing}");
    }
    missing.is_some() || no_qemu(test)
}

/// Words of a line of `/proc/PID/status`.
fn status(pid: u32, field: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("the field");
    line.split_whitespace().map(str::to_owned).collect()
}

/// The group of `/dev/kvm`, where it lets one in.
fn kvm_groups() -> Vec<String> {
    let device = Path::new("/dev/kvm").metadata().ok();
    let open = device.filter(|device| device.mode() & 0o060 == 0o060 && device.gid() != 0);
    open.map(|device| device.gid().to_string()).into_iter().collect()
}

#[test]
fn the_qemu_of_root_is_a_user_of_its_own_without_any_right_of_roots() {
    if not_root("the_qemu_of_root_is_a_user_of_its_own_without_any_right_of_roots") {
        return;
    }
    let place = Place::new();
    let (name, secret) = (unique("own-user"), place.path("secret"));
    std::fs::write(&secret, "").expect("a file");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("a mode");
    // What is open in whoever starts it, and what is in its environment, must not reach QEMU.
    let (homenode, spec) = (env!("CARGO_BIN_EXE_homenode"), place.read_only_spec(&name, ""));
    let shell = format!("exec 9<'{}'; exec '{homenode}' run '{spec}' --daemonize", secret.display());
    let mut command = Command::new("sh");
    command.args(["-c", &shell]).env("HOMENODE_RUNTIME_DIR", place.runtime()).env("TOKEN", "secret");
    let output = command.output().expect("sh");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let running = linux::examine_this_host().expect("/proc");
    let seen = running.vms.iter().find(|seen| seen.vm.name == name).expect("it runs");
    let pid = seen.vm.pid;

    let user: u32 = status(pid, "Uid")[0].parse().expect("a number");
    let account = linux::sys::account_named(vm::qemu_user::ACCOUNT).expect("accounts");
    match &account {
        Some(account) => assert_eq!(user, account.user),
        None => {
            assert!(RESERVED.contains(&user), "{user}");
            assert_eq!(status(pid, "Gid"), vec![user.to_string(); 4]);
            assert_eq!(status(pid, "Groups"), kvm_groups());
        }
    }
    assert_eq!(status(pid, "Uid"), vec![user.to_string(); 4]);
    for capabilities in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, capabilities), ["0000000000000000"], "{capabilities}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), ["1"]);
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("its environment");
    assert!(environment.starts_with(b"PATH=") && !environment.windows(5).any(|word| word == b"TOKEN"));
    let open = |descriptor: std::fs::DirEntry| std::fs::read_link(descriptor.path()).ok();
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    assert!(!descriptors.filter_map(open).any(|file| file == secret));

    // Root's homenode does with it what it does with any VM of its own.
    assert!(vm::qemu_user::is_of_root(user, account.map(|account| account.user)));
    assert!(place.said(&["vm", "list"]).1.contains(&name));
    assert_eq!(place.path("console.log").metadata().expect("its console").uid(), 0);
    place.stop(&name);
    assert!(within_seconds(10, || !Path::new(&format!("/proc/{pid}")).exists()));
}

#[test]
fn a_spec_names_the_user_and_root_is_one() {
    if not_root("a_spec_names_the_user_and_root_is_one") {
        return;
    }
    let place = Place::new();
    for user in ["60999", "root"] {
        let name = unique(&format!("as-{user}"));
        let pid = place.start(&name, &place.read_only_spec(&name, &format!("run_as = \"{user}\"")));
        assert_eq!(status(pid, "Uid")[1], if user == "root" { "0" } else { user });
        place.stop(&name);
    }
}

#[test]
fn a_disk_that_is_closed_to_qemus_user_is_bad_input_and_starts_nothing() {
    if not_root("a_disk_that_is_closed_to_qemus_user_is_bad_input_and_starts_nothing") {
        return;
    }
    let place = Place::new();
    let name = unique("closed");
    let refused = |spec: &str, words: &[&str]| {
        let (code, printed, errors) = place.said(&["run", spec, "--daemonize"]);
        assert_eq!((code, printed.as_str(), left_in(&place.runtime()).len()), (Some(2), "", 0), "{errors}");
        for word in words {
            assert!(errors.contains(word), "{word} in {errors}");
        }
    };
    // It may be read: enough for a disk that is never written, and not for another.
    let spec = place.read_only_spec(&name, "run_as = \"60999\"");
    let text = std::fs::read_to_string(&spec).expect("the spec");
    place.write(&name, &text.replace("read_only = true", ""));
    let words = ["disk[0].path", "disk.img", "Permission denied", "user 60999", "setfacl -m u:60999:rw", "\"root\""];
    refused(&spec, &words);
    place.read_only_spec(&name, "");
    std::fs::set_permissions(place.path("disk.img"), Permissions::from_mode(0o600)).expect("a mode");
    refused(&spec, &["disk[0].path", "setfacl", ":r FILE"]);
    // Nor where the directory above is closed.
    std::fs::set_permissions(place.path("disk.img"), Permissions::from_mode(0o644)).expect("a mode");
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o700)).expect("a mode");
    refused(&spec, &["disk[0].path", "x on the directories above"]);
}

#[test]
fn only_root_starts_a_vm_as_another_user() {
    let test = "only_root_starts_a_vm_as_another_user";
    if no_qemu(test) || crate::common::lacks(test, "setpriv") {
        return;
    }
    let place = Place::new();
    let spec = place.read_only_spec(&unique("other"), "run_as = \"60999\"");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    if linux::sys::effective_user_id() == 0 {
        command = Command::new("setpriv");
        command.args(["--reuid=60998", "--regid=60998", "--clear-groups", "--", env!("CARGO_BIN_EXE_homenode")]);
        std::fs::create_dir(place.runtime()).expect("a directory");
        std::os::unix::fs::chown(place.runtime(), Some(60_998), Some(60_998)).expect("an owner");
    }
    let output = command.args(["run", &spec]).env("HOMENODE_RUNTIME_DIR", place.runtime()).output().expect("homenode");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() != Some(2) && said.contains("Permission denied") {
        return eprintln!("SKIPPED {test}: another user cannot reach homenode here");
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("run_as = \"60999\": only root may start a VM as another user"), "{said}");
    assert_eq!(left_in(&place.runtime()), Vec::<String>::new());
}

/// Who broke out of QEMU has its user and its descriptors, the VM's directory among them.
#[test]
fn who_broke_out_of_qemu_changes_nothing_that_root_reads_or_removes() {
    let test = "who_broke_out_of_qemu_changes_nothing_that_root_reads_or_removes";
    if not_root(test) || crate::common::lacks(test, "setpriv") {
        return;
    }
    let place = Place::new();
    let name = unique("breakout");
    // All may pass: only the VM's own directory is in the way.
    let pid = place.start(&name, &place.read_only_spec(&name, "run_as = \"60997\""));
    let directory = place.runtime().join(&name);
    std::fs::set_permissions(place.runtime(), Permissions::from_mode(0o755)).expect("a mode");
    let victim = place.path("victim");
    std::fs::write(&victim, "kept").expect("a file");
    let descriptor = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let mut of_directory = descriptor.map(|entry| entry.path());
    let of_directory =
        of_directory.find(|path| std::fs::read_link(path).is_ok_and(|to| to == directory)).expect("its lock");
    let before: Vec<String> = left_in(&directory);
    for way in [&directory, &of_directory] {
        let attack = format!(
            "cd '{way}' && echo in; ls '{way}' && echo seen; rm -f '{way}/messages' && ln -s '{victim}' \
            '{way}/messages' && echo linked; \
             mkfifo '{way}/state.json.new' && echo made; : > '{way}/state.json' && echo written",
            way = way.display(),
            victim = victim.display(),
        );
        let mut command = Command::new("setpriv");
        command.args(["--reuid=60997", "--regid=60997", "--clear-groups", "--", "sh", "-c", &attack]);
        let output = command.output().expect("setpriv");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(left_in(&directory), before);
    let user = Credentials { user: 60_997, group: 60_997, groups: Vec::new() };
    for name in &before {
        assert!(linux::sys::opens_as(&user, &directory.join(name), false).is_err(), "{name}");
    }
    std::fs::set_permissions(place.runtime(), Permissions::from_mode(0o700)).expect("a mode");
    place.stop(&name);
    assert_eq!(std::fs::read_to_string(&victim).expect("a file"), "kept");
}

#[test]
fn a_kernel_in_a_directory_that_is_closed_to_qemus_user_is_handed_over() {
    let test = "a_kernel_in_a_directory_that_is_closed_to_qemus_user_is_handed_over";
    if not_root(test) {
        return;
    }
    let Some(guest) = tiny_guest(test) else { return };
    let (place, closed) = (Place::new(), tempfile::tempdir().expect("a directory"));
    std::fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).expect("a mode");
    let kernel = closed.path().join("vmlinux");
    std::fs::copy(guest.kernel(), &kernel).expect("a copy");
    let name = unique("handed");
    let head = format!("name = \"{name}\"\nvcpus = 1\nmemory = \"256 MiB\"\nrun_as = \"60996\"\n");
    let boot = format!("[boot]\nfrom = \"kernel\"\nkernel = \"{}\"\n", kernel.display());
    let pid = place.start(&name, &place.write(&name, &format!("{head}{boot}")));
    let words = linux::process::command_line(pid).expect("its arguments");
    let kernel = words.iter().position(|word| word == "-kernel").expect("a kernel");
    assert!(words[kernel + 1].starts_with("/proc/self/fd/"), "{words:?}");
    place.stop(&name);
}
