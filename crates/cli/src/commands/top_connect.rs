//! `homenode top --connect`.

use crate::args::TopArguments;
use crate::screen::{Leave, Screen};
use crate::{output, remote_host, remote_view};
use libvirt::remote::{Look, Rates, Remote};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Runs the command for the libvirt at `uri`.
pub(crate) fn run(uri: &str, arguments: &TopArguments) -> anyhow::Result<()> {
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut remote = remote_host::open(uri)?;
    let mut before = look(&mut remote)?;
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let screen = (terminal && !arguments.once && !arguments.json).then(Screen::enter);
    // A terminal that is not ours, such as the kernel's console, cannot be read key by key.
    let Some(Ok(mut screen)) = screen else {
        std::thread::sleep(interval);
        let now = look(&mut remote)?;
        return print(&remote_view::view(uri, remote.machine(), &now, &now.since(&before)), arguments.json);
    };
    let mut rates = Rates::default();
    let mut wait = interval.min(Duration::from_millis(500));
    loop {
        let text = remote_view::text(&remote_view::view(uri, remote.machine(), &before, &rates));
        screen.show(&text.replacen("\n\n", "\nq or Ctrl-C leaves\n\n", 1))?;
        if screen.wait(wait)? == Leave::Yes {
            return Ok(());
        }
        wait = interval;
        let now = look(&mut remote)?;
        rates = now.since(&before);
        before = now;
    }
}

fn look(remote: &mut Remote) -> anyhow::Result<Look> {
    remote.look().map_err(remote_host::failure)
}

fn print(view: &remote_view::View, json: bool) -> anyhow::Result<()> {
    if json { output::json("top", view) } else { output::print(remote_view::text(view)) }
}
