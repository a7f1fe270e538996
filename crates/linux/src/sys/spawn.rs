//! Starting a program so that it never outlives us, or so that it does.

use super::mask::Mask;
use super::user::{Credentials, become_for_good};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use topology::CpuSet;

/// How long a program that we start may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// The kernel kills it when we end, however we end.
    DiesWithUs,
    /// The kernel asks it to end (SIGTERM) when we end, however we end: it has something to clean
    /// up.
    EndsWithUs,
    /// It outlives us and our terminal.
    Outlives,
}

/// What happens in the new process before it becomes the program. It is in a session of its own:
/// Ctrl-C on the terminal reaches us alone, and it cannot type on our terminal.
#[derive(Debug)]
pub struct ChildSetup {
    /// How long it may live.
    pub tie: Tie,
    /// Descriptors that the program inherits, under the same numbers as here.
    pub inherited: Vec<OwnedFd>,
    /// CPUs that all its threads start on. Default: ours.
    pub cpus: Option<CpuSet>,
    /// Whom it runs as, without capabilities and with nothing open but what it inherits. Default:
    /// as we do.
    pub user: Option<Credentials>,
}

type Request = (Command, ChildSetup, Sender<io::Result<Child>>);

/// Starts a program. It is started by a thread that lives as long as this process: the kernel's
/// parent-death signal fires when the *thread* that forked ends (prctl(2), PR_SET_PDEATHSIG), not
/// when the process does.
pub fn spawn(command: Command, setup: ChildSetup) -> io::Result<Child> {
    static REQUESTS: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (send, receive) = channel();
        std::thread::spawn(move || serve(&receive));
        Mutex::new(send)
    });
    let (answer, answered) = channel();
    let gone = || io::Error::other("the thread that starts programs has ended");
    let request = (command, setup, answer);
    requests.lock().map_err(|_| gone())?.send(request).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn serve(requests: &Receiver<Request>) {
    for (command, setup, answer) in requests {
        // Nobody waits for the answer any more: nothing to do.
        let _ = answer.send(spawn_here(command, setup));
    }
}

fn spawn_here(mut command: Command, setup: ChildSetup) -> io::Result<Child> {
    let parent = std::process::id();
    let mask = setup.cpus.as_ref().map(Mask::of);
    let inherited: Vec<i32> = setup.inherited.iter().map(AsRawFd::as_raw_fd).collect();
    let (tie, user) = (setup.tie, setup.user);
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls on
    // numbers and on memory that was allocated before the fork: it neither allocates nor takes a
    // lock, and an io::Error from errno holds no heap memory.
    unsafe {
        command.pre_exec(move || {
            if let Some(user) = &user {
                close_at_exec()?;
                become_for_good(user)?;
                leave_ours_behind()?;
            }
            // After that: who changes its user loses the signal of its parent's death.
            set_tie(tie, parent)?;
            inherited.iter().try_for_each(|&descriptor| keep_open(descriptor))?;
            mask.as_ref().map_or(Ok(()), start_on)
        });
    }
    let child = command.spawn();
    drop(setup.inherited);
    child
}

fn set_tie(tie: Tie, parent: u32) -> io::Result<()> {
    // SAFETY: setsid takes no argument and touches no memory.
    super::checked(libc::c_long::from(unsafe { libc::setsid() }))?;
    let signal = match tie {
        Tie::Outlives => return Ok(()),
        Tie::EndsWithUs => libc::SIGTERM,
        Tie::DiesWithUs => libc::SIGKILL,
    };
    // SAFETY: this prctl takes a number and touches no memory.
    super::checked(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }))?;
    // SAFETY: getppid takes no argument and cannot fail.
    let now = unsafe { libc::getppid() } as u32;
    // The parent ended before the signal was set: it will never come.
    if now == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Whatever whoever started us left open for us is not for another user.
fn close_at_exec() -> io::Result<()> {
    let (first, last) = (libc::STDERR_FILENO as libc::c_uint + 1, libc::c_uint::MAX);
    // SAFETY: close_range takes three numbers and touches no memory; the flag closes nothing now.
    match super::checked(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) }) {
        // Before Linux 5.11.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => Ok(()),
        closed => closed.map(drop),
    }
}

/// What else a process takes from its parent and another user must not have (docs/security.md has
/// the whole table): our keys, our directory, and our umask. After the user has changed, so that
/// the keyring is that user's own.
fn leave_ours_behind() -> io::Result<()> {
    join_keyring_of_its_own()?;
    // SAFETY: chdir reads a C string that lives for ever.
    super::checked(libc::c_long::from(unsafe { libc::chdir(c"/".as_ptr()) }))?;
    // SAFETY: umask takes a number and cannot fail.
    unsafe { libc::umask(0o077) };
    Ok(())
}

/// A session keyring (keyrings(7)) that is new and empty: that of a login has the user's secrets.
fn join_keyring_of_its_own() -> io::Result<()> {
    // SAFETY: a name that is null asks for an anonymous keyring; no memory is touched.
    let joined =
        unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    match super::checked(joined) {
        // A kernel without keys, or a filter around us that forbids them: it binds the child too.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(()),
        joined => joined.map(drop),
    }
}

fn keep_open(descriptor: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open (the caller owns it until after the spawn), and F_SETFD
    // touches no memory.
    super::checked(libc::c_long::from(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })).map(drop)
}

fn start_on(mask: &Mask) -> io::Result<()> {
    // SAFETY: the mask was allocated before the fork and is valid for reads of its whole length.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, mask.bytes(), mask.as_ptr()) };
    super::checked(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_program_inherits_what_it_is_given_and_starts_on_its_cpus() {
        let first = crate::sys::affinity(0).unwrap().first().unwrap();
        let cpus: CpuSet = std::iter::once(first).collect();
        let file = crate::sys::memory_file(c"given", b"hello").unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut command = Command::new("sh");
        command.args(["-c", "cat \"$0\"; grep Cpus_allowed_list /proc/self/status", &path]).stdout(Stdio::piped());
        let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: vec![file], cpus: Some(cpus), user: None };
        let output = spawn(command, setup).unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("helloCpus_allowed_list:\t{first}\n"));
    }

    #[test]
    fn a_program_outlives_the_thread_that_asked_for_it() {
        let start = || {
            let mut command = Command::new("sleep");
            command.arg("30");
            spawn(command, ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user: None }).unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "the kernel killed it with the asking thread");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A QEMU that ran as another user read a key of root's login.
    #[test]
    fn a_program_of_another_user_has_neither_our_keys_nor_our_directory_nor_our_umask() {
        const NAME: &str = "a_program_of_another_user_has_neither_our_keys_nor_our_directory_nor_our_umask";
        if crate::capabilities::missing_to_start_as_another().is_some() {
            return eprintln!("SKIPPED {NAME}: it needs root");
        }
        if let Err(error) = join_keyring_of_its_own().and_then(|()| add_key_to_session_keyring(c"homenode-test")) {
            return eprintln!("SKIPPED {NAME}: no keys here: {error}");
        }
        let seen = |user: Option<u32>| {
            let mut command = Command::new("sh");
            command.args(["-c", "cat /proc/keys; grep Umask /proc/self/status; pwd"]).stdout(Stdio::piped());
            let user = user.map(|user| Credentials { user, group: user, groups: Vec::new() });
            let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user };
            let output = spawn_here(command, setup).unwrap().wait_with_output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert!(seen(None).contains("homenode-test"), "the key is not seen by ourselves: {}", seen(None));
        let theirs = seen(Some(60_706));
        assert!(!theirs.contains("homenode-test"), "{theirs}");
        assert!(theirs.ends_with("Umask:\t0077\n/\n"), "{theirs}");
    }

    fn add_key_to_session_keyring(name: &std::ffi::CStr) -> io::Result<()> {
        let (kind, secret, session) = (c"user", b"secret", libc::KEY_SPEC_SESSION_KEYRING);
        // SAFETY: the kernel reads two C strings and as many bytes as it is told; all live through
        // the call.
        super::super::checked(unsafe {
            libc::syscall(libc::SYS_add_key, kind.as_ptr(), name.as_ptr(), secret.as_ptr(), secret.len(), session)
        })
        .map(drop)
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user: None };
        let error = spawn(Command::new("/no/such/program"), setup).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
