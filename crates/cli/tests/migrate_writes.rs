//! Guests that write their memory all the time, and go to another host meanwhile: a pattern in each
//! virtual node, of which no word and no round may be missing. With QEMU 10: QEMU 7.2 corrupts
//! emulated guests that run after they were sent.

use crate::common::kept_vm::{DISK, KeptVm, two_nodes};
use crate::common::{newer_qemu, tiny_guest, within_seconds};
use crate::migrate::Hosts;

/// A guest that writes so many MiB in each of its two nodes.
struct Writer(Hosts);

impl Writer {
    fn start(test: &str, label: &str, mib: u64) -> Option<Self> {
        Self::start_with(test, label, mib, "")
    }

    /// One whose QEMU has the kernel's userfaultfd: root's own has.
    fn start_for_postcopy(test: &str, label: &str, mib: u64) -> Option<Self> {
        let as_root = linux::sys::effective_user_id() == 0;
        Self::start_with(test, label, mib, if as_root { "\nrun_as = \"root\"" } else { "" })
    }

    /// With these lines in its spec too.
    fn start_with(test: &str, label: &str, mib: u64, lines: &str) -> Option<Self> {
        let (newer, guest) = (newer_qemu(test)?, tiny_guest(test)?);
        let mut vm = KeptVm::new(test, label)?;
        vm.qemu = Some(newer);
        let (kernel, initrd) = (guest.kernel().display(), guest.initramfs().display());
        let command_line = format!("maxcpus=1 homenode.pattern={mib} quiet");
        let boot = format!(
            "boot = {{ from = \"kernel\", kernel = '{kernel}', initrd = '{initrd}', command_line = '{command_line}' }}"
        );
        vm.write(&format!("{}{lines}", two_nodes(96)), &format!("{boot}\n{DISK}"));
        let this = Self(Hosts::of(vm));
        this.0.0.run();
        this.writes_on();
        Some(this)
    }

    /// Those whose number was written to its end: the last line may still be on its way.
    fn rounds(&self) -> Vec<u64> {
        let number = |line: &str| line.strip_prefix("pattern: round ")?.split_once(',')?.0.parse().ok();
        self.0.0.console().lines().filter_map(number).collect()
    }

    /// Waits for two rounds more.
    fn writes_on(&self) {
        let before = self.rounds().len();
        assert!(within_seconds(120, || self.rounds().len() > before + 1), "{}", self.0.0.console());
    }

    /// Says what homenode said, of a migration that ends with this exit code.
    fn goes(&self, from: &str, to: &str, more: &[&str], code: i32) -> String {
        let arguments = [&["vm", "migrate", self.0.vm(), "--to", to, "--shared-storage"], more].concat();
        let said = self.0.says(from, &arguments, code);
        self.writes_on();
        said
    }

    fn nothing_is_missing(&self) {
        let (console, rounds) = (self.0.0.console(), self.rounds());
        assert!(!console.contains("WRONG"), "{console}");
        assert!(rounds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rounds:?}");
    }
}

/// So many times there and back.
fn turns(test: &str, label: &str, times: usize) {
    let Some(guest) = Writer::start(test, label, 16) else { return };
    for _ in 0..times {
        guest.goes("a", "b", &[], 0);
        guest.goes("b", "a", &[], 0);
    }
    guest.nothing_is_missing();
}

#[test]
fn a_guest_that_writes_goes_there_and_back() {
    turns("a_guest_that_writes_goes_there_and_back", "migrate-writes", 1);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_guest_that_writes_goes_there_and_back_ten_times() {
    turns("a_guest_that_writes_goes_there_and_back_ten_times", "migrate-writes-long", 10);
}

/// It writes some 100 MiB in a second, and the link takes 24.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_guest_that_writes_faster_than_the_link_is_slowed_down_or_stays() {
    const TEST: &str = "a_guest_that_writes_faster_than_the_link_is_slowed_down_or_stays";
    let Some(guest) = Writer::start(TEST, "migrate-fast", 16) else { return };
    let slow = ["--bandwidth", "24 MiB", "--downtime", "100"];
    let said = guest.goes("a", "b", &[&slow[..], &["--no-auto-converge", "--timeout", "15"]].concat(), 1);
    assert!(said.contains("goes on here") && said.contains("longer than --timeout"), "{said}");
    assert!(said.contains("were left in round") && said.contains("and the guest writes"), "{said}");
    assert!(!said.contains("slowed down"), "{said}");
    let said = guest.goes("a", "b", &[&slow[..], &["--timeout", "240"]].concat(), 0);
    assert!(said.contains("the guest is slowed down by"), "{said}");
    guest.nothing_is_missing();
}

/// It writes some 100 MiB in a second, and the link takes 16.
#[test]
fn memory_follows_a_guest_that_writes_faster_than_the_link() {
    const TEST: &str = "memory_follows_a_guest_that_writes_faster_than_the_link";
    let Some(guest) = Writer::start_for_postcopy(TEST, "migrate-follows", 16) else { return };
    let said = guest.goes("a", "b", &["--postcopy", "--bandwidth", "16 MiB", "--downtime", "20"], 0);
    assert!(said.contains("it needs both hosts"), "{said}");
    guest.nothing_is_missing();
}
