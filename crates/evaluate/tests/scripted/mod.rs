//! A host that plays a script: agents that answer at once, with the seconds, faults and load that a
//! test asks for.

use evaluate::WorldError;
use evaluate::disturbance::Reading;
use evaluate::resolve::{Host, Resolved, ResolvedConfiguration, resolve};
use evaluate::world::{LinkError, Participant, Said, StartedAs, Whereabouts, World};
use network::SwitchSeen;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use topology::{Bytes, Machine};
use workloads::chase::ChaseJob;
use workloads::protocol::{FromAgent, Hello, PROTOCOL_VERSION, SeenMachine, ToAgent};
use workloads::stream::{Kernel, StreamJob};
use workloads::workload::{Measured, Prepared, Repetition, Verification};

/// Prepares a job, for so many repetitions.
pub(crate) type RunsJob = fn(serde_json::Value, u32) -> Box<dyn Prepared>;

/// What the agents do, and what happened to them.
#[derive(Default)]
pub(crate) struct Script {
    /// A participant with this name dies at its n-th repetition.
    pub(crate) dies: Option<(String, u32)>,
    /// A participant with this name starts anew at its n-th repetition, as a guest that resets.
    pub(crate) restarts: Option<(String, u32)>,
    /// A participant with this name never says hello.
    pub(crate) hangs: Option<String>,
    /// A participant with this name says without end what nobody asked for.
    pub(crate) floods: Option<String>,
    /// Runs jobs of a workload of the test's own.
    pub(crate) run: Option<RunsJob>,
    /// How fast a job of this number is, against one that nothing slows down.
    pub(crate) speed: Option<fn(u64) -> f64>,
    /// Whether nobody knows what the switches carried.
    pub(crate) uncounted: bool,
    /// Whether results are right.
    pub(crate) wrong: bool,
    /// Busy seconds of others in the next repetitions, one for each.
    pub(crate) others: VecDeque<f64>,
    /// `start NAME`, `go NAME`, `stop NAME`, in order.
    pub(crate) log: Vec<String>,
}

pub(crate) struct ScriptedWorld {
    pub(crate) script: Rc<RefCell<Script>>,
    clock: f64,
    readings: u32,
    busy: f64,
}

impl ScriptedWorld {
    pub(crate) fn new(script: Script) -> Self {
        Self { script: Rc::new(RefCell::new(script)), clock: 0.0, readings: 0, busy: 0.0 }
    }
}

impl World for ScriptedWorld {
    fn start(&mut self, configuration: &ResolvedConfiguration) -> Result<Vec<Box<dyn Participant>>, WorldError> {
        let names: Vec<String> = if configuration.vms.is_empty() {
            vec!["native".to_owned()]
        } else {
            configuration.vms.iter().map(|vm| vm.spec.name.clone()).collect()
        };
        let agents = names.into_iter().map(|name| {
            self.script.borrow_mut().log.push(format!("start {name}"));
            Box::new(Agent::new(name, Rc::clone(&self.script))) as Box<dyn Participant>
        });
        Ok(agents.collect())
    }

    /// Every second reading is the one after a repetition: one second later, with the others' load
    /// of the script.
    fn cpu_reading(&mut self, _: &[u32]) -> Result<Reading, WorldError> {
        if self.readings % 2 == 1 {
            self.clock += 1.0;
            self.busy += self.script.borrow_mut().others.pop_front().unwrap_or(0.0);
        }
        self.readings += 1;
        Ok(Reading { at: self.clock, busy: self.busy, steal: 0.0, own: 0.0 })
    }

    fn switches(&mut self, _: &ResolvedConfiguration) -> Result<Vec<SwitchSeen>, WorldError> {
        if !self.script.borrow().uncounted {
            return Ok(Vec::new());
        }
        Err(WorldError::NoLink { name: "lan".to_owned(), problem: "the keeper is gone".to_owned() })
    }

    fn timestamp(&self) -> String {
        "2026-01-01T00:00:00Z".to_owned()
    }
}

/// What an agent was told to run.
#[derive(Clone)]
struct Job {
    id: u64,
    workload: String,
    parameters: serde_json::Value,
    repetitions: u32,
    next: u32,
}

impl Job {
    /// 1 GB/s a thread for Copy and Scale, 1.5 GB/s for Add and Triad, 90 ns near and 150 ns far;
    /// later repetitions a little slower.
    fn measured(&self) -> Repetition {
        let slower = 1.0 + 0.01 * f64::from(self.next);
        let read = "a job of this workload";
        if self.workload == "stream" {
            let job: StreamJob = serde_json::from_value(self.parameters.clone()).expect(read);
            let seconds = (16 * job.elements) as f64 / (1e9 * f64::from(job.threads.count)) * slower;
            let value = |kernel: Kernel| Measured {
                quantity: kernel.name().to_owned(),
                value: kernel.mb_per_second(job.elements, seconds),
            };
            return Repetition { figures: Kernel::ALL.map(value).to_vec(), phases: vec![seconds; 4] };
        }
        let job: ChaseJob = serde_json::from_value(self.parameters.clone()).expect(read);
        let value = if job.threads.cpu_node == job.threads.memory_node { 90.0 } else { 150.0 };
        let latency = Measured { quantity: "latency".to_owned(), value };
        Repetition { figures: vec![latency], phases: vec![job.loads as f64 * value * 1e-9] }
    }
}

struct Agent {
    name: String,
    script: Rc<RefCell<Script>>,
    inbox: VecDeque<FromAgent>,
    job: Option<Job>,
    repetitions: u32,
    dead: bool,
}

impl Agent {
    fn new(name: String, script: Rc<RefCell<Script>>) -> Self {
        let hello = FromAgent::Hello(hello());
        let inbox =
            if script.borrow().hangs.as_ref() == Some(&name) { VecDeque::new() } else { VecDeque::from([hello]) };
        Self { name, script, inbox, job: None, repetitions: 0, dead: false }
    }

    fn go(&mut self) {
        self.script.borrow_mut().log.push(format!("go {}", self.name));
        self.repetitions += 1;
        let Some(job) = self.job.clone() else { return };
        if self.script.borrow().dies.as_ref().is_some_and(|(name, at)| *name == self.name && *at == self.repetitions) {
            self.dead = true;
            return;
        }
        let restarts = self.script.borrow().restarts.clone();
        if restarts.is_some_and(|(name, at)| name == self.name && at == self.repetitions) {
            self.inbox.push_back(FromAgent::Hello(hello()));
            return;
        }
        let (id, next) = (job.id, job.next + 1);
        let own = self.script.borrow().run.map(|run| run(job.parameters.clone(), job.repetitions));
        let mut measured = own.map_or_else(|| job.measured(), |mut own| own.repetition().expect("it runs"));
        if let Some(speed) = self.script.borrow().speed {
            measured.figures.iter_mut().for_each(|figure| figure.value *= speed(id));
        }
        self.inbox.push_back(FromAgent::Repetition { job: id, repetition: job.next, clock_seconds: None, measured });
        if next < job.repetitions {
            self.inbox.push_back(FromAgent::Ready { job: id, repetition: next });
        } else {
            let verification = if self.script.borrow().wrong {
                Verification::Wrong { reason: "an element is wrong".to_owned() }
            } else {
                Verification::Verified
            };
            let thread_cpus = vec!["0-1".to_owned()];
            self.inbox.push_back(FromAgent::Done { job: id, verification, thread_cpus, pages_by_node: vec![(0, 100)] });
        }
        self.job = Some(Job { next, ..job });
    }
}

impl Participant for Agent {
    fn name(&self) -> &str {
        &self.name
    }
    fn pid(&self) -> u32 {
        1
    }
    fn started(&self) -> Instant {
        Instant::now()
    }
    fn started_as(&self) -> StartedAs {
        StartedAs { accelerator: "none".to_owned(), ..StartedAs::default() }
    }
    fn send(&mut self, message: &ToAgent) -> Result<(), LinkError> {
        match message {
            ToAgent::Run { job: id, workload, repetitions, parameters } => {
                let (workload, parameters) = (workload.clone(), parameters.clone());
                self.job = Some(Job { id: *id, workload, parameters, repetitions: *repetitions, next: 0 });
                self.inbox.push_back(FromAgent::Ready { job: *id, repetition: 0 });
            }
            ToAgent::Go { .. } => self.go(),
            ToAgent::Join(_) => self.inbox.push_back(FromAgent::Joined { keys: None }),
            ToAgent::Trust(_) => self.inbox.push_back(FromAgent::Trusted),
            ToAgent::Finish => {}
        }
        Ok(())
    }
    fn receive(&mut self, timeout: Duration) -> Result<Said, LinkError> {
        if self.script.borrow().floods.as_ref() == Some(&self.name) {
            return Ok(Said { at: Instant::now(), message: FromAgent::Ready { job: u64::MAX, repetition: 0 } });
        }
        match self.inbox.pop_front() {
            Some(message) => Ok(Said { at: Instant::now(), message }),
            None if self.dead => Err(LinkError::Broken("the connection is closed".to_owned())),
            None => {
                std::thread::sleep(timeout);
                Err(LinkError::Timeout)
            }
        }
    }
    fn whereabouts(&mut self) -> Whereabouts {
        Whereabouts { local_share: Some(0.75), large_page_share: Some(0.5), residence: None }
    }
    fn exited(&mut self) -> Option<String> {
        self.dead.then(|| "qemu: killed by signal 9".to_owned())
    }
    fn console_tail(&self, _: usize) -> Vec<String> {
        vec!["Booting the kernel.".to_owned()]
    }
    fn stop(self: Box<Self>) {}
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.script.borrow_mut().log.push(format!("stop {}", self.name));
    }
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: "0.1.0".to_owned(),
        kernel: "6.1".to_owned(),
        guest: false,
        uptime_seconds: 1.0,
        machine: SeenMachine {
            nodes: Vec::new(),
            llcs: Vec::new(),
            llc_bytes: None,
            sockets: Vec::new(),
            cores: Vec::new(),
            online: "0-1".to_owned(),
            complaints: Vec::new(),
        },
    }
}

/// Two nodes with a 8 MiB cache and four hardware threads each.
pub(crate) fn machine() -> Machine {
    topology::read::from_synthetic("pack:2 [numa] l3:1(size=8MB) core:4 pu:1").expect("a machine")
}

pub(crate) fn resolved(experiment: &str) -> Resolved {
    let experiment = evaluate::parse::parse(experiment, Path::new("test.toml")).expect("an experiment");
    let machine = machine();
    let host = Host { machine: &machine, available: Bytes(64 << 30), emulated: false };
    resolve(&experiment, &host, &|machine, specs| scheduler::plan_together(machine, &Default::default(), specs))
        .expect("resolved")
}
