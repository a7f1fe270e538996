//! What an evaluation shows while it runs: a bar with the time left on a terminal, plain lines
//! elsewhere. All on standard error.

use crate::output;
use evaluate::progress::{Event, Expectation, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows progress.
pub(crate) struct View {
    bar: Option<ProgressBar>,
    begun: Instant,
    expected: f64,
    expectation: Expectation,
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
        Self { bar, begun: Instant::now(), expected: 0.0, expectation: Expectation::About, done: 0.0, rejected: 0 }
    }

    /// Time left: what remains of the expected time, at the pace so far. The first visits are too
    /// short to tell: until then as expected, where that is known.
    fn left(&self) -> Option<String> {
        let remaining = (self.expected - self.done).max(0.0);
        let has_pace = self.done > 0.1 * self.expected;
        let pace = if has_pace { self.begun.elapsed().as_secs_f64() / self.done } else { 1.0 };
        (has_pace || self.expectation != Expectation::Unknown)
            .then(|| format!("about {} left", duration(remaining * pace)))
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
            Event::Begin { seconds, expectation: how } => {
                (self.expected, self.expectation) = (seconds, how);
                if self.bar.is_none() {
                    output::say(format_args!("{}\n", expectation(seconds, how)));
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
                let left = self.left().map_or_else(String::new, |left| format!(", {left}"));
                self.say(&format!("{configuration}: {point}, round {}{rejected}{left}", round + 1));
            }
            Event::Repetition { rejected } => self.rejected += u32::from(rejected),
            Event::Advanced { seconds } => {
                self.done += seconds;
                if let Some(bar) = &self.bar {
                    bar.set_position((1000.0 * self.done / self.expected.max(self.done)) as u64);
                    bar.set_prefix(self.left().unwrap_or_default());
                }
            }
            Event::Note(note) => match &self.bar {
                Some(bar) => bar.println(output::readable(note)),
                None => output::say(format_args!("{note}\n")),
            },
        }
    }
}

/// How long an evaluation takes, as far as anybody knows.
pub(crate) fn expectation(seconds: f64, how: Expectation) -> String {
    match how {
        Expectation::About => format!("This takes about {}.", duration(seconds)),
        Expectation::AtMost => format!("This takes {} at most, or the first round.", duration(seconds)),
        Expectation::Unknown => "How long this takes is known when the command has run a few times.".to_owned(),
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
