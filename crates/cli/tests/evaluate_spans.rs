//! What goes wrong between the VMs that one program spans: nobody can log in, or a VM dies in the
//! middle. Real sshd and ssh, in guests with a system of our own.

use crate::common::{lacks, within_seconds};
use crate::evaluate_switches::{has_switches_and_busybox, kill, spawned, started};
use crate::guest_faults::{World, repetitions};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The configuration: a VM for each of two ranks.
const TWO_VMS: &str = "[[configuration]]\nname = '2 VMs'\nruns = 'vms'\nvms = 2\nvcpus = 1\nswitches = 1\n\
    ranks_per_vm = 'auto'\n";
/// What MPI does: a program in the first VM logs in to the second one, and runs there for a while.
const RUNS_THERE: &str = "/usr/bin/ssh -F /run/homenode-logins/ssh.conf vm2 sleep 8 || exit 7";
/// A shell that lets users in, and one that does not.
const SHELL: &str = "/bin/sh";
const NO_SHELL: &str = "/bin/none";

/// Two guests with busybox and Debian's ssh, whose root has this shell.
fn world(test: &str, shell: &str) -> Option<World> {
    has_switches_and_busybox(test).then(|| World::with(test, |tree| add_ssh(test, tree, shell)))?
}

/// Whether this host's ssh could be put into the system there.
fn add_ssh(test: &str, tree: &Path, shell: &str) -> bool {
    if ["ssh", "ssh-keygen", "ldd"].iter().any(|tool| lacks(test, tool)) || !Path::new("/usr/sbin/sshd").exists() {
        eprintln!("SKIPPED {test}: ssh, sshd or ldd is missing");
        return false;
    }
    // With the programs that newer releases of sshd start, and all libraries.
    let copies = format!(
        "set -e; cd '{}'; mkdir -p usr/sbin usr/bin usr/lib/openssh run/sshd
        for program in /usr/sbin/sshd /usr/bin/ssh /usr/bin/ssh-keygen /usr/lib/openssh/sshd-*; do
            [ -e $program ] || continue
            cp $program .$program
            for library in $(ldd $program | grep -o '/[^ ]*'); do mkdir -p .${{library%/*}}; cp -L $library .$library; done
        done",
        tree.display()
    );
    assert!(Command::new("sh").args(["-c", &copies]).status().expect("sh").success(), "ssh cannot be copied");
    let write = |name: &str, text: &str| fs::write(tree.join("etc").join(name), text).expect("a file");
    write("passwd", &format!("root:x:0:0::/root:{shell}\nsshd:x:100:65534::/run/sshd:{NO_SHELL}\n"));
    write("group", "root:x:0:\nnogroup:x:65534:\n");
    write("nsswitch.conf", "passwd: files\nhosts: files\n");
    write("hosts", "127.0.0.1 localhost\n");
    true
}

#[test]
fn a_guest_without_sshd_is_named_with_the_package_that_has_it() {
    let test = "a_guest_without_sshd_is_named_with_the_package_that_has_it";
    if !has_switches_and_busybox(test) {
        return;
    }
    let Some(world) = World::with(test, |_| true) else { return };
    world.experiment_in(2, RUNS_THERE, TWO_VMS);
    world.fails_after_native(&["-1-0: there is no /usr/sbin/sshd", "openssh-server", "guest.packages"]);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_vm_that_refuses_logins_is_named_before_anything_is_measured_there() {
    let test = "a_vm_that_refuses_logins_is_named_before_anything_is_measured_there";
    let Some(world) = world(test, NO_SHELL) else { return };
    world.experiment_in(2, RUNS_THERE, TWO_VMS);
    world.fails_after_native(&["cannot log in to vm2", "MPI starts no rank there", "Permission denied (publickey"]);
}

/// The VM that ranks were started in, not the one that homenode listens to.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_vm_that_dies_in_the_middle_of_a_run_ends_it_at_once_and_resuming_measures_the_rest() {
    let test = "a_vm_that_dies_in_the_middle_of_a_run_ends_it_at_once_and_resuming_measures_the_rest";
    let Some(world) = world(test, SHELL) else { return };
    world.experiment_in(2, RUNS_THERE, TWO_VMS);
    let mut command = world.command(env!("CARGO_BIN_EXE_homenode"));
    command.args(["evaluate", "fault.toml"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = spawned(command);
    let records = || {
        let results = fs::read_dir(world.at("results")).ok()?.flatten().next()?.path();
        fs::read_to_string(results.join("records.jsonl")).ok()
    };
    // The warm-up is over, and the repetition that counts has begun.
    let begun = || records().is_some_and(|all| repetitions(&all, "\"2 VMs\"") == 1);
    let has_begun = within_seconds(300, || begun() || matches!(running.try_wait(), Ok(Some(_)))) && begun();
    assert!(has_begun, "{:?}", records());
    let before = records().expect("records");
    let victim = started(&before, "2 VMs", 1);
    kill(victim.pid);
    let killed = Instant::now();
    let output = running.wait_with_output().expect("homenode");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(killed.elapsed() < Duration::from_secs(60), "it went on for {:?}", killed.elapsed());
    for part in [victim.name.as_str(), "ended while homenode waited for result of a repetition", "--resume"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(records().expect("records").starts_with(&before), "what was measured is kept");
    let again = world.evaluate(&["--json", "--resume", &world.results().display().to_string()]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&again.stdout).expect("JSON");
    let cell = &figures["configurations"][1]["cells"][0];
    assert_eq!((cell["state"].as_str(), cell["verified"].as_bool()), (Some("measured"), Some(true)), "{figures}");
    let all = records().expect("records");
    assert_eq!(repetitions(&all, "\"native\""), 2, "the native command was not measured again");
}
