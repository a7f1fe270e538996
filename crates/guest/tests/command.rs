//! Commands of the user's own, run by the agent natively: their figures, and what is said where
//! they fail, hang, say nothing, say it twice, say the wrong thing or say too much.

use crate::agent::Agent;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use topology::{Bytes, CpuSet};
use workloads::command::{Job, Section, Variables, Width};
use workloads::protocol::{FromAgent, ToAgent};
use workloads::workload::{Pinning, Threads, Verification};

/// How long something may take to be so on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

fn job(section: &str) -> Job {
    let mut section: Section = toml::from_str(section).expect(section);
    section.environment.insert("PATH".to_owned(), std::env::var("PATH").expect("PATH"));
    let threads = Threads { count: 2, pinning: Pinning::None, cpu_node: None, memory_node: None };
    let variables = Variables { width: Width::of(2, None).expect("two threads"), memory: Bytes::GIB };
    Job::of(&section, variables, threads)
}

fn begin(agent: &mut Agent, job: &Job, repetitions: u32) -> FromAgent {
    let parameters = serde_json::to_value(job).expect("a job");
    agent.send(&ToAgent::Run { job: 1, workload: "command".to_owned(), repetitions, parameters });
    agent.next()
}

/// What a repetition measured, by quantity.
type Values = Vec<(String, f64)>;

/// The values of each repetition, and the verification.
fn measure(section: &str, repetitions: u32) -> (Vec<Values>, Verification) {
    let mut agent = Agent::start();
    assert_eq!(begin(&mut agent, &job(section), repetitions), FromAgent::Ready { job: 1, repetition: 0 });
    let mut all = Vec::new();
    loop {
        agent.send(&ToAgent::Go { job: 1 });
        let measured = match agent.next() {
            FromAgent::Repetition { measured, .. } => measured,
            other => panic!("{section}: {other:?}"),
        };
        all.push(measured.figures.into_iter().map(|figure| (figure.quantity, figure.value)).collect());
        match agent.next() {
            FromAgent::Ready { .. } => {}
            FromAgent::Done { verification, .. } => return (all, verification),
            other => panic!("{section}: {other:?}"),
        }
    }
}

fn failure(section: &str) -> String {
    let mut agent = Agent::start();
    if begin(&mut agent, &job(section), 2) == (FromAgent::Ready { job: 1, repetition: 0 }) {
        agent.send(&ToAgent::Go { job: 1 });
    }
    agent.failure().1
}

fn value(figures: &[(String, f64)], name: &str) -> f64 {
    figures.iter().find(|(quantity, _)| quantity == name).unwrap_or_else(|| panic!("{name}: {figures:?}")).1
}

/// A length of sleep that no other process has: by it those of a test are found.
fn own_sleep() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("6{:07}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn sleeps(length: &str) -> bool {
    let is_it = |pid: PathBuf| {
        let words = std::fs::read_to_string(pid.join("cmdline")).unwrap_or_default();
        words.split('\0').any(|word| word == length)
    };
    std::fs::read_dir("/proc").expect("/proc").flatten().any(|entry| is_it(entry.path()))
}

fn becomes(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const RATE: &str = "[[figure]]\nname = 'rate'\nunit = '{step}/s'\nbetter = 'more'\nregex = '^rate ([0-9.]+)'\n";

#[test]
fn figures_come_from_what_it_says_and_from_what_it_used() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("in.txt"), "rate 12.5\n").expect("a file");
    let section = format!(
        "shell = 'cat in.txt; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $WIDTH > width; test ! -e again; \
        touch again'\n\
         environment = {{ WIDTH = '{{threads}}' }}\nfiles = ['{}']\n{RATE}\
         [[figure]]\nname = 'width'\nunit = '1'\nfile = 'width'\nregex = '(.*)'\n\
         [verify]\nvalues = [{{ figure = 'rate', expected = 12.0, tolerance = 1.0 }}]\n",
        directory.path().join("in.txt").display()
    );
    // That `again` is never there says that each repetition has a directory of its own.
    let (repetitions, verification) = measure(&section, 2);
    for figures in &repetitions {
        assert_eq!((value(figures, "rate"), value(figures, "width")), (12.5, 2.0));
        let (wall, cpu) = (value(figures, "wall time"), value(figures, "CPU time"));
        assert!(wall > 0.0 && cpu > 0.0 && value(figures, "peak memory") > 0.1, "{figures:?}");
    }
    assert_eq!((repetitions.len(), verification), (2, Verification::Verified));
}

#[test]
fn it_runs_on_the_cpus_of_its_threads_and_they_are_read_back() {
    let mut job = job(&format!(
        "shell = 'sed -n \"s/Cpus_allowed_list:.//p\" /proc/self/status > cpus; echo rate 1'\n{RATE}\
        [[figure]]\nname = 'cpus'\nunit = '1'\nfile = 'cpus'\nregex = '^([0-9]+)$'\n"
    ));
    job.threads = Threads { count: 1, pinning: Pinning::Compact, ..job.threads };
    let mut agent = Agent::start();
    begin(&mut agent, &job, 1);
    agent.send(&ToAgent::Go { job: 1 });
    let FromAgent::Repetition { measured, .. } = agent.next() else { panic!("no repetition") };
    let FromAgent::Done { thread_cpus, .. } = agent.next() else { panic!("not done") };
    let said: Vec<f64> = measured.figures.iter().filter(|one| one.quantity == "cpus").map(|one| one.value).collect();
    let cpus: CpuSet = thread_cpus[0].parse().expect("a list of CPUs");
    assert_eq!((cpus.len(), said), (1, vec![f64::from(cpus.first().expect("one").0)]));
}

#[test]
fn one_that_fails_says_how_and_its_last_lines() {
    let error = failure(&format!("shell = 'echo reading; echo no such atom type >&2; exit 3'\n{RATE}"));
    assert!(error.contains("ended with exit status 3") && error.contains("| no such atom type"), "{error}");
    let error = failure(&format!("shell = 'kill -SEGV $$'\n{RATE}"));
    assert!(error.contains("signal 11 (SIGSEGV"), "{error}");
    let error = failure(&format!("argv = ['no-such-solver']\n{RATE}"));
    assert!(error.contains("no-such-solver") && error.contains("PATH"), "{error}");
}

#[test]
fn one_that_hangs_is_ended_with_all_that_it_started() {
    let (one, other) = (own_sleep(), own_sleep());
    let section =
        format!("shell = 'setsid sleep {one} & sleep {other} & echo begun; wait'\ntime_limit_seconds = 1\n{RATE}");
    let error = failure(&section);
    assert!(error.contains("still ran after 1 s") && error.contains("| begun"), "{error}");
    assert!(!sleeps(&one) && !sleeps(&other), "something is left");
}

#[test]
fn what_it_leaves_behind_is_ended() {
    let length = own_sleep();
    let (repetitions, _) = measure(&format!("shell = '(setsid sleep {length} &); echo rate 5'\n{RATE}"), 1);
    assert_eq!(value(&repetitions[0], "rate"), 5.0);
    assert!(!sleeps(&length), "it still runs");
}

#[test]
fn a_figure_that_is_not_there_or_there_twice_or_wrong_is_no_figure() {
    let none = failure(&format!("shell = 'echo done'\n{RATE}"));
    assert!(none.contains("\"rate\"") && none.contains("not in standard output"), "{none}");
    let twice = failure(&format!("shell = 'echo rate 1; echo rate 2'\n{RATE}"));
    assert!(twice.contains("2 times") && twice.contains("which = "), "{twice}");
    let verify = "[verify]\nvalues = [{ figure = 'rate', expected = 5.0, tolerance = 0.5 }]\n";
    let (_, verification) = measure(&format!("shell = 'echo rate 7'\n{RATE}{verify}"), 1);
    assert_eq!(verification, Verification::Wrong { reason: "rate is 7, and must be 5 within 0.5".to_owned() });
    let (_, verification) = measure(&format!("shell = 'echo rate 7'\n{RATE}"), 1);
    assert_eq!(verification, Verification::NotChecked);
}

#[test]
fn one_whose_controller_is_gone_ends_with_its_directory() {
    let (length, mut agent) = (own_sleep(), Agent::start());
    let directory = tempfile::tempdir().expect("a directory");
    let told = directory.path().join("where");
    let section = format!("shell = 'pwd > {}; setsid sleep {length}'\n{RATE}", told.display());
    begin(&mut agent, &job(&section), 1);
    agent.send(&ToAgent::Go { job: 1 });
    becomes("it starts", || sleeps(&length));
    let place = std::fs::read_to_string(&told).expect("a path");
    drop(agent.input.take());
    agent.status_within(PATIENCE);
    becomes("it ends", || !sleeps(&length));
    assert!(!Path::new(place.trim()).exists(), "{place} is left");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_gigabyte_of_output_costs_no_memory() {
    let section = format!(
        "shell = 'yes nothing to see here | head -c 500000000; echo rate 42; yes the same again | head -c \
        500000000'\n{RATE}"
    );
    let mut agent = Agent::start();
    begin(&mut agent, &job(&section), 1);
    agent.send(&ToAgent::Go { job: 1 });
    let FromAgent::Repetition { measured, .. } = agent.next() else { panic!("no repetition") };
    assert!(measured.figures.iter().any(|figure| figure.quantity == "rate" && figure.value == 42.0));
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("the agent's status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    let kib: u64 = peak.split_whitespace().next().expect("a number").parse().expect("a number");
    assert!(kib < 64 << 10, "the agent took {kib} KiB");
}
