//! The participants of one configuration, spoken to together.

use crate::errors::RunError;
use crate::world::{LinkError, Participant, Said};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use workloads::protocol::{FromAgent, ToAgent};

/// How often a wait looks whether it is still wanted.
const SLICE: Duration = Duration::from_millis(100);
/// How often a wait looks whether guests stand still: a look at a console's last lines and at what
/// QEMU has said by itself.
const LOOK: Duration = Duration::from_secs(1);
/// How long a process may take to end after its connection is gone.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Lines of a console in an error.
const CONSOLE_LINES: usize = 12;

/// The participants of one configuration.
pub(crate) struct Team<'a> {
    pub(crate) members: Vec<Box<dyn Participant>>,
    pub(crate) cancelled: &'a AtomicBool,
}

impl Team<'_> {
    /// Sends a message to one.
    pub(crate) fn send(&mut self, index: usize, message: &ToAgent, awaited: &'static str) -> Result<(), RunError> {
        self.members[index].send(message).map_err(|error| self.gone(index, awaited, &error))
    }

    /// Waits until each has said what `wanted` accepts; other messages are passed over, except a
    /// failure.
    pub(crate) fn await_all<T>(
        &mut self,
        awaited: &'static str,
        seconds: u32,
        wanted: impl Fn(FromAgent) -> Option<T>,
    ) -> Result<Vec<(Instant, T)>, RunError> {
        self.await_of(0..self.members.len(), awaited, seconds, wanted)
    }

    /// The same of some of them; that another one dies is noticed all the same.
    pub(crate) fn await_of<T>(
        &mut self,
        members: Range<usize>,
        awaited: &'static str,
        seconds: u32,
        wanted: impl Fn(FromAgent) -> Option<T>,
    ) -> Result<Vec<(Instant, T)>, RunError> {
        let deadline = Instant::now() + Duration::from_secs(u64::from(seconds));
        let mut heard = Vec::with_capacity(members.len());
        for index in members {
            loop {
                let Said { at, message } = self.next_message(index, awaited, seconds, deadline)?;
                if let FromAgent::Failed { message, .. } = message {
                    return Err(RunError::Failed { name: self.members[index].name().to_owned(), message });
                }
                let greets = matches!(message, FromAgent::Hello(_));
                if let Some(value) = wanted(message) {
                    heard.push((at, value));
                    break;
                }
                if greets {
                    return Err(self.started_again(index, awaited));
                }
            }
        }
        Ok(heard)
    }

    fn next_message(
        &mut self,
        index: usize,
        awaited: &'static str,
        seconds: u32,
        deadline: Instant,
    ) -> Result<Said, RunError> {
        let mut looked = Instant::now();
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            match self.members[index].receive(SLICE) {
                // By its own time: what came in time may be read later, and what comes without end
                // is never in time.
                Ok(said) if said.at < deadline => return Ok(said),
                Err(LinkError::Timeout) if Instant::now() < deadline => {
                    // A VM can die while its connection seems open, and another than the one that
                    // is listened to.
                    if let Some(dead) = (0..self.members.len()).find(|&other| self.members[other].exited().is_some()) {
                        return Err(self.gone(dead, awaited, &LinkError::Timeout));
                    }
                    if looked.elapsed() >= LOOK {
                        looked = Instant::now();
                        self.find_stalled(awaited)?;
                    }
                }
                Ok(_) | Err(LinkError::Timeout) => {
                    let member = &self.members[index];
                    let console = member.console_tail(CONSOLE_LINES);
                    let name = member.name().to_owned();
                    return Err(RunError::Silent { name, awaited, seconds, advice: "", console });
                }
                Err(error) => return Err(self.gone(index, awaited, &error)),
            }
        }
    }

    /// Fails where a guest stands still that will never answer.
    fn find_stalled(&mut self, awaited: &'static str) -> Result<(), RunError> {
        for member in &mut self.members {
            if let Some(reason) = member.stalled() {
                let console = member.console_tail(CONSOLE_LINES);
                return Err(RunError::Stalled { name: member.name().to_owned(), awaited, reason, console });
            }
        }
        Ok(())
    }

    /// The error for a participant that greets a second time.
    fn started_again(&self, index: usize, awaited: &'static str) -> RunError {
        let member = &self.members[index];
        let reason = "its guest, or the agent in it, has started again, and knows nothing of the job".to_owned();
        let console = member.console_tail(CONSOLE_LINES);
        RunError::Died { name: member.name().to_owned(), awaited, reason, console }
    }

    /// The error for a participant whose connection is gone: with its process's own last words, if
    /// it ends.
    fn gone(&mut self, index: usize, awaited: &'static str, error: &LinkError) -> RunError {
        let deadline = Instant::now() + LAST_WORDS;
        let member = &mut self.members[index];
        let reason = loop {
            if let Some(words) = member.exited() {
                break words;
            }
            if Instant::now() >= deadline || self.cancelled.load(Ordering::Relaxed) {
                break error.to_string();
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        // Ctrl-C reaches the VMs of a terminal too: that they ended is then no news.
        if self.cancelled.load(Ordering::Relaxed) {
            return RunError::Interrupted;
        }
        let console = member.console_tail(CONSOLE_LINES);
        RunError::Died { name: member.name().to_owned(), awaited, reason, console }
    }

    /// Processes of the participants.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.pid()).collect()
    }

    /// Ends all.
    pub(crate) fn stop(self) {
        for member in self.members {
            member.stop();
        }
    }
}
