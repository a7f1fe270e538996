//! Edits that are told from one tree of a text.
//!
//! **Problem.** A domain of 4096 vCPUs has 4096 pins. Where each new pin, or each that goes, takes
//! a tree of its own, and each is looked for among all, a text of 32 KiB takes minutes.
//!
//! **Rule.** Edits come into one batch as long as each does to the text of the tree what it would
//! do to the text that those before it leave. Elements are looked up, not looked for.
//!
//! **Properties.** Edits together are edits one after the other.
//!
//! **Example.** Pins of vCPUs 3, 4 and 7 that are not there are one batch: each goes after the one
//! before. Pins of 7, 4 and 3 are three.

use super::document::is;
use super::edit::{Edit, Step, path};
use super::error::{Fault, Problem};
use super::splice::{self, Leaf, Splice};
use roxmltree::{Node, NodeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// The first edits of some, and what they change.
pub(super) struct Batch<'a, 'i, 'e> {
    text: &'a str,
    elements: Elements<'a, 'i>,
    /// Attributes by which an edit looks for an element.
    keys: HashSet<&'e str>,
    splices: Vec<Splice>,
    /// Elements that go, by where they begin.
    removed: BTreeMap<usize, Range<usize>>,
    /// Attributes that have a new value, and elements that have a new attribute.
    given: HashSet<(NodeId, &'e str)>,
    grown: HashSet<NodeId>,
    /// What was made in an element.
    made: HashMap<NodeId, Made<'e>>,
    /// No edit may follow.
    full: bool,
}

/// Elements of one name that are made in an element.
struct Made<'e> {
    element: &'e str,
    /// The number of the last, where they rise and are side by side with others.
    last: Option<u64>,
    numbers: HashSet<u64>,
}

impl<'a, 'i, 'e> Batch<'a, 'i, 'e> {
    pub(super) fn new(text: &'a str, root: Node<'a, 'i>, edits: &'e [Edit]) -> Self {
        let keys = edits.iter().flat_map(path).filter_map(|step| Some(step.key.as_ref()?.0.as_str())).collect();
        Self {
            text,
            elements: Elements { root, found: HashMap::new() },
            keys,
            splices: Vec::new(),
            removed: BTreeMap::new(),
            given: HashSet::new(),
            grown: HashSet::new(),
            made: HashMap::new(),
            full: false,
        }
    }

    /// What changes in the text.
    pub(super) fn into_splices(mut self) -> Vec<Splice> {
        self.splices.extend(splice::remove(self.text, self.removed.into_values().collect()));
        self.splices
    }

    /// Takes the first of these edits, or some of them: how many. `None` where it must see what
    /// those before it did.
    pub(super) fn add(&mut self, edits: &'e [Edit]) -> Result<Option<usize>, Problem> {
        let edit = &edits[0];
        let empty = self.splices.is_empty() && self.removed.is_empty();
        if self.full {
            return Ok(None);
        }
        match edit {
            Edit::Remove { at } if self.splices.is_empty() => {
                self.remove(at);
                return Ok(Some(1));
            }
            Edit::SetAttribute { at, name, value } if self.removed.is_empty() => {
                return Ok(self.set_attribute(edits, at, name, value));
            }
            _ if !empty => return Ok(None),
            _ => {}
        }
        self.splices = self.alone(edit)?;
        self.full = !self.splices.is_empty();
        Ok(Some(1))
    }

    fn remove(&mut self, at: &[Step]) {
        for element in self.elements.at(at) {
            let gone = |element: Node<'_, '_>| self.removed.contains_key(&element.range().start);
            if !element.ancestors().any(gone) {
                // What was in it goes with it.
                let range = element.range();
                while let Some((&inside, _)) = self.removed.range(range.clone()).next() {
                    self.removed.remove(&inside);
                }
                self.removed.insert(range.start, range);
            }
        }
    }

    fn set_attribute(&mut self, edits: &'e [Edit], at: &'e [Step], name: &'e str, value: &'e str) -> Option<usize> {
        if self.may_be_made(at) {
            return None;
        }
        let looked_for = self.keys.contains(name);
        let (parent, missing) = match self.elements.find(at) {
            Found::There(element) => {
                let is_new = element.attribute(name).is_none();
                let again =
                    self.given.contains(&(element.id(), name)) || (is_new && self.made.contains_key(&element.id()));
                if again {
                    return None;
                }
                let Some(splice) = splice::set_attribute(self.text, element, name, value) else { return Some(1) };
                if looked_for && !self.splices.is_empty() {
                    return None;
                }
                self.full = looked_for;
                self.given.insert((element.id(), name));
                if is_new {
                    self.grown.insert(element.id());
                }
                self.splices.push(splice);
                return Some(1);
            }
            Found::Missing(parent, missing) => (parent, missing),
        };
        if (looked_for && !self.splices.is_empty()) || self.grown.contains(&parent.id()) {
            return None;
        }
        let among_others = missing.len() == 1 && parent.children().any(|child| child.is_element());
        let number = missing[0].key.as_ref().and_then(|(_, value)| number(value));
        let before = self.made.get(&parent.id());
        let follows = |made: &Made<'_>| made.element == missing[0].element && made.last.is_some() && made.last < number;
        if before.is_some_and(|made| !among_others || !follows(made)) {
            return None;
        }
        // In what is new, or blank, nothing comes between them.
        let blank = |child: Node<'_, '_>| child.text().is_some_and(|text| child.is_text() && text.trim().is_empty());
        let is_alone = missing.len() > 1 || parent.children().all(blank);
        let count = if is_alone && !looked_for { rising(edits) } else { 1 };
        let values = edits[..count].iter().filter_map(|edit| match edit {
            Edit::SetAttribute { at, value, .. } => Some((at.last()?, value.as_str())),
            _ => None,
        });
        self.splices.push(splice::insert(self.text, parent, missing, &Leaf::Attribute(name, values.collect())));
        let last = number.filter(|_| among_others && splice::has_place(parent, &missing[0]));
        let made = self.made.entry(parent.id()).or_insert(Made { element: "", last, numbers: HashSet::new() });
        (made.element, made.last) = (&missing[0].element, last);
        made.numbers.extend(last);
        self.full = looked_for;
        Some(count)
    }

    /// Whether an element that was made may be on the path.
    fn may_be_made(&mut self, at: &[Step]) -> bool {
        if self.made.is_empty() {
            return false;
        }
        at.iter().enumerate().any(|(depth, step)| {
            let own = step.key.as_ref().and_then(|(_, value)| number(value));
            let is_made = |made: &Made<'_>| {
                let other = made.last.is_some() && own.is_some_and(|own| !made.numbers.contains(&own));
                made.element == step.element && !other
            };
            self.elements.at(&at[..depth]).iter().filter_map(|parent| self.made.get(&parent.id())).any(is_made)
        })
    }

    /// What the edit changes, where nothing was changed before.
    fn alone(&mut self, edit: &Edit) -> Result<Vec<Splice>, Problem> {
        Ok(match edit {
            Edit::RemoveAttribute { at, name } => match self.elements.find(at) {
                Found::There(element) => splice::remove_attribute(self.text, element, name).into_iter().collect(),
                Found::Missing(..) => Vec::new(),
            },
            Edit::SetText { at, text: new } => match self.elements.find(at) {
                Found::There(element) if element.children().any(|child| child.is_element()) => {
                    return Err(Fault::HasElements.at(element));
                }
                Found::There(element) => splice::set_text(self.text, element, new).into_iter().collect(),
                Found::Missing(parent, missing) => {
                    vec![splice::insert(self.text, parent, missing, &Leaf::Text(new))]
                }
            },
            Edit::Number { at, name } => {
                let numbered = self.elements.at(at).into_iter().zip(0_u32..);
                let lacking = numbered.filter(|(element, _)| !element.has_attribute(name.as_str()));
                let set = |(element, number): (Node<'_, '_>, u32)| {
                    splice::set_attribute(self.text, element, name, &number.to_string())
                };
                lacking.filter_map(set).collect()
            }
            Edit::SetAttribute { .. } | Edit::Remove { .. } => Vec::new(),
        })
    }
}

/// How many of the edits, from the first, give the same attribute to elements that differ in a key
/// that rises.
fn rising(edits: &[Edit]) -> usize {
    let parts = |edit: &Edit| match edit {
        Edit::SetAttribute { at, name, .. } => {
            let (last, above) = at.split_last()?;
            let (key, value) = last.key.as_ref()?;
            Some(((above.to_vec(), last.element.clone(), key.clone(), name.clone()), number(value)?))
        }
        _ => None,
    };
    let follows = |pair: &&[Edit]| match (parts(&pair[0]), parts(&pair[1])) {
        (Some((one, number)), Some((other, next))) => one == other && number < next,
        _ => false,
    };
    1 + edits.windows(2).take_while(follows).count()
}

enum Found<'a, 'i, 'p> {
    There(Node<'a, 'i>),
    /// The last element on the path that is there, and the steps that are missing below it.
    Missing(Node<'a, 'i>, &'p [Step]),
}

/// A path, the name of elements below it, and an attribute that tells them from each other.
type Sort = (Vec<Step>, String, Option<String>);

/// Elements of a tree, looked up.
struct Elements<'a, 'i> {
    root: Node<'a, 'i>,
    /// By the value of the attribute.
    found: HashMap<Sort, HashMap<String, Vec<Node<'a, 'i>>>>,
}

impl<'a, 'i> Elements<'a, 'i> {
    /// All elements at the end of the path. An element may stand several times (libvirt takes all
    /// of them together): each is looked into.
    fn at(&mut self, path: &[Step]) -> Vec<Node<'a, 'i>> {
        let Some((step, above)) = path.split_last() else { return vec![self.root] };
        let key = step.key.as_ref();
        let sort = (above.to_vec(), step.element.clone(), key.map(|(key, _)| key.clone()));
        if !self.found.contains_key(&sort) {
            let mut by_value = HashMap::<String, Vec<Node<'a, 'i>>>::new();
            for parent in self.at(above) {
                for element in parent.children().filter(|&child| is(child, &step.element)) {
                    let value = key.map_or(Some(""), |(key, _)| element.attribute(key.as_str()));
                    if let Some(value) = value {
                        by_value.entry(same(value)).or_default().push(element);
                    }
                }
            }
            self.found.insert(sort.clone(), by_value);
        }
        let value = key.map_or(String::new(), |(_, value)| same(value));
        self.found.get(&sort).and_then(|by_value| by_value.get(&value)).cloned().unwrap_or_default()
    }

    /// The first element at the end of the path.
    fn find<'p>(&mut self, path: &'p [Step]) -> Found<'a, 'i, 'p> {
        if let Some(&element) = self.at(path).first() {
            return Found::There(element);
        }
        let there = (0..path.len()).rev().find_map(|depth| Some((depth, *self.at(&path[..depth]).first()?)));
        let (depth, element) = there.unwrap_or((0, self.root));
        Found::Missing(element, &path[depth..])
    }
}

/// libvirt reads numbers: `vcpu=' 03'` is vCPU 3.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A text that is the same for values that are.
fn same(value: &str) -> String {
    number(value).map_or_else(|| value.to_owned(), |number| number.to_string())
}
