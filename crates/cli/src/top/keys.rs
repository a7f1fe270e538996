//! What the user asked to see, key by key. Pure: a key changes the state, nothing else does.

use super::columns::COLUMNS;
use super::{View, VmRow};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What follows from a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The screen may look different.
    Draw,
    /// The user leaves.
    Leave,
}

/// How the table is shown.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    /// Index of the column that sorts.
    pub(super) sort: usize,
    /// Whether the order is turned round.
    pub(super) reverse: bool,
    /// Only VMs with this in their name, their process or where they live.
    pub(super) filter: String,
    /// Whether keys are letters of the filter.
    pub(super) typing: bool,
    /// Whether looks go on.
    pub(crate) paused: bool,
    /// Whether what is looked at has ended.
    pub(super) at_end: bool,
    /// Whether nodes are shown.
    pub(super) nodes: bool,
    /// Whether words are explained, instead of the tables.
    pub(super) words: bool,
    /// First line of what scrolls.
    pub(super) first: usize,
    /// Lines of what scrolls that were on the screen.
    pub(super) page: usize,
}

impl Screen {
    /// All VMs, by name.
    pub(crate) fn new() -> Self {
        Self {
            sort: 0,
            reverse: false,
            filter: String::new(),
            typing: false,
            paused: false,
            at_end: false,
            nodes: true,
            words: false,
            first: 0,
            page: 1,
        }
    }

    /// What is looked at goes on no further.
    pub(crate) fn ended(&mut self) {
        self.at_end = true;
    }

    /// Heeds a key.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Step::Leave;
        }
        if self.typing {
            self.write(key.code);
            return Step::Draw;
        }
        match key.code {
            KeyCode::Char('q' | 'Q') if self.words => self.close_words(),
            KeyCode::Char('q' | 'Q') => return Step::Leave,
            KeyCode::Char('?' | 'h') => (self.words, self.first) = (!self.words, 0),
            KeyCode::Esc if self.words => self.close_words(),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::PageUp => self.first = self.first.saturating_sub(self.page),
            KeyCode::PageDown => self.first += self.page,
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = usize::MAX,
            KeyCode::Left | KeyCode::Char('<') => self.sort = (self.sort + COLUMNS.len() - 1) % COLUMNS.len(),
            KeyCode::Right | KeyCode::Char('>') => self.sort = (self.sort + 1) % COLUMNS.len(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('n') => self.nodes = !self.nodes,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            _ => {}
        }
        Step::Draw
    }

    fn close_words(&mut self) {
        (self.words, self.first) = (false, 0);
    }

    fn write(&mut self, code: KeyCode) {
        self.first = 0;
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    /// The VMs that are asked for, in their order.
    pub(super) fn rows<'a>(&self, view: &'a View) -> Vec<&'a VmRow> {
        let wanted = self.filter.to_lowercase();
        let has = |text: String| text.to_lowercase().contains(&wanted);
        // The VM, its process, where it lives.
        let matches = |row: &&VmRow| COLUMNS[..3].iter().any(|column| has((column.cell)(row)));
        let mut rows: Vec<&VmRow> = view.vms.iter().filter(matches).collect();
        let value = COLUMNS[self.sort].value;
        // Stable: what is alike stays by name.
        rows.sort_by(|one, other| {
            let order = value(one).order(&value(other));
            if self.reverse { order.reverse() } else { order }
        });
        rows
    }

    /// The first line, so that the last page is full.
    pub(super) fn scrolled(&mut self, lines: usize, page: usize) -> usize {
        self.page = page.max(1);
        self.first = self.first.min(lines.saturating_sub(page));
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{seen, vm};
    use super::super::view;
    use super::*;
    use crate::source::Remembered;

    fn press(screen: &mut Screen, keys: &str) -> Step {
        let code = |key| match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            letter => KeyCode::Char(letter),
        };
        keys.chars().map(|key| screen.press(code(key).into())).last().unwrap_or(Step::Draw)
    }

    fn shown() -> View {
        let (machine, mut observation) = seen("0-1");
        let mut busy = vm("db", 8, "0-3");
        busy.clients[0].cpu_used = Some(1.5);
        let mut unknown = vm("cache", 9, "2-3");
        unknown.clients[0].cpu_used = None;
        observation.vms.extend([busy, unknown]);
        view("this host", &machine, &observation, &Remembered::default())
    }

    fn names(screen: &Screen) -> Vec<String> {
        screen.rows(&shown()).iter().map(|row| row.name.clone()).collect()
    }

    #[test]
    fn figures_sort_from_large_to_small_and_the_unknown_is_last() {
        let mut screen = Screen::new();
        assert_eq!(names(&screen), ["cache", "db", "web"]);
        press(&mut screen, ">>>>>>>>>>>");
        assert_eq!(COLUMNS[screen.sort].title, "Used");
        assert_eq!(names(&screen), ["db", "web", "cache"]);
        press(&mut screen, "r");
        assert_eq!(names(&screen), ["cache", "web", "db"]);
    }

    #[test]
    fn a_filter_takes_letters_that_are_keys_otherwise() {
        let mut screen = Screen::new();
        assert_eq!(press(&mut screen, "/q"), Step::Draw);
        assert_eq!(names(&screen), Vec::<String>::new());
        press(&mut screen, "\x08FLOATS\n");
        assert_eq!(names(&screen), ["db"]);
        press(&mut screen, "\x1b");
        assert_eq!(names(&screen).len(), 3);
        assert_eq!(press(&mut screen, "q"), Step::Leave);
    }

    #[test]
    fn scrolling_ends_with_a_full_page() {
        let mut screen = Screen::new();
        screen.press(KeyCode::End.into());
        assert_eq!(screen.scrolled(100, 10), 90);
        screen.press(KeyCode::PageUp.into());
        assert_eq!(screen.scrolled(100, 10), 80);
        assert_eq!(screen.scrolled(3, 10), 0, "all fits");
    }
}
