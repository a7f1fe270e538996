//! VMs that are kept, from their first power-on to their end, with a real QEMU whose firmware finds
//! nothing to boot.

use crate::common::kept_vm::{DISK, Drawn, KeptVm};
use crate::common::{inventory_in, left_in, said_in, tiny_guest, within_seconds};
use serde_json::Value;
use std::process::Stdio;
use vm::history::LifeEvent;
use vm::life::State;

impl KeptVm {
    fn small(test: &str, label: &str) -> Option<Self> {
        let vm = Self::new(test, label)?;
        vm.write_spec("vcpus = 2\nmemory = \"64 MiB\"");
        Some(vm)
    }

    fn is_kept(&self) -> bool {
        inventory_in(&self.place.runtime()).read(&self.name).is_ok()
    }

    fn listed(&self) -> Value {
        let listed: Value = serde_json::from_str(&self.ok(&["vm", "list", "--json"])).expect("JSON");
        let of_name = |vm: &&Value| vm["name"] == self.name.as_str();
        listed["vms"].as_array().expect("an array").iter().find(of_name).cloned().unwrap_or_default()
    }
}

#[test]
fn a_vm_starts_again_with_the_topology_that_it_had() {
    let Some(kept) = KeptVm::small("a_vm_starts_again_with_the_topology_that_it_had", "kept-again") else { return };
    // Two virtual nodes, which nobody would size anew here.
    let two = "policy.virtual_nodes = [{ vcpus = 1, memory = \"40 MiB\" }, { vcpus = 1, memory = \"24 MiB\" }]";
    kept.write_spec(&format!("vcpus = 2\nmemory = \"64 MiB\"\n{two}"));
    kept.run();
    let topology = kept.record().topology.expect("a topology");
    assert_eq!(topology.nodes.len(), 2);
    assert_eq!(kept.record().spec.disks[0].path, kept.place.path("disk.img"));
    kept.vm_ok("stop", &["--force"]);
    assert_eq!((kept.record().life.state, kept.listed()["state"].as_str()), (State::Stopped, Some("stopped")));
    // What is kept starts from anywhere, with the spec's own file gone.
    std::fs::remove_file(kept.place.path("vm.toml")).expect("the spec");
    let (code, _, errors) = said_in(&kept.place.runtime(), &["vm", "start", &kept.name]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(kept.record().topology.as_ref(), Some(&topology));
    kept.vm_ok("stop", &["--force"]);
    // The policy may change, and what the guest sees stays.
    kept.write_spec("vcpus = 2\nmemory = \"64 MiB\"");
    kept.run();
    assert_eq!(
        (kept.record().topology.as_ref(), kept.record().spec.policy.virtual_nodes.clone()),
        (Some(&topology), None)
    );
    let shown = kept.vm_ok("show", &[]);
    for part in ["running since", "2 x 1 vCPU, 40 MiB + 24 MiB", "started on", "bind:"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    kept.vm_ok("stop", &["--force"]);
    // Other sizes do not fit.
    for (lines, field) in [("vcpus = 3\nmemory = \"64 MiB\"", "vcpus"), ("vcpus = 2\nmemory = \"96 MiB\"", "memory")] {
        kept.write_spec(lines);
        let before = kept.record();
        let (code, _, errors) = kept.said(&["run", "vm.toml", "--daemonize"]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(&format!("`{field}`")) && errors.contains("vm resize-topology"), "{errors}");
        assert!(errors.contains("vm delete"), "{errors}");
        assert_eq!(kept.record(), before);
    }
    // Sized anew only when somebody asked for it, and then once.
    let said = kept.vm_ok("resize-topology", &[]);
    assert!(said.contains("1 virtual node (2 vCPUs with 64 MiB)"), "{said}");
    assert!(kept.vm_ok("resize-topology", &["--cancel"]).contains("keeps"));
    kept.vm_ok("start", &[]);
    assert_eq!(kept.record().topology.as_ref(), Some(&topology));
    kept.vm_ok("stop", &["--force"]);
    kept.vm_ok("resize-topology", &[]);
    kept.vm_ok("start", &[]);
    let record = kept.record();
    assert_eq!((record.topology.expect("a topology").nodes.len(), record.life.topology_anew), (1, false));
    assert!(record.life.history.iter().any(|chapter| chapter.event == LifeEvent::TopologyAnew));
    kept.vm_ok("stop", &["--force"]);
    // Asked for because of another spec, it is for that one.
    assert!(kept.vm_ok("resize-topology", &[]).contains("would change nothing"));
    kept.write_spec("vcpus = 3\nmemory = \"64 MiB\"");
    kept.run();
    assert_eq!(kept.record().topology.expect("a topology").vcpus(), 3);
}

#[test]
fn a_vm_is_paused_continued_reset_and_deleted() {
    let Some(kept) = KeptVm::small("a_vm_is_paused_continued_reset_and_deleted", "kept-paused") else { return };
    let (code, _, errors) = kept.vm("show", &[]);
    assert!(code == Some(2) && errors.contains(" is kept; `homenode vm list`"), "{errors}");
    kept.run();
    kept.vm_ok("pause", &[]);
    assert_eq!(kept.listed()["state"], "paused");
    let (code, _, errors) = kept.vm("pause", &[]);
    assert!(code == Some(2) && errors.contains("it is paused: it can be continued"), "{errors}");
    kept.vm_ok("continue", &[]);
    kept.vm_ok("reset", &[]);
    let (code, _, errors) = kept.vm("delete", &[]);
    assert!(code == Some(2) && errors.contains("is running") && errors.contains("vm stop"), "{errors}");
    let (code, _, errors) = kept.vm("start", &[]);
    assert!(code == Some(2) && errors.contains("it is running"), "{errors}");
    let events: Vec<LifeEvent> = kept.record().life.history.into_iter().map(|chapter| chapter.event).collect();
    assert!(matches!(
        events[..],
        [LifeEvent::Planned, LifeEvent::Started { .. }, LifeEvent::Paused, LifeEvent::Continued, LifeEvent::Reset]
    ));
    kept.vm_ok("delete", &["--force"]);
    assert!(!kept.is_kept() && kept.pid().is_none());
    assert_eq!(left_in(&kept.place.runtime()), [""; 0]);
}

#[test]
fn what_runs_is_the_truth() {
    let Some(kept) = KeptVm::small("what_runs_is_the_truth", "kept-truth") else { return };
    kept.run();
    // A guest that cannot be asked is not ended without force.
    std::fs::remove_file(kept.place.runtime().join(&kept.name).join("monitor")).expect("a monitor");
    let (code, _, errors) = kept.vm("stop", &[]);
    assert!(code == Some(1) && errors.contains("cannot be asked to power off"), "{errors}");
    assert!(kept.listed()["state"] == "running" && !kept.record().life.asked_to_end);
    linux::sys::send_signal(kept.pid().expect("a QEMU"), libc::SIGKILL).expect("a signal");
    assert!(within_seconds(60, || kept.listed()["state"] == "lost"));
    let last = kept.record().life.history.pop().expect("a chapter");
    assert!(matches!(&last.event, LifeEvent::Lost { because } if because.contains("or it was killed")), "{last:?}");
    kept.vm_ok("start", &[]);
    assert_eq!(kept.listed()["state"], "running");
    // The host was restarted: what was in its runtime directory is gone.
    linux::sys::send_signal(kept.pid().expect("a QEMU"), libc::SIGKILL).expect("a signal");
    assert!(within_seconds(60, || kept.pid().is_none()));
    std::fs::remove_dir_all(kept.place.runtime().join(&kept.name)).expect("a directory");
    assert_eq!(kept.listed()["state"], "lost");
    assert!(kept.vm_ok("show", &[]).contains("the host was restarted since"));
}

/// The tiny guest; `None` where it was not built.
fn with_guest(test: &str, label: &str) -> Option<KeptVm> {
    let kept = KeptVm::new(test, label)?;
    tiny_guest(test)?;
    kept.write("vcpus = 1\nmemory = \"128 MiB\"", "");
    Some(kept)
}

/// It runs with `-no-reboot`, by which QEMU takes a reset for its end.
#[test]
fn a_vm_that_may_not_reset_itself_is_reset_and_goes_on() {
    let Some(kept) = with_guest("a_vm_that_may_not_reset_itself_is_reset_and_goes_on", "kept-reset") else { return };
    kept.run();
    let pid = kept.pid();
    kept.vm_ok("reset", &[]);
    // A QEMU that was to end would not serve the next one.
    kept.vm_ok("pause", &[]);
    assert!(pid.is_some() && kept.pid() == pid);
    assert_eq!(kept.listed()["state"], "paused");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_guest_that_is_paused_powers_off_when_it_is_stopped() {
    let Some(kept) = with_guest("a_guest_that_is_paused_powers_off_when_it_is_stopped", "kept-asleep") else { return };
    kept.run();
    assert!(within_seconds(120, || kept.console().contains("commands:")));
    kept.vm_ok("pause", &[]);
    assert!(kept.vm_ok("stop", &[]).contains("powered off"));
    assert_eq!(kept.listed()["state"], "stopped");
}

#[test]
fn a_vm_whose_record_is_damaged_or_old_is_stopped_and_forgotten_all_the_same() {
    let Some(kept) = KeptVm::small("a_vm_whose_record_is_damaged_or_old_is_stopped", "kept-damaged") else { return };
    kept.run();
    let inventory = inventory_in(&kept.place.runtime());
    let life = inventory.path().join(&kept.name).join("life.json");
    let whole = std::fs::read_to_string(&life).expect("a life");
    std::fs::write(&life, whole.replace("\"running\"", "\"stopped\"")).expect("an old life");
    let (code, _, errors) = kept.vm("delete", &[]);
    assert!(code == Some(2) && errors.contains("has a process"), "{errors}");
    assert!(kept.vm_ok("stop", &["--force"]).contains("was ended") && kept.pid().is_none());
    kept.vm_ok("start", &[]);
    std::fs::write(&life, "{").expect("a damaged life");
    let (code, _, errors) = kept.vm("show", &[]);
    assert!(code == Some(1) && errors.contains("cannot be read") && !errors.contains("older"), "{errors}");
    assert_eq!(kept.vm("stop", &[]).0, Some(1));
    kept.vm_ok("stop", &["--force"]);
    kept.vm_ok("delete", &["--force"]);
    assert!(kept.pid().is_none() && !life.exists());
}

#[test]
fn a_vm_that_may_grow_starts_larger_in_the_same_nodes() {
    let Some(kept) = KeptVm::small("a_vm_that_may_grow_starts_larger_in_the_same_nodes", "kept-larger") else { return };
    kept.write_spec("vcpus = 1\nmax_vcpus = 3\nmemory = \"64 MiB\"");
    kept.run();
    kept.vm_ok("stop", &["--force"]);
    let before = kept.record().topology.expect("a topology");
    kept.write_spec("vcpus = 2\nmax_vcpus = 3\nmemory = \"64 MiB\"");
    kept.run();
    let after = kept.record().topology.expect("a topology");
    assert_eq!((before.vcpus(), after.vcpus(), after.max_vcpus()), (1, 2, 3));
    let all = |topology: &vm::VirtualTopology| topology.nodes.iter().map(|node| node.vcpus.clone()).collect::<Vec<_>>();
    assert_eq!(all(&before), all(&after));
    kept.vm_ok("stop", &["--force"]);
    // What is there at power-on stays.
    kept.write_spec("vcpus = 1\nmax_vcpus = 3\nmemory = \"64 MiB\"");
    assert_eq!(kept.said(&["run", "vm.toml", "--daemonize"]).0, Some(2));
}

#[test]
fn why_and_top_know_the_life_of_a_vm() {
    let Some(kept) = KeptVm::small("why_and_top_know_the_life_of_a_vm", "kept-why") else { return };
    kept.run();
    kept.vm_ok("pause", &[]);
    let why = |more: &[&str]| kept.ok(&[&["why", &kept.name, "--interval", "0.1"], more].concat());
    let said = why(&[]);
    assert!(said.contains("Its life so far") && said.contains("started on") && said.contains("paused"), "{said}");
    let said: Value = serde_json::from_str(&why(&["--json"])).expect("JSON");
    assert_eq!(said["life"]["state"], "paused");
    let top = kept.ok(&["top", "--once", "--interval", "0.1", "--json"]);
    let top: Value = serde_json::from_str(&top).expect("JSON");
    let of_name = |row: &&Value| row["name"] == kept.name.as_str();
    let row = top["vms"].as_array().expect("rows").iter().find(of_name).expect("the VM");
    assert_eq!(
        (&row["kept"]["state"], &row["kept"]["virtual_topology"]),
        (&"paused".into(), &"2 vCPUs, 64 MiB".into())
    );
    kept.vm_ok("stop", &["--force"]);
    let said = why(&[]);
    assert!(said.contains("is stopped since") && said.contains("it lives nowhere"), "{said}");
}

#[test]
fn a_full_or_read_only_state_directory_starts_nothing() {
    let test = "a_full_or_read_only_state_directory_starts_nothing";
    let Some(kept) = KeptVm::small(test, "kept-full") else { return };
    let state = kept.place.path("state");
    std::fs::create_dir(&state).expect("a directory");
    let script = "mount -t tmpfs -o size=64k none \"$1\" || exit 99; head -c 65536 /dev/zero > \"$1/fill\"; \
        mount -o \"remount,$2\" \"$1\"; shift 2; exec \"$@\"";
    for (options, code) in [("rw", 1), ("ro", 2)] {
        let homenode = kept.command(&["run", "vm.toml", "--daemonize"]);
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&state).arg(options);
        command.arg(homenode.get_program()).args(homenode.get_args()).current_dir(kept.place.path("."));
        command.env("HOMENODE_RUNTIME_DIR", kept.place.runtime()).env("HOMENODE_STATE_DIR", &state);
        let output = command.output();
        let errors = output.as_ref().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        let errors = errors.unwrap_or_default();
        let found = output.as_ref().ok().and_then(|output| output.status.code());
        if output.is_err() || errors.contains("unshare:") || found == Some(99) {
            return eprintln!("SKIPPED {test}: no mount of our own: {errors}");
        }
        assert_eq!(found, Some(code), "{options}: {errors}");
        assert!(errors.contains("HOMENODE_STATE_DIR") && errors.contains("state/vms"), "{options}: {errors}");
        assert_eq!((kept.pid(), left_in(&kept.place.runtime())), (None, Vec::new()), "{options}");
    }
}

#[test]
fn a_start_that_fails_leaves_the_record_as_it_was() {
    let Some(kept) = KeptVm::small("a_start_that_fails_leaves_the_record_as_it_was", "kept-fails") else { return };
    let fails = |arguments: &[&str]| {
        let output = kept.command(arguments).env(qemu::BINARY_VARIABLE, "/bin/false").output().expect("homenode");
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    };
    fails(&["run", "vm.toml", "--daemonize"]);
    assert!(!kept.is_kept());
    assert_eq!(left_in(&kept.place.runtime()), [""; 0]);
    kept.run();
    kept.vm_ok("stop", &["--force"]);
    let before = kept.record();
    fails(&["vm", "start", &kept.name]);
    kept.write_spec("vcpus = 2\nmemory = \"64 MiB\"\npolicy.prefer_ht = true");
    fails(&["run", "vm.toml", "--daemonize"]);
    assert_eq!(kept.record(), before);
}

#[test]
fn files_that_cannot_be_used_are_named_and_nothing_is_changed() {
    let Some(kept) = KeptVm::small("files_that_cannot_be_used_are_named_and_nothing_is_changed", "kept-files") else {
        return;
    };
    // No place for a record: nothing is started.
    for place in ["/dev/null", "relative", "/proc/no"] {
        let mut command = kept.command(&["run", "vm.toml", "--daemonize"]);
        let output = command.env("HOMENODE_STATE_DIR", place).output().expect("homenode");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{errors}");
        assert!(errors.contains("HOMENODE_STATE_DIR") && errors.contains(place), "{errors}");
        assert_eq!((kept.pid(), left_in(&kept.place.runtime())), (None, Vec::new()));
    }
    kept.run();
    kept.vm_ok("stop", &["--force"]);
    let life = inventory_in(&kept.place.runtime()).path().join(&kept.name).join("life.json");
    let before = std::fs::read_to_string(&life).expect("a life");
    for (content, words) in [("{\"version\": 9}", "version 9"), ("{\"vers", "life.json"), ("", "life.json")] {
        std::fs::write(&life, content).expect("a file");
        let (code, _, errors) = kept.vm("start", &[]);
        assert!(code == Some(1) && errors.contains("life.json") && errors.contains(words), "{code:?} {errors}");
        // It is not in the way of others.
        let (code, _, errors) = kept.said(&["vm", "list"]);
        assert!(code == Some(0) && errors.contains("cannot be shown"), "{code:?} {errors}");
        assert_eq!(std::fs::read_to_string(&life).expect("a file"), content);
    }
    std::fs::write(&life, before).expect("a file");
    kept.vm_ok("start", &[]);
    kept.vm_ok("stop", &["--force"]);
    std::fs::write(&life, "{").expect("a file");
    assert_eq!(kept.vm("delete", &[]).0, Some(1));
    kept.vm_ok("delete", &["--force"]);
    assert!(!life.exists());
    for name in ["..", "a/b", ".vms", "-x"] {
        let (code, _, errors) = kept.said(&["vm", "show", "--", name]);
        assert!(code == Some(2) && errors.contains(" is kept; `homenode vm list`"), "{name}: {errors}");
    }
}

/// Kills a command of a VM's life at a moment, and says what the next look finds.
fn cut_at(kept: &KeptVm, arguments: &[&str], microseconds: u64) -> Option<State> {
    let mut command = kept.command(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("homenode");
    std::thread::sleep(std::time::Duration::from_micros(microseconds));
    // It may have ended already.
    let _ = child.kill();
    child.wait().expect("the end");
    let look = || (kept.listed()["state"].as_str().map(str::to_owned), kept.pid().is_some());
    let (mut state, mut runs) = look();
    if state.as_deref() == Some("running") && !runs {
        // It had been told to end, and did so behind the look.
        (state, runs) = look();
    }
    match state.as_deref() {
        Some("running") => assert!(runs, "{arguments:?} after {microseconds} us: listed as running, and no QEMU"),
        Some("stopped" | "lost") | None => {
            let gone = within_seconds(20, || {
                kept.listed();
                kept.pid().is_none()
            });
            assert!(gone, "{arguments:?} after {microseconds} us: {state:?}, and a stray QEMU");
        }
        other => panic!("{arguments:?} after {microseconds} us: {other:?}"),
    }
    kept.is_kept().then(|| kept.record().life.state)
}

/// Kills starts, stops and deletions at `cuts` moments each.
fn cuts(test: &str, label: &str, cuts: u64) {
    let Some(kept) = KeptVm::small(test, label) else { return };
    let begun = std::time::Instant::now();
    kept.run();
    let start_takes = begun.elapsed().as_micros() as u64;
    kept.vm_ok("delete", &["--force"]);
    let (mut drawn, mut seen) = (Drawn(4711), std::collections::BTreeMap::<String, u32>::new());
    for _ in 0..cuts {
        // A first start: a VM that runs and is listed, or none.
        let state = cut_at(&kept, &["run", "vm.toml", "--daemonize"], drawn.below(start_takes));
        assert!(matches!(state, None | Some(State::Running)), "{state:?}");
        *seen.entry(format!("run: {state:?}")).or_default() += 1;
        if state.is_none() {
            kept.run();
        }
        let topology = kept.record().topology;
        // A stop: it runs still, or has ended; who was killed before he said so left it lost.
        let state = cut_at(&kept, &["vm", "stop", &kept.name, "--force"], drawn.below(start_takes / 4));
        assert!(matches!(state, Some(State::Running | State::Stopped)), "{state:?}");
        *seen.entry(format!("stop: {state:?}")).or_default() += 1;
        if state == Some(State::Running) {
            kept.vm_ok("stop", &["--force"]);
        }
        // A further start.
        let state = cut_at(&kept, &["vm", "start", &kept.name], drawn.below(start_takes));
        assert!(matches!(state, Some(State::Running | State::Stopped)), "{state:?}");
        *seen.entry(format!("start: {state:?}")).or_default() += 1;
        assert_eq!(kept.record().topology, topology);
        let state = cut_at(&kept, &["vm", "delete", &kept.name, "--force"], drawn.below(start_takes / 4));
        assert!(matches!(state, None | Some(State::Running | State::Stopped)), "{state:?}");
        *seen.entry(format!("delete: {state:?}")).or_default() += 1;
        if state.is_some() {
            kept.vm_ok("delete", &["--force"]);
        }
        assert_eq!(left_in(&kept.place.runtime()), [""; 0]);
    }
    eprintln!("what {} cuts left: {seen:?}", 4 * cuts);
}

#[test]
fn a_kill_leaves_the_old_or_the_new() {
    cuts("a_kill_leaves_the_old_or_the_new", "kept-cut", 2);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_kill_at_sixty_moments_leaves_the_old_or_the_new() {
    cuts("a_kill_at_sixty_moments_leaves_the_old_or_the_new", "kept-cuts", 15);
}

/// It was asked all the same, and each look waited 0.3 s for a monitor that serves one visitor.
#[test]
fn a_vm_that_somebody_is_at_work_on_is_not_asked() {
    let Some(kept) = KeptVm::small("a_vm_that_somebody_is_at_work_on_is_not_asked", "kept-at-work") else { return };
    kept.run();
    let monitor = kept.place.runtime().join(&kept.name).join("monitor");
    std::fs::remove_file(&monitor).expect("a monitor");
    let ours = std::os::unix::net::UnixListener::bind(&monitor).expect("a monitor");
    ours.set_nonblocking(true).expect("a mode");
    let held = inventory_in(&kept.place.runtime()).hold(&kept.name).expect("a VM");
    assert_eq!(kept.listed()["state"], "running");
    assert!(ours.accept().is_err(), "its monitor was asked");
    drop(held);
    assert_eq!(kept.listed()["state"], "running");
    assert!(ours.accept().is_ok(), "nobody asked its monitor");
}

#[test]
fn the_variables_of_uefi_are_kept_and_removed_with_the_vm() {
    let test = "the_variables_of_uefi_are_kept_and_removed_with_the_vm";
    let Some(kept) = KeptVm::new(test, "kept-uefi") else { return };
    let boot = |firmware| format!("boot = {{ from = \"disk\"{firmware} }}\n{DISK}read_only = true\n");
    kept.write("vcpus = 1\nmemory = \"128 MiB\"", &boot(""));
    let (code, _, errors) = kept.said(&["run", "vm.toml", "--daemonize"]);
    assert!(code == Some(0) && errors.contains("it has no boot sector"), "{errors}");
    kept.vm_ok("delete", &["--force"]);
    kept.write("vcpus = 1\nmemory = \"128 MiB\"", &boot(", firmware = \"uefi\""));
    let (code, _, errors) = kept.said(&["run", "vm.toml", "--daemonize"]);
    if errors.contains("package ovmf") {
        assert_eq!(code, Some(2), "{errors}");
        return eprintln!("SKIPPED {test}: {errors}");
    }
    assert!(code == Some(0) && !errors.contains("boot sector"), "{errors}");
    let file = inventory_in(&kept.place.runtime()).variables_file(&kept.name);
    assert!(kept.vm_ok("show", &[]).contains("by UEFI"));
    kept.vm_ok("stop", &["--force"]);
    let length = std::fs::metadata(&file).expect("it stays").len();
    // Those of another firmware are no use to this one, and are not written over.
    std::fs::File::options().write(true).open(&file).and_then(|file| file.set_len(4096)).expect("shorter");
    let (code, _, errors) = kept.vm("start", &[]);
    assert!(code == Some(2) && errors.contains("of another firmware"), "{errors}");
    std::fs::remove_file(&file).expect("removed");
    kept.vm_ok("start", &[]);
    assert_eq!(std::fs::metadata(&file).expect("a new one").len(), length);
    kept.vm_ok("delete", &["--force"]);
    assert!(!file.exists() && !kept.is_kept());
}
