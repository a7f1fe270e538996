//! A guest without a controller: a few commands on the console.

use crate::seen::seen;
use crate::stream_command;
use crate::{agent, arguments, pattern};
use std::io::{BufRead, Write};
use std::path::Path;
use topology::Machine;

/// Shells, of which the first that is there is taken: of the tiny guest, of a guest with a
/// distribution's programs.
const SHELLS: [&str; 2] = ["/bin/busybox", "/bin/sh"];
const COMMANDS: &str =
    "commands: topology, hello, stream [--threads N ...], pattern MIB, shell [COMMAND], poweroff, help";

/// Reads commands until `poweroff` or the end of the console.
pub(crate) fn serve(machine: &Machine) {
    print_topology(machine);
    println!("{COMMANDS}");
    for line in prompt_lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            // CPUs and memory may have been plugged in since.
            ["topology"] => print_topology(&topology::read::live().unwrap_or_else(|_| machine.clone())),
            ["hello"] => print_hello(machine),
            ["stream", options @ ..] => stream(options, machine),
            ["pattern", mib] => match mib.parse() {
                Ok(mib) => pattern::start(machine, mib),
                Err(_) => println!("pattern: `{mib}` is no number of MiB"),
            },
            ["shell", command @ ..] => shell(&command.join(" ")),
            ["poweroff" | "exit" | "halt"] => return,
            ["help"] => println!("{COMMANDS}"),
            _ => println!("`{line}` is not a command; {COMMANDS}"),
        }
    }
}

fn prompt_lines() -> impl Iterator<Item = String> {
    let mut input = std::io::stdin().lock();
    std::iter::from_fn(move || {
        print!("homenode> ");
        // A console that cannot be written to cannot be told so either.
        let _ = std::io::stdout().flush();
        let mut line = Vec::new();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(String::from_utf8_lossy(&line).trim().to_owned()),
        }
    })
}

fn print_topology(machine: &Machine) {
    let seen = seen(machine);
    println!(
        "CPUs online {}; sockets {}; last-level caches {}",
        seen.online,
        seen.sockets.join(" | "),
        seen.llcs.join(" | ")
    );
    for node in &seen.nodes {
        let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        println!(
            "node {}: CPUs {}, {} MiB, distances {}",
            node.id,
            if node.cpus.is_empty() { "none" } else { &node.cpus },
            node.memory_bytes >> 20,
            distances.join(" ")
        );
    }
    for complaint in &seen.complaints {
        println!("note: {complaint}");
    }
}

fn print_hello(machine: &Machine) {
    match serde_json::to_string_pretty(&agent::hello(machine, true)) {
        Ok(text) => println!("{text}"),
        Err(error) => println!("{error}"),
    }
}

fn stream(options: &[&str], machine: &Machine) {
    let arguments = std::iter::once("--stream").chain(options.iter().copied()).map(str::to_owned);
    let table = match arguments::parse(arguments) {
        Ok(arguments::Mode::Stream(job, repetitions)) => stream_command::table(&job, repetitions, machine),
        Ok(_) => return println!("{COMMANDS}"),
        Err(error) => Err(error),
    };
    match table {
        Ok(table) => print!("{table}"),
        Err(error) => println!("stream: {error:#}"),
    }
}

/// An interactive shell, or one command in a shell. There this program is `/init`: `/init --stream`
/// runs what `stream` runs.
fn shell(command: &str) {
    let Some(program) = SHELLS.into_iter().find(|program| Path::new(program).exists()) else {
        return println!("there is no shell in this guest; `scripts/guest-image --shell` packs one");
    };
    let mut shell = std::process::Command::new(program);
    if program == SHELLS[0] {
        shell.arg("sh").env("PATH", "/bin:/");
    }
    if !command.is_empty() {
        shell.args(["-c", command]);
    }
    if let Err(error) = shell.status() {
        println!("{program}: {error}");
    }
}
