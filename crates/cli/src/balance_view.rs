//! What `homenode balance` writes: lines with the time for people, or a line of JSON an event.

use crate::output;
use daemon::{Line, Period, Released, Telling};
use jiff::Zoned;
use serde::Serialize;
use std::io::{self, Write};

/// Standard output and standard error of a balancer. It goes on balancing when nobody reads them
/// any more.
pub(crate) struct Log {
    telling: Telling,
    json: bool,
}

impl Log {
    /// JSON or lines for people.
    pub(crate) fn new(json: bool) -> Self {
        Self { telling: Telling::default(), json }
    }

    /// What happened in a period.
    pub(crate) fn period(&mut self, period: &Period) {
        #[derive(Serialize)]
        struct Timed<'a> {
            time: String,
            at_ms: u64,
            #[serde(flatten)]
            event: &'a daemon::Event,
        }
        let lines = self.telling.period(period);
        if !self.json {
            return write(&lines);
        }
        for event in &period.events {
            let timed = Timed { time: Zoned::now().timestamp().to_string(), at_ms: period.at.0, event };
            // The balancer goes on when nobody can read any more.
            let _ = output::json_line("balance", &timed);
        }
    }

    /// A period in which the host could not be read.
    pub(crate) fn unreadable(&mut self, why: &str) {
        write(&self.telling.unreadable(why));
    }

    /// How often trouble came again.
    pub(crate) fn summary(&mut self) {
        if !self.json {
            write(&self.telling.summary());
        }
    }

    /// A line of its own.
    pub(crate) fn news(&self, text: &str) {
        if !self.json {
            write(&[Line { text: text.to_owned(), trouble: false }]);
        }
    }

    /// Something went wrong, and work goes on.
    pub(crate) fn trouble(&self, text: &str) {
        write(&[Line { text: text.to_owned(), trouble: true }]);
    }

    /// What became of an undoing.
    pub(crate) fn released(&self, released: &[Released]) -> anyhow::Result<()> {
        for one in released {
            if self.json {
                output::json_line("balance", one)?;
            } else {
                output::line(sentence(one))?;
            }
        }
        if released.is_empty() && !self.json {
            output::line("nothing to release: no VM that runs has an affinity of the balancer's")?;
        }
        Ok(())
    }
}

fn write(lines: &[Line]) {
    let time = Zoned::now().strftime("%Y-%m-%d %H:%M:%S").to_string();
    for line in lines {
        // The journal, or whoever reads, may have gone away.
        let _ = match line.trouble {
            true => writeln!(io::stderr(), "{time} {}", line.text),
            false => writeln!(io::stdout(), "{time} {}", line.text),
        };
    }
}

fn sentence(released: &Released) -> String {
    match released {
        Released::Undone { vm, client, to, because } => {
            let because = because.as_ref().map_or_else(String::new, |because| format!("; {because}"));
            format!("VM {}, client {}: may run on CPUs {to} again{because}", vm.name, client.0)
        }
        Released::Changed { vm, client, set, now } => format!(
            "VM {}, client {}: left alone: the balancer had set CPUs {set}, somebody has changed that to {now}",
            vm.name, client.0
        ),
        Released::Failed { client, error, .. } => format!("VM {error} (client {})", client.0),
    }
}

/// Affinities that could not be undone, of VMs that still run.
pub(crate) fn failures(released: &[Released]) -> usize {
    let failed = |one: &&Released| match one {
        Released::Failed { error, .. } => !matches!(error, scheduler::ActionError::Gone { .. }),
        _ => false,
    };
    released.iter().filter(failed).count()
}
