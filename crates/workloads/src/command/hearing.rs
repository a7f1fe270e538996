//! Listens to a run of a program and reads its figures.

use super::document::{Document, not_a_number};
use super::ended::Used;
use super::error::CommandError;
use super::kept::Kept;
use super::lines::{Finder, Lines, pattern};
use super::number;
use super::section::{Figure, Source, Which};
use std::path::{Path, PathBuf};

/// Listens to one output or file.
#[derive(Debug, Default)]
pub struct Listener {
    lines: Lines,
    /// By the figure's index; that of the pattern of a verification comes after all figures.
    finders: Vec<(usize, Finder)>,
    document: Option<Document>,
    kept: Kept,
}

impl Listener {
    /// Takes in what was said next.
    pub fn hear(&mut self, said: &[u8]) {
        self.kept.add(said);
        if let Some(document) = &mut self.document {
            document.add(said);
        }
        let finders = &mut self.finders;
        self.lines.add(said, |block, before| look(finders, block, before));
    }

    /// The beginning and the end of what was said.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    fn end(&mut self) {
        let finders = &mut self.finders;
        self.lines.end(|block, before| look(finders, block, before));
    }

    fn finder(&self, index: usize) -> Option<&Finder> {
        self.finders.iter().find(|(of, _)| *of == index).map(|(_, finder)| finder)
    }
}

fn look(finders: &mut [(usize, Finder)], block: &[u8], before: u64) {
    finders.iter_mut().for_each(|(_, finder)| finder.look(block, before));
}

/// Listens to a run of one program.
#[derive(Debug)]
pub struct Hearing {
    figures: Vec<Figure>,
    /// Standard output.
    pub stdout: Listener,
    /// Standard error.
    pub stderr: Listener,
    files: Vec<(PathBuf, Listener)>,
}

impl Hearing {
    /// Listens for figures, and for a line that verifies the result.
    ///
    /// # Errors
    /// A pattern is none.
    pub fn of(figures: Vec<Figure>, verifying: Option<&str>) -> Result<Self, CommandError> {
        let mut hearing =
            Self { figures: Vec::new(), stdout: Listener::default(), stderr: Listener::default(), files: Vec::new() };
        for (index, figure) in figures.iter().enumerate() {
            let listener = hearing.listener(figure);
            if let Some(expression) = &figure.regex {
                let regex = pattern(expression)?;
                let group = figure.number_group(regex.captures_len() > 1);
                let only_at = figure.only_at();
                let groups = [Some(group), only_at.map(|(group, _)| group)];
                if let Some(group) = groups.into_iter().flatten().find(|group| *group >= regex.captures_len()) {
                    let reason = format!("it has no group {group}; its groups are 0 to {}", regex.captures_len() - 1);
                    return Err(CommandError::Pattern { pattern: expression.clone(), reason });
                }
                listener.finders.push((index, Finder::new(regex, group, figure.which).only_at(only_at)));
            } else if figure.taken.is_none() {
                listener.document.get_or_insert_default();
            }
        }
        if let Some(expression) = verifying {
            hearing.stdout.finders.push((figures.len(), Finder::new(pattern(expression)?, 0, Which::First)));
        }
        hearing.figures = figures;
        Ok(hearing)
    }

    /// Files that hold figures, in the directory in which the command runs.
    pub fn files(&mut self) -> impl Iterator<Item = (&Path, &mut Listener)> {
        self.files.iter_mut().map(|(path, listener)| (path.as_path(), listener))
    }

    /// Whether the line that verifies the result was there; `None` without a pattern for it.
    pub fn has_verified(&self) -> Option<bool> {
        self.stdout.finder(self.figures.len()).map(|finder| finder.count > 0)
    }

    /// The figures, in their order, after all was heard.
    ///
    /// # Errors
    /// One is not there, is there twice, or is no number.
    pub fn read(&mut self, used: &Used) -> Result<Vec<f64>, CommandError> {
        self.stdout.end();
        self.stderr.end();
        self.files.iter_mut().for_each(|(_, listener)| listener.end());
        (0..self.figures.len()).map(|index| self.figure(index, used)).collect()
    }

    fn listener(&mut self, figure: &Figure) -> &mut Listener {
        match &figure.file {
            None if figure.source == Source::Stderr => &mut self.stderr,
            None => &mut self.stdout,
            Some(file) => {
                let known = self.files.iter().position(|(path, _)| path == file);
                let index = known.unwrap_or_else(|| {
                    self.files.push((file.clone(), Listener::default()));
                    self.files.len() - 1
                });
                &mut self.files[index].1
            }
        }
    }

    fn figure(&self, index: usize, used: &Used) -> Result<f64, CommandError> {
        let figure = &self.figures[index];
        if let Some(taken) = figure.taken {
            return Ok(taken.of(used));
        }
        let (listener, place) = match &figure.file {
            None if figure.source == Source::Stderr => (&self.stderr, "standard error".to_owned()),
            None => (&self.stdout, "standard output".to_owned()),
            Some(file) => {
                let found = self.files.iter().find(|(path, _)| path == file).map(|(_, listener)| listener);
                (found.unwrap_or(&self.stdout), file.display().to_string())
            }
        };
        if let (Some(pointer), Some(document)) = (&figure.json_pointer, &listener.document) {
            return document.at_pointer(figure, pointer, &place);
        }
        if let (Some(column), Some(document)) = (&figure.csv_column, &listener.document) {
            return document.in_column(figure, column, &place);
        }
        self.matched(figure, index, listener, &place)
    }

    fn matched(&self, figure: &Figure, index: usize, listener: &Listener, place: &str) -> Result<f64, CommandError> {
        let at = figure.only_at().map_or_else(String::new, |(group, value)| format!(" with group {group} = {value}"));
        let sought = format!("the pattern `{}`{at}", figure.regex.as_deref().unwrap_or_default());
        let name = figure.name.clone();
        let finder = listener.finder(index);
        let Some((finder, found)) = finder.and_then(|finder| finder.found.as_ref().map(|found| (finder, found))) else {
            let hint = self.elsewhere(index);
            let (place, lines) = (place.to_owned(), listener.lines.count);
            return Err(CommandError::NotFound { figure: name, sought, place, lines, hint });
        };
        if figure.which == Which::Only && finder.count > 1 {
            let (first, last) = (found.line, finder.last_line);
            let (place, count) = (place.to_owned(), finder.count);
            return Err(CommandError::Several { figure: name, sought, place, count, first, last });
        }
        let at = format!("line {} of {place}", found.line);
        number::read(&found.text).ok_or_else(|| not_a_number(figure, &found.text, &at))
    }

    /// A pattern that is looked for in the wrong output is a common fault: what is kept of the
    /// other one is looked at.
    fn elsewhere(&self, index: usize) -> String {
        let figure = &self.figures[index];
        let others = [(&self.stdout, "source = \"stdout\""), (&self.stderr, "source = \"stderr\"")];
        let Some(regex) = figure.regex.as_deref().and_then(|text| pattern(text).ok()) else { return String::new() };
        let matching = others.into_iter().filter(|(listener, _)| listener.finder(index).is_none());
        let mut found = matching.filter(|(listener, _)| regex.is_match(listener.kept.text().as_bytes()));
        found.next().map_or_else(String::new, |(_, written)| format!("; it is in the other output: write {written}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Taken;

    fn figure(regex: &str, which: Which) -> Figure {
        let (name, unit) = ("rate".to_owned(), "1".to_owned());
        Figure { name, unit, regex: Some(regex.to_owned()), which, ..Figure::default() }
    }

    fn read(figures: Vec<Figure>, stdout: &str, stderr: &str) -> Result<Vec<f64>, CommandError> {
        let mut hearing = Hearing::of(figures, None)?;
        hearing.stdout.hear(stdout.as_bytes());
        hearing.stderr.hear(stderr.as_bytes());
        hearing.read(&Used { wall_seconds: 2.0, user_seconds: 3.0, system_seconds: 0.5, ..Used::default() })
    }

    #[test]
    fn several_figures_come_from_several_places() {
        let on_stderr = Figure { source: Source::Stderr, ..figure("err (.*)", Which::Only) };
        let cpu = Figure { taken: Some(Taken::CpuTime), regex: None, ..figure("", Which::Only) };
        let figures = vec![figure("out ([0-9]+)", Which::Only), on_stderr, Figure::wall_time(), cpu];
        assert_eq!(read(figures, "out 5\n", "err -1.5"), Ok(vec![5.0, -1.5, 2.0, 3.5]));
    }

    #[test]
    fn a_pattern_that_matches_nothing_or_twice_is_an_error_that_says_what_to_do() {
        let said = |which, stdout: &str, stderr: &str| {
            read(vec![figure("rate ([0-9.]+)", which)], stdout, stderr).unwrap_err().to_string()
        };
        let none = said(Which::Only, "done\nwell\n", "");
        assert!(none.contains("`rate ([0-9.]+)` is not in standard output (2 lines)"), "{none}");
        let other = said(Which::Only, "done\n", "rate 7\n");
        assert!(other.contains("source = \"stderr\""), "{other}");
        let twice = said(Which::Only, "rate 1\nrate 2\n", "");
        assert!(twice.contains("2 times") && twice.contains("which = \"first\""), "{twice}");
        assert_eq!(read(vec![figure("rate (.*)", Which::Last)], "rate 1\nrate 2\n", ""), Ok(vec![2.0]));
        let word = read(vec![figure("rate (.*)", Which::First)], "rate fast\n", "").unwrap_err().to_string();
        assert!(word.contains("`fast` in line 1 of standard output is not a number"), "{word}");
    }

    #[test]
    fn a_group_that_is_not_there_is_refused() {
        let figure = Figure { group: Some(2), ..figure("rate (.*)", Which::Only) };
        let error = Hearing::of(vec![figure], None).unwrap_err().to_string();
        assert!(error.contains("no group 2") && error.contains("0 to 1"), "{error}");
    }

    #[test]
    fn an_output_of_any_length_costs_the_memory_of_its_ends() {
        let mut hearing = Hearing::of(vec![figure("the rate is ([0-9]+)", Which::Only)], None).unwrap();
        let piece = b"step 1 of many, nothing to see\n".repeat(1 << 11);
        let pieces = (64 << 20) / piece.len();
        for index in 0..pieces {
            hearing.stdout.hear(&piece);
            if index == pieces / 2 {
                hearing.stdout.hear(b"the rate is 42\n");
            }
        }
        assert!(hearing.stdout.kept.bytes() > 60_000_000);
        assert!(hearing.stdout.kept.text().len() < 64 << 10);
        assert_eq!(hearing.read(&Used::default()), Ok(vec![42.0]));
    }
}
