//! The other homenode: a program that is started on its host, and lines to and from it.
//!
//! **Rule.** `unix:` is this program again on this host; a host is reached by ssh, or by the
//! program that `HOMENODE_SSH` names, which is given the host and the command. Nobody is asked for
//! a password: homenode is not at the terminal while a guest is on its way. Both sides say that
//! they are there; who hears nothing for [`SILENCE`], or whose words nobody reads for so long,
//! takes the link for cut.

use crate::MigrationError;
use crate::last_words::LastWords;
use crate::protocol::{LONGEST_LINE, ProtocolError};
use linux::sys::{ChildSetup, ProcessHandle, Tie};
use serde::Serialize;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Names the program that reaches other hosts, instead of `ssh`.
pub const SSH_VARIABLE: &str = "HOMENODE_SSH";

/// For how long the other side may say nothing.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// How often each side says that it is there.
pub(crate) const ALIVE: Duration = Duration::from_secs(5);

/// What is said of a link that has come to its end.
const CLOSED: &str = "the connection was closed";

/// Lines that wait to be heard, at most: the other side waits with the next.
const MOST_WAITING: usize = 8;

/// Where a VM goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// To another home on this host.
    ThisHost,
    /// To another host, by its name for ssh.
    Host(String),
}

impl To {
    /// From what a user writes: `unix:`, or a host.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, MigrationError> {
        let odd = |letter: char| letter.is_control() || letter.is_whitespace();
        if text == "unix:" {
            Ok(Self::ThisHost)
        } else if text.is_empty() || text.starts_with('-') || text.contains(odd) || text.contains('/') {
            let problem =
                format!("--to {text:?}: name a host as ssh knows it (`host`, `user@host`), or `unix:` for this one");
            Err(MigrationError::BadInput(problem))
        } else {
            Ok(Self::Host(text.to_owned()))
        }
    }

    /// As a user writes it.
    pub fn name(&self) -> &str {
        match self {
            Self::ThisHost => "unix:",
            Self::Host(host) => host,
        }
    }

    /// homenode there, with these arguments: words of letters, digits, `-`, `_` and `.`.
    fn command(&self, arguments: &[&str]) -> Result<Command, MigrationError> {
        let Self::Host(host) = self else {
            let program = std::env::current_exe().map_err(MigrationError::io("find this program"))?;
            let mut command = Command::new(program);
            command.args(arguments);
            return Ok(command);
        };
        let named = std::env::var_os(SSH_VARIABLE).filter(|name| !name.is_empty());
        let mut command = Command::new(named.as_deref().unwrap_or("ssh".as_ref()));
        if named.is_none() {
            command.args([
                "-T",
                "-o",
                "BatchMode=yes",
                "-o",
                "ServerAliveInterval=5",
                "-o",
                "ServerAliveCountMax=4",
                "--",
            ]);
        }
        command.arg(host).arg(format!("homenode {}", arguments.join(" ")));
        Ok(command)
    }

    fn spawn(&self, mut command: Command) -> Result<Helper, MigrationError> {
        // In a session of its own: Ctrl-C is for us alone, who tell it what to do.
        let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user: None };
        let program = command.get_program().to_string_lossy().into_owned();
        command.env_remove("SSH_ASKPASS").stderr(Stdio::piped());
        let mut child = linux::sys::spawn(command, setup)
            .map_err(MigrationError::io(format!("start {program} for {}", self.name())))?;
        let last_words = child.stderr.take().map(LastWords::listen);
        // Who has said nothing has nothing to tidy up.
        Ok(Helper { child, grace: Duration::ZERO, last_words })
    }

    /// Starts homenode there, whose standard input and output are the socket's other end.
    pub(crate) fn carry(&self, arguments: &[&str]) -> Result<(Helper, OwnedFd), MigrationError> {
        let (ours, theirs) = UnixStream::pair().map_err(MigrationError::io("make a socket pair"))?;
        Ok((self.carry_on(arguments, theirs.into())?, ours.into()))
    }

    /// Starts homenode there, whose standard input and output are this socket.
    pub(crate) fn carry_on(&self, arguments: &[&str], socket: OwnedFd) -> Result<Helper, MigrationError> {
        let copy = socket.try_clone().map_err(MigrationError::io("copy a socket"))?;
        let mut command = self.command(arguments)?;
        command.stdin(Stdio::from(socket)).stdout(Stdio::from(copy));
        self.spawn(command)
    }
}

/// How long a homenode may take to tidy up at the other end.
const TIDIES_UP: Duration = Duration::from_secs(15);

/// A program that ends with the value, by itself where it does so in time.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    grace: Duration,
    last_words: Option<LastWords>,
}

impl Drop for Helper {
    fn drop(&mut self) {
        if let Ok(handle) = ProcessHandle::open(self.child.id()) {
            // An error is one more reason to end it.
            let _ = handle.wait_ended(self.grace);
        }
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came over a link.
pub(crate) enum Heard<T> {
    Said(T),
    /// It is at its end, or carries what is not understood.
    Cut(String),
}

/// How long somebody who says something waits until it is written: mostly, it is at once.
const WRITES: Duration = Duration::from_millis(200);
/// How long somebody who ends waits for that.
const WRITES_LAST: Duration = Duration::from_secs(2);

/// Lines that go out, in a thread of their own: where the other side reads nothing, a write waits
/// for ever, and whoever waits for it hears no Ctrl-C.
struct Lines {
    lines: Sender<Vec<u8>>,
    written: Receiver<io::Result<()>>,
    waiting: usize,
    /// Since when one of them waits.
    since: Instant,
}

impl Lines {
    fn to(mut output: impl Write + Send + 'static) -> Self {
        let ((lines, out), (tell, written)) = (channel::<Vec<u8>>(), channel());
        thread::spawn(move || {
            for line in out {
                // The first failure is the last line.
                let done = output.write_all(&line).and_then(|()| output.flush());
                if done.is_err() | tell.send(done).is_err() {
                    return;
                }
            }
        });
        Self { lines, written, waiting: 0, since: Instant::now() }
    }

    fn push(&mut self, line: Vec<u8>) -> io::Result<()> {
        if self.waiting == 0 {
            self.since = Instant::now();
        }
        self.lines.send(line).map_err(|_| ErrorKind::BrokenPipe)?;
        self.waiting += 1;
        self.wait(WRITES)
    }

    /// Waits up to `within` until all is written; an error says that it was not, for too long.
    fn wait(&mut self, within: Duration) -> io::Result<()> {
        let deadline = Instant::now() + within;
        while self.waiting > 0 {
            match self.written.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(done) => done?,
                Err(RecvTimeoutError::Disconnected) => return Err(ErrorKind::BrokenPipe.into()),
                Err(RecvTimeoutError::Timeout) if self.since.elapsed() <= SILENCE => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    let silent = format!("nobody has read what was said for {} s", SILENCE.as_secs());
                    return Err(io::Error::new(ErrorKind::TimedOut, silent));
                }
            }
            self.waiting -= 1;
            self.since = Instant::now();
        }
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // The other side may be gone.
        let _ = self.wait(WRITES_LAST);
    }
}

/// Lines to and from the other side.
pub(crate) struct Link<T> {
    /// Who is at the other end, for errors.
    pub(crate) host: String,
    out: Lines,
    heard: Receiver<Heard<T>>,
    last_heard: Instant,
    last_said: Instant,
    helper: Option<Helper>,
}

impl<T: Send + 'static> Link<T> {
    /// Over these.
    pub(crate) fn over(
        host: &str,
        input: impl Read + Send + 'static,
        output: impl Write + Send + 'static,
        parse: fn(&[u8]) -> Result<T, ProtocolError>,
    ) -> Self {
        let (send, heard) = sync_channel(MOST_WAITING);
        thread::spawn(move || {
            let mut input = BufReader::new(input);
            loop {
                let said = match line(&mut input) {
                    Ok(Some(line)) => parse(&line).map_or_else(|error| Heard::Cut(error.to_string()), Heard::Said),
                    Ok(None) => Heard::Cut(CLOSED.to_owned()),
                    Err(error) => Heard::Cut(format!("the connection is cut: {error}")),
                };
                let over = matches!(said, Heard::Cut(_));
                if send.send(said).is_err() || over {
                    return;
                }
            }
        });
        let now = Instant::now();
        let (host, out) = (host.to_owned(), Lines::to(output));
        Self { host, out, heard, last_heard: now, last_said: now, helper: None }
    }

    /// To a homenode that is started at the other end.
    pub(crate) fn to(
        to: &To,
        arguments: &[&str],
        parse: fn(&[u8]) -> Result<T, ProtocolError>,
    ) -> Result<Self, MigrationError> {
        let mut command = to.command(arguments)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut helper = to.spawn(command)?;
        let pipes = helper.child.stdin.take().zip(helper.child.stdout.take());
        let Some((input, output)) = pipes else {
            return Err(MigrationError::Link { host: to.name().to_owned(), because: "it has no pipes".to_owned() });
        };
        let link = Self::over(to.name(), output, input, parse);
        Ok(Self { helper: Some(helper), ..link })
    }

    fn cut(&self, because: impl Into<String>) -> MigrationError {
        MigrationError::Link { host: self.host.clone(), because: because.into() }
    }

    /// The same where nothing comes any more: there may be no homenode at all.
    fn silent(&self, because: &str) -> MigrationError {
        let never_heard = self.helper.as_ref().is_some_and(|helper| helper.grace.is_zero());
        let cure = "; no homenode that can receive a VM has answered there: see what \
            `ssh HOST homenode --version` prints";
        let last_line = self.helper.as_ref().and_then(|helper| helper.last_words.as_ref()?.last_line());
        let said = last_line.map(|line| format!("; the last that was said there: {line}")).unwrap_or_default();
        self.cut(format!("{because}{said}{}", if never_heard { cure } else { "" }))
    }

    /// Says something. It need not be read yet: [`Link::hear`] says where it is not for too long.
    pub(crate) fn say(&mut self, what: &impl Serialize) -> Result<(), MigrationError> {
        let mut line = serde_json::to_vec(what).map_err(|error| self.cut(error.to_string()))?;
        line.push(b'\n');
        let written = self.out.push(line);
        self.last_said = Instant::now();
        written.map_err(|error| self.silent(&format!("the connection is cut: {error}")))
    }

    /// Says that we are there, where nothing was said for a while.
    pub(crate) fn keep_alive(&mut self, alive: &impl Serialize) -> Result<(), MigrationError> {
        if self.last_said.elapsed() < ALIVE { Ok(()) } else { self.say(alive) }
    }

    /// What was said, waited for up to `within`; `None` when that is over.
    ///
    /// # Errors
    /// The link is cut, or nothing was heard, or read, for too long.
    pub(crate) fn hear(&mut self, within: Duration) -> Result<Option<T>, MigrationError> {
        match self.heard.recv_timeout(within) {
            Ok(Heard::Said(said)) => {
                self.last_heard = Instant::now();
                self.helper.iter_mut().for_each(|helper| helper.grace = TIDIES_UP);
                Ok(Some(said))
            }
            Ok(Heard::Cut(because)) if because == CLOSED => Err(self.silent(&because)),
            Ok(Heard::Cut(because)) => Err(self.cut(because)),
            Err(RecvTimeoutError::Disconnected) => Err(self.silent(CLOSED)),
            Err(RecvTimeoutError::Timeout) if self.last_heard.elapsed() > SILENCE => {
                Err(self.silent(&format!("it has said nothing for {} s", SILENCE.as_secs())))
            }
            Err(RecvTimeoutError::Timeout) => {
                let written = self.out.wait(Duration::ZERO);
                written.map(|()| None).map_err(|error| self.silent(&format!("the connection is cut: {error}")))
            }
        }
    }
}

/// A line without its end; `None` at the end of the input.
fn line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut limited = input.take(LONGEST_LINE as u64 + 1);
    match limited.read_until(b'\n', &mut line) {
        Err(error) => Err(error),
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            Ok(Some(line))
        }
        Ok(_) if line.len() > LONGEST_LINE => Err(io::Error::other(ProtocolError::TooLong)),
        // What has no end was cut.
        Ok(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_this_host_or_one_that_ssh_knows() {
        assert_eq!(To::parse("unix:").unwrap(), To::ThisHost);
        assert_eq!(To::parse("root@b").unwrap(), To::Host("root@b".to_owned()));
        for bad in ["", "-oProxyCommand=x", "a b", "a\nb", "unix:/run/a.sock", "ssh://b"] {
            assert!(To::parse(bad).is_err_and(|error| error.is_bad_input()), "{bad}");
        }
    }

    /// All that the other side said was kept in memory until somebody listened.
    #[test]
    fn who_says_more_than_is_heard_waits() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        theirs.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut link = Link::over("b", ours.try_clone().unwrap(), ours, |line| Ok(line.len()));
        let line = [vec![b'x'; 1 << 20], vec![b'\n']].concat();
        let said = (0..100).take_while(|_| theirs.write_all(&line).is_ok()).count();
        assert!(said <= MOST_WAITING + 2, "{said} lines of a MiB");
        assert_eq!(link.hear(Duration::from_secs(5)).unwrap(), Some(1 << 20));
    }

    /// An offer of more than a pipe holds waited for ever for a destination that read nothing.
    #[test]
    fn who_is_not_read_does_not_wait_for_ever() {
        let (_theirs, ours) = UnixStream::pair().unwrap();
        let mut link = Link::over("b", ours.try_clone().unwrap(), ours, |line| Ok(line.len()));
        let began = Instant::now();
        link.say(&"x".repeat(1 << 20)).unwrap();
        assert!(link.hear(Duration::ZERO).unwrap().is_none());
        assert!(began.elapsed() < Duration::from_secs(10));
        // So long ago that nobody will read it any more.
        link.out.since = Instant::now().checked_sub(SILENCE + Duration::from_secs(1)).unwrap();
        let error = link.hear(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("nobody has read what was said for 30 s"), "{error}");
        drop(link);
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn lines_have_an_end_and_a_limit() {
        let mut input = &b"a\n\nb"[..];
        assert_eq!(line(&mut input).unwrap(), Some(b"a".to_vec()));
        assert_eq!(line(&mut input).unwrap(), Some(Vec::new()));
        assert_eq!(line(&mut input).unwrap(), None, "what has no end was cut");
        let long = vec![b'x'; LONGEST_LINE + 2];
        assert!(line(&mut &long[..]).is_err());
    }
}
