//! The names nearest to one that does not exist.
//!
//! **Rule.** Three at most, nearest first: by the letters that must change (Damerau and
//! Levenshtein), and by what both begin with (Jaro and Winkler), whichever sees more likeness; a
//! name that has the other in it comes before both. Case does not matter.
//!
//! **Example.** Of `web1`, `web2`, `db`, `mail` those nearest to `wbe2` are `web2`, `web1` and
//! `db`.

use std::collections::BTreeSet;

/// So many names are offered.
const OFFERED: usize = 3;

/// The names nearest to `wanted`, each once.
pub(crate) fn names<'a>(wanted: &str, all: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        let holds = !wanted.is_empty() && !name.is_empty() && (name.contains(&wanted) || wanted.contains(&name));
        let letters = strsim::normalized_damerau_levenshtein(&wanted, &name);
        f64::from(u8::from(holds)) + letters.max(strsim::jaro_winkler(&wanted, &name))
    };
    let each: BTreeSet<&str> = all.into_iter().collect();
    let mut ranked: Vec<(f64, &str)> = each.into_iter().map(|name| (likeness(name), name)).collect();
    ranked.sort_by(|one, other| other.0.total_cmp(&one.0));
    ranked.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

/// `. Nearest: web1, web2, db`; nothing where there is no name.
pub(crate) fn sentence<'a>(wanted: &str, all: impl IntoIterator<Item = &'a str>) -> String {
    let names = names(wanted, all);
    if names.is_empty() { String::new() } else { format!(". Nearest: {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_three_come_first() {
        let all = ["mail", "web1", "db", "web2", "web2", "Prod-DB-main", "cache"];
        let of = |wanted: &str| names(wanted, all);
        assert_eq!(of("wbe2"), ["web2", "web1", "db"]);
        assert_eq!(of("WEB1")[0], "web1");
        // What has it in it is nearer than what is as long.
        assert_eq!(of("prod-db")[0], "Prod-DB-main");
        assert_eq!(of("mial")[0], "mail");
        assert_eq!((names("web", []), sentence("web", [])), (Vec::<&str>::new(), String::new()));
        assert_eq!(sentence("x", ["a"]), ". Nearest: a");
    }
}
