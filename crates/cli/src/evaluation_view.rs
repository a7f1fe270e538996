//! What an evaluation shows while it runs: a bar with the time left on a terminal, plain lines
//! elsewhere. All on standard error.

use crate::output;
use evaluate::progress::{Event, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows progress.
pub(crate) struct View {
    bar: Option<ProgressBar>,
    begun: Instant,
    expected: f64,
    done: f64,
    rejected: u32,
}

impl View {
    /// A bar if standard error is a terminal.
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let template = "{wide_bar} {percent:>3} %  {elapsed_precise}  {prefix}\n{msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self { bar, begun: Instant::now(), expected: 0.0, done: 0.0, rejected: 0 }
    }

    /// Time left: what remains of the expected time, at the pace so far.
    fn left(&self) -> String {
        let remaining = (self.expected - self.done).max(0.0);
        // The first visits are too short to tell.
        let pace = if self.done > 0.1 * self.expected { self.begun.elapsed().as_secs_f64() / self.done } else { 1.0 };
        duration(remaining * pace)
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => output::say(format_args!("{text}\n")),
        }
    }

    /// Takes the bar off the terminal.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for View {
    fn tell(&mut self, event: Event<'_>) {
        match event {
            Event::Begin { seconds } => {
                self.expected = seconds;
                if self.bar.is_none() {
                    output::say(format_args!("This takes about {}.\n", duration(seconds)));
                }
            }
            Event::Starting { configuration, participants } => {
                self.say(&format!("starting {configuration} ({participants})"));
            }
            Event::Started { configuration, seconds } => {
                self.say(&format!("{configuration} is up after {seconds:.1} s"))
            }
            Event::Visit { configuration, point, round } => {
                let rejected = if self.rejected > 0 { format!(", {} rejected", self.rejected) } else { String::new() };
                let left = self.left();
                self.say(&format!("{configuration}: {point}, round {}{rejected}, about {left} left", round + 1));
            }
            Event::Repetition { rejected } => self.rejected += u32::from(rejected),
            Event::Advanced { seconds } => {
                self.done += seconds;
                if let Some(bar) = &self.bar {
                    bar.set_position((1000.0 * self.done / self.expected.max(self.done)) as u64);
                    bar.set_prefix(format!("{} left", self.left()));
                }
            }
            Event::Note(note) => match &self.bar {
                Some(bar) => bar.println(output::readable(note)),
                None => output::say(format_args!("{note}\n")),
            },
        }
    }
}

/// `1 min 20 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match (whole / 60, whole % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) if minutes < 60 => format!("{minutes} min {seconds} s"),
        (minutes, _) => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}
