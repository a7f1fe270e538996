//! Where observations come from: this host, another host's libvirt, a modelled host with a trace, a recording. Whoever looks takes
//! [`open`]'s answer and asks no further.

use crate::args_source::SourceArguments;
use crate::balancer_host;
use anyhow::{Context, bail};
use scheduler::{Observation, Observe};
use std::thread;
use std::time::Duration;
use topology::Machine;

/// A source that was opened.
// Not every command that looks takes it yet.
#[allow(dead_code)]
pub(crate) struct Source {
    host: Box<dyn Observe>,
    /// Whether what is looked at goes on by itself. A recording and a model go on from one look to the next.
    lives: bool,
}

/// Opens the source that the arguments name.
///
/// # Errors
/// Bad input, or a host that cannot be read.
pub(crate) fn open(arguments: &SourceArguments) -> anyhow::Result<Source> {
    if arguments.connect.is_some() || arguments.on.is_some() || arguments.replay.is_some() {
        bail!("this command looks at this host only");
    }
    Ok(Source { host: Box::new(balancer_host::open(None, false)?), lives: true })
}

#[allow(dead_code)]
impl Source {
    /// The machine.
    pub(crate) fn machine(&self) -> &Machine {
        self.host.machine()
    }

    /// Whether time passes there by itself.
    pub(crate) fn lives(&self) -> bool {
        self.lives
    }

    /// One look.
    ///
    /// # Errors
    /// Nothing at all can be read.
    pub(crate) fn observe(&mut self) -> anyhow::Result<Observation> {
        self.host.observe().context("nothing can be seen")
    }

    /// One look that also takes what is slow to learn: settings, limits, policies of memory.
    ///
    /// # Errors
    /// Nothing at all can be read.
    pub(crate) fn examine(&mut self) -> anyhow::Result<Observation> {
        self.host.examine().context("nothing can be seen")
    }

    /// An observation with rates: what happened in `interval`.
    ///
    /// # Errors
    /// Nothing at all can be read.
    pub(crate) fn watch(&mut self, interval: Duration) -> anyhow::Result<Observation> {
        self.observe()?;
        if self.lives {
            thread::sleep(interval);
        }
        self.observe()
    }
}
