//! What libvirt itself refuses in a domain that it can read: its parser's checks over several
//! elements, and those of its QEMU driver.
//!
//! **Problem.** Such a domain was judged as if it ran: with advice on sockets that cannot be, and a
//! cured text that was as far from starting as before.
//!
//! **Rule.** Each refusal is a problem, or a warning where only some versions refuse it, with what
//! libvirt says of it. Where an edit mends it without a change of vCPUs, memory or devices, that
//! edit comes first, and all else is judged as if it were made: every patch of a report is a domain
//! that libvirt takes. What depends on the version says which.
//!
//! **Properties.** A domain that libvirt takes has none. The vCPUs that the guest has, and its
//! memory, stay. Mending twice changes nothing.
//!
//! **Example.** `<topology sockets='1' cores='1' threads='2'/>` for 6 vCPUs: "CPU topology doesn't
//! match maximum vcpu count"; 3 sockets of 2 threads are 6.
//!
//! Sources: libvirt's `domain_conf.c`, `domain_validate.c`, `numa_conf.c`, `qemu_validate.c` and
//! `qemu_domain.c`, its release notes for versions, and what libvirt 9.0 said of each
//! (`crates/cli/tests/refused.rs` asks it again).

mod devices;
mod memory;
mod threads;
mod vcpus;

use crate::domain::{self, Domain, DomainError, Edit, Step};
use judge::{Finding, Harm, Severity, Spot};
use roxmltree::{Document, Node};

/// Mends that show what they hid: a memory device wants `<maxMemory>`, and that a cell.
const MOST_ROUNDS: usize = 4;

const BECAUSE: &str = "libvirt does not define such a domain, or does not start it";

/// Something that libvirt refuses.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// What is wrong, as a sentence.
    sentence: String,
    /// libvirt's words.
    says: String,
    /// Where it is written.
    spots: Vec<Spot>,
    /// What would mend it.
    advice: String,
    /// The edits that do; none where somebody must choose.
    edits: Vec<Edit>,
    /// Whether only some versions refuse it.
    by_version: bool,
}

impl Refusal {
    fn new(sentence: impl Into<String>, says: impl Into<String>) -> Self {
        let (sentence, says) = (sentence.into(), says.into());
        Self { sentence, says, spots: Vec::new(), advice: String::new(), edits: Vec::new(), by_version: false }
    }

    fn at(mut self, path: impl Into<String>, element: Node<'_, '_>) -> Self {
        let line = element.document().text_pos_at(element.range().start).row;
        self.spots.push(Spot { at: path.into(), line: Some(line) });
        self
    }

    fn mend(mut self, advice: impl Into<String>, edits: impl IntoIterator<Item = Edit>) -> Self {
        self.advice = advice.into();
        self.edits.extend(edits);
        self
    }

    /// Refused by versions before this one only.
    fn before(mut self, version: &str) -> Self {
        self.says = format!("{} (before libvirt {version})", self.says);
        self.by_version = true;
        self
    }

    /// Refused by this version and later ones only.
    fn since(mut self, version: &str) -> Self {
        self.says = format!("{} (libvirt {version} and later)", self.says);
        self.by_version = true;
        self
    }

    /// Whether an edit mends it.
    pub(super) fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// As a finding without its patch.
    pub(super) fn finding(&self, vm: &str) -> Finding {
        let mut found = Finding::new("start_refused", Harm::Refused, self.sentence.clone(), BECAUSE);
        found.vm = Some(vm.to_owned());
        found.seen = format!("libvirt says: {}", self.says);
        found.spots.clone_from(&self.spots);
        found.cure.advice.clone_from(&self.advice);
        if self.by_version {
            found.severity = Severity::Warning;
        }
        found
    }
}

/// What libvirt refuses in a text that [`domain::parse`] takes.
///
/// # Errors
/// Those of [`domain::parse`].
pub(super) fn refusals(text: &str, file: &str) -> Result<Vec<Refusal>, DomainError> {
    let domain = domain::parse(text, file)?;
    let Ok(document) = Document::parse(text) else { return Ok(Vec::new()) };
    let root = document.root_element();
    let all = [vcpus::refusals, threads::refusals, memory::refusals, devices::refusals];
    Ok(all.iter().flat_map(|refused| refused(root, &domain)).collect())
}

/// Whether libvirt's QEMU driver has the domain: others check less.
fn is_of_qemu(domain: &Domain) -> bool {
    matches!(domain.kind.as_str(), "kvm" | "qemu" | "hvf" | "")
}

/// The text with all that edits mend.
///
/// # Errors
/// Those of [`domain::parse`] and [`domain::apply`].
pub(super) fn mended(text: &str, file: &str) -> Result<String, DomainError> {
    let mut mended = text.to_owned();
    for _ in 0..MOST_ROUNDS {
        let edits: Vec<Edit> = refusals(&mended, file)?.into_iter().flat_map(|refusal| refusal.edits).collect();
        let next = domain::apply(&mended, file, &edits)?;
        if next == mended {
            break;
        }
        mended = next;
    }
    Ok(mended)
}

fn at<'a, 'i>(root: Node<'a, 'i>, path: &str) -> Vec<Node<'a, 'i>> {
    domain::at(root, &path.split('/').collect::<Vec<_>>())
}

fn first<'a, 'i>(root: Node<'a, 'i>, path: &str) -> Option<Node<'a, 'i>> {
    at(root, path).first().copied()
}

/// A number in an attribute.
fn number<T: std::str::FromStr>(element: Node<'_, '_>, name: &str) -> Option<T> {
    element.attribute(name)?.trim().parse().ok()
}

/// A path such as `cputune/vcpupin`.
fn steps(path: &str) -> Vec<Step> {
    path.split('/').map(Step::new).collect()
}

/// The element at the end of a path that has this attribute.
fn keyed(path: &str, key: &str, value: impl ToString) -> Vec<Step> {
    let mut steps = steps(path);
    if let Some(last) = steps.pop() {
        steps.push(Step::keyed(last.element, key, value));
    }
    steps
}

fn set(at: Vec<Step>, name: &str, value: &(impl ToString + ?Sized)) -> Edit {
    Edit::SetAttribute { at, name: name.to_owned(), value: value.to_string() }
}

fn unset(at: Vec<Step>, name: &str) -> Edit {
    Edit::RemoveAttribute { at, name: name.to_owned() }
}

fn text_of(element: Node<'_, '_>) -> String {
    element.children().filter(Node::is_text).filter_map(|text| text.text()).collect()
}
