//! The agent as a native process over its standard input and output, spoken to as homenode speaks
//! to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use workloads::protocol::{
    ChaseJob, Figures, FromAgent, PROTOCOL_VERSION, Pinning, Stores, StreamJob, ToAgent, Workload,
};

struct Agent {
    process: Child,
    input: Option<ChildStdin>,
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
    fn start() -> Agent {
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

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("a pipe"), "{line}").expect("a pipe");
    }

    fn send(&mut self, message: &ToAgent) {
        self.say(&serde_json::to_string(message).expect("a message"));
    }

    fn next(&mut self) -> FromAgent {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a pipe");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    fn failure(&mut self) -> (Option<u64>, String) {
        match self.next() {
            FromAgent::Failed { job, message } => (job, message),
            other => panic!("{other:?} is no failure"),
        }
    }

    fn status_within(&mut self, patience: Duration) -> std::process::ExitStatus {
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

fn stream(threads: u32, repetitions: u32) -> StreamJob {
    StreamJob {
        elements: 50_000,
        threads,
        repetitions,
        stores: Stores::Ordinary,
        pinning: Pinning::Compact,
        cpu_node: None,
        memory_node: None,
    }
}

fn run(job: u64, workload: Workload) -> ToAgent {
    ToAgent::Run { job, workload }
}

#[test]
fn stream_waits_for_go_before_every_repetition_and_is_verified() {
    let mut agent = Agent::start();
    agent.send(&run(5, Workload::Stream(stream(2, 3))));
    for wanted in 0..3 {
        assert_eq!(agent.next(), FromAgent::Ready { job: 5, repetition: wanted });
        agent.send(&ToAgent::Go { job: 5 });
        let FromAgent::Repetition { job: 5, repetition, figures: Figures::Stream { seconds } } = agent.next() else {
            panic!("no repetition")
        };
        assert_eq!(repetition, wanted);
        assert!(seconds.iter().all(|&seconds| seconds > 0.0));
    }
    let FromAgent::Done { job: 5, verified, error, thread_cpus, .. } = agent.next() else { panic!("not done") };
    assert!(verified && error == 0.0);
    assert_eq!(thread_cpus.len(), 2);
    assert!(thread_cpus.iter().all(|cpus| cpus.parse::<u32>().is_ok()), "one CPU each: {thread_cpus:?}");
    agent.send(&ToAgent::Finish);
    assert!(agent.status_within(Duration::from_secs(60)).success());
}

#[test]
fn a_chase_is_verified_and_a_second_job_follows_the_first() {
    let mut agent = Agent::start();
    for job in [1, 2] {
        let chase =
            ChaseJob { buffer_bytes: 1 << 20, loads: 10_000, repetitions: 1, cpu_node: None, memory_node: None };
        agent.send(&run(job, Workload::Chase(chase)));
        assert_eq!(agent.next(), FromAgent::Ready { job, repetition: 0 });
        agent.send(&ToAgent::Go { job });
        let FromAgent::Repetition { figures: Figures::Chase { seconds, loads }, .. } = agent.next() else {
            panic!("no repetition")
        };
        assert!(seconds > 0.0 && loads == 10_000);
        assert!(matches!(agent.next(), FromAgent::Done { verified: true, .. }));
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
    for (job, field) in [
        (StreamJob { threads: 0, ..stream(1, 3) }, "threads"),
        (StreamJob { elements: 0, ..stream(1, 3) }, "elements"),
        (StreamJob { elements: u64::MAX, ..stream(1, 3) }, "elements"),
        (stream(1, 1), "repetitions"),
        (stream(1, 251), "repetitions"),
        (StreamJob { cpu_node: Some(4000), ..stream(1, 3) }, "cpu_node"),
        (StreamJob { memory_node: Some(4000), ..stream(1, 3) }, "memory_node"),
    ] {
        agent.send(&run(3, Workload::Stream(job)));
        let (job, message) = agent.failure();
        assert!(job == Some(3) && message.contains(field), "{field}: {message}");
    }
    // A job that failed does not wait.
    agent.send(&ToAgent::Go { job: 3 });
    assert_eq!(agent.failure().0, Some(3));
    agent.send(&run(4, Workload::Stream(stream(1, 2))));
    assert_eq!(agent.next(), FromAgent::Ready { job: 4, repetition: 0 });
}

#[test]
fn an_agent_whose_controller_is_gone_ends_in_the_middle_of_a_repetition() {
    let mut agent = Agent::start();
    let long = ChaseJob { buffer_bytes: 1 << 20, loads: 1 << 40, repetitions: 1, cpu_node: None, memory_node: None };
    agent.send(&run(1, Workload::Chase(long)));
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
