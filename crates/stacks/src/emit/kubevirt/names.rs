//! Names as Kubernetes takes them (RFC 1123 labels), which are stricter than a VM spec's.

use std::collections::BTreeSet;
use std::path::Path;

/// Longest label of RFC 1123. KubeVirt writes a VM's name into labels, so that the same limit holds
/// for it.
const LONGEST: usize = 63;

/// The text as an RFC 1123 label: small letters, digits and `-` inside. `otherwise` where nothing
/// of it is left.
pub(super) fn label(text: &str, otherwise: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let letters = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    let cut: String = letters.chars().take(LONGEST).collect();
    let cut = cut.trim_end_matches('-');
    if cut.is_empty() { otherwise.to_owned() } else { cut.to_owned() }
}

/// A claim's name for an image file of a VM, which no claim in `taken` has; it is added to them.
pub(super) fn claim(vm: &str, file: &Path, taken: &mut BTreeSet<String>) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let wanted = label(&format!("{vm}-{stem}"), "disk");
    let numbered = (2u32..).map(|number| {
        let ending = format!("-{number}");
        let room = LONGEST - ending.len();
        format!("{}{ending}", wanted.get(..room).unwrap_or(&wanted).trim_end_matches('-'))
    });
    let free = std::iter::once(wanted.clone()).chain(numbered).find(|name| !taken.contains(name));
    let name = free.unwrap_or(wanted);
    taken.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_spec_s_name_becomes_a_label() {
        assert_eq!(label("web", "vm"), "web");
        assert_eq!(label("_Web.Server__1", "vm"), "web-server-1");
        assert_eq!(label("___", "vm"), "vm");
        assert_eq!(label(&"a".repeat(64), "vm"), "a".repeat(63));
        assert_eq!(label(&format!("{}-b", "a".repeat(62)), "vm"), "a".repeat(62));
    }

    #[test]
    fn claims_of_a_vm_differ() {
        let mut taken = BTreeSet::new();
        assert_eq!(claim("web", Path::new("/images/Root.qcow2"), &mut taken), "web-root");
        assert_eq!(claim("web", Path::new("/other/root.raw"), &mut taken), "web-root-2");
        assert_eq!(claim("web", Path::new("/third/root"), &mut taken), "web-root-3");
        let long = "x".repeat(90);
        let (first, second) = (claim("v", Path::new(&long), &mut taken), claim("v", Path::new(&long), &mut taken));
        assert_eq!((first.len(), second.len()), (63, 63));
        assert!(first != second && second.ends_with("-2"), "{second}");
    }

    properties::properties! {
        #[test]
        fn every_text_becomes_a_label(text in ".{0,100}") {
            let label = label(&text, "vm");
            prop_assert!((1..=LONGEST).contains(&label.len()));
            let inside = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
            prop_assert!(label.chars().all(inside) && !label.starts_with('-') && !label.ends_with('-'), "{label}");
        }
    }
}
