//! Why a text is not taken: file, place and what would be valid.

use super::document::LONGEST_TEXT;
use super::read::MOST_CELLS;
use super::values::{LIST_END, MOST_MEMORY};
use judge::NoTarget;
use roxmltree::Node;
use std::fmt;
use topology::Bytes;
use topology::input::excerpt;
use topology::limits::{MOST_IOTHREADS, MOST_VCPUS};
use topology::xml::XmlFault;

/// Why a text is not taken for a definition of a VM: file, place and what would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct DomainError {
    /// The file, or what stands for it.
    pub file: String,
    problem: Box<Problem>,
}

impl DomainError {
    pub(crate) fn new(file: &str, problem: impl Into<Problem>) -> Self {
        Self { file: file.to_owned(), problem: Box::new(problem.into()) }
    }

    /// Whether the text is wrong, as opposed to a machine that has no room for its VM.
    pub fn is_bad_input(&self) -> bool {
        match &*self.problem {
            Problem::NoTarget(NoTarget::Plan(error)) => error.is_bad_input(),
            _ => true,
        }
    }
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{0} bytes: libvirt takes at most {LONGEST_TEXT} for a domain")]
    TooLong(usize),
    #[error("not XML: {}", excerpt(.0))]
    NotXml(String),
    #[error("the outermost element is <{}>: expected libvirt's <domain>, as `virsh dumpxml` prints it", excerpt(.0))]
    Root(String),
    #[error("{0}: {1}")]
    At(Place, Fault),
    #[error(transparent)]
    Edit(#[from] EditProblem),
    #[error("line {line}: {key}: {:?}: expected {valid}", excerpt(value))]
    Proxmox { line: u32, key: String, value: String, valid: String },
    #[error("is no Proxmox VE configuration: `homenode check --cured` prints a domain with its homes")]
    NotProxmox,
    #[error(
        "it is {0}; expected a libvirt domain, as `virsh dumpxml` prints it, or a Proxmox VE configuration of a VM \
        (/etc/pve/qemu-server/ID.conf)"
    )]
    NoDefinition(&'static str),
    #[error("it is a template, which never runs as a VM: plan its clones, which have its lines")]
    Template,
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
}

/// Where: `line 7`, or with the path of an element: `line 7: domain/cputune/vcpupin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    line: u32,
    path: String,
}

impl Place {
    pub(super) fn line(line: u32) -> Self {
        Self { line, path: String::new() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}", self.line)?;
        if self.path.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.path) }
    }
}

/// What is wrong at a place of the XML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Xml(#[from] XmlFault),
    #[error("a second document begins: give each domain a file of its own")]
    SecondDocument,
    #[error("the attribute {0} is missing")]
    Missing(String),
    #[error("{shown}: {error}")]
    Value { shown: String, error: ValueError },
    #[error("libvirt takes no name with a line's end")]
    NameOfLines,
    #[error("it has no memory: expected <memory unit='KiB'>...</memory>")]
    NoMemory,
    #[error("it is {most}, and the domain has {all} of memory: expected at least that")]
    MostMemory { most: Bytes, all: Bytes },
    #[error("it has no {0}")]
    Without(&'static str),
    #[error("{given} are requested of a device of {whole}: expected at most that")]
    Requested { given: Bytes, whole: Bytes },
    #[error("there is no cell {cell}: the domain has {cells}")]
    NoSuchCell { cell: u32, cells: usize },
    #[error("a domain has at least 1 vCPU")]
    NoVcpu,
    #[error("there is {what} {number} already")]
    There { what: &'static str, number: u32 },
    #[error("{of} {number} has a {what} already, and libvirt takes one")]
    Twice { of: String, number: u32, what: &'static str },
    #[error("the product of its numbers is the number of vCPUs, and QEMU takes at most {MOST_VCPUS}")]
    Product,
    #[error("QEMU takes at most {MOST_CELLS} virtual nodes")]
    Cells,
    #[error("cpus: there is no vCPU {vcpu}: <vcpu> is {vcpus}")]
    NoSuchVcpu { vcpu: u32, vcpus: u32 },
    #[error("cpus: vCPU {0} is in another cell already")]
    InAnotherCell(u32),
    #[error("a domain has at most {MOST_IOTHREADS} iothreads")]
    Iothreads,
    #[error("it has elements in it, and takes no text")]
    HasElements,
}

impl Fault {
    /// With the line and the path of an element.
    pub(super) fn at(self, element: Node<'_, '_>) -> Problem {
        let line = element.document().text_pos_at(element.range().start).row;
        let ancestors = element.ancestors().filter(Node::is_element);
        let mut names: Vec<String> = ancestors.map(|element| excerpt(element.tag_name().name())).collect();
        names.reverse();
        Problem::At(Place { line, path: names.join("/") }, self)
    }
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("a range runs backwards")]
    Backwards,
    #[error("it names nothing: expected a list such as 0-3,^2")]
    NamesNothing,
    #[error("expected a list such as 0-3,^2")]
    NoList,
    #[error("numbers in libvirt's lists are under {LIST_END}")]
    ListEnd,
    #[error("it names numbers again and again: expected a list such as 0-3,^2 of at most {LIST_END}")]
    NamedAgain,
    #[error("expected a whole number from 0 to {0}")]
    Number(u32),
    #[error("expected a number from 0x0 to {0:#x}")]
    Address(u32),
    #[error("expected a whole number")]
    Amount,
    #[error("unit {0:?} is none of b, KB, KiB, MB, MiB, GB, GiB, TB, TiB ...")]
    Unit(String),
    #[error("more than {}", Bytes(MOST_MEMORY))]
    Memory,
    #[error("expected at least 1")]
    Zero,
    #[error("iothreads are numbered from 1")]
    Iothread,
    #[error("expected strict, preferred, interleave or restrictive")]
    Mode,
    #[error("expected 10 for the cell itself and 11 to 255 for others")]
    Distance,
}

/// Why an edit would make the text no XML, or no domain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditProblem {
    #[error("{:?} is no name of an element or attribute", excerpt(.0))]
    Name(String),
    #[error("XML has no character {0:?}")]
    Character(char),
    #[error("an edit of <domain> itself is one of its attributes")]
    OfDomain,
    #[error("the attribute {0} is what tells the element from its siblings: it is not changed")]
    Key(String),
}
