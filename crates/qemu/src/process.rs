//! QEMU's process: started, watched, ended.

use crate::QemuError;
use crate::console::{Sink, Tail, pump};
use linux::room::OomKills;
use linux::sys::{ChildSetup, ProcessHandle};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines of QEMU's standard error that are shown when it ends.
const LAST_WORDS: usize = 10;
/// Bytes of it that are read.
const LAST_MESSAGES_BYTES: u64 = 64 << 10;
/// The kernel's signal number of SIGKILL.
const SIGKILL: i32 = 9;

/// Knows when a process has ended. Cheap to clone; outlives the process.
#[derive(Clone, Debug, Default)]
pub struct ExitWatch(Arc<(Mutex<Option<ExitStatus>>, Condvar)>);

impl ExitWatch {
    /// Waits until the process has ended; `None` when `timeout` passed first.
    pub fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        let (status, changed) = &*self.0;
        let deadline = Instant::now() + timeout;
        let mut status = status.lock().unwrap_or_else(PoisonError::into_inner);
        while status.is_none() {
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            status = changed.wait_timeout(status, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *status
    }

    fn set(&self, exit: ExitStatus) {
        let (status, changed) = &*self.0;
        *status.lock().unwrap_or_else(PoisonError::into_inner) = Some(exit);
        changed.notify_all();
    }
}

/// A QEMU that this process started.
#[derive(Debug)]
pub(crate) struct Process {
    vm: String,
    pid: u32,
    handle: ProcessHandle,
    exit: ExitWatch,
    errors: Errors,
    oom_kills_before: OomKills,
    killed_on_drop: bool,
}

/// Where a program's standard error goes.
#[derive(Clone, Debug)]
pub(crate) enum ErrorsTo {
    /// Through a pipe into our memory.
    Us,
    /// Into a file, since the program outlives us.
    File(PathBuf),
}

#[derive(Debug)]
enum Errors {
    Kept(Tail, Option<JoinHandle<()>>),
    File(PathBuf),
}

impl Process {
    /// Starts `program`. Its standard error is kept for its last words, standard input and output
    /// are closed.
    pub(crate) fn start(
        vm: &str,
        program: &Path,
        arguments: &[String],
        errors: &ErrorsTo,
        setup: ChildSetup,
    ) -> Result<Self, QemuError> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(match errors {
            ErrorsTo::Us => Stdio::piped(),
            ErrorsTo::File(path) => File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)
                .map_err(QemuError::io(vm, format!("write QEMU's messages to {}", path.display())))?
                .into(),
        });
        if setup.user.is_some() {
            // What is in ours is not for another user, and its TMPDIR need not be ours.
            let path = std::env::var_os("PATH").unwrap_or_default();
            command.env_clear().env("PATH", path);
        }
        let oom_kills_before = OomKills::now();
        let as_whom = setup.user.as_ref().map(|user| format!(" as user {}", user.user)).unwrap_or_default();
        let mut child = linux::sys::spawn(command, setup).map_err(|source| QemuError::NoQemu {
            vm: vm.to_owned(),
            binary: program.display().to_string(),
            problem: format!("cannot be started{as_whom}: {source}"),
        })?;
        let pid = child.id();
        let handle = ProcessHandle::open(pid).inspect_err(|_| {
            // Not waited for yet, so the number is still this child's.
            let _ = child.kill();
            let _ = child.wait();
        });
        let handle = handle.map_err(QemuError::io(vm, "open a handle on QEMU's process"))?;
        let errors = match (errors, child.stderr.take()) {
            (ErrorsTo::File(path), _) => Errors::File(path.clone()),
            (ErrorsTo::Us, None) => Errors::Kept(Tail::default(), None),
            (ErrorsTo::Us, Some(stderr)) => {
                let (tail, reader) = pump("QEMU's messages".to_owned(), stderr, Sink::Nowhere);
                Errors::Kept(tail, Some(reader))
            }
        };
        let exit = ExitWatch::default();
        watch(child, exit.clone());
        Ok(Self { vm: vm.to_owned(), pid, handle, exit, errors, oom_kills_before, killed_on_drop: true })
    }

    /// Lets it run on when this value is gone.
    pub(crate) fn leave_running(mut self) {
        self.killed_on_drop = false;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn vm(&self) -> &str {
        &self.vm
    }

    /// Ends the process at once, whoever calls it.
    pub(crate) fn killer(&self) -> Result<vm::End, QemuError> {
        let handle = self.handle.try_clone().map_err(QemuError::io(&self.vm, "copy the handle on QEMU's process"))?;
        // An error means that it has ended already.
        Ok(Box::new(move || _ = handle.signal(SIGKILL)))
    }

    pub(crate) fn exit(&self) -> &ExitWatch {
        &self.exit
    }

    /// The error that says how QEMU ended, if it does so within `patience`.
    pub(crate) fn ended(&mut self, patience: Duration) -> Option<QemuError> {
        let status = self.exit.wait(patience)?;
        let lines = self.errors.last_lines();
        let last_words = if lines.is_empty() {
            "  (it said nothing)".to_owned()
        } else {
            lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
        };
        let killed = (status.signal() == Some(SIGKILL)).then(|| killed(&self.oom_kills_before));
        let hint = killed.or_else(|| hint(&lines.join("\n")).map(str::to_owned));
        let hint = hint.map(|hint| format!("\n{hint}")).unwrap_or_default();
        Some(QemuError::Ended { vm: self.vm.clone(), status: status.to_string(), last_words, hint })
    }

    /// Whether it has ended without an error.
    pub(crate) fn succeeded(&self) -> bool {
        self.exit.wait(Duration::ZERO).is_some_and(|status| status.success())
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.handle.signal(SIGKILL);
        self.exit.wait(Duration::from_secs(30));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.killed_on_drop {
            self.kill();
        }
    }
}

impl Errors {
    /// The last lines of a program that has ended.
    fn last_lines(&mut self) -> Vec<String> {
        match self {
            Self::Kept(tail, reader) => {
                if let Some(reader) = reader.take() {
                    // The pipe is at its end: QEMU had it alone. A thread that panicked has read
                    // what it could.
                    let _ = reader.join();
                }
                tail.lines(LAST_WORDS)
            }
            Self::File(path) => {
                let text = last_messages(path);
                let lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines[lines.len().saturating_sub(LAST_WORDS)..].to_vec()
            }
        }
    }
}

/// The end of what a QEMU wrote to its standard error: it may have written any amount.
fn last_messages(path: &Path) -> String {
    let read = || {
        let mut file = File::options().read(true).custom_flags(linux::sys::OPEN_NO_LINK).open(path)?;
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(end.saturating_sub(LAST_MESSAGES_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LAST_MESSAGES_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last line of them that may say why it ended. A pipe that was closed does not end it: it says
/// so whenever somebody gave up saving or sending its guest, however long ago.
pub(crate) fn last_line(path: &Path) -> Option<String> {
    last_line_of(&last_messages(path)).map(str::to_owned)
}

fn last_line_of(messages: &str) -> Option<&str> {
    messages.lines().rfind(|line| !line.ends_with("Broken pipe"))
}

fn watch(mut child: Child, exit: ExitWatch) {
    std::thread::spawn(move || {
        if let Ok(status) = child.wait() {
            exit.set(status);
        }
    });
}

/// Who sends SIGKILL to a QEMU that is not told to end: the kernel, for lack of memory, or a
/// person.
fn killed(before: &OomKills) -> String {
    match before.since() {
        Some(why) => format!("SIGKILL: {why}. Stop something or lower `memory`."),
        None => "SIGKILL: somebody killed it; the kernel killed nobody for lack of memory meanwhile.".to_owned(),
    }
}

/// Words of a QEMU that was asked for a machine type that it does not have, or no longer has.
pub(crate) const NO_MACHINE_TYPE: &str = "unsupported machine type";

/// Causes that QEMU's own words do not explain to everyone.
const HINTS: [(&str, &str); 10] = [
    ("Cannot allocate memory", "The host lacks the memory: stop something or lower `memory`."),
    ("cannot bind memory to host NUMA nodes", "A home node is not usable here: `homenode topology` shows the nodes."),
    (
        "os_mem_prealloc: Insufficient free host memory",
        "A home node lacks the memory: stop something or lower `memory`.",
    ),
    (
        "qemu_prealloc_mem: preallocating memory failed",
        "A home node lacks the memory: stop something or lower `memory`.",
    ),
    (
        NO_MACHINE_TYPE,
        "This QEMU lacks the machine type that the guest began with: name a QEMU that has it in \
        HOMENODE_QEMU.",
    ),
    ("The max CPUs supported by machine", "Lower `vcpus` in the spec."),
    ("X2APIC API support", "More than 255 vCPUs need KVM: lower `vcpus` in the spec."),
    ("Could not set up host forwarding rule", "Another program has that port: change `forward` in the spec."),
    ("Failed to get", "Another QEMU uses that image: stop it, or set `snapshot` or `read_only` on both."),
    ("Image is not in", "The image has another format: `qemu-img info` shows it; set `format` in the spec."),
];

fn hint(words: &str) -> Option<&'static str> {
    HINTS.iter().find(|(sign, _)| words.contains(sign)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::sys::Tie;

    fn run(script: &str) -> Process {
        let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user: None };
        Process::start("a", Path::new("/bin/sh"), &["-c".to_owned(), script.to_owned()], &ErrorsTo::Us, setup).unwrap()
    }

    #[test]
    fn what_was_said_of_a_save_that_was_given_up_is_no_cause_of_an_end() {
        let gave_up = "qemu-system-x86_64: Unable to write to file: Broken pipe\n";
        assert_eq!(last_line_of(gave_up), None);
        assert_eq!(last_line_of(&format!("q: out of memory\n{gave_up}")), Some("q: out of memory"));
    }

    #[test]
    fn a_program_that_dies_at_once_is_reported_with_its_last_words() {
        let mut process = run("echo 'q: Could not set up host forwarding rule' >&2; exit 3");
        let error = process.ended(Duration::from_secs(60)).unwrap().to_string();
        assert!(error.contains("exit status: 3") && error.contains("q: Could not set up"), "{error}");
        assert!(error.ends_with("change `forward` in the spec."), "{error}");
    }

    #[test]
    fn a_program_that_somebody_killed_says_so() {
        let mut process = run("kill -9 $$");
        let error = process.ended(Duration::from_secs(60)).unwrap().to_string();
        assert!(error.contains("signal: 9") && error.contains("SIGKILL: "), "{error}");
    }

    #[test]
    fn a_program_that_runs_has_not_ended_and_is_killed_with_its_owner() {
        let mut process = run("exec sleep 60");
        assert!(process.ended(Duration::ZERO).is_none());
        let exit = process.exit().clone();
        drop(process);
        let status = exit.wait(Duration::ZERO).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGKILL));
    }
}
