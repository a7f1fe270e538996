//! What a VM on its way, or one that cannot go, says to somebody who types the wrong thing, and
//! hosts that are full, other, or silent.

use crate::common::taps::Taps;
use crate::common::{newer_qemu, within_seconds, write_script};
use crate::migrate::Hosts;
use inventory::Kept;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vm::history::{Life, UnixSeconds};
use vm::life::State;

impl Hosts {
    fn sends(&self) -> Child {
        let arguments = ["vm", "migrate", self.vm(), "--to", "b", "--shared-storage"];
        let mut command = self.homenode("a", &arguments);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("homenode")
    }

    /// What it said to the end, and its exit code.
    fn ended(child: Child) -> (Option<i32>, String) {
        let output = child.wait_with_output().expect("homenode");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// A migration that is refused or fails with this exit code and these words: it goes on at `a`,
    /// and nothing of it is at `b`.
    fn stays(&self, code: i32, words: &str) {
        let said = self.says("a", &["vm", "migrate", self.vm(), "--to", "b", "--shared-storage"], code);
        assert!(said.contains(words), "{words:?}: {said}");
        assert_eq!((self.runs("a"), self.state("a")), (Some(true), Some(State::Running)), "{said}");
        self.nothing_else_is_left_but_receipts();
    }

    fn nothing_else_is_left_but_receipts(&self) {
        assert!(within_seconds(10, || self.qemus().len() == 1), "{} QEMUs", self.qemus().len());
        let mut left = [self.left("a"), self.left("b")].concat();
        left.retain(|name| name != ".receipts");
        assert_eq!(left, [""; 0]);
    }

    /// The script that reaches `b` does this first, and then what it did, as `"$@"`.
    fn reaches_b(&self, text: &str) {
        let (runtime, program) = (self.runtime("b").display().to_string(), env!("CARGO_BIN_EXE_homenode"));
        let script =
            format!("shift; set -- $1; shift\nexport HOMENODE_RUNTIME_DIR={runtime}\nset -- {program} \"$@\"\n{text}");
        write_script(&self.0.place.path("to-b"), &script);
    }
}

fn said(taps: &Taps, word: &str) -> bool {
    within_seconds(60, || taps.said().iter().any(|said| said == word))
}

#[test]
fn who_types_the_wrong_thing_of_a_vm_on_its_way_changes_nothing() {
    const TEST: &str = "who_types_the_wrong_thing_of_a_vm_on_its_way_changes_nothing";
    let Some(hosts) = Hosts::with_vm(TEST, "migrate-wrong") else { return };
    let (taps, vm) = (hosts.taps(), hosts.vm());
    let refused = |arguments: &[&str], words: &str| {
        let said = hosts.says("a", &[&["vm"], arguments].concat(), 2);
        assert!(said.contains(words), "{arguments:?}: {said}");
    };
    refused(&["migrate", vm, "--resolve"], "is running: no migration of it was cut short");
    refused(&["migrate", vm, "--resolve", "--it-runs", "nowhere"], "here");
    refused(&["migrate", vm, "--to", "b", "--it-runs", "here"], "--it-runs");
    refused(&["migrate", vm, "--it-runs", "here"], "--to");
    refused(&["migrate", vm, "--resolve", "--timeout", "3"], "--timeout");
    refused(&["migrate", "no-such-vm", "--resolve"], "no VM named no-such-vm is kept");
    // It was not handed over.
    let hold = taps.hold("receives");
    let mut migrate = hosts.sends();
    assert!(said(&taps, "receives"), "{:?}", taps.said());
    assert!(hosts.says("a", &["vm", "list"], 0).contains("It is being sent, and is here"));
    assert!(hosts.says("a", &["vm", "migrate", vm, "--resolve"], 1).contains("another homenode is at work on it"));
    migrate.kill().and_then(|()| migrate.wait()).expect("it ends");
    drop(hold);
    refused(&["migrate", vm, "--resolve", "--it-runs", "there"], "it was never handed over");
    assert!(hosts.says("a", &["vm", "show", vm], 0).contains("It was not handed over, so it is here"));
    hosts.says("a", &["vm", "migrate", vm, "--resolve"], 0);
    assert_eq!((hosts.runs("a"), hosts.state("a")), (Some(true), Some(State::Running)));
    // It was.
    taps.clear();
    let hold = taps.hold("go");
    let mut migrate = hosts.sends();
    assert!(said(&taps, "go"), "{:?}", taps.said());
    migrate.kill().and_then(|()| migrate.wait()).expect("it ends");
    let shown = hosts.says("a", &["vm", "show", vm], 0);
    assert!(shown.contains("may run on b") && shown.contains("--it-runs there"), "{shown}");
    for wrong in [&["stop", vm, "--force"][..], &["delete", vm, "--force"]] {
        refused(wrong, "was handed over to b, and may run there");
    }
    refused(&["start", vm], "--resolve");
    refused(&["pause", vm], "--resolve");
    drop(hold);
    let asked = hosts.says("a", &["vm", "migrate", vm, "--resolve", "--json"], 0);
    let answer: serde_json::Value = serde_json::from_str(&asked).expect("JSON");
    let is_here = answer["is_here"].as_bool().expect("a word");
    assert_eq!([hosts.runs("a"), hosts.runs("b")], if is_here { [Some(true), None] } else { [None, Some(true)] });
    hosts.nothing_else_is_left_but_receipts();
}

/// It said that the VM was ended, which ran elsewhere.
#[test]
fn a_vm_that_is_stopped_by_force_on_its_way_is_ended_or_said_to_have_gone() {
    const TEST: &str = "a_vm_that_is_stopped_by_force_on_its_way_is_ended_or_said_to_have_gone";
    let Some(hosts) = Hosts::with_vm(TEST, "migrate-stop") else { return };
    let taps = hosts.taps();
    let stop = || {
        let mut command = hosts.homenode("a", &["vm", "stop", hosts.vm(), "--force"]);
        command.stderr(Stdio::piped()).spawn().expect("homenode")
    };
    let hold = taps.hold("receives");
    let migrate = hosts.sends();
    assert!(said(&taps, "receives"), "{:?}", taps.said());
    let stops = stop();
    assert!(within_seconds(30, || hosts.qemus().len() == 1), "the source's QEMU is there");
    drop(hold);
    assert_eq!(Hosts::ended(stops), (Some(0), String::new()));
    let (code, words) = Hosts::ended(migrate);
    assert!(code == Some(1) && words.contains("its QEMU ended while it was sent"), "{words}");
    assert!(within_seconds(30, || hosts.qemus().is_empty()) && hosts.state("b").is_none());
    hosts.says("a", &["vm", "start", hosts.vm()], 0);
    taps.clear();
    let hold = taps.hold("go");
    let migrate = hosts.sends();
    assert!(said(&taps, "go"), "{:?}", taps.said());
    let stops = stop();
    assert!(within_seconds(30, || hosts.qemus().len() == 1), "the source's QEMU is there");
    drop(hold);
    assert_eq!(Hosts::ended(migrate).0, Some(0));
    let (code, words) = Hosts::ended(stops);
    assert!(code == Some(1) && words.contains("was not ended: it had gone to b"), "{words}");
    assert_eq!((hosts.runs("b"), hosts.state("a")), (Some(true), None));
}

/// Who receives lets the guest run that is all there, where the source is gone for good.
#[test]
fn a_guest_whose_source_is_gone_is_let_run_where_it_is() {
    const TEST: &str = "a_guest_whose_source_is_gone_is_let_run_where_it_is";
    let Some(hosts) = Hosts::with_vm(TEST, "migrate-alone") else { return };
    let vm = hosts.vm();
    hosts.says("a", &["vm", "migrate", vm, "--to", "b", "--shared-storage"], 0);
    // As a homenode leaves it that was killed while it took the guest over.
    let (here, arriving) = (hosts.runtime("b").join(vm), hosts.runtime("b").join(format!("{vm}+arriving")));
    let record = here.join("state.json");
    let mut state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&record).expect("a record")).expect("JSON");
    let receipt = state["receipt"].as_str().expect("a receipt").to_owned();
    state["phase"] = "taking_over".into();
    std::fs::write(&record, state.to_string()).expect("a record");
    std::fs::rename(&here, &arriving).expect("a directory");
    let mut held = hosts.inventory("b").hold(vm).expect("held");
    held.change_life(|life| life.state = State::MigratingIn).expect("written");
    drop(held);
    let listed = hosts.says("b", &["vm", "list"], 0);
    assert!(listed.contains("migrating in") && listed.contains("type it here: then it runs here"), "{listed}");
    let resolved = hosts.says("b", &["vm", "migrate", vm, "--resolve"], 0);
    assert!(resolved.contains("has arrived; it goes on here"), "{resolved}");
    assert_eq!((hosts.runs("b"), hosts.state("b")), (Some(true), Some(State::Running)));
    // A source that comes back learns it, also where the receipt was forgotten since.
    for _ in 0..2 {
        let asked = hosts.says("b", &["vm", "receive", "--outcome", &receipt, "--vm", vm], 0);
        assert!(asked.contains("runs"), "{asked}");
        assert_eq!(hosts.runs("b"), Some(true));
        std::fs::remove_dir_all(hosts.inventory("b").path().join(".receipts")).expect("receipts");
    }
}

#[test]
fn a_destination_that_is_full_or_has_the_name_leaves_the_guest_where_it_is() {
    const TEST: &str = "a_destination_that_is_full_or_has_the_name_leaves_the_guest_where_it_is";
    let Some(hosts) = Hosts::with_vm(TEST, "migrate-full") else { return };
    // Its directory is one of homenode's.
    hosts.says("b", &["vm", "list"], 0);
    let record = hosts.inventory("a").read(hosts.vm()).expect("a record");
    let life = Life { state: State::Stopped, ..Life::planned(Default::default(), UnixSeconds(1)) };
    let placement = record.placement.clone().map(|kept| Kept { host: "b".to_owned(), ..kept });
    let there = inventory::Record { life, placement, ..record };
    let held = hosts.inventory("b").create(&there).expect("a VM there");
    for dry_run in [&[][..], &["--dry-run"]] {
        let migrate = ["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage"];
        let said = hosts.says("a", &[&migrate, dry_run].concat(), 2);
        assert!(said.contains("is kept there already") && said.contains("vm delete"), "{said}");
    }
    assert_eq!((hosts.runs("a"), hosts.state("b")), (Some(true), Some(State::Stopped)));
    held.delete().expect("forgotten");
    hosts.reaches_b("ulimit -v 600000; exec \"$@\"");
    hosts.stays(1, "lacks the memory");
    let namespace = Command::new("unshare").args(["-Urm", "true"]).status();
    if !namespace.is_ok_and(|made| made.success()) {
        return eprintln!("SKIPPED a full disk and a full host in {TEST}: no user namespaces");
    }
    let memory = std::fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
    let little =
        |line: &str| if line.starts_with("MemA") { "MemAvailable: 20000 kB".to_owned() } else { line.to_owned() };
    let fake = hosts.0.place.path("meminfo");
    std::fs::write(&fake, memory.lines().map(little).collect::<Vec<_>>().join("\n")).expect("a file");
    let mounted = |mount: &str| hosts.reaches_b(&format!("exec unshare -Urm sh -c '{mount}; exec \"$@\"' sh \"$@\""));
    mounted(&format!("mount --bind {} /proc/meminfo", fake.display()));
    hosts.stays(2, "stop a VM, or make this one smaller");
    std::fs::create_dir_all(hosts.runtime("b").join(".vms")).expect("a directory");
    // Too little for its record; and enough for that, and too little for the receipt.
    for size in ["4k", "16k"] {
        mounted(&format!("mount -t tmpfs -o size={size},mode=755 tmpfs {}/.vms", hosts.runtime("b").display()));
        hosts.stays(1, "No space left on device");
    }
}

#[test]
fn a_qemu_without_the_machine_type_or_with_a_device_that_cannot_be_sent_is_refused() {
    const TEST: &str = "a_qemu_without_the_machine_type_or_with_a_device_that_cannot_be_sent_is_refused";
    let Some(newer) = newer_qemu(TEST) else { return };
    let Some(hosts) = Hosts::with_vm(TEST, "migrate-other") else { return };
    let newer = newer.to_string_lossy().into_owned();
    // The older one's machine type is there in the newer one, and not the other way round.
    hosts.reaches_b(&format!("export HOMENODE_QEMU={newer}; exec \"$@\""));
    let said = hosts.says("a", &["vm", "migrate", hosts.vm(), "--to", "b", "--shared-storage"], 0);
    assert!(said.contains("a newer QEMU takes guests of the same machine type"), "{said}");
    hosts.says("b", &["vm", "stop", hosts.vm(), "--force"], 0);
    hosts.says("b", &["vm", "delete", hosts.vm()], 0);
    let mut hosts = hosts;
    hosts.0.qemu = Some(newer.into());
    hosts.0.run();
    hosts.reaches_b("export HOMENODE_QEMU=qemu-system-x86_64; exec \"$@\"");
    hosts.stays(2, "lacks the machine type that the guest began with");
    hosts.says("a", &["vm", "stop", hosts.vm(), "--force"], 0);
    let wrapper = hosts.0.place.path("with-nvme");
    let more = "-device nvme,serial=x,drive=nv -drive if=none,id=nv,driver=null-co";
    let with = format!("case \"$*\" in *-name*) set -- \"$@\" {more};; esac\nexec qemu-system-x86_64 \"$@\"");
    write_script(&wrapper, &with);
    hosts.0.qemu = Some(wrapper.into());
    hosts.says("a", &["vm", "start", hosts.vm()], 0);
    hosts.stays(2, "/nvme cannot be sent: the VM must be started without it");
}

/// An ssh that is there and carries nothing.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_link_that_is_stopped_is_taken_for_cut() {
    let at = |word: &'static str| move || stopped_at(word);
    let words = ["offer", "built", "receives", "go", "runs"];
    let mut all: Vec<_> = words.into_iter().map(|word| std::thread::spawn(at(word))).collect();
    all.push(std::thread::spawn(stopped_on_its_way));
    all.into_iter().for_each(|one| one.join().expect("as it should be"));
}

/// The connection that the guest goes over is stopped, and the other one is well.
fn stopped_on_its_way() {
    let Some(hosts) = Hosts::with_vm("a_link_that_is_stopped_is_taken_for_cut", "migrate-stop-data") else { return };
    // So much goes, and then nothing more, and nobody closes it.
    let part = "{ head -c 100000; sleep 100; } 2>/dev/null";
    hosts.reaches_b(&format!("case \"$*\" in *--data*) {part} | \"$@\" ;; *) exec \"$@\";; esac"));
    hosts.stays(1, "nothing of the guest has gone for 30 s");
}

fn stopped_at(word: &'static str) {
    let Some(hosts) = Hosts::with_vm("a_link_that_is_stopped_is_taken_for_cut", &format!("migrate-stop-{word}")) else {
        return;
    };
    let (taps, began) = (hosts.taps(), Instant::now());
    let hold = taps.hold(word);
    // What is stopped keeps a pipe open for ever: its words go into a file.
    let mut migrate = hosts.migrate("a", &[]);
    assert!(said(&taps, word), "{:?}", taps.said());
    for pid in taps.link() {
        linux::sys::send_signal(pid, libc::SIGSTOP).expect("a signal");
    }
    drop(hold);
    let code = migrate.wait().expect("the end").code();
    let words = std::fs::read_to_string(hosts.0.place.path("errors")).expect("a file");
    // The other end waits no longer either.
    assert!(within_seconds(90, || hosts.receivers("b", false).is_empty()), "{word}: a destination stays");
    for pid in taps.link() {
        // The one that homenode started has ended.
        let _ = linux::sys::send_signal(pid, libc::SIGKILL);
    }
    assert!(began.elapsed() < Duration::from_secs(200), "{word}: {:?}", began.elapsed());
    hosts.says("b", &["vm", "list"], 0);
    let went = word == "runs";
    assert_eq!(code, Some(i32::from(!went)), "{word}: {words}");
    let runs = if went { [None, Some(true)] } else { [Some(true), None] };
    assert_eq!([hosts.runs("a"), hosts.runs("b")], runs, "{word}: {words}");
    hosts.nothing_else_is_left_but_receipts();
}
