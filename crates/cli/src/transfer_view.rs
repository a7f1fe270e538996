//! How far a guest has come on its way into a file or out of one: a bar on a terminal, one line at
//! the end elsewhere. All on standard error.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use topology::Bytes;
use vm::backend::Transfer;

/// Shows how far it has come.
pub(crate) struct TransferView {
    bar: Option<ProgressBar>,
    begun: Instant,
}

impl TransferView {
    /// A bar if standard error is a terminal.
    pub(crate) fn new(total: Bytes) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total.0);
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {elapsed_precise}  {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self { bar, begun: Instant::now() }
    }

    /// It has come further.
    pub(crate) fn tell(&self, transfer: Transfer) {
        if let Some(bar) = &self.bar {
            bar.set_position(transfer.done.0);
            bar.set_message(self.rate(transfer.done));
        }
    }

    /// Takes the bar off the terminal. The time since it began, in seconds.
    pub(crate) fn finish(&self) -> f64 {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.begun.elapsed().as_secs_f64()
    }

    /// `430 MiB/s`.
    fn rate(&self, done: Bytes) -> String {
        rate(done, self.begun.elapsed().as_secs_f64())
    }
}

/// An amount in some seconds, as `430 MiB/s`.
pub(crate) fn rate(amount: Bytes, seconds: f64) -> String {
    let mib = amount.0 as f64 / Bytes::MIB.0 as f64;
    format!("{:.0} MiB/s", mib / seconds.max(0.001))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_in_mib_a_second() {
        assert_eq!(rate(Bytes::from_mib(512), 2.0), "256 MiB/s");
    }
}
