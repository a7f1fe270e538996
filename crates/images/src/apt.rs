//! What the host's apt knows: its suite, its sources, versions of packages.

use crate::{ImagesError, Recipe, Tools, sources};
use std::collections::BTreeMap;
use vm::spec::Guest;

/// Where a distribution says its release (os-release(5)).
const RELEASE: &str = "/etc/os-release";

/// The recipe of a guest on this host: with the versions that its apt would install, where the
/// suite is its own.
///
/// # Errors
/// The host has no apt, or its lists have no such package.
pub fn recipe_of(guest: &Guest, tools: &Tools) -> Result<Recipe, ImagesError> {
    guest.check().map_err(|found| ImagesError::Guest { field: found.field, problem: found.problem })?;
    tools.need("apt-cache", "apt")?;
    let host = host_suite()?;
    let suite = guest.suite.clone().unwrap_or_else(|| host.clone());
    let packages = match suite == host {
        true => versions(guest, tools)?,
        false => guest.packages.iter().map(|package| (package.clone(), None)).collect(),
    };
    Ok(Recipe::new(suite, architecture(tools)?, packages))
}

/// One-line sources for a suite, from the host's own.
pub(crate) fn sources_of(suite: &str, tools: &Tools) -> Result<Vec<String>, ImagesError> {
    let printed = tools.ask("apt-get", &["indextargets", "--format", sources::FORMAT, sources::LISTS])?;
    let sources = sources::sources(&String::from_utf8_lossy(&printed.stdout), &host_suite()?, suite);
    if sources.is_empty() {
        let problem = format!(
            "apt of this host has no sources of its own suite to take {suite} from: look at \
            /etc/apt/sources.list and /etc/apt/sources.list.d"
        );
        return Err(ImagesError::Guest { field: "guest.suite".to_owned(), problem });
    }
    Ok(sources)
}

fn host_suite() -> Result<String, ImagesError> {
    let text = topology::input::text(RELEASE, topology::input::LONGEST_TEXT)
        .map_err(ImagesError::io(format!("read {RELEASE}")))?;
    let suite = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    suite.map(|suite| suite.trim_matches('"').to_owned()).ok_or_else(|| ImagesError::Guest {
        field: "guest.suite".to_owned(),
        problem: format!(
            "{RELEASE} of this host has no VERSION_CODENAME: images are built of Debian's or Ubuntu's packages, on \
            such a host"
        ),
    })
}

fn architecture(tools: &Tools) -> Result<String, ImagesError> {
    let printed = tools.ask("dpkg", &["--print-architecture"])?;
    Ok(String::from_utf8_lossy(&printed.stdout).trim().to_owned())
}

/// The packages with the versions that apt would install.
fn versions(guest: &Guest, tools: &Tools) -> Result<BTreeMap<String, Option<String>>, ImagesError> {
    let mut arguments = vec!["policy", "--"];
    arguments.extend(guest.packages.iter().map(String::as_str));
    let printed = tools.ask("apt-cache", &arguments)?;
    let versions = candidates(&String::from_utf8_lossy(&printed.stdout));
    for (index, package) in guest.packages.iter().enumerate() {
        let problem = match versions.get(package) {
            Some(Some(_)) => continue,
            Some(None) => format!(
                "{package} is no package that can be installed: `apt-cache showpkg {package}` names those that provide \
                it"
            ),
            None => format!(
                "apt knows no package {package}: `apt-cache search {package}` looks for others; where apt knows \
                none at all, run `apt-get update` as root"
            ),
        };
        return Err(ImagesError::Guest { field: format!("guest.packages[{index}]"), problem });
    }
    Ok(versions)
}

/// The version of each package that `apt-cache policy` would install; `None` where it has the name
/// and no package. What it does not know it leaves out.
fn candidates(printed: &str) -> BTreeMap<String, Option<String>> {
    let mut found = BTreeMap::new();
    let mut package = None;
    for line in printed.lines() {
        match line.strip_prefix("  Candidate: ") {
            Some(version) => {
                let version = Some(version.trim().to_owned()).filter(|version| version != "(none)");
                package.take().map(|package| found.insert(package, version));
            }
            None if !line.starts_with(' ') => package = line.strip_suffix(':').map(str::to_owned),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As apt 2.6 prints it.
    const POLICY: &str = "\
lammps:
  Installed: (none)
  Candidate: 20220106.git7586adbb6a+ds1-2+b2
  Version table:
     20220106.git7586adbb6a+ds1-2+b2 500
        500 http://mirror.example/debian bookworm/main amd64 Packages
mail-transport-agent:
  Installed: (none)
  Candidate: (none)
  Version table:
";

    #[test]
    fn candidates_are_read_and_a_name_without_package_is_told_apart() {
        let found = candidates(POLICY);
        assert_eq!(found["lammps"].as_deref(), Some("20220106.git7586adbb6a+ds1-2+b2"));
        assert_eq!((found["mail-transport-agent"].as_ref(), found.get("lamps")), (None, None));
    }
}
