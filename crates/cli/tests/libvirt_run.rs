//! `homenode run --via libvirt` as a user meets it, with a real libvirtd, a real QEMU and real
//! guests.

use crate::common;
use crate::common::libvirtd::Libvirtd;
use crate::common::{REAL_VIRSH, lacks, left_in, tiny_guest, unique, within_seconds};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use vm::backend::ReachedBy;

/// A libvirtd, the tiny guest where its QEMU may read it, and a homenode that knows both.
pub(crate) struct Place {
    pub(crate) libvirtd: Libvirtd,
    runtime: tempfile::TempDir,
    guest: PathBuf,
}

impl Place {
    pub(crate) fn new(test: &str) -> Option<Self> {
        let built = tiny_guest(test)?.agent_program().parent().expect("a directory").to_owned();
        let libvirtd = Libvirtd::start(test)?;
        let guest = libvirtd.guest(test, &built)?;
        std::fs::create_dir(libvirtd.path().join("tmp")).expect("a directory");
        Some(Self { libvirtd, runtime: tempfile::tempdir().expect("a directory"), guest })
    }

    /// A spec of two virtual nodes that boots the tiny guest.
    fn spec(&self, name: &str) -> PathBuf {
        let path = self.libvirtd.path().join(format!("{name}.toml"));
        let nodes = "{ vcpus = 1, memory = \"192 MiB\" }, { vcpus = 1, memory = \"192 MiB\" }";
        let policy = format!("policy.virtual_nodes = [{nodes}]\npolicy.placement = \"together\"\n");
        let text = format!("name = \"{name}\"\nvcpus = 2\nmemory = \"384 MiB\"\n{policy}boot.from = \"tiny_guest\"\n");
        std::fs::write(&path, text).expect("a spec");
        path
    }

    pub(crate) fn homenode(&self, arguments: &[&str]) -> Command {
        let mut command = common::homenode_in(self.runtime.path(), arguments);
        command.env("HOMENODE_GUEST_DIR", &self.guest).env("TMPDIR", self.libvirtd.path().join("tmp"));
        command
    }

    /// `homenode run SPEC --via libvirt --connect` of this libvirtd.
    fn run(&self, spec: &Path, more: &[&str]) -> Output {
        let (spec, uri) = (spec.to_str().expect("UTF-8"), self.libvirtd.uri());
        let mut arguments = vec!["run", spec, "--via", "libvirt", "--connect", &uri];
        arguments.extend(more);
        self.homenode(&arguments).output().expect("homenode")
    }

    /// `homenode vm COMMAND NAME`, which must succeed.
    pub(crate) fn vm(&self, command: &str, name: &str, more: &[&str]) -> String {
        let arguments: Vec<&str> = ["vm", command, name].into_iter().chain(more.iter().copied()).collect();
        let output = self.homenode(&arguments).output().expect("homenode");
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Its row of `homenode vm list`.
    pub(crate) fn listed(&self, name: &str) -> serde_json::Value {
        let listed = self.homenode(&["vm", "list", "--json"]).output().expect("homenode");
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        let rows = listed["vms"].as_array().expect("an array");
        rows.iter().find(|row| row["name"] == name).cloned().unwrap_or_default()
    }

    pub(crate) fn record(&self, name: &str) -> inventory::Record {
        common::inventory_in(self.runtime.path()).read(name).expect("a record")
    }

    /// Files in the directory for temporary files: homenode leaves none there.
    fn written(&self) -> usize {
        std::fs::read_dir(self.libvirtd.path().join("tmp")).expect("a directory").count()
    }
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// CPUs as `virsh vcpupin` prints them, by vCPU.
fn pins(text: &str) -> Vec<String> {
    let row = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    text.lines()
        .filter(|line| line.trim_start().starts_with(|digit: char| digit.is_ascii_digit()))
        .filter_map(row)
        .collect()
}

#[test]
fn a_vm_runs_at_home_and_libvirt_keeps_it() {
    let test = "a_vm_runs_at_home_and_libvirt_keeps_it";
    let Some(place) = Place::new(test) else { return };
    let name = unique("hnlv");
    let spec = place.spec(&name);
    let output = place.run(&spec, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let residence: vm::Residence = serde_json::from_str(&stdout(&output)).expect("a residence");
    let libvirtd = &place.libvirtd;
    // What the kernel says of a process of libvirt's.
    assert_eq!(libvirtd.qemus(), [residence.pid]);
    assert!(residence.at_home, "{residence:?}");
    assert_eq!((residence.vcpus.len(), residence.memory.len()), (2, 2));
    for memory in &residence.memory {
        // 192 MiB, filled before the guest started, are 49152 pages of 4 KiB or 96 of 2 MiB.
        let bytes: u64 = memory.pages_by_node.values().sum::<u64>() * memory.page_bytes;
        assert_eq!((memory.unknown.as_deref(), bytes), (None, 192 << 20), "{memory:?}");
        assert_eq!(memory.policy, Some(format!("bind:{}", memory.home)));
    }

    // What libvirt says of it is the same.
    let pinned = pins(&libvirtd.virsh(&["vcpupin", &name]));
    let affinities: Vec<String> = residence.vcpus.iter().map(|vcpu| vcpu.affinity.to_string()).collect();
    assert_eq!(pinned, affinities);
    let xml = libvirtd.virsh(&["dumpxml", &name]);
    for memory in &residence.memory {
        let node = format!("<memnode cellid='{}' mode='strict' nodeset='{}'/>", memory.virtual_node, memory.home);
        assert!(xml.contains(&node), "{node} in {xml}");
    }
    assert!(libvirtd.virsh(&["numatune", &name]).contains("strict"));
    assert!(libvirtd.virsh(&["dominfo", &name]).contains("Persistent:     yes"));

    // It is counted, and libvirt's name is taken.
    let running = linux::examine_this_host().expect("/proc");
    let seen = running.vms.iter().find(|vm| vm.vm.name == name).expect("it runs");
    // homenode bound it, and may bind it anew: it is nobody else's choice.
    let is_chosen = seen.clients.iter().any(|client| client.chosen_nodes.is_some());
    assert_eq!((is_chosen, seen.placement), (false, vm::spec::Spread::Together), "{seen:?}");
    let again = place.run(&spec, &[]);
    assert_eq!(again.status.code(), Some(2));
    let taken = format!("{name} runs already");
    assert!(
        stderr(&again).contains(&name) && stderr(&again).contains(&residence.pid.to_string()),
        "{taken}: {again:?}"
    );

    // Another homenode, which does not keep it, says whose the name is.
    let elsewhere = tempfile::tempdir().expect("a directory");
    let uri = libvirtd.uri();
    let spec_path = spec.to_str().expect("UTF-8");
    let foreign = || {
        let arguments = ["run", spec_path, "--via", "libvirt", "--connect", &uri];
        let mut command = common::homenode_in(elsewhere.path(), &arguments);
        command.env("HOMENODE_GUEST_DIR", &place.guest).output().expect("homenode")
    };
    let words = stderr(&foreign());
    assert!(words.contains("is there already (running)") && words.contains("libvirt-sock' destroy "), "{words}");

    // Stopped through libvirt, it stays defined, and keeps its name; started, it runs.
    libvirtd.virsh(&["destroy", &name]);
    assert!(stderr(&foreign()).contains("is there already (shut off)"));
    assert_eq!(place.listed(&name)["state"], "stopped");
    libvirtd.virsh(&["start", &name]);
    assert_eq!((libvirtd.qemus().len(), place.listed(&name)["state"].as_str()), (1, Some("running")));
    place.vm("delete", &name, &["--force"]);
    assert_eq!((libvirtd.qemus(), libvirtd.virsh(&["list", "--all", "--name"]).trim()), (Vec::new(), ""));
}

/// One life through both: what `homenode vm` does, libvirt shows, and the other way round.
#[test]
fn a_vm_of_libvirt_is_kept_like_any_other() {
    let test = "a_vm_of_libvirt_is_kept_like_any_other";
    let Some(place) = Place::new(test) else { return };
    let (name, libvirtd) = (unique("hnlv-kept"), &place.libvirtd);
    let spec = place.spec(&name);
    let output = place.run(&spec, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(place.listed(&name)["state"], "running");
    let topology = place.record(&name).topology.expect("a topology");
    assert_eq!(topology.nodes.len(), 2);

    let state = || libvirtd.virsh(&["domstate", &name]).trim().to_owned();
    place.vm("pause", &name, &[]);
    assert_eq!(state(), "paused");
    libvirtd.virsh(&["resume", &name]);
    assert_eq!(place.listed(&name)["state"], "running");
    libvirtd.virsh(&["suspend", &name]);
    assert_eq!(place.listed(&name)["state"], "paused");
    place.vm("continue", &name, &[]);
    place.vm("reset", &name, &[]);
    assert_eq!(state(), "running");
    let shown = place.vm("show", &name, &[]);
    assert!(shown.contains("paused") && shown.contains("bind:") && shown.contains("reset"), "{shown}");

    place.vm("stop", &name, &["--force"]);
    assert_eq!((state().as_str(), place.listed(&name)["state"].as_str()), ("shut off", Some("stopped")));

    // What its owner changes stays; where it lives is planned anew. Two virtual nodes are for life.
    let definition = libvirtd.virsh(&["dumpxml", "--inactive", &name]);
    let owned = definition.replace("</devices>", "<watchdog model='i6300esb' action='reset'/></devices>");
    let other_home = owned.replace("<emulatorpin cpuset='", "<emulatorpin cpuset='0,");
    let file = libvirtd.path().join("owned.xml");
    std::fs::write(&file, other_home).expect("a file");
    libvirtd.virsh(&["define", file.to_str().expect("UTF-8")]);
    place.vm("start", &name, &[]);
    let now = libvirtd.virsh(&["dumpxml", "--inactive", &name]);
    assert!(now.contains("<watchdog model='i6300esb' action='reset'"), "{now}");
    let emulator = |xml: &str| xml.lines().find(|line| line.contains("<emulatorpin")).map(str::to_owned);
    assert_eq!(emulator(&now), emulator(&definition));
    assert_eq!(place.record(&name).topology.as_ref(), Some(&topology));
    assert_eq!(place.listed(&name)["state"], "running");

    // A start that fails changes nothing of it.
    place.vm("stop", &name, &["--force"]);
    let broken = now.replace(&topology.nodes[0].memory.0.to_string(), "");
    let kernel = broken.lines().find(|line| line.contains("<kernel>")).expect("a kernel").to_owned();
    std::fs::write(&file, now.replace(&kernel, "<kernel>/no/such/kernel</kernel>")).expect("a file");
    libvirtd.virsh(&["define", file.to_str().expect("UTF-8")]);
    let before = libvirtd.virsh(&["dumpxml", "--inactive", &name]);
    let failed = place.homenode(&["vm", "start", &name]).output().expect("homenode");
    assert!(failed.status.code() == Some(1) && stderr(&failed).contains("/no/such/kernel"), "{failed:?}");
    assert_eq!(libvirtd.virsh(&["dumpxml", "--inactive", &name]), before);
    assert_eq!(place.listed(&name)["state"], "stopped");

    // Ended, undefined: the record starts it anew. Deleted: nothing of it is left.
    libvirtd.virsh(&["undefine", &name]);
    place.vm("start", &name, &[]);
    assert_eq!((state().as_str(), libvirtd.qemus().len()), ("running", 1));
    let uuid = libvirtd.virsh(&["domuuid", &name]);
    let by = place.record(&name).life.backend;
    assert!(matches!(&by, ReachedBy::Libvirt(domain) if domain.uuid == uuid.trim()), "{by:?} {uuid}");
    place.vm("delete", &name, &["--force"]);
    assert_eq!((libvirtd.qemus(), libvirtd.virsh(&["list", "--all", "--name"]).trim()), (Vec::new(), ""));
}

#[test]
fn a_guest_of_libvirt_sees_the_nodes_that_were_planned_and_leaves_nothing() {
    let name = unique("hnlv-check");
    let test = "a_guest_of_libvirt_sees_the_nodes_that_were_planned_and_leaves_nothing";
    let Some(place) = Place::new(test) else { return };
    let output = place.run(&place.spec(&name), &["--check"]);
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    let seen = said.split_once("the guest sees:").expect("both reports").1;
    assert!(seen.contains("node 1: CPUs 1") && seen.contains("2 sockets"), "{said}");
    assert!(said.contains("the guest sees the planned machine"), "{said}");
    assert_eq!(place.libvirtd.virsh(&["list", "--all", "--name"]).trim(), "");
    assert_eq!((place.libvirtd.qemus(), place.written()), (Vec::new(), 0));
}

#[test]
fn what_cannot_be_started_leaves_nothing() {
    let disk_name = unique("hnlv-disk");
    let name = unique("hnlv-closed");
    let test = "what_cannot_be_started_leaves_nothing";
    let Some(place) = Place::new(test) else { return };
    let spec = place.spec(&name);
    let nothing_is_left = || {
        assert_eq!(place.libvirtd.virsh(&["list", "--all", "--name"]).trim(), "");
        assert_eq!((place.libvirtd.qemus(), place.written()), (Vec::new(), 0));
    };
    // A dry run prints what libvirt would get, and writes nothing.
    let dry = place.run(&spec, &["--dry-run"]);
    assert!(dry.status.success() && stdout(&dry).contains(&format!("<name>{name}</name>")), "{}", stderr(&dry));
    nothing_is_left();

    // An image that is not what the spec says it is: QEMU ends at once.
    let image = place.libvirtd.path().join("disk.img");
    std::fs::write(&image, vec![0_u8; 1 << 20]).expect("an image");
    let with_disk = place.libvirtd.path().join("with-disk.toml");
    let text = format!(
        "name = \"{disk_name}\"\nvcpus = 1\nmemory = \"64 MiB\"\nboot.from = \"disk\"\n[[disk]]\npath = \"{}\"\nformat = \"qcow2\"\nread_only = true\n",
        image.display()
    );
    std::fs::write(&with_disk, text).expect("a spec");
    let output = place.run(&with_disk, &[]);
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("not in qcow2 format"), "{}", stderr(&output));
    nothing_is_left();

    // Nobody but root, as whom the daemon does not run, may read the kernel.
    if linux::sys::effective_user_id() == 0 {
        let closed = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).expect("permissions");
        let kernel = closed.path().join("vmlinux");
        std::fs::copy(place.guest.join("vmlinux"), &kernel).expect("a copy");
        let output = place.run(&spec, &["--kernel", kernel.to_str().expect("UTF-8")]);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains("Permission denied") && said.contains("a user of its own"), "{said}");
        nothing_is_left();
    } else {
        eprintln!("SKIPPED part of {test}: only root has files that the daemon may not read");
    }
}

#[test]
fn a_homenode_that_is_killed_leaves_no_definition_behind() {
    let name = unique("hnlv-killed");
    let test = "a_homenode_that_is_killed_leaves_no_definition_behind";
    let Some(place) = Place::new(test) else { return };
    let (spec, uri) = (place.spec(&name), place.libvirtd.uri());
    let arguments = ["run", spec.to_str().expect("UTF-8"), "--via", "libvirt", "--connect", &uri, "--check"];
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("homenode");
    let mut child = quiet(&mut place.homenode(&arguments));
    // It ends the VM of a --check before the first word of the guest, which takes seconds.
    assert!(within_seconds(120, || !place.libvirtd.qemus().is_empty()), "no QEMU");
    child.kill().expect("SIGKILL");
    child.wait().expect("a child");
    // Nobody asked libvirt to keep it: with its process it is gone.
    let persistent = place.libvirtd.virsh(&["list", "--all", "--persistent", "--name"]);
    assert_eq!(persistent.trim(), "");
    let gone = || {
        // It may be in the making still, and then not to be ended yet.
        let _ = place.libvirtd.try_virsh(&["destroy", &name]);
        place.libvirtd.virsh(&["list", "--all", "--name"]).trim().is_empty()
    };
    assert!(within_seconds(120, gone));

    // A polite end takes the VM along.
    let mut child = quiet(&mut place.homenode(&arguments));
    assert!(within_seconds(120, || !place.libvirtd.qemus().is_empty()), "no QEMU");
    linux::sys::ProcessHandle::open(child.id()).expect("a process").signal(15).expect("SIGTERM");
    child.wait().expect("a child");
    assert!(within_seconds(120, || place.libvirtd.qemus().is_empty()), "QEMU runs on");
    assert_eq!(place.written(), 0);
    assert_eq!(place.libvirtd.virsh(&["list", "--all", "--name"]).trim(), "");
}

#[test]
fn a_vm_whose_start_was_not_reported_is_ended() {
    let name = unique("hnlv-unheard");
    let test = "a_vm_whose_start_was_not_reported_is_ended";
    let Some(place) = Place::new(test) else { return };
    let (spec, uri) = (place.spec(&name), place.libvirtd.uri());
    let bin = tempfile::tempdir().expect("a directory");
    let begun = bin.path().join("begun");
    // As when libvirtd is started anew right then.
    let broken = "echo 'error: End of file while reading data: Input/output error' >&2; exit 1";
    let create = format!("({REAL_VIRSH}) && : > '{}'; {broken}", begun.display());
    let path =
        common::path_with_virsh(bin.path(), &format!("case \" $* \" in *' create '*) {create};; esac\n{REAL_VIRSH}"));
    let arguments = ["run", spec.to_str().expect("UTF-8"), "--via", "libvirt", "--connect", &uri];
    let output = place.homenode(&arguments).env("PATH", path).output().expect("homenode");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(begun.exists() && stderr(&output).contains("End of file while reading data"), "{}", stderr(&output));
    assert_eq!(place.libvirtd.virsh(&["list", "--all", "--name"]).trim(), "");
    assert_eq!((place.libvirtd.qemus(), place.written()), (Vec::new(), 0));
}

#[test]
fn a_signal_while_libvirt_takes_a_vm_over_does_not_part_them() {
    let name = unique("hnlv-late");
    let test = "a_signal_while_libvirt_takes_a_vm_over_does_not_part_them";
    let Some(place) = Place::new(test) else { return };
    let (spec, uri) = (place.spec(&name), place.libvirtd.uri());
    let bin = tempfile::tempdir().expect("a directory");
    let (begun, go) = (bin.path().join("begun"), bin.path().join("go"));
    // Defines the domain only when it is told to; by itself after a few minutes.
    let wait = format!("for i in $(seq 1200); do [ -e '{}' ] || sleep 0.1; done", go.display());
    let script = format!("case \" $* \" in *' define '*) : > '{}'; {wait};; esac\n{REAL_VIRSH}", begun.display());
    let path = common::path_with_virsh(bin.path(), &script);
    let arguments = ["run", spec.to_str().expect("UTF-8"), "--via", "libvirt", "--connect", &uri];
    let mut command = place.homenode(&arguments);
    let mut child = command.env("PATH", path).stdout(Stdio::null()).spawn().expect("homenode");
    assert!(within_seconds(120, || begun.exists()), "libvirt is not asked to keep the VM");
    linux::sys::ProcessHandle::open(child.id()).expect("a process").signal(15).expect("SIGTERM");
    std::fs::write(&go, "").expect("a file");
    assert!(child.wait().expect("a child").success());
    assert_eq!(place.libvirtd.virsh(&["list", "--persistent", "--name"]).trim(), name);
    assert_eq!((place.libvirtd.qemus().len(), place.written()), (1, 0));
}

#[test]
fn a_libvirt_that_cannot_be_used_is_said_and_nothing_is_written() {
    let test = "a_libvirt_that_cannot_be_used_is_said_and_nothing_is_written";
    if lacks(test, "virsh") {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let spec = place.path().join("vm.toml");
    let text = "name = \"hnlv-nobody\"\nvcpus = 1\nmemory = \"64 MiB\"\nboot.from = \"tiny_guest\"\n";
    std::fs::write(&spec, text).expect("a spec");
    let run = |uri: &str, path: Option<&str>| {
        let arguments = ["run", spec.to_str().expect("UTF-8"), "--via", "libvirt", "--connect", uri];
        let mut command = common::homenode_in(&place.path().join("runtime"), &arguments);
        path.map(|path| command.env("PATH", path));
        let output = command.output().expect("homenode");
        (output.status.code(), stderr(&output))
    };
    let said = |uri: &str, code: i32, words: &[&str]| {
        let (found, text) = run(uri, None);
        assert_eq!(found, Some(code), "{uri}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{uri}: {text}");
    };
    said("::::", 2, &["::::", "qemu:///system"]);
    said("qemu+unix:///session?socket=/no/such/socket", 1, &["no libvirt answers", "systemctl"]);
    said("qemu+ssh://somewhere/system", 2, &["libvirt of somewhere", "this host only", "--emit libvirt"]);
    said("test:///default", 1, &["test:///default"]);
    if let Some(closed) = Libvirtd::start_refusing(test) {
        said(&closed.uri(), 1, &["this user may not use it", "authentication failed", "group libvirt"]);
    }
    let (code, text) = run("qemu:///system", Some("/no/bin"));
    assert_eq!(code, Some(1));
    assert!(text.contains("virsh cannot be started") && text.contains("libvirt-clients"), "{text}");
    assert_eq!(left_in(&place.path().join("runtime")), [""; 0]);
}
