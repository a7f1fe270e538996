//! VMs of an experiment that find each other over switches of its own, and programs that span them.

use crate::common::unique;
use crate::evaluate::guest_files;
use crate::guest_faults::repetitions;
use linux::sys::{ChildSetup, Tie};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Each VM asks the other one, by the address that the experiment gives it.
const ASKS: &str = "
argv = ['/bin/sh', '-c', '''
case $(busybox cat /proc/sys/kernel/hostname) in vm1) other=10.77.0.2 ;; *) other=10.77.0.1 ;; esac
exec busybox ping -c 2 -w 60 $other''']
needs = ['busybox']
[command.verify]
pattern = ' 0% packet loss'
";

pub(crate) fn has_switches_and_busybox(test: &str) -> bool {
    let homenode = Path::new(env!("CARGO_BIN_EXE_homenode"));
    let fabric = network::Fabric::of_our_own(homenode).map(drop).map_err(|error| error.to_string());
    let busybox = Command::new("busybox").arg("true").output().map_err(|error| format!("busybox: {error}"));
    match fabric.and(busybox.map(drop)) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("SKIPPED {test}: {error}");
            false
        }
    }
}

/// The summary of an experiment that runs there, and what was said beside it.
fn evaluated(directory: &Path, experiment: &str) -> (Value, String) {
    fs::write(directory.join("experiment.toml"), experiment).expect("written");
    let output = evaluate(directory, &["--json", "experiment.toml"]).output().expect("homenode runs");
    let said = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (said, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn evaluate(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.arg("evaluate").args(arguments).current_dir(directory).stdin(Stdio::null());
    command
}

/// Started so that it goes with the test, however that ends.
pub(crate) fn spawned(command: Command) -> Child {
    let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user: None };
    linux::sys::spawn(command, setup).expect("it starts")
}

/// A participant, as a results' records say that it started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) name: String,
    pub(crate) pid: u32,
}

/// The VM of that number in a configuration; of several starts, the last.
pub(crate) fn started(records: &str, configuration: &str, participant: u64) -> Started {
    let lines = records.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is = |line: &Value| {
        line["record"] == "start" && line["configuration"] == configuration && line["participant"] == participant
    };
    let line = lines.rev().find(is).expect("it was started");
    let pid = line["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process");
    Started { name: line["name"].as_str().expect("a name").to_owned(), pid }
}

/// What `kill -9` does.
pub(crate) fn kill(pid: u32) {
    linux::sys::send_signal(pid, 9).expect("it runs");
}

#[test]
fn vms_of_an_experiment_find_each_other_over_switches_with_a_link() {
    let test = "vms_of_an_experiment_find_each_other_over_switches_with_a_link";
    if guest_files(test, true).is_none() || !has_switches_and_busybox(test) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let text = format!(
        "name = '{}'\ntitle = 'VMs meet'\nworkload = 'command'\nthreads = [2]\nrepetitions = 2\nrounds = 1\n\
         [limits]\nother_cpu_percent = 10000\nboot_seconds = 400\n[command]\n{ASKS}\n\
         [[switch]]\nname = 'core'\n[[switch]]\nname = 'lan'\nuplink = 'core'\nrate = '100 Mbit/s'\n\
         [[configuration]]\nname = '2 VMs'\nruns = 'vms'\nvms = 2\nvcpus = 1\nmemory = '256 MiB'\n\
         switches = ['core', 'lan']\n",
        unique("meet")
    );
    let (said, errors) = evaluated(directory.path(), &text);
    let cell = &said["configurations"][0]["cells"][0];
    assert_eq!((cell["state"].as_str(), cell["verified"].as_bool()), (Some("measured"), Some(true)), "{cell} {errors}");
    // Two VMs ask twice in each of two repetitions: at least 8 requests and 8 answers of 98 bytes
    // cross the link, half of them each way.
    let carried = cell["carried"].as_array().expect("what the switches carried");
    let link = carried.iter().find(|one| one["switch"] == "lan" && one["to"] == "core").expect("a link");
    assert!(link["frames"].as_u64() >= Some(8) && link["bytes"].as_u64() >= Some(8 * 98), "{carried:?}");
    assert_eq!(carried.len(), 4, "two switches and both ways of a link: {carried:?}");
}

/// LAMMPS's Lennard-Jones melt, 4000 atoms, natively and in these VMs, with its check value: the
/// energy after so many steps. `None`, with a word, where it cannot run.
fn melt(test: &str, threads: u32, steps: u32, energy: f64, vms: &str) -> Option<tempfile::TempDir> {
    if guest_files(test, true).is_none() || !has_switches_and_busybox(test) {
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/inputs/lammps.in");
    let input = fs::read_to_string(input).expect("LAMMPS's input");
    let input = input.replace("thermo          100\nrun             100", &format!("thermo {steps}\nrun {steps}"));
    fs::write(directory.path().join("lammps.in"), input).expect("written");
    let text = format!(
        "name = '{}'\ntitle = 'Ranks in VMs'\nworkload = 'command'\nthreads = [{threads}]\npinning = 'none'\n\
         repetitions = 2\nrounds = 1\n[limits]\nother_cpu_percent = 10000\nboot_seconds = 400\n\
         repetition_seconds = 900\n\
         [guest]\npackages = ['lammps', 'openmpi-bin', 'openssh-server', 'openssh-client']\n\
         [command]\nargv = ['mpirun', '--oversubscribe', '-np', '{{ranks}}', 'lmp', '-in', 'lammps.in', \
         '-log', 'none', '-var', 'cells', '10']\nenvironment = {{ OMP_NUM_THREADS = '1' }}\nfiles = \
         ['lammps.in']\nmemory = '512 MiB'\ntime_limit_seconds = 900\n\
         [[command.figure]]\nname = 'energy'\nunit = '1'\n\
         regex = '^ *{steps} +[-0-9.e+]+ +[-0-9.e+]+ +[-0-9.e+]+ +(-[0-9.]+) '\n\
         [command.verify]\nvalues = [{{ figure = 'energy', expected = {energy}, tolerance = 0.00000001 }}]\n\
         [[configuration]]\nname = 'native'\nruns = 'native'\n{vms}",
        unique("ranks")
    );
    fs::write(directory.path().join("experiment.toml"), text).expect("written");
    Some(directory)
}

/// So many VMs of a rank each on so many switches.
fn ranks_in(vms: u32, switches: u32) -> String {
    format!(
        "[[configuration]]\nname = '{vms} VMs, {switches}'\nruns = 'vms'\nvms = {vms}\nvcpus = 1\n\
         switches = {switches}\nranks_per_vm = 'auto'\npolicy = {{ prefer_ht = true }}\n"
    )
}

/// The energy of each configuration, where all are believed.
fn energies(said: &Value, errors: &str) -> Vec<f64> {
    let energy = |configuration: &Value| {
        let cell = &configuration["cells"][0];
        assert_eq!(cell["verified"].as_bool(), Some(true), "{cell} {errors}");
        let figures = cell["figures"].as_array().expect("figures");
        let figure = figures.iter().find(|figure| figure["quantity"]["name"] == "energy").expect("an energy");
        figure["best"].as_f64().expect("a number")
    };
    said["configurations"].as_array().expect(errors).iter().map(energy).collect()
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn ranks_in_two_vms_give_the_energy_of_the_same_ranks_natively() {
    let test = "ranks_in_two_vms_give_the_energy_of_the_same_ranks_natively";
    let Some(directory) = melt(test, 2, 100, -4.6226965, &ranks_in(2, 1)) else { return };
    let output = evaluate(directory.path(), &["--json", "experiment.toml"]).output().expect("homenode runs");
    let said = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!(energies(&said, &String::from_utf8_lossy(&output.stderr)), [-4.6226965; 2]);
}

/// What the kernel itself counts: for each switch, and each way of its links, the bytes and frames
/// that went there.
type Counted = BTreeMap<(String, Option<String>), [u64; 2]>;

/// The counters in the network namespace of a process; `None` where it has just gone.
fn counted_by_the_kernel(process: u32) -> Option<Counted> {
    let mut command = Command::new("nsenter");
    command.args(["--target", &process.to_string(), "--net"]);
    if linux::sys::effective_user_id() != 0 {
        command.args(["--user", "--preserve-credentials"]);
    }
    let output = command.args(["ip", "-details", "-json", "-statistics", "link", "show"]).output().ok()?;
    let interfaces: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
    let word = |interface: &Value, key: &str| interface[key].as_str().map(str::to_owned);
    let mut counted = Counted::new();
    for interface in &interfaces {
        let Some(switch) = word(interface, "master") else { continue };
        let (to, way) = match interface["linkinfo"]["info_kind"].as_str() {
            // What a guest sends comes in.
            Some("tun") => (None, "rx"),
            Some("veth") => {
                let other = interfaces.iter().find(|other| other["ifname"] == interface["link"])?;
                (word(other, "master"), "tx")
            }
            _ => continue,
        };
        let sum = counted.entry((switch, to)).or_default();
        for (sum, counter) in sum.iter_mut().zip(["bytes", "packets"]) {
            *sum += interface["stats64"][way][counter].as_u64()?;
        }
    }
    (!counted.is_empty()).then_some(counted)
}

/// Runs homenode to its end, and reads the kernel's counters of its switches all the while: the
/// most that each of their keepers had, since counters go with their cards, which end one by one.
/// `look` is called again and again.
fn watched(directory: &Path, arguments: &[&str], mut look: impl FnMut()) -> (Option<i32>, Value, String, Vec<Counted>) {
    let into = |name: &str| fs::File::create(directory.join(name)).expect("a file");
    let mut command = evaluate(directory, arguments);
    command.stdout(into("said")).stderr(into("errors"));
    let mut homenode = spawned(command);
    let mut most: BTreeMap<u32, Counted> = BTreeMap::new();
    let bytes = |counted: &Counted| counted.values().map(|sum| sum[0]).sum::<u64>();
    let status = loop {
        if let Some(status) = homenode.try_wait().expect("its status") {
            break status;
        }
        for process in linux::process::descendants(homenode.id()).unwrap_or_default() {
            let is_keeper = linux::process::command_line(process)
                .is_ok_and(|words| words.ends_with(&["switch", "keep"].map(str::to_owned)));
            if let Some(counted) = is_keeper.then(|| counted_by_the_kernel(process)).flatten() {
                let before = most.entry(process).or_default();
                if bytes(before) <= bytes(&counted) {
                    *before = counted;
                }
            }
        }
        look();
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = |name: &str| fs::read_to_string(directory.join(name)).expect("a file");
    (
        status.code(),
        serde_json::from_str(&said("said")).unwrap_or_default(),
        said("errors"),
        most.into_values().collect(),
    )
}

/// What homenode says that the switches of a configuration carried is what the kernel counted
/// there, but for what was before: names and logins.
fn agrees_with_the_kernel(configuration: &Value, kernel: &[Counted]) {
    let carried = configuration["cells"][0]["carried"].as_array().expect("what its switches carried");
    let ours: Counted = carried
        .iter()
        .map(|one| {
            let name = |key: &str| one[key].as_str().map(str::to_owned);
            let number = |key: &str| one[key].as_u64().expect("a number");
            ((name("switch").expect("a name"), name("to")), [number("bytes"), number("frames")])
        })
        .collect();
    let theirs = kernel.iter().find(|theirs| theirs.keys().eq(ours.keys())).expect("the same switches and links");
    println!("{}: {ours:?}\nthe kernel: {theirs:?}", configuration["name"]);
    for (place, ours) in &ours {
        for (ours, theirs) in ours.iter().zip(theirs[place]) {
            assert!(*ours > 0 && *ours <= theirs && theirs - ours <= theirs / 10, "{place:?}: {ours} of {theirs}");
        }
    }
}

/// Each VM has one rank; 20 steps, since four emulated VMs on few CPUs are slow. The first time, a
/// VM dies in the middle of the last configuration.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn ranks_in_four_vms_give_the_native_energy_on_one_switch_and_on_four_also_when_one_vm_dies_first() {
    let test = "ranks_in_four_vms_give_the_native_energy_on_one_switch_and_on_four_also_when_one_vm_dies_first";
    let (one, four) = (ranks_in(4, 1), ranks_in(4, 4));
    let Some(directory) = melt(test, 4, 20, -4.6184987, &format!("{one}{four}")) else { return };
    let records = || {
        let results = fs::read_dir(directory.path().join("results")).ok()?.flatten().next()?.path();
        Some((results.clone(), fs::read_to_string(results.join("records.jsonl")).ok()?))
    };
    let mut killed: Option<(Started, Instant)> = None;
    let kills = || {
        let Some((_, records)) = records().filter(|_| killed.is_none()) else { return };
        if repetitions(&records, "\"4 VMs, 4\"") == 1 {
            let victim = started(&records, "4 VMs, 4", 2);
            kill(victim.pid);
            killed = Some((victim, Instant::now()));
        }
    };
    let (code, said, errors, counted) = watched(directory.path(), &["--json", "experiment.toml"], kills);
    let (victim, at) = killed.expect(&errors);
    assert!(at.elapsed() < Duration::from_secs(60), "it went on for {:?}", at.elapsed());
    assert_eq!(code, Some(1), "{errors}");
    for part in [victim.name.as_str(), "it ended while homenode waited for", "--resume"] {
        assert!(errors.contains(part), "{part} is not in {errors}");
    }
    agrees_with_the_kernel(&said["configurations"][1], &counted);
    let (results, before) = records().expect("records");
    let (code, said, errors, counted) =
        watched(directory.path(), &["--json", "--resume", &results.display().to_string()], || ());
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(energies(&said, &errors), [-4.6184987; 3]);
    agrees_with_the_kernel(&said["configurations"][2], &counted);
    let (_, after) = records().expect("records");
    assert!(after.starts_with(&before), "what was measured is kept");
    for (configuration, all) in [("\"native\"", 2), ("\"4 VMs, 1\"", 2), ("\"4 VMs, 4\"", 3)] {
        assert_eq!(repetitions(&after, configuration), all, "{configuration}");
    }
}
