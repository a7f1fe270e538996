//! A VM that homenode keeps, in a place of its own.

use super::{Place, homenode_in, inventory_in, no_qemu, qemu_of, unique};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use vm::life::State;

/// The disk of a [`Place`], in a spec there.
pub(crate) const DISK: &str = "[[disk]]\npath = \"disk.img\"\nformat = \"raw\"\n";

/// Two virtual nodes of a vCPU and so many MiB each, in a spec.
pub(crate) fn two_nodes(mib: u64) -> String {
    let nodes = format!("{{ vcpus = 1, memory = \"{mib} MiB\" }},").repeat(2);
    format!("vcpus = 2\nmemory = \"{} MiB\"\npolicy.virtual_nodes = [{nodes}]", 2 * mib)
}

/// A VM in a place of its own, which ends with the value. What is its own to a file of tests stands
/// there.
pub(crate) struct KeptVm {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// The QEMU that homenode is told to use, where it is not the usual one.
    pub(crate) qemu: Option<OsString>,
}

impl KeptVm {
    /// One that was not started; `None` where there is no QEMU.
    pub(crate) fn new(test: &str, label: &str) -> Option<Self> {
        (!no_qemu(test)).then(|| Self { place: Place::new(), name: unique(label), qemu: None })
    }

    /// Writes `vm.toml`: the VM has these lines, and a disk on which its firmware finds nothing to
    /// boot.
    pub(crate) fn write_spec(&self, lines: &str) {
        self.write(lines, &format!("boot.from = \"disk\"\n{DISK}read_only = true\n"));
    }

    /// Writes `vm.toml`: the VM has these lines, and boots so.
    pub(crate) fn write(&self, lines: &str, boot: &str) {
        let console = "console = { to = \"file\", path = \"vm.log\" }";
        let text = format!("name = \"{}\"\n{lines}\n{console}\n{boot}", self.name);
        std::fs::write(self.place.path("vm.toml"), text).expect("a spec");
    }

    /// homenode with this runtime directory. Relative paths of a spec are below its own directory,
    /// whatever the current one is.
    pub(crate) fn command_in(&self, runtime: &Path, arguments: &[&str]) -> Command {
        let mut command = homenode_in(runtime, arguments);
        command.current_dir(self.place.path("."));
        self.qemu.iter().for_each(|qemu| _ = command.env(qemu::BINARY_VARIABLE, qemu));
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_in(&self.place.runtime(), arguments)
    }

    /// Exit code, standard output, standard error.
    pub(crate) fn said(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        super::said(&mut self.command(arguments))
    }

    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let (code, said, errors) = self.said(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}{errors}");
        said
    }

    pub(crate) fn run(&self) {
        self.ok(&["run", "vm.toml", "--daemonize"]);
    }

    /// `homenode vm COMMAND NAME MORE`.
    pub(crate) fn vm(&self, command: &str, more: &[&str]) -> (Option<i32>, String, String) {
        self.said(&[&["vm", command, &self.name], more].concat())
    }

    pub(crate) fn vm_ok(&self, command: &str, more: &[&str]) -> String {
        self.ok(&[&["vm", command, &self.name], more].concat())
    }

    pub(crate) fn record(&self) -> inventory::Record {
        inventory_in(&self.place.runtime()).read(&self.name).expect("a record")
    }

    pub(crate) fn state(&self) -> State {
        self.record().life.state
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Option<u32> {
        qemu_of(&self.name)
    }

    pub(crate) fn console(&self) -> String {
        std::fs::read_to_string(self.place.path("vm.log")).unwrap_or_default()
    }
}

impl Drop for KeptVm {
    fn drop(&mut self) {
        // It may be gone.
        self.vm("delete", &["--force"]);
    }
}

/// Numbers that look drawn and are the same in every run.
pub(crate) struct Drawn(pub(crate) u64);

impl Drawn {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        // xorshift64 (Marsaglia 2003)
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}
