//! Identifiers as the kernel numbers them, and ordered sets of them in the kernel's list format
//! (`0-3,8`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

/// An identifier that is a small number: what an [`IdSet`] may hold.
pub trait Id: Copy + Ord + fmt::Display {
    /// The identifier with this number.
    fn from_number(number: u32) -> Self;
    /// The number as the kernel prints it.
    fn number(self) -> u32;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);
        impl Id for $name {
            fn from_number(number: u32) -> Self {
                Self(number)
            }
            fn number(self) -> u32 {
                self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A hardware thread, by Linux's CPU number.
    CpuId
);
id!(
    /// A NUMA node, by Linux's node number. Numbers may be sparse.
    NodeId
);
id!(
    /// A socket (physical package). Unique in the machine.
    SocketId
);
id!(
    /// A core. Unique in the machine (Linux's `core_id` is unique only within a socket or die).
    CoreId
);
id!(
    /// A last-level cache. Unique in the machine.
    LlcId
);

/// An ordered set of identifiers; printed, parsed and serialised in the kernel's list format.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<T: Id> {
    /// Rising, each once: sets are compared, copied and walked far more often than changed. Copies
    /// share them: thousands of vCPUs may have the same thousands of CPUs. `None`: no member.
    members: Option<Arc<Vec<u32>>>,
    of: PhantomData<T>,
}

/// A set of hardware threads.
pub type CpuSet = IdSet<CpuId>;
/// A set of NUMA nodes.
pub type NodeSet = IdSet<NodeId>;

impl<T: Id> IdSet<T> {
    /// The empty set.
    pub fn new() -> Self {
        Self { members: None, of: PhantomData }
    }
    /// Adds a member; false if it was there.
    pub fn insert(&mut self, id: T) -> bool {
        let place = self.numbers().binary_search(&id.number());
        if let Err(place) = place {
            Arc::make_mut(self.members.get_or_insert_default()).insert(place, id.number());
        }
        place.is_err()
    }
    /// Whether `id` is a member.
    pub fn contains(&self, id: T) -> bool {
        self.numbers().binary_search(&id.number()).is_ok()
    }
    /// Number of members.
    pub fn len(&self) -> usize {
        self.numbers().len()
    }
    /// Whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_none()
    }
    /// The members in rising order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + '_ {
        self.numbers().iter().map(|&n| T::from_number(n))
    }
    /// The smallest member.
    pub fn first(&self) -> Option<T> {
        self.numbers().first().map(|&n| T::from_number(n))
    }
    /// Members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        // Thousands of vCPUs have the same CPUs: what is the same is compared as a whole.
        if self == other {
            return self.clone();
        }
        Self::of(self.numbers().iter().chain(other.numbers()).copied().collect())
    }
    /// Members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        self.only(|id| other.contains(id))
    }
    /// Members of this set that `other` lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.only(|id| !other.contains(id))
    }
    /// Whether every member is also in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self == other || self.len() < other.len() && self.iter().all(|id| other.contains(id))
    }

    fn only(&self, keep: impl Fn(T) -> bool) -> Self {
        Self::of(self.iter().filter(|&id| keep(id)).map(Id::number).collect())
    }

    fn numbers(&self) -> &[u32] {
        self.members.as_deref().map_or(&[], Vec::as_slice)
    }

    /// A set of these numbers, in whatever order.
    fn of(mut members: Vec<u32>) -> Self {
        if !members.is_sorted_by(|one, other| one < other) {
            members.sort_unstable();
            members.dedup();
        }
        Self { members: (!members.is_empty()).then(|| Arc::new(members)), of: PhantomData }
    }
}

impl<T: Id> Default for IdSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Id> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        Self::of(ids.into_iter().map(Id::number).collect())
    }
}

impl<T: Id> Extend<T> for IdSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        let mut members = Arc::unwrap_or_clone(self.members.take().unwrap_or_default());
        members.extend(ids.into_iter().map(Id::number));
        *self = Self::of(members);
    }
}

impl<T: Id> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &number in self.numbers() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        let text: Vec<String> = runs
            .into_iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
            .collect();
        f.pad(&text.join(","))
    }
}

impl<T: Id> fmt::Debug for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A list that is not in the kernel's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a list of numbers and ranges such as `0-3,8`: {reason}")]
pub struct IdSetError {
    text: String,
    reason: &'static str,
}

/// The largest id accepted: Linux's `NR_CPUS` limit is 8192; a bound keeps `0-4000000000` from
/// filling memory.
const LARGEST_ID: u32 = 65_535;

impl<T: Id> FromStr for IdSet<T> {
    type Err = IdSetError;
    fn from_str(text: &str) -> Result<Self, IdSetError> {
        let fail = |reason| IdSetError { text: crate::input::excerpt(text), reason };
        let mut members = Self::new();
        let mut named = 0;
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| fail("a part is not a number"));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(fail("a range runs backwards"));
            }
            if last > LARGEST_ID {
                return Err(fail("a number is over 65535"));
            }
            named += last - first + 1;
            if named > LARGEST_ID + 1 {
                return Err(fail("numbers are named again and again"));
            }
            members.extend((first..=last).map(T::from_number));
        }
        Ok(members)
    }
}

impl<T: Id> Serialize for IdSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: Id> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_printed_as_the_kernel_prints_it() {
        let set: CpuSet = "8, 0-2,3".parse().expect("a list");
        assert_eq!(set.to_string(), "0-3,8");
        assert_eq!(set.len(), 5);
        assert_eq!("".parse::<CpuSet>().expect("empty").to_string(), "");
    }

    #[test]
    fn a_set_is_what_a_set_is() {
        let set = |text: &str| text.parse::<CpuSet>().expect("a list");
        let (one, other) = (set("0-4,9"), set("3,9,12"));
        assert_eq!(
            [one.union(&other), one.intersection(&other), one.difference(&other)],
            [set("0-4,9,12"), set("3,9"), set("0-2,4")]
        );
        assert_eq!(
            (set("3,9").is_subset(&one), other.is_subset(&one), CpuSet::new().is_subset(&one)),
            (true, false, true)
        );
        let mut grown: CpuSet = [7, 1, 7, 3].into_iter().map(CpuId).collect();
        assert_eq!(
            (grown.insert(CpuId(2)), grown.insert(CpuId(7)), grown.to_string()),
            (true, false, "1-3,7".to_owned())
        );
        grown.extend([CpuId(0), CpuId(3)]);
        assert_eq!(
            (grown.to_string(), grown.contains(CpuId(4)), grown.first()),
            ("0-3,7".to_owned(), false, Some(CpuId(0)))
        );
        assert_eq!(set("4-6,5-9,1,0-3"), set("0-9"));
    }

    #[test]
    fn a_bad_list_says_what_is_wrong() {
        for text in ["3-1", "a", "1-", "0-4000000000"] {
            let error = text.parse::<NodeSet>().expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
