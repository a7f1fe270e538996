//! A list of VMs that could not be read is never "no VM".

use crate::common::{PausedVm, homenode_in, lacks};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HOMENODE: &str = env!("CARGO_BIN_EXE_homenode");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn spec(place: &Path) -> String {
    let path = place.join("vm.toml");
    std::fs::write(&path, "name = \"unseen\"\nvcpus = 1\nmemory = \"16 MiB\"\n").expect("a spec");
    path.display().to_string()
}

#[test]
fn with_few_files_open_a_command_fails_or_sees_the_vm() {
    if lacks("with_few_files_open_a_command_fails_or_sees_the_vm", "qemu-system-x86_64") {
        return;
    }
    let (place, vm) = (tempfile::tempdir().expect("a directory"), PausedVm::start("cli-few-files"));
    let (mut failed, mut seen) = (0, 0);
    for files in [3, 4, 5, 6, 8, 64] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" top --json --interval 0.1"), HOMENODE]);
        let output = command.env("HOMENODE_RUNTIME_DIR", place.path()).stdin(Stdio::null()).output().expect("sh");
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        match output.status.code() {
            Some(0) => {
                assert!(said.contains(&vm.name), "{files}: {said}");
                seen += 1;
            }
            // EMFILE; with 3 the program itself cannot be loaded.
            code => {
                assert!(files < 64 && matches!(code, Some(1 | 127)), "{files}: {code:?} {complained}");
                assert!(said.is_empty() && complained.contains("rror 24"), "{files}: {said} {complained}");
                failed += 1;
            }
        }
    }
    assert!(failed > 0 && seen > 0, "{failed} {seen}");
}

/// Runs a command as another user, where `/proc` is mounted with `hidepid=2`: in a namespace of its
/// own. `None`, with a word about it, where that cannot be had.
fn behind_hidepid(test: &str, place: &Path, arguments: &[&str]) -> Option<Output> {
    if lacks(test, "unshare") || lacks(test, "setpriv") {
        return None;
    }
    let script = "mount -t proc -o hidepid=2 proc /proc || exit 99; \
                  exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, HOMENODE]).args(arguments);
    command.current_dir("/").env("HOMENODE_RUNTIME_DIR", place).stdin(Stdio::null());
    let output = command.output().expect("unshare");
    let complained = text(&output.stderr);
    if matches!(output.status.code(), Some(99 | 126 | 127)) || complained.contains("unshare failed") {
        eprintln!("SKIPPED {test}: no namespace with a /proc of its own, or no other user: {complained}");
        return None;
    }
    Some(output)
}

#[test]
fn hidden_processes_are_said_by_every_command_that_counts_vms() {
    let test = "hidden_processes_are_said_by_every_command_that_counts_vms";
    if linux::sys::effective_user_id() != 0 {
        return eprintln!("SKIPPED {test}: only root can mount /proc and become another user");
    }
    let place = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    let runtime = place.path().join("runtime");
    std::fs::create_dir(&runtime).expect("a directory");
    std::os::unix::fs::chown(&runtime, Some(65534), Some(65534)).expect("its owner");
    let spec = spec(place.path());
    let words = "VMs of other users, if there are any: /proc is mounted with hidepid";
    let commands: [(&[&str], Option<i32>); 4] = [
        (&["plan", &spec], Some(3)),
        (&["top", "--interval", "0.1"], Some(3)),
        (&["doctor", "--interval", "0.1"], Some(3)),
        (&["balance", "--dry-run", "--once"], Some(0)),
    ];
    for (arguments, code) in commands {
        let Some(output) = behind_hidepid(test, &runtime, arguments) else { return };
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        let all = (said + &complained).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(all.contains(words), "{arguments:?}: {all}");
        assert_eq!(output.status.code(), code, "{arguments:?}: {all}");
    }
    // Where nothing is hidden nothing is said.
    let output = homenode_in(&place.path().join("own"), &["plan", &spec]).output().expect("homenode");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}
