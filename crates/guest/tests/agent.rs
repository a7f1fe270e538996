//! The agent as a native process over its standard input and output, spoken to as homenode speaks
//! to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use workloads::chase::ChaseJob;
use workloads::protocol::{FromAgent, PROTOCOL_VERSION, ToAgent};
use workloads::stream::{Stores, StreamJob};
use workloads::workload::{Pinning, Threads, Verification};

pub(crate) struct Agent {
    process: Child,
    pub(crate) input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Agent {
    /// A started agent that has said hello.
    pub(crate) fn start() -> Agent {
        let mut process = Command::new(env!("CARGO_BIN_EXE_homenode-guest"))
            .arg("--native")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut agent = Agent { process, input, output };
        let FromAgent::Hello(hello) = agent.next() else { panic!("the first message is not hello") };
        assert_eq!((hello.protocol, hello.guest), (PROTOCOL_VERSION, false));
        assert!(!hello.machine.nodes.is_empty() && !hello.machine.online.is_empty());
        agent
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("a pipe"), "{line}").expect("a pipe");
    }

    pub(crate) fn send(&mut self, message: &ToAgent) {
        self.say(&serde_json::to_string(message).expect("a message"));
    }

    pub(crate) fn next(&mut self) -> FromAgent {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a pipe");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    pub(crate) fn failure(&mut self) -> (Option<u64>, String) {
        match self.next() {
            FromAgent::Failed { job, message } => (job, message),
            other => panic!("{other:?} is no failure"),
        }
    }

    pub(crate) fn status_within(&mut self, patience: Duration) -> std::process::ExitStatus {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.process.try_wait().expect("a process") {
                return status;
            }
            assert!(Instant::now() < deadline, "the agent does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

const TWO: Threads = Threads { count: 2, pinning: Pinning::Compact, cpu_node: None, memory_node: None };

fn stream(threads: Threads) -> StreamJob {
    StreamJob { elements: 50_000, stores: Stores::Ordinary, threads }
}

fn run(job: u64, workload: &str, repetitions: u32, parameters: &impl serde::Serialize) -> ToAgent {
    let parameters = serde_json::to_value(parameters).expect("a job");
    ToAgent::Run { job, workload: workload.to_owned(), repetitions, parameters }
}

fn run_stream(job: u64, parameters: &StreamJob, repetitions: u32) -> ToAgent {
    run(job, "stream", repetitions, parameters)
}

fn chase(loads: u64) -> ChaseJob {
    let threads = Threads { count: 1, pinning: Pinning::None, ..TWO };
    ChaseJob { buffer_bytes: 1 << 20, loads, threads }
}

#[test]
fn stream_waits_for_go_before_every_repetition_and_is_verified() {
    let mut agent = Agent::start();
    agent.send(&run_stream(5, &stream(TWO), 3));
    let mut clock = 0.0;
    for wanted in 0..3 {
        assert_eq!(agent.next(), FromAgent::Ready { job: 5, repetition: wanted });
        agent.send(&ToAgent::Go { job: 5 });
        let FromAgent::Repetition { job: 5, repetition, clock_seconds, measured } = agent.next() else {
            panic!("no repetition")
        };
        assert_eq!(repetition, wanted);
        // Since boot, and on: later than the one before.
        let now = clock_seconds.expect("this agent says it");
        assert!(now > clock, "{clock} s, then {now} s");
        clock = now;
        let names: Vec<&str> = measured.figures.iter().map(|figure| figure.quantity.as_str()).collect();
        assert_eq!(names, ["Copy", "Scale", "Add", "Triad"]);
        assert!(measured.figures.iter().all(|figure| figure.value > 0.0));
        assert!(measured.phases.len() == 4 && measured.phases.iter().all(|&seconds| seconds > 0.0));
    }
    let FromAgent::Done { job: 5, verification, thread_cpus, .. } = agent.next() else { panic!("not done") };
    assert_eq!(verification, Verification::Verified);
    assert_eq!(thread_cpus.len(), 2);
    assert!(thread_cpus.iter().all(|cpus| cpus.parse::<u32>().is_ok()), "one CPU each: {thread_cpus:?}");
    agent.send(&ToAgent::Finish);
    assert!(agent.status_within(Duration::from_secs(60)).success());
}

#[test]
fn a_chase_is_verified_and_a_second_job_follows_the_first() {
    let mut agent = Agent::start();
    for job in [1, 2] {
        agent.send(&run(job, "chase", 1, &chase(10_000)));
        assert_eq!(agent.next(), FromAgent::Ready { job, repetition: 0 });
        agent.send(&ToAgent::Go { job });
        let FromAgent::Repetition { measured, .. } = agent.next() else { panic!("no repetition") };
        assert_eq!(measured.figures[0].quantity, "latency");
        let latency_ns = measured.phases[0] / 10_000.0 * 1e9;
        // It may be rounded in another order.
        assert!((measured.figures[0].value / latency_ns - 1.0).abs() < 1e-12, "{measured:?} {latency_ns}");
        assert!(matches!(agent.next(), FromAgent::Done { verification: Verification::Verified, .. }));
    }
}

#[test]
fn bad_messages_are_answered_and_the_agent_lives_on() {
    let mut agent = Agent::start();
    for line in ["not JSON", "{}", "[1,2]", "{\"type\":\"dance\"}", "{\"type\":\"go\"}", "{\"type\":\"go\",\"job\":-1}"]
    {
        agent.say(line);
        let (job, message) = agent.failure();
        assert_eq!(job, None, "{line}: {message}");
    }
    agent.send(&ToAgent::Go { job: 9 });
    assert_eq!(agent.failure().0, Some(9));
    for (job, repetitions, field) in [
        (stream(Threads { count: 0, ..TWO }), 3, "threads"),
        (StreamJob { elements: 0, ..stream(TWO) }, 3, "elements"),
        (StreamJob { elements: u64::MAX, ..stream(TWO) }, 3, "elements"),
        (stream(TWO), 1, "repetitions"),
        (stream(TWO), 251, "repetitions"),
        (stream(Threads { cpu_node: Some(4000), ..TWO }), 3, "cpu_node"),
        (stream(Threads { memory_node: Some(4000), ..TWO }), 3, "memory_node"),
    ] {
        agent.send(&run_stream(3, &job, repetitions));
        let (job, message) = agent.failure();
        assert!(job == Some(3) && message.contains(field), "{field}: {message}");
    }
    for (workload, parameters, part) in [
        ("linpack", serde_json::json!({}), "stream, chase"),
        ("stream", serde_json::json!({ "elemets": 1 }), "elemets"),
        ("stream", serde_json::json!({ "elements": -1 }), "-1"),
    ] {
        agent.send(&run(3, workload, 3, &parameters));
        let (job, message) = agent.failure();
        assert!(job == Some(3) && message.contains(part), "{part}: {message}");
    }
    // A job that failed does not wait.
    agent.send(&ToAgent::Go { job: 3 });
    assert_eq!(agent.failure().0, Some(3));
    agent.send(&run_stream(4, &stream(TWO), 2));
    assert_eq!(agent.next(), FromAgent::Ready { job: 4, repetition: 0 });
}

#[test]
fn an_agent_whose_controller_is_gone_ends_in_the_middle_of_a_repetition() {
    let mut agent = Agent::start();
    agent.send(&run(1, "chase", 1, &chase(1 << 40)));
    assert_eq!(agent.next(), FromAgent::Ready { job: 1, repetition: 0 });
    agent.send(&ToAgent::Go { job: 1 });
    std::thread::sleep(Duration::from_millis(50));
    assert!(agent.process.try_wait().unwrap().is_none(), "2^40 loads take hours");
    drop(agent.input.take());
    agent.status_within(Duration::from_secs(60));
}

#[test]
fn bad_arguments_end_with_two() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_homenode-guest")).args(["--stream", "--threads", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--threads x"));
}
