//! VMs of an experiment that find each other over switches of its own.

use crate::common::unique;
use crate::evaluate::guest_files;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each VM asks the other one, by the address that the experiment gives it.
const ASKS: &str = "
argv = ['/bin/sh', '-c', '''
case $(busybox cat /proc/sys/kernel/hostname) in vm1) other=10.77.0.2 ;; *) other=10.77.0.1 ;; esac
exec busybox ping -c 2 -w 60 $other''']
needs = ['busybox']
[command.verify]
pattern = ' 0% packet loss'
";

fn has_switches_and_busybox(test: &str) -> bool {
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
    let output = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["evaluate", "--json", "experiment.toml"])
        .current_dir(directory)
        .output()
        .expect("homenode runs");
    let said = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (said, String::from_utf8_lossy(&output.stderr).into_owned())
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

/// LAMMPS's Lennard-Jones melt, 4000 atoms: its energy after 100 steps is the check value.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn ranks_in_two_vms_give_the_energy_of_the_same_ranks_natively() {
    let test = "ranks_in_two_vms_give_the_energy_of_the_same_ranks_natively";
    if guest_files(test, true).is_none() || !has_switches_and_busybox(test) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/inputs/lammps.in");
    fs::copy(input, directory.path().join("lammps.in")).expect("LAMMPS's input");
    let text = format!(
        "name = '{}'\ntitle = 'Ranks in VMs'\nworkload = 'command'\nthreads = [2]\npinning = 'none'\n\
         repetitions = 2\nrounds = 1\n[limits]\nother_cpu_percent = 10000\nboot_seconds = 400\n\
         [guest]\npackages = ['lammps', 'openmpi-bin', 'openssh-server', 'openssh-client']\n\
         [command]\nargv = ['mpirun', '--oversubscribe', '-np', '{{ranks}}', 'lmp', '-in', 'lammps.in', \
         '-log', 'none', '-var', 'cells', '10']\nenvironment = {{ OMP_NUM_THREADS = '1' }}\nfiles = \
         ['lammps.in']\nmemory = '512 MiB'\n\
         [[command.figure]]\nname = 'energy'\nunit = '1'\n\
         regex = '^ *100 +[-0-9.e+]+ +[-0-9.e+]+ +[-0-9.e+]+ +(-[0-9.]+) '\n\
         [command.verify]\nvalues = [{{ figure = 'energy', expected = -4.6226965, tolerance = 0.00000001 }}]\n\
         [[configuration]]\nname = 'native'\nruns = 'native'\n\
         [[configuration]]\nname = '2 VMs'\nruns = 'vms'\nvms = 2\nvcpus = 1\nswitches = 1\nranks_per_vm = 'auto'\n",
        unique("ranks")
    );
    let (said, errors) = evaluated(directory.path(), &text);
    let energy = |index: usize| {
        let cell = &said["configurations"][index]["cells"][0];
        assert_eq!(cell["verified"].as_bool(), Some(true), "{cell} {errors}");
        let figures = cell["figures"].as_array().expect("figures");
        figures.iter().find(|figure| figure["quantity"]["name"] == "energy").and_then(|figure| figure["best"].as_f64())
    };
    assert_eq!(energy(0), energy(1));
    assert!(energy(0).is_some());
}
