//! QEMU's monitor protocol: one JSON object a line over a socket (docs/interop/qmp-spec in QEMU).

use crate::QemuError;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use topology::limits::{LONGEST_MONITOR_LINE, MOST_VCPUS};

/// How long QEMU may take for a command that does no work.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);

/// How long the events of a QEMU that has ended may take: they lie in the socket already.
const LAST_EVENTS: Duration = Duration::from_millis(100);

/// How long a look takes at what has come.
const GLANCE: Duration = Duration::from_millis(1);

/// Events that are kept for whoever asks for them: the last ones.
const MOST_EVENTS: usize = 64;

/// A connection to one QEMU's monitor.
#[derive(Debug)]
pub(crate) struct Qmp {
    vm: String,
    stream: UnixStream,
    unread: Vec<u8>,
    events: VecDeque<Value>,
    version: String,
    /// When all must be over, whatever is asked.
    until: Option<Instant>,
}

/// A vCPU as `query-cpus-fast` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct VcpuThread {
    #[serde(rename = "cpu-index")]
    pub(crate) index: u32,
    pub(crate) thread_id: u32,
}

impl Qmp {
    /// Waits for QEMU's greeting and enters command mode. QEMU greets once its machine is built and
    /// its memory is allocated.
    pub(crate) fn handshake(vm: &str, stream: UnixStream, timeout: Duration) -> Result<Self, QemuError> {
        Self::connect(vm, stream, timeout, None, || false)
    }

    /// The same where the greeting and all later answers together must come `within` a time.
    pub(crate) fn handshake_within(vm: &str, stream: UnixStream, within: Duration) -> Result<Self, QemuError> {
        Self::connect(vm, stream, within, Some(Instant::now() + within), || false)
    }

    /// The same with `patience` anew as often as QEMU has got on when it is over.
    pub(crate) fn handshake_while(
        vm: &str,
        stream: UnixStream,
        patience: Duration,
        gets_on: impl FnMut() -> bool,
    ) -> Result<Self, QemuError> {
        Self::connect(vm, stream, patience, None, gets_on)
    }

    fn connect(
        vm: &str,
        stream: UnixStream,
        patience: Duration,
        until: Option<Instant>,
        mut gets_on: impl FnMut() -> bool,
    ) -> Result<Self, QemuError> {
        let mut this = Self {
            vm: vm.to_owned(),
            stream,
            unread: Vec::new(),
            events: VecDeque::new(),
            version: String::new(),
            until,
        };
        let greeting = loop {
            match this.receive("the greeting of its monitor", Instant::now() + patience, patience) {
                Err(QemuError::Timeout { .. }) if gets_on() => {}
                received => break received?,
            }
        };
        this.version = version(&greeting["QMP"]["version"]);
        this.execute("qmp_capabilities", &json!({}))?;
        Ok(this)
    }

    /// Asks, and has all of it over at a moment.
    pub(crate) fn until<T>(
        &mut self,
        moment: Instant,
        ask: impl FnOnce(&mut Self) -> Result<T, QemuError>,
    ) -> Result<T, QemuError> {
        let before = self.until;
        self.until = Some(before.map_or(moment, |before| before.min(moment)));
        let answer = ask(self);
        self.until = before;
        answer
    }

    /// The VM that it is asked about.
    pub(crate) fn vm(&self) -> &str {
        &self.vm
    }

    /// QEMU's version, for example `7.2.22 (Debian 1:7.2+dfsg-7)`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Carries out a command and returns what it returns. Events that arrive meanwhile are kept for
    /// [`Qmp::event`].
    pub(crate) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QemuError> {
        self.execute_with(command, arguments, None)
    }

    /// Gives QEMU a descriptor, under a name that later commands on this connection may use
    /// (`fd:NAME`).
    pub(crate) fn give(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), QemuError> {
        self.execute_with("getfd", &json!({ "fdname": name }), Some(descriptor)).map(drop)
    }

    /// Gives QEMU a descriptor that it closes with this connection: says its number there.
    pub(crate) fn lend(&mut self, descriptor: BorrowedFd<'_>) -> Result<u64, QemuError> {
        let answer = self.execute_with("add-fd", &json!({}), Some(descriptor))?;
        answer["fd"].as_u64().ok_or_else(|| QemuError::Closed { vm: self.vm.clone() })
    }

    fn execute_with(
        &mut self,
        command: &str,
        arguments: &Value,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Value, QemuError> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        let deadline = Instant::now() + ANSWER;
        let timeout = self.left(command, deadline, ANSWER)?;
        let write = self.stream.set_write_timeout(Some(timeout)).and_then(|()| match descriptor {
            None => self.stream.write_all(line.as_bytes()),
            Some(descriptor) => linux::sys::send_descriptor(&self.stream, line.as_bytes(), descriptor)
                .and_then(|sent| self.stream.write_all(&line.as_bytes()[sent..])),
        });
        write.map_err(|error| self.broken(command, error))?;
        loop {
            let mut answer = self.receive(command, deadline, ANSWER)?;
            if let Some(error) = answer.get("error") {
                let message = error["desc"].as_str().unwrap_or("no reason given").to_owned();
                return Err(QemuError::Refused { vm: self.vm.clone(), command: command.to_owned(), message });
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            self.keep(answer);
        }
    }

    fn keep(&mut self, event: Value) {
        if self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The next event, waited for up to a time; `None` when that is over.
    pub(crate) fn event(&mut self, within: Duration) -> Result<Option<Value>, QemuError> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        match self.receive("its events", Instant::now() + within, within) {
            Err(QemuError::Timeout { .. }) => Ok(None),
            received => received.map(Some),
        }
    }

    /// The last such event of those that have come, which are kept for [`Qmp::event`]. Does not
    /// wait.
    pub(crate) fn has_come(&mut self, event: &str) -> Option<&Value> {
        // A connection that is gone brings no more; who talks over it next is told.
        while let Ok(message) = self.receive("its events", Instant::now() + GLANCE, GLANCE) {
            self.keep(message);
        }
        self.events.iter().rev().find(|message| message["event"] == event)
    }

    /// A command of the human monitor, for what QMP cannot ask.
    pub(crate) fn human(&mut self, line: &str) -> Result<String, QemuError> {
        let answer = self.execute("human-monitor-command", &json!({ "command-line": line }))?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
    }

    /// The threads that run the vCPUs of process `pid`, by index. A guest that has taken its QEMU
    /// over could name any thread of the host, and have us bind it: one of another process is not
    /// believed, nor a vCPU that no VM has.
    pub(crate) fn vcpu_threads(&mut self, pid: u32) -> Result<Vec<VcpuThread>, QemuError> {
        const COMMAND: &str = "query-cpus-fast";
        let answer = self.execute(COMMAND, &json!({}))?;
        let refused =
            |message: String| QemuError::Refused { vm: self.vm.clone(), command: COMMAND.to_owned(), message };
        let threads: Result<Vec<VcpuThread>, _> = serde_json::from_value(answer);
        let mut threads = threads.map_err(|error| refused(format!("its answer is not understood: {error}")))?;
        let of_process = linux::process::threads(pid).map_err(QemuError::host(&self.vm))?;
        let own: BTreeSet<u32> = of_process.iter().map(|thread| thread.id).collect();
        let strange = |vcpu: &&VcpuThread| vcpu.index >= MOST_VCPUS || !own.contains(&vcpu.thread_id);
        if let Some(VcpuThread { index, thread_id }) = threads.iter().find(strange) {
            return Err(refused(format!(
                "it says that thread {thread_id} runs vCPU {index}, and it has no such thread"
            )));
        }
        threads.sort_by_key(|thread| thread.index);
        Ok(threads)
    }

    /// Why the VM shut down, in QEMU's words (`ShutdownCause`), from the events of a QEMU that has
    /// ended.
    pub(crate) fn shutdown_reason(&mut self) -> Option<String> {
        loop {
            let message = self.event(LAST_EVENTS).ok().flatten()?;
            if message["event"] == "SHUTDOWN" {
                return message["data"]["reason"].as_str().map(str::to_owned);
            }
        }
    }

    fn receive(&mut self, what: &str, deadline: Instant, timeout: Duration) -> Result<Value, QemuError> {
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|error| QemuError::Refused {
                    vm: self.vm.clone(),
                    command: what.to_owned(),
                    message: format!("its answer is not JSON: {error}"),
                });
            }
            if self.unread.len() >= LONGEST_MONITOR_LINE {
                return Err(QemuError::Refused {
                    vm: self.vm.clone(),
                    command: what.to_owned(),
                    message: format!("its answer has more than {LONGEST_MONITOR_LINE} bytes"),
                });
            }
            let left = self.left(what, deadline, timeout)?;
            self.stream.set_read_timeout(Some(left)).map_err(|error| self.broken(what, error))?;
            let mut chunk = [0u8; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(QemuError::Closed { vm: self.vm.clone() }),
                Ok(count) => self.unread.extend_from_slice(&chunk[..count]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(what, error)),
            }
        }
    }

    /// Time that is left of `timeout`, which ends at `deadline`.
    fn left(&self, what: &str, deadline: Instant, timeout: Duration) -> Result<Duration, QemuError> {
        let end = self.until.map_or(deadline, |until| until.min(deadline));
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let late = || QemuError::Timeout { vm: self.vm.clone(), what: what.to_owned(), seconds: timeout.as_secs() };
        left.ok_or_else(late)
    }

    fn broken(&self, what: &str, source: io::Error) -> QemuError {
        match source.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => QemuError::Closed { vm: self.vm.clone() },
            _ => QemuError::io(&self.vm, format!("talk to QEMU's monitor ({what})"))(source),
        }
    }
}

fn version(value: &Value) -> String {
    let number = |part: &str| value["qemu"][part].as_u64().unwrap_or(0);
    let package = value["package"].as_str().filter(|package| !package.is_empty());
    let package = package.map(|package| format!(" ({package})")).unwrap_or_default();
    format!("{}.{}.{}{package}", number("major"), number("minor"), number("micro"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const GREETING: &str =
        "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, \"package\": \"D\"}}}\n";

    /// A monitor that greets and then answers each line it reads with the next of `answers`.
    fn monitor(answers: &'static [&'static str]) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            theirs.write_all(GREETING.as_bytes()).unwrap();
            let mut line = [0u8; 4096];
            for answer in answers {
                let _ = theirs.read(&mut line).unwrap();
                for part in answer.as_bytes().chunks(7) {
                    theirs.write_all(part).unwrap();
                }
            }
        });
        ours
    }

    #[test]
    fn answers_are_told_from_events_and_errors() {
        let answers = &[
            "{\"return\": {}}\r\n",
            "{\"event\": \"RESUME\"}\n{\"return\": [8, 7]}\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n",
        ];
        let mut qmp = Qmp::handshake("a", monitor(answers), ANSWER).unwrap();
        assert_eq!(qmp.version(), "7.2.22 (D)");
        assert_eq!(qmp.execute("w", &json!({})).unwrap(), json!([8, 7]));
        let error = qmp.execute("x", &json!({})).unwrap_err().to_string();
        assert_eq!(error, "VM a: QEMU refused `x`: no");
        assert!(matches!(qmp.execute("y", &json!({})), Err(QemuError::Closed { .. })));
    }

    /// A QEMU that a guest had taken over had root bind any thread of the host by `vm set`.
    #[test]
    fn threads_of_another_process_and_vcpus_that_no_vm_has_are_not_believed() {
        let own = std::process::id();
        let said = |vcpus: &[(u32, u32)]| {
            let list: Vec<Value> =
                vcpus.iter().map(|(index, thread)| json!({ "cpu-index": index, "thread-id": thread })).collect();
            let answer = json!({ "return": list }).to_string() + "\n";
            let answers: &'static [&'static str] = vec!["{\"return\": {}}\n", &*answer.leak()].leak();
            let threads = Qmp::handshake("a", monitor(answers), ANSWER).unwrap().vcpu_threads(own);
            threads.map(|threads| threads.iter().map(|vcpu| vcpu.index).collect::<Vec<_>>())
        };
        assert_eq!(said(&[(MOST_VCPUS - 1, own), (0, own)]).unwrap(), [0, MOST_VCPUS - 1]);
        let error = said(&[(0, own), (1, 1)]).unwrap_err().to_string();
        assert!(error.contains("thread 1 runs vCPU 1, and it has no such thread"), "{error}");
        assert!(said(&[(MOST_VCPUS, own)]).is_err());
    }

    #[test]
    fn the_last_events_say_why_a_vm_ended() {
        let answers = &[
            "{\"return\": {}}\n{\"event\": \"RESET\"}\n{\"event\": \"SHUTDOWN\", \"data\": {\"reason\": \"guest-reset\"}}\n",
        ];
        let mut qmp = Qmp::handshake("a", monitor(answers), ANSWER).unwrap();
        assert_eq!(qmp.shutdown_reason().as_deref(), Some("guest-reset"));
        assert_eq!(qmp.shutdown_reason(), None);
    }

    #[test]
    fn an_event_that_has_come_is_found_and_kept() {
        let answers =
            &["{\"return\": {}}\n{\"event\": \"STOP\"}\n{\"event\": \"SHUTDOWN\", \"data\": {\"reason\": \"a\"}}\n"];
        let mut qmp = Qmp::handshake("a", monitor(answers), ANSWER).unwrap();
        let deadline = Instant::now() + ANSWER;
        while qmp.has_come("STOP").is_none() {
            assert!(Instant::now() < deadline);
        }
        assert!(qmp.has_come("RESUME").is_none());
        assert_eq!(qmp.shutdown_reason().as_deref(), Some("a"));
    }

    #[test]
    fn silence_is_an_error_in_time() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = Qmp::handshake("a", ours, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, QemuError::Timeout { .. }), "{error}");
    }

    #[test]
    fn a_line_without_end_is_refused_and_drops_count_towards_one_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let writer = thread::spawn(move || while theirs.write_all(&[b'x'; 1 << 16]).is_ok() {});
        let error = Qmp::handshake("a", ours, ANSWER).unwrap_err().to_string();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
        writer.join().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let drip = thread::spawn(move || {
            for byte in GREETING.bytes().cycle() {
                thread::sleep(Duration::from_millis(5));
                if theirs.write_all(&[byte]).is_err() {
                    return;
                }
            }
        });
        let began = Instant::now();
        let error = Qmp::handshake_within("a", ours, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, QemuError::Timeout { .. }) && began.elapsed() < Duration::from_secs(5), "{error}");
        drip.join().unwrap();
    }

    #[test]
    fn one_that_gets_on_has_more_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut looks = 0;
        let gets_on = || {
            looks += 1;
            if looks == 2 {
                theirs.write_all(GREETING.as_bytes()).unwrap();
                theirs.write_all(b"{\"return\": {}}\n").unwrap();
            }
            looks < 3
        };
        let qmp = Qmp::handshake_while("a", ours, Duration::from_millis(5), gets_on).unwrap();
        assert_eq!(qmp.version(), "7.2.22 (D)");
    }
}
