//! The view on a screen: a line of facts, nodes as bars with the VMs that live there, the VMs, the
//! keys. Pure: it draws what it is given, as large as the screen is.
//!
//! Of a screen that is too low, nodes get at most two fifths; a line says how many are not shown.
//! The table of VMs scrolls.

use super::columns::{COLUMNS, GAP, cut, fit};
use super::keys::Screen;
use super::{NodeRow, View, VmRow};
use crate::text::wrapped;
use crate::words;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// What the terminal can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether colours may be used (NO_COLOR is not set).
    pub(crate) colour: bool,
    /// Whether its texts are UTF-8.
    pub(crate) utf8: bool,
}

impl Look {
    /// What the environment says.
    pub(crate) fn of_environment() -> Self {
        // https://no-color.org: any value but an empty one.
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colour, utf8: crate::output::is_utf8() }
    }
}

/// Lines that the balancer, pressure and what was not seen may take.
const FACTS_SHOWN: usize = 3;

const KEYS: [(&str, &str); 8] = [
    ("q", "leaves"),
    ("?", "words"),
    ("/", "filter"),
    ("< >", "sort"),
    ("r", "reverse"),
    ("space", "pause"),
    ("n", "nodes"),
    ("arrows", "scroll"),
];

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View, screen: &mut Screen, look: Look) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = heading(view, screen, look, width);
    if screen.words {
        lines.extend(words_page(screen, width, height.saturating_sub(lines.len() + 1)));
    } else {
        if screen.nodes {
            lines.extend(nodes(view, look, width, height));
        }
        lines.extend(vms(view, screen, look, width, height.saturating_sub(lines.len() + 1)));
    }
    lines.resize(height.saturating_sub(1), Line::default());
    lines.push(keys(screen, look, width));
    for (row, line) in lines.into_iter().take(height).enumerate() {
        let line = shown(line, look);
        frame.render_widget(line, Rect { y: area.y + row as u16, height: 1, ..area });
    }
}

/// Names are whatever somebody wrote: what would steer the terminal is not shown.
fn shown(line: Line<'_>, look: Look) -> Line<'_> {
    let text = |text: &str| topology::input::harmless(text);
    let text = |content: &str| if look.utf8 { text(content) } else { crate::output::ascii(&text(content)) };
    let span = |span: Span<'_>| Span::styled(text(&span.content), span.style);
    Line { spans: line.spans.into_iter().map(span).collect(), ..line }
}

fn coloured(look: Look, colour: Color) -> Style {
    if look.colour { Style::new().fg(colour) } else { Style::new() }
}

/// Green, yellow, red from these limits on.
fn by_level(look: Look, value: f64, yellow: f64, red: f64) -> Style {
    coloured(
        look,
        if value >= red {
            Color::Red
        } else if value >= yellow {
            Color::Yellow
        } else {
            Color::Green
        },
    )
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn heading(view: &View, screen: &Screen, look: Look, width: usize) -> Vec<Line<'static>> {
    let mut title = format!("homenode top: {}", view.title());
    if screen.at_end {
        title.push_str(" (the end)");
    } else if screen.paused {
        title.push_str(" (paused)");
    }
    let facts = view.facts();
    let style = if view.alarms() { coloured(look, Color::Yellow) } else { Style::new() };
    let mut facts = wrapped(&facts.join("; "), width);
    facts.resize(facts.len().max(1), String::new());
    let more = facts.len() > FACTS_SHOWN;
    facts.truncate(FACTS_SHOWN);
    if let Some(last) = facts.last_mut().filter(|_| more) {
        last.push_str(" ...");
    }
    let facts = facts.iter().map(|fact| Line::styled(cut(fact, width), style));
    [Line::styled(cut(&title, width), bold())].into_iter().chain(facts).collect()
}

/// A line a node.
fn nodes(view: &View, look: Look, width: usize, height: usize) -> Vec<Line<'static>> {
    let most = (height * 2 / 5).max(2);
    let shown = if view.nodes.len() <= most { view.nodes.len() } else { most - 1 };
    let digits = view.nodes.iter().map(|node| node.node.to_string().len()).max().unwrap_or(1);
    let mut lines: Vec<Line<'static>> =
        view.nodes[..shown].iter().map(|node| node_line(node, look, width, digits)).collect();
    if shown < view.nodes.len() {
        lines.push(Line::raw(cut(
            &format!("... and {} nodes more: a taller terminal shows them", view.nodes.len() - shown),
            width,
        )));
    }
    lines
}

fn node_line(row: &NodeRow, look: Look, width: usize, digits: usize) -> Line<'static> {
    let bar_width = match width {
        ..60 => 5,
        60..110 => 10,
        _ => 20,
    };
    let memory = row
        .memory_free
        .filter(|_| row.memory.0 > 0)
        .map(|free| 100.0 * row.memory.saturating_sub(free).0 as f64 / row.memory.0 as f64);
    let label = if width < 60 { format!("{:>digits$} ", row.node) } else { format!("Node {:>digits$}  ", row.node) };
    let mut spans = vec![Span::raw(label)];
    // A core with two busy hardware threads is loaded 200 %: the bar is full then.
    let most = 100.0 * row.threads_per_core.max(1.0);
    let bars = [("CPU", row.load_percent, most, 70.0, 90.0), ("mem", memory, 100.0, 80.0, 95.0)];
    for (what, percent, most, yellow, red) in bars {
        let what = if what == "mem" && width >= 60 { "memory" } else { what };
        spans.push(Span::raw(format!("{what} ")));
        spans.extend(bar(
            percent.map(|percent| 100.0 * percent / most),
            bar_width,
            by_level(look, percent.unwrap_or(0.0), yellow, red),
        ));
        spans.push(Span::raw(percent.map_or_else(|| "    -  ".to_owned(), |percent| format!(" {percent:3.0}%  "))));
    }
    if width >= 60 && row.memory.0 > 0 && row.promised > row.memory {
        let percent = 100.0 * row.promised.0 as f64 / row.memory.0 as f64;
        spans.push(Span::styled(format!("promised {percent:.0}%  "), by_level(look, percent, 100.0, 200.0)));
    }
    if width >= 110 {
        let free = row.memory_free.map_or_else(|| "-".to_owned(), |free| free.to_string());
        spans.push(Span::raw(format!("{:>18}  ", format!("{free} free"))));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::styled(names(&row.vms, width.saturating_sub(used)), bold()));
    Line::from(spans)
}

fn bar(percent: Option<f64>, width: usize, style: Style) -> [Span<'static>; 2] {
    let part = percent.unwrap_or(0.0).clamp(0.0, 100.0) / 100.0;
    let full = (part * width as f64).round() as usize;
    [Span::styled("█".repeat(full), style), Span::styled("·".repeat(width - full), Style::new())]
}

/// As many names as fit, and how many do not.
fn names(names: &[String], width: usize) -> String {
    for shown in (0..=names.len()).rev() {
        let more = names.len() - shown;
        let mut text = names[..shown].join(" ");
        if more > 0 {
            text.push_str(&if shown > 0 { format!(" +{more}") } else { format!("{more} VMs") });
        }
        if text.chars().count() <= width {
            return text;
        }
    }
    String::new()
}

fn vms(view: &View, screen: &mut Screen, look: Look, width: usize, height: usize) -> Vec<Line<'static>> {
    let rows = screen.rows(view);
    if rows.is_empty() {
        let why = match (view.vms.is_empty(), screen.filter.is_empty()) {
            (true, _) => "No VM runs that this user can see.".to_owned(),
            (false, _) => format!("No VM has {:?} in its name, process or home; Esc shows all.", screen.filter),
        };
        return vec![Line::default(), Line::raw(cut(&why, width))];
    }
    let page = height.saturating_sub(2);
    let first = screen.scrolled(rows.len(), page);
    let fitting = fit(&rows, Some(width));
    let part = match page {
        0 => format!("{} VMs, and no room for them", rows.len()),
        _ => format!("VMs {} to {} of {}", first + 1, (first + page).min(rows.len()), rows.len()),
    };
    let part = Line::raw(if page < rows.len() { cut(&part, width) } else { String::new() });
    let mut lines = vec![part.right_aligned(), header(&fitting, screen)];
    lines.extend(rows.iter().skip(first).take(page).map(|row| vm_line(row, &fitting, look)));
    lines
}

fn header(fitting: &[(usize, usize)], screen: &Screen) -> Line<'static> {
    let cell = |&(index, width): &(usize, usize)| {
        let style = if index == screen.sort { bold().add_modifier(Modifier::REVERSED) } else { bold() };
        let title = aligned(COLUMNS[index].title, width, COLUMNS[index].right);
        [Span::styled(title, style), Span::raw(" ".repeat(GAP))]
    };
    Line::from(fitting.iter().flat_map(cell).collect::<Vec<_>>())
}

fn vm_line(row: &VmRow, fitting: &[(usize, usize)], look: Look) -> Line<'static> {
    let cell = |&(index, width): &(usize, usize)| {
        let column = &COLUMNS[index];
        let text = aligned(&cut(&(column.cell)(row), width), width, column.right);
        [Span::styled(text, cell_style(row, column.key, look)), Span::raw(" ".repeat(GAP))]
    };
    Line::from(fitting.iter().flat_map(cell).collect::<Vec<_>>())
}

/// What one should see at once: memory elsewhere, waiting, floating.
fn cell_style(row: &VmRow, key: &str, look: Look) -> Style {
    match key {
        "vm" => bold(),
        "lives_on" if row.home.is_none() => coloured(look, Color::Cyan),
        "remote_bytes" | "local_percent" => match row.local_percent {
            // 100 % elsewhere is 0 % at home.
            Some(percent) => by_level(look, 100.0 - percent, 1.0, 50.0),
            None => Style::new(),
        },
        "ready_percent" => row.ready_percent.map_or(Style::new(), |percent| by_level(look, percent, 5.0, 20.0)),
        _ => Style::new(),
    }
}

fn aligned(text: &str, width: usize, right: bool) -> String {
    if right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn words_page(screen: &mut Screen, width: usize, height: usize) -> Vec<Line<'static>> {
    let text = words::text(width.min(crate::text::WIDTH));
    let lines: Vec<&str> = text.lines().collect();
    let first = screen.scrolled(lines.len(), height);
    lines.iter().skip(first).take(height).map(|line| Line::raw((*line).to_owned())).collect()
}

/// As many keys as fit; while a filter is typed, the filter.
fn keys(screen: &Screen, look: Look, width: usize) -> Line<'static> {
    if screen.typing {
        return Line::styled(
            cut(&format!("filter: {}_  (Enter keeps it, Esc drops it)", screen.filter), width),
            bold(),
        );
    }
    let mut spans = Vec::new();
    let mut used = 0;
    if !screen.filter.is_empty() {
        let filter = cut(&format!("filter: {}  ", screen.filter), width);
        used += filter.chars().count();
        spans.push(Span::styled(filter, coloured(look, Color::Yellow)));
    }
    for (key, what) in KEYS {
        let needed = key.len() + 1 + what.len() + 2;
        if used + needed > width + 2 {
            break;
        }
        used += needed;
        spans.extend([Span::styled(key, bold()), Span::raw(format!(" {what}  "))]);
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{seen, vm};
    use super::super::view;
    use super::*;
    use crate::source::Remembered;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const PLAIN: Look = Look { colour: false, utf8: true };

    /// Twenty VMs on two nodes.
    fn full() -> View {
        let (machine, mut observation) = seen("0-1");
        for number in 0..20 {
            let cpus = ["0-1", "2-3", "0-3"][number % 3];
            observation.vms.push(vm(&format!("vm-{number:02}"), 1000 + number as u32, cpus));
        }
        view("this host", &machine, &observation, &Remembered::default())
    }

    fn drawn(width: u16, height: u16, view: &View, screen: &mut Screen, look: Look) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, screen, look)).unwrap();
        let text = terminal.backend().to_string();
        text.lines().map(|line| line.trim_matches('"').trim_end()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_usual_terminal() {
        insta::assert_snapshot!(drawn(80, 24, &full(), &mut Screen::new(), PLAIN));
    }

    #[test]
    fn a_wide_terminal() {
        insta::assert_snapshot!(drawn(120, 40, &full(), &mut Screen::new(), PLAIN));
    }

    #[test]
    fn a_tiny_terminal() {
        insta::assert_snapshot!(drawn(40, 10, &full(), &mut Screen::new(), PLAIN));
    }

    #[test]
    fn no_room_is_no_range() {
        let text = drawn(40, 6, &full(), &mut Screen::new(), PLAIN);
        assert!(text.contains("VMs, and no room for them") && !text.contains(" 1 to 0 "), "{text}");
    }

    #[test]
    fn every_size_is_drawn() {
        let view = full();
        for width in (1..=140).step_by(7) {
            for height in 1..30 {
                let mut screen = Screen::new();
                drawn(width, height, &view, &mut screen, PLAIN);
                screen.words = true;
                drawn(width, height, &view, &mut screen, PLAIN);
            }
        }
    }

    #[test]
    fn ascii_where_the_locale_asks_for_it() {
        let text = drawn(80, 24, &full(), &mut Screen::new(), Look { colour: false, utf8: false });
        assert!(text.is_ascii() && text.contains("#####.....  50%"), "{text}");
    }

    #[test]
    fn colour_only_where_it_is_wanted() {
        let colours = |look| {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| draw(frame, &full(), &mut Screen::new(), look)).unwrap();
            terminal.backend().buffer().content().iter().filter(|cell| cell.fg != Color::Reset).count()
        };
        assert_eq!(colours(PLAIN), 0);
        assert!(colours(Look { colour: true, utf8: true }) > 0);
    }

    #[test]
    fn the_end_of_the_list_can_be_reached() {
        let mut screen = Screen::new();
        screen.press(ratatui::crossterm::event::KeyCode::End.into());
        assert!(drawn(80, 24, &full(), &mut screen, PLAIN).contains("web "));
    }
}
