//! The agent's side of the protocol, over any pair of streams.

use crate::job::Job;
use crate::programs;
use crate::seen::seen;
use anyhow::Context;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, channel};
use topology::Machine;
use workloads::protocol::{FromAgent, Hello, PROTOCOL_VERSION, ToAgent};

/// Longest line accepted.
const LONGEST_LINE_BYTES: u64 = 1 << 20;

/// Serves standard input and output until the controller says finish. The process ends as soon as
/// its input does, so it never outlives a controller.
pub(crate) fn native() -> anyhow::Result<()> {
    let machine = topology::read::live()?;
    serve(&machine, std::io::stdin(), std::io::stdout(), false, || {
        programs::end_all();
        std::process::exit(0)
    })
}

/// Prints what this program would greet a controller with.
pub(crate) fn print_hello() -> anyhow::Result<()> {
    let hello = hello(&topology::read::live()?, false);
    println!("{}", serde_json::to_string_pretty(&hello)?);
    Ok(())
}

/// Greets, then carries out what comes in until `finish`. `lost` is called, on another thread, when
/// the input ends.
pub(crate) fn serve(
    machine: &Machine,
    input: impl Read + Send + 'static,
    mut output: impl Write,
    guest: bool,
    lost: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    send(&mut output, &FromAgent::Hello(hello(machine, guest)))?;
    let lines = read_lines(input, lost);
    let mut job = None;
    while let Ok(line) = lines.recv() {
        let message = match line.and_then(|line| Ok(serde_json::from_slice(&line)?)) {
            Ok(message) => message,
            Err(reason) => {
                let message = format!("that is no message of this protocol: {reason}");
                send(&mut output, &FromAgent::Failed { job: None, message })?;
                continue;
            }
        };
        if message == ToAgent::Finish {
            return Ok(());
        }
        answer(message, &mut job, machine, &mut output)?;
    }
    Ok(())
}

fn answer(message: ToAgent, job: &mut Option<Job>, machine: &Machine, output: &mut impl Write) -> anyhow::Result<()> {
    let mut fail = |job: u64, error: &anyhow::Error| {
        send(output, &FromAgent::Failed { job: Some(job), message: format!("{error:#}") })
    };
    match message {
        ToAgent::Finish => {}
        ToAgent::Join(join) => match crate::join::join(&join) {
            Ok(keys) => send(output, &FromAgent::Joined { keys })?,
            Err(error) => send(output, &FromAgent::Failed { job: None, message: format!("{error:#}") })?,
        },
        ToAgent::Trust(trust) => match crate::logins::trust(&trust) {
            Ok(()) => send(output, &FromAgent::Trusted)?,
            Err(error) => send(output, &FromAgent::Failed { job: None, message: format!("{error:#}") })?,
        },
        ToAgent::Run { job: id, workload, repetitions, parameters } => {
            // A new job ends the old one; its memory is given back first.
            *job = None;
            match Job::prepare(id, &workload, repetitions, parameters, machine) {
                Ok(prepared) => {
                    send(output, &FromAgent::Ready { job: id, repetition: 0 })?;
                    *job = Some(prepared);
                }
                Err(error) => fail(id, &error)?,
            }
        }
        ToAgent::Go { job: id } => match job.as_mut().filter(|job| job.id == id) {
            Some(prepared) => match go(prepared, output)? {
                Ok(true) => {}
                Ok(false) => *job = None,
                Err(error) => {
                    *job = None;
                    send(output, &FromAgent::Failed { job: Some(id), message: format!("{error:#}") })?;
                }
            },
            None => fail(id, &anyhow::anyhow!("job {id} does not wait for `go`; send `run` first"))?,
        },
    }
    Ok(())
}

/// One repetition. The outer error: the controller cannot be reached. The inner result: whether the
/// job goes on.
fn go(job: &mut Job, output: &mut impl Write) -> anyhow::Result<anyhow::Result<bool>> {
    match job.repeat() {
        Ok(repetition) => send(output, &repetition)?,
        Err(error) => return Ok(Err(error)),
    }
    if job.next < job.repetitions {
        send(output, &FromAgent::Ready { job: job.id, repetition: job.next })?;
        return Ok(Ok(true));
    }
    match job.conclude() {
        Ok(done) => send(output, &done)?,
        Err(error) => return Ok(Err(error)),
    }
    Ok(Ok(false))
}

fn send(output: &mut impl Write, message: &FromAgent) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).context("the controller does not read")
}

/// Reads on a thread of its own, so that the end of the input is noticed while a repetition runs.
fn read_lines(
    input: impl Read + Send + 'static,
    lost: impl FnOnce() + Send + 'static,
) -> Receiver<anyhow::Result<Vec<u8>>> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let mut line = Vec::new();
            match input.by_ref().take(LONGEST_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return lost(),
                Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
                Ok(_) if line.len() as u64 == LONGEST_LINE_BYTES => {
                    // The rest of such a line cannot be told from a new one.
                    let _ = sender.send(Err(anyhow::anyhow!("a line is over 1 MiB")));
                    return lost();
                }
                // The receiver is gone only when the agent has finished.
                Ok(_) => drop(sender.send(Ok(line))),
            }
        }
    });
    lines
}

/// What an agent greets with.
pub(crate) fn hello(machine: &Machine, guest: bool) -> Hello {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let uptime = text("/proc/uptime");
    Hello {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        guest,
        uptime_seconds: uptime.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
        machine: seen(machine),
    }
}
