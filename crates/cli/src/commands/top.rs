//! `homenode top`.

use crate::args::TopArguments;
use crate::balancer_host::{manager_of, observe, open, watch};
use crate::commands::top_connect;
use crate::output;
use crate::{balancer_place, screen, top_view};
use screen::{Leave, Screen};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Runs the command.
pub(crate) fn run(arguments: &TopArguments) -> anyhow::Result<()> {
    if let Some(uri) = &arguments.connect {
        return top_connect::run(uri, arguments);
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut host = open(None, false)?;
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let screen = (terminal && !arguments.once && !arguments.json).then(Screen::enter);
    // A terminal that is not ours, such as the kernel's console, cannot be read key by key.
    let Some(Ok(mut screen)) = screen else {
        let observation = watch(&mut host, interval)?;
        return print(&view(&host, &observation, arguments), arguments.json);
    };
    let mut wait = interval.min(Duration::from_millis(500));
    loop {
        let observation = observe(&mut host)?;
        let text = top_view::text(&view(&host, &observation, arguments));
        // Above what may be more than the screen holds.
        screen.show(&text.replacen("\n\n", "\nq or Ctrl-C leaves\n\n", 1))?;
        // The first look has no rates yet; the second one comes soon.
        if screen.wait(wait)? == Leave::Yes {
            return Ok(());
        }
        wait = interval;
    }
}

fn view(host: &impl scheduler::Host, observation: &scheduler::Observation, arguments: &TopArguments) -> top_view::View {
    let mut view = top_view::view(host.machine(), observation, balancer_place::look(&arguments.state).as_ref());
    view.name_managers(manager_of);
    view
}

fn print(view: &top_view::View, json: bool) -> anyhow::Result<()> {
    if json {
        output::json("top", view)?;
    } else {
        output::print(top_view::text(view))?;
    }
    Ok(())
}
