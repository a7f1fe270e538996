//! The controller's end of the agent protocol: JSON lines to and from `homenode-guest`, in a VM or
//! as a native process.

use linux::sys;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use topology::CpuSet;
pub use workloads::protocol::PORT_NAME;
use workloads::protocol::{FromAgent, ToAgent};

/// Longest line accepted from an agent: a guest is not trusted with our memory.
const LONGEST_LINE_BYTES: u64 = 1 << 20;

/// Most messages that wait to be received. An agent that says more than it is asked waits in its
/// write; no agent is owed more than three.
const MOST_WAITING: usize = 8;

/// Does something on these CPUs: what a thread starts has those of the thread.
fn on<T>(cpus: &CpuSet, what: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let thread = sys::thread_id();
    let own = sys::affinity(thread)?;
    sys::set_affinity(thread, cpus)?;
    let done = what();
    sys::set_affinity(thread, &own)?;
    done
}

/// What can go wrong between homenode and an agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nothing arrived in time; the agent may still answer.
    #[error("{agent}: no answer within {seconds:.1} s")]
    Timeout {
        /// Whose.
        agent: String,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The agent is gone: nothing more will arrive.
    #[error("{agent}: the connection to its agent is closed")]
    Closed {
        /// Whose.
        agent: String,
    },
    /// A line that is not of the protocol.
    #[error("{agent}: its agent sent what is not a message: {reason}; the line began with `{start}`")]
    Garbled {
        /// Whose.
        agent: String,
        /// Why it could not be read.
        reason: String,
        /// The line's first characters.
        start: String,
    },
    /// A message could not be sent.
    #[error("{agent}: cannot send to its agent: {source}")]
    Send {
        /// Whose.
        agent: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The native agent could not be started.
    #[error("cannot start the agent {}: {source}; `scripts/guest-image` builds it", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// A message and when it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrived {
    /// When its last byte had been read.
    pub at: Instant,
    /// The message.
    pub message: FromAgent,
}

/// A connection to one agent.
pub struct AgentLink {
    name: String,
    writer: Box<dyn Write + Send>,
    arrivals: Receiver<Result<Arrived, AgentError>>,
}

impl AgentLink {
    /// A link over any pair of streams; `name` is what errors call the agent. A thread reads until
    /// the stream ends.
    pub fn over(name: &str, reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> AgentLink {
        let (sender, arrivals) = sync_channel(MOST_WAITING);
        let agent = name.to_owned();
        std::thread::spawn(move || read_all(&agent, BufReader::new(reader), &sender));
        AgentLink { name: name.to_owned(), writer: Box::new(writer), arrivals }
    }

    /// What errors call the agent.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends one message.
    pub fn send(&mut self, message: &ToAgent) -> Result<(), AgentError> {
        let send = |source| AgentError::Send { agent: self.name.clone(), source };
        let mut line = serde_json::to_vec(message).map_err(|error| send(error.into()))?;
        line.push(b'\n');
        // One write for one line: a partial line would stop an agent that reads while others are
        // told to go.
        self.writer.write_all(&line).and_then(|()| self.writer.flush()).map_err(send)
    }

    /// The next message; waits for it at most `timeout`. [`AgentError::Timeout`] may be followed by
    /// messages, [`AgentError::Closed`] never.
    pub fn receive(&self, timeout: Duration) -> Result<Arrived, AgentError> {
        match self.arrivals.recv_timeout(timeout) {
            Ok(arrived) => arrived,
            Err(RecvTimeoutError::Timeout) => {
                Err(AgentError::Timeout { agent: self.name.clone(), seconds: timeout.as_secs_f64() })
            }
            Err(RecvTimeoutError::Disconnected) => Err(AgentError::Closed { agent: self.name.clone() }),
        }
    }
}

fn read_all(agent: &str, mut reader: impl BufRead, arrivals: &SyncSender<Result<Arrived, AgentError>>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LONGEST_LINE_BYTES).read_until(b'\n', &mut line) {
            // A stream that breaks and one that ends are the same to a controller: the receiver
            // sees `Closed`.
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let at = Instant::now();
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let arrived = parse(agent, &line).map(|message| Arrived { at, message });
        let garbled = arrived.is_err();
        if arrivals.send(arrived).is_err() || garbled {
            return;
        }
    }
}

fn parse(agent: &str, line: &[u8]) -> Result<FromAgent, AgentError> {
    let garbled = |reason: String| AgentError::Garbled {
        agent: agent.to_owned(),
        reason,
        start: topology::input::excerpt(&String::from_utf8_lossy(&line[..line.len().min(400)])),
    };
    if line.last() != Some(&b'\n') {
        let reason = if line.len() as u64 == LONGEST_LINE_BYTES { "it is over 1 MiB" } else { "it is cut off" };
        return Err(garbled(reason.to_owned()));
    }
    serde_json::from_slice(line).map_err(|error| garbled(error.to_string()))
}

/// An agent that runs on this host, as a child over pipes: the same program as in a guest. It ends
/// when its standard input closes, so also when homenode is killed.
pub struct NativeAgent {
    child: Child,
    link: AgentLink,
}

impl NativeAgent {
    /// Starts `program` (`homenode-guest`), on these CPUs; `None`: on ours.
    pub fn start(program: &Path, cpus: Option<&CpuSet>) -> Result<NativeAgent, AgentError> {
        let mut command = Command::new(program);
        command.args(NativeAgent::ARGUMENTS);
        NativeAgent::of(command, cpus)
    }

    /// What `homenode-guest` is told to be such an agent.
    pub const ARGUMENTS: [&str; 1] = ["--native"];

    /// Starts it by a command that becomes it, or starts nothing else.
    pub fn of(mut command: Command, cpus: Option<&CpuSet>) -> Result<NativeAgent, AgentError> {
        let program = PathBuf::from(command.get_program());
        let failed = |source| AgentError::Start { program: program.clone(), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut start = || command.spawn();
        let mut child = match cpus {
            Some(cpus) => on(cpus, start),
            None => start(),
        }
        .map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(std::io::Error::other("its pipes are missing")));
        };
        Ok(NativeAgent { child, link: AgentLink::over("native", output, input) })
    }

    /// The connection to it.
    pub fn link(&mut self) -> &mut AgentLink {
        &mut self.link
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it: asks first, and kills it if it has not gone within two seconds.
    pub fn stop(mut self) {
        // An agent that is gone already cannot be told; `end` finds that out.
        let _ = self.link.send(&ToAgent::Finish);
        self.end(Duration::from_secs(2));
    }

    fn end(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for NativeAgent {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn pair() -> (AgentLink, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (AgentLink::over("vm-1", ours.try_clone().unwrap(), ours), theirs)
    }

    #[test]
    fn messages_arrive_in_order_and_a_closed_stream_is_not_a_time_out() {
        let (link, mut agent) = pair();
        agent.write_all(b"{\"type\":\"ready\",\"job\":7,\"repetition\":0}\n\n").unwrap();
        agent.write_all(b"{\"type\":\"ready\",\"job\":7,\"repetition\":1}\n").unwrap();
        for repetition in 0..2 {
            let arrived = link.receive(Duration::from_secs(60)).unwrap();
            assert_eq!(arrived.message, FromAgent::Ready { job: 7, repetition });
        }
        assert!(matches!(link.receive(Duration::from_millis(10)), Err(AgentError::Timeout { .. })));
        drop(agent);
        assert!(matches!(link.receive(Duration::from_secs(60)), Err(AgentError::Closed { .. })));
    }

    #[test]
    fn what_is_not_a_message_is_shown() {
        let (link, mut agent) = pair();
        agent.write_all(b"Kernel panic - not syncing\n").unwrap();
        let error = link.receive(Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("vm-1") && error.contains("Kernel panic"), "{error}");
    }

    #[test]
    fn a_line_without_end_does_not_fill_memory() {
        let (link, mut agent) = pair();
        std::thread::spawn(move || while agent.write_all(&[b'x'; 65_536]).is_ok() {});
        let error = link.receive(Duration::from_secs(20)).unwrap_err();
        assert!(error.to_string().contains("over 1 MiB"), "{error}");
    }

    #[test]
    fn a_flood_of_messages_does_not_fill_memory() {
        let (link, mut agent) = pair();
        let message = b"{\"type\":\"ready\",\"job\":7,\"repetition\":0}\n".repeat(1000);
        let bytes = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&bytes);
        std::thread::spawn(move || {
            while agent.write_all(&message).is_ok() {
                written.fetch_add(message.len(), Ordering::Relaxed);
            }
        });
        // It comes to a stand: what waits here, and what the kernel keeps of a socket (some 200
        // kB).
        let mut before = usize::MAX;
        while before != bytes.load(Ordering::Relaxed) {
            before = bytes.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(before < 4 << 20, "{before} bytes were taken and nobody asked for them");
        assert!(link.receive(Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn a_message_is_one_line() {
        let (mut link, agent) = pair();
        link.send(&ToAgent::Go { job: 3 }).unwrap();
        let mut line = String::new();
        BufReader::new(agent).read_line(&mut line).unwrap();
        assert_eq!(line, "{\"type\":\"go\",\"job\":3}\n");
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = NativeAgent::start(Path::new("/no/such/agent"), None).err().unwrap().to_string();
        assert!(error.contains("/no/such/agent") && error.contains("guest-image"), "{error}");
    }
}
