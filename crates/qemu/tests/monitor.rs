//! The vCPU threads of a QEMU that somebody else started without names for its threads, from its monitor.

use qemu::{locate_qemu, monitor};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends with the value.
struct Vm(Child);

impl Drop for Vm {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first words on a new connection, when the monitor listens.
fn greeting(socket: &Path) -> (UnixStream, String) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
                let mut line = String::new();
                BufReader::new(stream.try_clone().expect("a copy")).read_line(&mut line).expect("a greeting");
                return (stream, line);
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_free_monitor_says_which_thread_runs_which_vcpu_and_one_in_use_is_left_alone() {
    let test = "a_free_monitor_says_which_thread_runs_which_vcpu_and_one_in_use_is_left_alone";
    if let Err(error) = locate_qemu("test") {
        return eprintln!("SKIPPED {test}: {error}");
    }
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("qmp");
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-S", "-accel", "tcg,thread=multi", "-display", "none", "-nodefaults", "-smp", "2", "-m", "32"]);
    command.args([
        "-name",
        &format!("monitor-{pid}", pid = std::process::id()),
        "-qmp",
        &format!("unix:{},server=on,wait=off", socket.display()),
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let vm = Vm(command.spawn().expect("QEMU"));
    let pid = vm.0.id();
    let (mut holder, words) = greeting(&socket);
    assert!(words.contains("QMP"), "{words}");
    assert_eq!(monitor::vcpu_threads(pid), None, "somebody is at it");
    // Who has it goes on as if nothing had been.
    writeln!(holder, "{{\"execute\":\"qmp_capabilities\"}}").expect("a command");
    let mut answer = String::new();
    BufReader::new(holder.try_clone().expect("a copy")).read_line(&mut answer).expect("an answer");
    assert!(answer.contains("return"), "{answer}");
    drop(holder);
    let deadline = Instant::now() + Duration::from_secs(60);
    let threads = loop {
        match monitor::vcpu_threads(pid) {
            Some(threads) => break threads,
            None => assert!(Instant::now() < deadline, "it does not say"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(threads.keys().copied().collect::<Vec<_>>(), [0, 1]);
    let own = linux::process::threads(pid).expect("its threads");
    assert!(threads.values().all(|thread| own.iter().any(|known| known.id == *thread)), "{threads:?}");
    // It is free again for whoever comes next.
    assert!(greeting(&socket).1.contains("QMP"));
}
