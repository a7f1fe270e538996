//! Which VMs one answer about one VM did not look at.
//!
//! **Problem.** `check X --cured` or `plan X --emit` in a loop over 40 files answers 40 times as if
//! there were no other VM: all get the same node.
//!
//! **Rule.** Whoever prints one text says which files beside it it did not read, what it took the
//! machine to hold, and how all are answered together.
//!
//! **Example.** `db.xml stands alone in this answer: 39 definitions beside it were not looked at
//! (a.xml, b.xml, c.xml and 36 more)`.

use std::path::Path;

/// Files that are named.
const NAMED: usize = 3;

/// Names of the other files beside this one that are of its kind; none where there is no such file.
pub(crate) fn beside(file: &Path, is_one: impl Fn(&Path) -> bool) -> Vec<String> {
    let Ok(own) = file.canonicalize() else { return Vec::new() };
    let Some(directory) = own.parent() else { return Vec::new() };
    let is_other = |other: &Path| other != own && other.is_file() && is_one(other);
    let found = topology::input::entries(directory, is_other).unwrap_or_default();
    found.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
}

/// `39 definitions beside it were not looked at (a.xml, b.xml, c.xml and 36 more)`; `None` where
/// there are none.
pub(crate) fn sentence(others: &[String], kind: &str) -> Option<String> {
    let shown = others[..others.len().min(NAMED)].join(", ");
    let named = match others.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    };
    let were = if others.len() == 1 { "was" } else { "were" };
    let many = crate::text::count(others.len(), kind);
    (!others.is_empty()).then(|| format!("{many} beside it {were} not looked at ({named})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_counted_and_some_are_named() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a.xml", "b.xml", "c.xml", "d.xml", "e.xml", "notes.txt"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let is_xml = |path: &Path| path.extension().is_some_and(|ending| ending == "xml");
        let others = beside(&place.path().join("b.xml"), is_xml);
        let text = sentence(&others, "definition").unwrap();
        assert_eq!(text, "4 definitions beside it were not looked at (a.xml, c.xml, d.xml and 1 more)");
        assert_eq!(sentence(&others[..1], "spec").unwrap(), "1 spec beside it was not looked at (a.xml)");
        assert_eq!((beside(&place.path().join("none"), is_xml).len(), sentence(&[], "spec")), (0, None));
    }
}
