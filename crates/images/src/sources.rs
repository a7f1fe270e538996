//! Where packages come from: the host's own apt sources, as apt itself reads them, for a suite.
//! Pure.
//!
//! **Rule.** `apt-get indextargets` prints a line for each list of packages that the host's sources
//! name, whatever their files look like. Those of the host's suite (`bookworm`, and
//! `bookworm-updates`, `bookworm-security`, ...) become one-line sources; for another suite its
//! name takes the place of the host's.

use std::collections::BTreeSet;

/// What `apt-get indextargets` is asked to print of each list.
pub(crate) const FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)|";
/// Lists of packages, not of translations or of files.
pub(crate) const LISTS: &str = "Created-By: Packages";

/// Sources for `suite`, out of what apt prints of a host whose own suite is `host`. Empty where the
/// host has none.
pub(crate) fn sources(printed: &str, host: &str, suite: &str) -> Vec<String> {
    let mut sources = BTreeSet::new();
    for line in printed.lines() {
        let mut fields = line.split('|');
        let (Some(uri), Some(release), Some(component)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let Some(pocket) = release.strip_prefix(host).filter(|rest| rest.is_empty() || rest.starts_with('-')) else {
            continue;
        };
        // A path of keys. A key that stands in the sources' own file has other letters, and apt's
        // word stands there unchanged where nothing is said.
        let key = fields.next().filter(|key| key.starts_with('/') && !key.contains(char::is_whitespace));
        let options = key.map(|key| format!("[signed-by={key}] ")).unwrap_or_default();
        sources.insert(format!("deb {options}{uri} {suite}{pocket} {component}"));
    }
    sources.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
http://mirror.example/debian/|bookworm|main|/usr/share/keyrings/a.gpg|
http://mirror.example/debian/|bookworm|contrib|$(SIGNED_BY)|
http://mirror.example/debian/|bookworm-updates|main|$(SIGNED_BY)|
http://security.example/|bookworm-security|main|$(SIGNED_BY)|
http://other.example/node|nodistro|main|$(SIGNED_BY)|
http://mirror.example/debian/|bookworm|main|/usr/share/keyrings/a.gpg|
";

    #[test]
    fn the_suite_and_its_pockets_become_sources_each_once() {
        assert_eq!(
            sources(PRINTED, "bookworm", "bookworm"),
            [
                "deb [signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/debian/ bookworm main",
                "deb http://mirror.example/debian/ bookworm contrib",
                "deb http://mirror.example/debian/ bookworm-updates main",
                "deb http://security.example/ bookworm-security main",
            ]
        );
    }

    #[test]
    fn another_suite_comes_from_the_same_places() {
        let sources = sources(PRINTED, "bookworm", "trixie");
        assert!(sources.contains(&"deb http://security.example/ trixie-security main".to_owned()), "{sources:?}");
        assert!(sources.iter().all(|source| !source.contains("bookworm") && !source.contains("nodistro")));
    }

    #[test]
    fn a_host_without_sources_has_none() {
        assert!(sources("", "bookworm", "bookworm").is_empty());
        assert!(sources("garbage\n|\n", "bookworm", "bookworm").is_empty());
    }
}
