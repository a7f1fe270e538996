//! `homenode top`.

use crate::args::TopArguments;
use crate::source::{self, Source};
use crate::text::terminal_width;
use crate::top::{self, Batch, KeptRow, Look, Screen, Step, View};
use crate::{backend, hidden_vms, kept, life_words, output};
use anyhow::Context;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, ErrorKind, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How soon an answer or a signal is noticed.
const SLICE: Duration = Duration::from_millis(100);
/// The first look has no rates yet; the second one comes soon.
const SOON: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) fn run(arguments: &TopArguments) -> anyhow::Result<()> {
    if arguments.batch {
        return batch(arguments);
    }
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if terminal && !arguments.once && !arguments.json {
        // A terminal that is not ours, such as the kernel's console, cannot be read key by key.
        if let Ok(mut terminal) = take_terminal() {
            let shown = show(&mut terminal, arguments);
            drop(terminal);
            // A terminal that has gone away needs nothing.
            let _ = ratatui::try_restore();
            return shown;
        }
    }
    let mut looker = Looker::open(arguments)?;
    let view = looker.once(arguments)?;
    match arguments.json {
        true => output::json("top", &view)?,
        false => output::print(top::text(&view, terminal_width()))?,
    }
    hidden_vms::end(view.hides_vms())
}

/// The terminal's other screen, read key by key. One that does not know its size, a serial line for
/// one, is taken for the usual one.
fn take_terminal() -> io::Result<DefaultTerminal> {
    if matches!(terminal::size(), Ok((columns, rows)) if columns > 0 && rows > 0) {
        return ratatui::try_init();
    }
    let viewport = Viewport::Fixed(Rect::new(0, 0, 80, 24));
    let terminal = ratatui::try_init_with_options(TerminalOptions { viewport })?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Ok(terminal)
}

/// Looks, again and again.
struct Looker {
    source: Source,
    arguments: TopArguments,
}

impl Looker {
    fn open(arguments: &TopArguments) -> anyhow::Result<Self> {
        Ok(Self { source: source::open(&arguments.source)?, arguments: arguments.clone() })
    }

    /// One look with rates; of what does not live, the last one.
    fn once(&mut self, arguments: &TopArguments) -> anyhow::Result<View> {
        let observation = self.source.watch(Duration::from_secs_f64(arguments.interval))?;
        Ok(self.view(&observation))
    }

    /// The next look; `None` where what is looked at has ended.
    fn next(&mut self) -> anyhow::Result<Option<View>> {
        Ok(self.source.next()?.map(|observation| self.view(&observation)))
    }

    fn view(&self, observation: &scheduler::Observation) -> View {
        let remembered = self.source.remembered(&self.arguments.state);
        let mut view = top::view(self.source.name(), self.source.machine(), observation, &remembered);
        view.since_start_seconds = self.source.since_start_seconds(observation);
        if self.source.name() == source::HERE {
            view.add_kept(of_record);
        }
        view
    }
}

/// What is kept of a VM of this user that runs. A record that cannot be read is `vm list`'s to say.
fn of_record(name: &str, pid: u32) -> Option<KeptRow> {
    let record = kept::inventory().read(name).ok()?;
    let is_it = backend::pid(&record) == Some(pid);
    is_it.then(|| KeptRow {
        state: record.life.state,
        since: record.life.since,
        virtual_topology: life_words::nodes(&record.sizes()),
    })
}

/// Every look as rows of CSV, until it ends or nobody reads any more.
fn batch(arguments: &TopArguments) -> anyhow::Result<()> {
    let mut looker = Looker::open(arguments)?;
    let lives = looker.source.lives();
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut write = || -> anyhow::Result<()> {
        let mut batch = Batch::start(io::stdout().lock())?;
        if lives {
            looker.next()?;
        }
        let mut hidden = false;
        for _ in 0..arguments.count.unwrap_or(u64::MAX) {
            if lives {
                thread::sleep(interval);
            }
            let Some(view) = looker.next()? else { break };
            let time = if lives { jiff::Timestamp::now().to_string() } else { String::new() };
            batch.add(&time, &view)?;
            hidden |= view.hides_vms();
        }
        hidden_vms::end(hidden)
    };
    match write() {
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == ErrorKind::BrokenPipe) => Ok(()),
        Err(error) if error.is::<io::Error>() => Err(error).context("standard output"),
        written => written,
    }
}

/// The screen, until the user leaves. Looks are taken beside it, so that a slow host does not hold
/// up the keys.
fn show(terminal: &mut DefaultTerminal, arguments: &TopArguments) -> anyhow::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    end_on_signals(&ended).context("cannot watch for signals")?;
    let interval = Duration::from_secs_f64(arguments.interval);
    let (mut screen, look) = (Screen::new(), Look::of_environment());
    let (ask, answers) = looks(arguments);
    let mut view: Option<View> = None;
    let mut due: Option<Instant> = Some(Instant::now());
    while !ended.load(Ordering::Relaxed) {
        if due.is_some_and(|due| due <= Instant::now()) && !screen.paused {
            // Where nobody takes the question, the answer below says why.
            let _ = ask.send(());
            due = None;
        }
        match answers.try_recv() {
            Ok(answer) => {
                let wait = if view.is_none() { SOON.min(interval) } else { interval };
                if let Some(seen) = answer? {
                    view = Some(seen);
                    due = Some(Instant::now() + wait);
                } else {
                    screen.ended();
                }
                draw(terminal, view.as_ref(), &mut screen, look)?;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => anyhow::bail!("nobody looks any more"),
        }
        let until_due = due.map_or(SLICE, |due| due.saturating_duration_since(Instant::now()).min(SLICE));
        if event::poll(until_due).context("the terminal cannot be read")? {
            match event::read().context("the terminal cannot be read")? {
                Event::Key(key) if key.kind != KeyEventKind::Release && screen.press(key) == Step::Leave => {
                    return Ok(());
                }
                _ => draw(terminal, view.as_ref(), &mut screen, look)?,
            }
        }
    }
    Ok(())
}

/// Ends the screen on a signal. Where the terminal is gone, `event::poll` reads its end again and
/// again and never comes back: the process then ends from here.
fn end_on_signals(ended: &Arc<AtomicBool>) -> io::Result<()> {
    let (mut signals, ended) = (Signals::new([SIGTERM, SIGHUP])?, ended.clone());
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            ended.store(true, Ordering::Relaxed);
            thread::sleep(4 * SLICE);
            ratatui::restore();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn draw(terminal: &mut DefaultTerminal, view: Option<&View>, screen: &mut Screen, look: Look) -> anyhow::Result<()> {
    if let Some(view) = view {
        terminal.draw(|frame| top::draw(frame, view, screen, look)).context("cannot write to the terminal")?;
    }
    Ok(())
}

type Answer = anyhow::Result<Option<View>>;

/// Takes a look for each question.
fn looks(arguments: &TopArguments) -> (Sender<()>, Receiver<Answer>) {
    let ((ask, questions), (answer, answers)) = (channel(), channel());
    let arguments = arguments.clone();
    thread::spawn(move || {
        let mut looker = match Looker::open(&arguments) {
            Ok(looker) => looker,
            // The one who asked may have left.
            Err(error) => return drop(answer.send(Err(error))),
        };
        while questions.recv().is_ok() && answer.send(looker.next()).is_ok() {}
    });
    (ask, answers)
}
