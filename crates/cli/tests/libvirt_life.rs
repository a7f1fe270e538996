//! The life of a VM that libvirt runs, as a user meets it: into a file and on, to another libvirt,
//! larger. Real libvirtds, real QEMUs; their firmware finds nothing to boot, and waits.

use crate::common::libvirtd::Libvirtd;
use crate::common::{self, REAL_VIRSH, inventory_in, unique, within_seconds};
use std::ffi::OsString;
use std::path::PathBuf;
use vm::life::State;

/// A VM that homenode keeps, on a libvirt of its own.
struct Kept {
    libvirtd: Libvirtd,
    runtime: tempfile::TempDir,
    name: String,
}

impl Kept {
    /// One that runs.
    fn new(test: &str, label: &str) -> Option<Self> {
        let libvirtd = Libvirtd::start(test)?;
        let name = unique(label);
        let (spec, text) = (libvirtd.path().join("vm.toml"), libvirtd.growing_spec(&name, 160));
        std::fs::write(&spec, text).expect("a spec");
        let kept = Self { libvirtd, runtime: tempfile::tempdir().expect("a directory"), name };
        let uri = kept.libvirtd.uri();
        kept.ok(&["run", spec.to_str().expect("UTF-8"), "--via", "libvirt", "--connect", &uri]);
        Some(kept)
    }

    fn said(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        common::said(&mut common::homenode_in(self.runtime.path(), arguments))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let (code, said, errors) = self.said(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}{errors}");
        said
    }

    /// What was refused: exit code 2, and nothing changed.
    fn refused(&self, arguments: &[&str]) -> String {
        let (before, qemus) = (self.life(), self.libvirtd.qemus());
        let (code, said, errors) = self.said(arguments);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{arguments:?}: {errors}");
        assert_eq!((self.life(), self.libvirtd.qemus()), (before, qemus));
        errors
    }

    fn life(&self) -> vm::history::Life {
        inventory_in(self.runtime.path()).read(&self.name).expect("a record").life
    }

    /// A place where its libvirt may write.
    fn file(&self) -> PathBuf {
        self.libvirtd.path().join("data/saved")
    }

    fn state(&self) -> String {
        self.libvirtd.virsh(&["domstate", &self.name]).trim().to_owned()
    }

    /// homenode that is killed when it has `virsh` do this, before or after that is done.
    fn killed(&self, command: &str, done: bool, arguments: &[&str]) {
        let bin = tempfile::tempdir().expect("a directory");
        let real = REAL_VIRSH.replace("exec ", "");
        let first = if done { format!("({real})") } else { ":".to_owned() };
        let script = format!("case \" $* \" in *' {command} '*) {first}; kill -9 $PPID; exit 1;; esac\n{REAL_VIRSH}");
        let path: OsString = common::path_with_virsh(bin.path(), &script);
        let status = common::homenode_in(self.runtime.path(), arguments).env("PATH", path).output().expect("homenode");
        assert_eq!(status.status.code(), None, "{arguments:?}: {status:?}");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It may have gone.
        let _ = self.libvirtd.try_virsh(&["destroy", &self.name]);
    }
}

#[test]
fn a_vm_of_libvirt_goes_into_a_file_and_on_from_it() {
    let Some(vm) = Kept::new("a_vm_of_libvirt_goes_into_a_file_and_on_from_it", "hnlv-suspend") else { return };
    let (file, guest) = (vm.file(), vm.libvirtd.path().join("data/saved.guest"));
    let path = file.to_str().expect("UTF-8");
    // Where libvirt may not write it goes on.
    if linux::sys::effective_user_id() == 0 {
        let (code, _, errors) = vm.said(&["vm", "suspend", &vm.name]);
        assert!(code.is_some_and(|code| code > 0) && errors.contains("--to") && errors.contains("goes on"), "{errors}");
        assert_eq!((vm.state().as_str(), vm.life().state), ("running", State::Running));
    }
    vm.ok(&["vm", "suspend", &vm.name, "--to", path]);
    assert!(file.exists() && guest.exists() && vm.libvirtd.qemus().is_empty());
    assert_eq!((vm.life().state, vm.life().suspended_in.as_ref()), (State::Suspended, Some(&file)));
    assert!(vm.refused(&["vm", "start", &vm.name]).contains("is suspended"));
    // Cut, or changed in one byte.
    let whole = std::fs::read(&guest).expect("libvirt's file");
    let with = |bytes: &[u8]| std::fs::write(&guest, bytes).expect("a file");
    for at in [20, whole.len() / 2, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 4;
        with(&changed);
        assert!(vm.refused(&["vm", "resume", &vm.name]).contains("not what was written"), "{at}");
    }
    with(&whole[..whole.len() - 1]);
    assert!(vm.refused(&["vm", "resume", &vm.name]).contains("was written with"));
    with(&whole);
    vm.ok(&["vm", "resume", &vm.name]);
    assert_eq!((vm.state().as_str(), vm.life().state), ("running", State::Running));
    assert!(!file.exists() && !guest.exists() && vm.life().suspended_in.is_none());

    // homenode is killed before libvirt begins: it goes on. After libvirt has written all: it is in
    // its file, which nobody has looked at since.
    let suspend = ["vm", "suspend", &vm.name, "--to", path];
    vm.killed("save", false, &suspend);
    assert!(within_seconds(60, || vm.ok(&["vm", "list"]).contains("running")), "{:?}", vm.life());
    assert_eq!((vm.state().as_str(), vm.life().state), ("running", State::Running));
    let _ = std::fs::remove_file(vm.libvirtd.path().join("data/saved.unfinished"));
    vm.killed("save", true, &suspend);
    assert!(within_seconds(60, || vm.ok(&["vm", "list"]).contains("suspended")), "{:?}", vm.life());
    let (code, _, errors) = vm.said(&["vm", "resume", &vm.name]);
    assert!(code == Some(0) && errors.contains("libvirt had written"), "{errors}");
    assert_eq!((vm.state().as_str(), vm.life().state), ("running", State::Running));
    another_homenode_resumes_it(&vm, &suspend);
    // Forgotten, both files go.
    vm.ok(&suspend);
    vm.ok(&["vm", "stop", &vm.name, "--force"]);
    assert!(!file.exists() && !guest.exists());
    vm.ok(&["vm", "delete", &vm.name]);
}

/// One of another user's, or of another `HOMENODE_RUNTIME_DIR`: what it runs is not ended.
fn another_homenode_resumes_it(vm: &Kept, suspend: &[&str]) {
    vm.ok(suspend);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let resume = ["vm", "resume", suspend[suspend.len() - 1]];
    let (code, said, errors) = common::said(&mut common::homenode_in(elsewhere.path(), &resume));
    assert_eq!(code, Some(0), "{said}{errors}");
    let runs = vm.libvirtd.qemus();
    let (code, _, errors) = vm.said(&["vm", "resume", &vm.name]);
    assert!(code == Some(2) && errors.contains("it is running: "), "{errors}");
    assert!(errors.contains("must not be resumed from that file again"), "{errors}");
    assert_eq!((vm.libvirtd.qemus(), vm.state().as_str(), vm.life().state), (runs, "running", State::Running));
    std::fs::remove_file(suspend[suspend.len() - 1]).expect("a file that is too old");
    std::fs::remove_file(format!("{}.guest", suspend[suspend.len() - 1])).expect("its guest");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_vm_of_libvirt_goes_to_another_libvirt() {
    let test = "a_vm_of_libvirt_goes_to_another_libvirt";
    let (Some(vm), Some(there)) = (Kept::new(test, "hnlv-migrate"), Libvirtd::start(test)) else { return };
    let uri = there.uri();
    let migrate = ["vm", "migrate", &vm.name, "--to", &uri, "--shared-storage"];
    assert!(vm.refused(&["vm", "migrate", &vm.name, "--to", "unix:"]).contains("vm suspend"));
    assert!(vm.refused(&["vm", "migrate", &vm.name, "--to", "a b"]).contains("name a host"));
    let shown = vm.ok(&[&migrate[..], &["--dry-run"]].concat());
    assert!(shown.contains("would live on") && shown.contains("over a link of"), "{shown}");
    // libvirt does not take the disk for a shared one.
    let (code, _, errors) = vm.said(&migrate[..5]);
    assert!(code == Some(2) && errors.contains("goes on here") && errors.contains("--shared-storage"), "{errors}");
    assert_eq!((vm.state().as_str(), vm.life().state), ("running", State::Running));
    let nobody = "qemu+unix:///session?socket=/no/such/socket";
    let (code, _, errors) = vm.said(&["vm", "migrate", &vm.name, "--to", nobody]);
    assert!(code == Some(1) && errors.contains("no libvirt answers"), "{errors}");

    sent_by_libvirt_alone(&vm, &there, &migrate);
    // homenode is killed when libvirt has sent it: both are asked.
    vm.killed("migrate", true, &migrate);
    assert_eq!(there.virsh(&["domstate", &vm.name]).trim(), "running");
    assert_eq!(vm.life().state, State::MigratingOut);
    assert!(vm.ok(&["vm", "list"]).contains("migrating out"));
    let said = vm.ok(&["vm", "migrate", &vm.name, "--resolve"]);
    assert!(said.contains("runs at the destination"), "{said}");
    assert!(inventory_in(vm.runtime.path()).read(&vm.name).is_err());
    assert_eq!(vm.libvirtd.virsh(&["list", "--all", "--name"]).trim(), "");
    there.virsh(&["destroy", &vm.name]);
}

/// homenode is killed while libvirt sends it: libvirt goes on, and nobody knows yet where it will
/// be.
fn sent_by_libvirt_alone(vm: &Kept, there: &Libvirtd, migrate: &[&str]) {
    let slowly = [migrate, &["--bandwidth", "1 MiB"]].concat();
    let mut homenode = common::homenode_in(vm.runtime.path(), &slowly).spawn().expect("homenode");
    // Their QEMU takes nothing: it does not come to its end.
    assert!(within_seconds(60, || !there.qemus().is_empty()), "{:?}", vm.life());
    let qemu = there.qemus()[0];
    linux::sys::send_signal(qemu, libc::SIGSTOP).expect("a signal");
    let is_sent = || vm.libvirtd.virsh(&["domjobinfo", &vm.name]).contains("Outgoing migration");
    assert!(within_seconds(60, is_sent), "{:?}", vm.life());
    homenode.kill().expect("it runs");
    homenode.wait().expect("a child");
    assert!(vm.ok(&["vm", "list"]).contains("migrating out"));
    for it_runs in [&[][..], &["--it-runs", "here"], &["--it-runs", "there"]] {
        let resolve = ["vm", "migrate", &vm.name, "--resolve"];
        let (code, said, errors) = vm.said(&[&resolve, it_runs].concat());
        assert!(code == Some(1) && errors.contains("domjobabort"), "{it_runs:?}: {said}{errors}");
        assert_eq!((vm.state().as_str(), vm.life().state), ("running", State::MigratingOut));
    }
    vm.libvirtd.virsh(&["domjobabort", &vm.name]);
    linux::sys::send_signal(qemu, libc::SIGCONT).expect("a signal");
    let is_over = || vm.said(&["vm", "migrate", &vm.name, "--resolve"]).1.contains("was not sent");
    assert!(within_seconds(60, is_over), "{:?}", vm.life());
    assert_eq!((vm.state().as_str(), vm.life().state), ("running", State::Running));
    assert!(within_seconds(60, || there.qemus().is_empty()));
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_vm_of_libvirt_grows_and_says_when_it_was_cut() {
    let Some(vm) = Kept::new("a_vm_of_libvirt_grows_and_says_when_it_was_cut", "hnlv-set") else { return };
    // Its firmware uses nothing: nobody waits for a guest that stands still.
    vm.ok(&["vm", "pause", &vm.name]);
    let said = vm.ok(&["vm", "set", &vm.name, "--vcpus", "4", "--memory", "320 MiB"]);
    assert!(said.contains("its vCPUs are stopped"), "{said}");
    let record = inventory_in(vm.runtime.path()).read(&vm.name).expect("a record");
    let sizes = record.sizes();
    assert!(sizes.iter().all(|size| size.vcpus.len() == 2 && size.memory.mib() == 160), "{sizes:?}");
    assert_eq!(vm.libvirtd.virsh(&["vcpucount", &vm.name, "--live", "--active"]).trim(), "4");
    assert!(vm.refused(&["vm", "set", &vm.name, "--vcpus", "5"]).contains("max_vcpus"));

    // What was plugged in goes into its file, and on from it.
    let path = vm.file();
    vm.ok(&["vm", "suspend", &vm.name, "--to", path.to_str().expect("UTF-8")]);
    vm.ok(&["vm", "resume", &vm.name]);
    vm.ok(&["vm", "pause", &vm.name]);
    let again = inventory_in(vm.runtime.path()).read(&vm.name).expect("a record");
    assert_eq!(again.sizes(), sizes);
    let xml = vm.libvirtd.virsh(&["dumpxml", &vm.name]);
    assert_eq!(xml.matches("<memory model='virtio-mem'>").count(), 2, "{xml}");
    assert_eq!(vm.libvirtd.virsh(&["vcpucount", &vm.name, "--live", "--active"]).trim(), "4");

    // Killed while it is sent: libvirt never began.
    let uri = "qemu+unix:///session?socket=/no/such/socket";
    let there = Libvirtd::start("a_vm_of_libvirt_grows_and_says_when_it_was_cut");
    let to = there.as_ref().map_or(uri.to_owned(), Libvirtd::uri);
    vm.killed("migrate", false, &["vm", "migrate", &vm.name, "--to", &to, "--shared-storage"]);
    let said = vm.ok(&["vm", "migrate", &vm.name, "--resolve"]);
    assert!(said.contains("was not sent"), "{said}");
    assert_eq!((vm.state().as_str(), vm.life().state), ("paused", State::Paused));
    vm.ok(&["vm", "delete", &vm.name, "--force"]);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn what_others_do_to_a_vm_of_libvirt_is_written_down_by_the_next_look() {
    let Some(vm) = Kept::new("what_others_do_to_a_vm_of_libvirt_is_written_down_by_the_next_look", "hnlv-look") else {
        return;
    };
    vm.ok(&["vm", "pause", &vm.name]);
    let record = || inventory_in(vm.runtime.path()).read(&vm.name).expect("a record");
    let sizes = || -> Vec<(usize, u64)> {
        vm.ok(&["vm", "list"]);
        record().sizes().iter().map(|size| (size.vcpus.len(), size.memory.mib())).collect()
    };
    assert_eq!(sizes(), [(1, 32), (1, 32)]);
    vm.libvirtd.virsh(&["setvcpus", &vm.name, "3", "--live"]);
    // The lowest number that is absent is virtual node 0's.
    assert_eq!(sizes(), [(2, 32), (1, 32)]);
    let xml = vm.libvirtd.path().join("memory.xml");
    let source = "<source><nodemask>0</nodemask></source>";
    let target =
        "<size unit='MiB'>128</size><node>1</node><block unit='MiB'>2</block><requested unit='MiB'>64</requested>";
    std::fs::write(&xml, format!("<memory model='virtio-mem'>{source}<target>{target}</target></memory>"))
        .expect("a file");
    let device = xml.to_str().expect("UTF-8");
    vm.libvirtd.virsh(&["attach-device", &vm.name, device, "--live"]);
    assert_eq!(sizes(), [(2, 32), (1, 96)]); // 32 + 64
    vm.libvirtd.virsh(&["update-memory-device", &vm.name, "--live", "--node", "1", "--requested-size", "32MiB"]);
    assert_eq!(sizes(), [(2, 32), (1, 64)]);
    let shown: serde_json::Value = serde_json::from_str(&vm.ok(&["vm", "show", &vm.name, "--json"])).expect("JSON");
    let memory = &shown["residence"]["memory"][1];
    assert_eq!((memory["unknown"].as_str(), memory["at_home"].as_bool()), (None, Some(true)), "{shown}");
    let now = record();
    assert_eq!((now.spec.vcpus, now.spec.memory.mib()), (3, 96));
    let resized = |chapter: &&vm::history::Chapter| matches!(chapter.event, vm::history::LifeEvent::Resized { .. });
    assert_eq!(now.life.history.iter().filter(resized).count(), 3);
    assert!(vm.ok(&["vm", "show", &vm.name]).contains("1 vCPU"));

    // Sized anew, the domain that libvirt has gets other virtual nodes at its next power-on.
    let said = vm.ok(&["vm", "resize-topology", &vm.name]);
    assert!(said.contains("is sized anew at its next power-on, after it was stopped"), "{said}");
    vm.ok(&["vm", "stop", &vm.name, "--force"]);
    vm.ok(&["vm", "start", &vm.name]);
    let xml = vm.libvirtd.virsh(&["dumpxml", "--inactive", &vm.name]);
    let topology = record().topology.expect("a topology");
    assert_eq!(xml.matches("<cell ").count(), topology.nodes.len(), "{xml}");
    assert!(!record().life.topology_anew && vm.state() == "running");
    vm.ok(&["vm", "delete", &vm.name, "--force"]);
}
