//! One run of `virsh`: started without a terminal, with a time limit, its words kept.

use crate::LibvirtError;
use linux::sys::{ChildSetup, Tie};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use topology::input::LONGEST_FILE;

/// What a run of `virsh` printed, and whether it says that all went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) success: bool,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// Runs `virsh` with these arguments and this standard input.
///
/// It has no terminal, so that neither it nor the ssh that it starts can ask for a password: they
/// fail and say so. It is not tied to our life either: a change that libvirt has begun is better
/// finished than cut. Unless `starts_session`, it starts no libvirt of this user's own: that would
/// be a daemon left behind by a look.
pub(crate) fn run(
    arguments: &[String],
    input: Option<&str>,
    limit: Duration,
    starts_session: bool,
) -> Result<Said, LibvirtError> {
    let mut command = Command::new("virsh");
    command.args(arguments).env("LC_ALL", "C").env("SSH_ASKPASS_REQUIRE", "never");
    if !starts_session {
        command.env("LIBVIRT_AUTOSTART", "0");
    }
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let setup = ChildSetup { tie: Tie::Outlives, inherited: Vec::new(), cpus: None, user: None };
    let no_virsh = |error: std::io::Error| LibvirtError::NoVirsh { reason: error.to_string() };
    let mut child = linux::sys::spawn(command, setup).map_err(no_virsh)?;
    feed(&mut child, input);
    let (output, errors) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let deadline = Instant::now() + limit;
    let texts = until(&output, deadline).and_then(|output| Some((output, until(&errors, deadline)?)));
    let Some((output, errors)) = texts else {
        // It may have ended in this very moment: then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
        return Err(LibvirtError::Timeout { operation: operation(arguments), seconds: limit.as_secs() });
    };
    let status = child.wait().map_err(no_virsh)?;
    Ok(Said { success: status.success(), output, errors })
}

/// The command among the arguments, as errors name it: without the options before it.
fn operation(arguments: &[String]) -> String {
    let mut words = arguments.iter().map(String::as_str).skip_while(|word| *word == "--quiet");
    let first = words.next();
    let rest: Vec<&str> = match first {
        Some("--connect") => words.skip(1).collect(),
        _ => first.into_iter().chain(words).collect(),
    };
    rest.join(" ")
}

fn feed(child: &mut Child, input: Option<&str>) {
    if let (Some(mut stdin), Some(text)) = (child.stdin.take(), input.map(str::to_owned)) {
        // One that ends before it has read all says why on its standard error.
        std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    }
}

/// Reads a pipe to its end, in a thread of its own: a program that is killed may leave it open in a
/// program that it started.
fn collect(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read until an error is all that there is. One that says more than anybody
        // reads fails at its next word.
        let _ = pipe.map(|pipe| pipe.take(LONGEST_FILE).read_to_end(&mut bytes));
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

fn until(text: &Receiver<String>, deadline: Instant) -> Option<String> {
    text.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_never_stops_talking_is_read_up_to_the_limit() {
        let text = until(&collect(Some(std::io::repeat(b'a'))), Instant::now() + Duration::from_secs(60)).unwrap();
        assert_eq!(text.len() as u64, LONGEST_FILE);
    }

    #[test]
    fn an_operation_is_named_without_the_options_before_it() {
        let named = |words: &[&str]| operation(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(named(&["--quiet", "--connect", "test:///default", "dumpxml", "a"]), "dumpxml a");
        assert_eq!(named(&["--quiet", "capabilities"]), "capabilities");
    }
}
