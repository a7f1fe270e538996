//! What another user's VM claims: it really runs, as a user of the test's own.

use crate::common::{said_in, unique, within_seconds};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// What the VM claims; more than the test machine has.
const CLAIMED_GIB: u64 = 900;
const VCPUS: usize = 64;

/// A paused VM of a user that nobody else is; it ends with the test.
struct Stranger {
    qemu: Child,
    user: u32,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Stranger {
    /// A VM of this name that maps all that it claims and touches none of it. `None`, with a word
    /// about it, where it cannot be had.
    fn start(test: &str, name: &str) -> Option<Self> {
        let skipped = |why: &str| {
            eprintln!("SKIPPED {test}: {why}");
            None
        };
        if linux::sys::effective_user_id() != 0 {
            return skipped("only root can start a process of another user");
        }
        if linux::room::available().is_ok_and(|room| room.total.0 >> 30 >= CLAIMED_GIB) {
            return skipped("this machine has as much memory as the VM claims");
        }
        // Below what systemd and homenode hand out, above what people have.
        let user = 59_000 + std::process::id() % 1000;
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-S", "-display", "none", "-nodefaults", "-no-user-config", "-accel", "tcg"]);
        command.args(["-monitor", "none", "-serial", "none", "-smp", &VCPUS.to_string()]);
        let machine = "q35,memory-backend=ram";
        command.args(["-machine", machine, "-m", &format!("{CLAIMED_GIB}G")]);
        command.args(["-object", &format!("memory-backend-ram,id=ram,size={CLAIMED_GIB}G,reserve=off")]);
        command.args(["-name", &format!("{name},debug-threads=on")]).current_dir("/");
        command.uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let Ok(qemu) = command.spawn() else { return skipped("qemu-system-x86_64 cannot be started") };
        let mut this = Self { qemu, user };
        let threads = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |threads| threads.count());
        let mut ended = false;
        within_seconds(30, || {
            ended = this.qemu.try_wait().expect("its state").is_some();
            ended || threads(this.qemu.id()) > VCPUS
        });
        if ended {
            let mut said = String::new();
            let mut errors = this.qemu.stderr.take().expect("a pipe");
            std::io::Read::read_to_string(&mut errors, &mut said).expect("words");
            return skipped(&format!("QEMU: {said}"));
        }
        Some(this)
    }
}

#[test]
fn another_users_vm_that_claims_all_memory_stops_no_plan_and_has_no_name() {
    let name = unique("claims");
    let Some(stranger) = Stranger::start("another_users_vm_that_claims_all_memory_stops_no_plan", &name) else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let (spec, runtime) = (place.path().join("vm.toml"), place.path().join("runtime"));
    std::fs::write(place.path().join("disk.img"), vec![0u8; 1 << 20]).expect("a disk image");
    let text = format!(
        "name = \"{name}\"\nvcpus = 1\nmemory = \"256 MiB\"\nboot.from = \"disk\"\nconsole = \
        {{ to = \"file\", path = \"console.log\" }}\n\
         [[disk]]\npath = \"disk.img\"\nformat = \"raw\"\nread_only = true\n"
    );
    std::fs::write(&spec, text).expect("a spec");
    let spec = spec.to_str().expect("UTF-8");
    let (code, planned, errors) = said_in(&runtime, &["plan", spec]);
    assert_eq!(code, Some(0), "{errors}");
    let flat = planned.split_whitespace().collect::<Vec<_>>().join(" ");
    let left_out = format!("user {}'s VMs claim {CLAIMED_GIB} GiB and hold", stranger.user);
    assert!(flat.contains(&left_out), "{planned}");
    // The same name is free, and means the VM that is ours.
    let (code, _, errors) = said_in(&runtime, &["run", "--daemonize", spec]);
    let why = said_in(&runtime, &["why", &name]);
    let (stopped, ..) = said_in(&runtime, &["vm", "stop", "--force", &name]);
    assert_eq!((code, stopped), (Some(0), Some(0)), "{errors}");
    assert_eq!(why.0, Some(0), "{}", why.2);
    assert!(errors.contains(&left_out), "{errors}");
}
