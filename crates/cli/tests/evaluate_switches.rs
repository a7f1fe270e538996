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
    fs::write(directory.path().join("meet.toml"), text).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["evaluate", "--json", "meet.toml"])
        .current_dir(directory.path())
        .output()
        .expect("homenode runs");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let cell = &said["configurations"][0]["cells"][0];
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((cell["state"].as_str(), cell["verified"].as_bool()), (Some("measured"), Some(true)), "{cell} {errors}");
}
