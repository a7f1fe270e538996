//! Runs the programs of a command, and leaves nothing of them behind.
//!
//! A program has a session of its own and starts on the CPUs of the job's threads. Whatever it
//! starts stays a descendant of this process (which adopts orphans, as init does by nature), so
//! that at the time limit, and at the program's end, all of it can be found and killed. What it
//! used is what the kernel counted for all those processes.

use linux::sys::{self, ChildSetup, Reaped, Tie};
use std::fs::DirBuilder;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use topology::CpuSet;
use workloads::command::{CommandError, Ended, Hearing, Job, Listener, Program, Programs, Run, Used};

const KILL: i32 = 9;
/// Looks for what is left before it is given up: a process that the kernel holds cannot be killed.
const LOOKS: u32 = 500;
const BETWEEN_LOOKS: Duration = Duration::from_millis(4);
const PIECE_BYTES: usize = 1 << 18;

/// The directory of the repetition that runs, so that it goes with this process.
static DIRECTORY: Mutex<Option<PathBuf>> = Mutex::new(None);
static NEXT_DIRECTORY: AtomicU64 = AtomicU64::new(0);

/// Ends all that this process has started, and removes its directory. Called when the controller is
/// gone.
pub(crate) fn end_all() {
    end_descendants();
    forget_directory();
}

/// Runs programs on some CPUs.
pub(crate) struct LinuxPrograms {
    /// CPUs that a program may use; `None`: those of this process.
    pub(crate) cpus: Option<CpuSet>,
}

impl Drop for LinuxPrograms {
    fn drop(&mut self) {
        forget_directory();
    }
}

impl Programs for LinuxPrograms {
    fn new_directory(&self, name: Option<&str>) -> Result<PathBuf, CommandError> {
        forget_directory();
        let number = NEXT_DIRECTORY.fetch_add(1, Ordering::Relaxed);
        let new = || format!("homenode-command-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name.map_or_else(new, str::to_owned));
        // It must be new: another user's directory or link of this name is refused.
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            failed(
                path.display().to_string(),
                format!("cannot make the directory of a run: {error}; TMPDIR names another place"),
            )
        })?;
        *DIRECTORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(path.clone());
        Ok(path)
    }

    /// In a system of packages the paths of the host are not there.
    fn input(&self, file: &Path) -> PathBuf {
        let brought = Path::new(linux::GUEST_FILES).join(file.strip_prefix("/").unwrap_or(file));
        if brought.is_file() { brought } else { file.to_owned() }
    }

    fn drop_caches(&self) -> Result<(), CommandError> {
        let path = "/proc/sys/vm/drop_caches";
        // What is not yet written cannot be dropped.
        sys::write_back_all();
        std::fs::write(path, "3").map_err(|error| {
            failed(
                "drop_caches".to_owned(),
                format!("cannot write {path}: {error}; it needs root: leave it out, or run as root"),
            )
        })
    }

    fn run(&self, job: &Job, program: &Program, directory: &Path, hearing: &mut Hearing) -> Result<Run, CommandError> {
        let name = &program.argv[0];
        sys::adopt_orphans().map_err(|error| failed(name.clone(), error.to_string()))?;
        let mut command = Command::new(name);
        command.args(&program.argv[1..]).env_clear().envs(&job.environment).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: self.cpus.clone(), user: None };
        let started = Instant::now();
        let mut child =
            sys::spawn(command, setup).map_err(|error| failed(name.clone(), not_started(name, job, &error)))?;
        let cpus = sys::affinity(child.id()).map(|cpus| cpus.to_string()).unwrap_or_default();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (limit, is_late) = (Duration::from_secs(u64::from(job.time_limit_seconds)), AtomicBool::new(false));
        let (over, is_over) = channel();
        let (Hearing { stdout: hear_stdout, stderr: hear_stderr, .. }, late) = (hearing, &is_late);
        let ended = std::thread::scope(|threads| {
            threads.spawn(|| hear(stdout, hear_stdout));
            threads.spawn(|| hear(stderr, hear_stderr));
            threads.spawn(move || end_at(limit, &is_over, late));
            let main = wait_for(child.id(), started);
            // Dropped in any case, so that nobody waits for the limit.
            drop(over);
            let left_behind = end_descendants();
            main.and_then(|main| main.with_the_rest(left_behind))
        });
        let ended = ended.map_err(|error| failed(name.clone(), format!("cannot wait for it: {error}")))?;
        let how = match (is_late.into_inner(), ended.main.status.signal()) {
            (true, _) => Ended::TimeLimit(job.time_limit_seconds),
            (false, Some(signal)) => Ended::Signal(signal),
            (false, None) => Ended::Status(ended.main.status.code().unwrap_or(-1)),
        };
        Ok(Run { ended: how, used: ended.used, cpus })
    }
}

fn failed(program: String, reason: String) -> CommandError {
    CommandError::Run { program, reason }
}

fn forget_directory() {
    let mut directory = DIRECTORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(path) = directory.take() {
        // What cannot be removed lies in the directory for temporary files.
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Why a program could not be started, with what helps.
fn not_started(name: &str, job: &Job, error: &std::io::Error) -> String {
    if error.kind() != std::io::ErrorKind::NotFound {
        return format!("cannot start it: {error}");
    }
    if name.contains('/') && Path::new(name).exists() {
        return "it is there, and what runs it is not: its loader (ld-linux) or its interpreter (#!)".to_owned();
    }
    let path = job.environment.get("PATH").map_or("", String::as_str);
    format!("there is no such program here (PATH is {path:?}); a guest has only what the experiment brings into it")
}

fn hear(output: Option<impl Read>, listener: &mut Listener) {
    let Some(mut output) = output else { return };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match output.read(&mut piece) {
            Ok(0) => return,
            Ok(length) => listener.hear(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Ends all that was started if it is not over within `limit`.
fn end_at(limit: Duration, is_over: &Receiver<()>, is_late: &AtomicBool) {
    if is_over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
        is_late.store(true, Ordering::Relaxed);
        end_descendants();
    }
}

/// Kills all processes that descend from this one; how many there were at the first look.
fn end_descendants() -> u32 {
    let mut first = None;
    for _ in 0..LOOKS {
        // They may start others between the look and the kill: hence another look.
        let found = linux::process::descendants(std::process::id()).unwrap_or_default();
        first.get_or_insert(found.len() as u32);
        if found.is_empty() {
            break;
        }
        // One that has ended meanwhile is not reaped yet, so that its number is still its own.
        for pid in found {
            let _ = sys::send_signal(pid, KILL);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    first.unwrap_or(0)
}

/// A program that has ended, and what it and all that it started used.
struct Whole {
    main: Reaped,
    used: Used,
}

/// Waits for a program, and for others that end before it.
fn wait_for(pid: u32, started: Instant) -> std::io::Result<Whole> {
    let mut used = Used::default();
    loop {
        let ended = sys::wait_for_any_child()?;
        let ended = ended.ok_or_else(|| std::io::Error::other("somebody else waited for it"))?;
        used = with(used, &ended);
        if ended.pid == pid {
            return Ok(Whole { main: ended, used: Used { wall_seconds: started.elapsed().as_secs_f64(), ..used } });
        }
    }
}

impl Whole {
    /// Waits for what was left behind and killed.
    fn with_the_rest(mut self, left_behind: u32) -> std::io::Result<Self> {
        while let Some(ended) = sys::wait_for_any_child()? {
            self.used = with(self.used, &ended);
        }
        self.used.left_behind = left_behind;
        Ok(self)
    }
}

fn with(used: Used, ended: &Reaped) -> Used {
    Used {
        user_seconds: used.user_seconds + ended.user_seconds,
        system_seconds: used.system_seconds + ended.system_seconds,
        peak_memory_bytes: used.peak_memory_bytes.max(ended.peak_memory.0),
        ..used
    }
}
