//! Kinds of core in hwloc's XML: `<cpukind cpuset="0x0f"><info name="LinuxCapacity"
//! value="718"/></cpukind>`.
//!
//! A capacity comes from what Linux says, else from the highest clock, else from Intel's names of
//! its kinds, as for a live host.

use super::masks;
use crate::{CpuId, CpuSet, HardwareThread};
use roxmltree::Node as Element;

/// Capacity of the largest core, as in the kernel (`SCHED_CAPACITY_SCALE`).
const LARGEST: u64 = 1024;

struct Kind<'a> {
    cpus: CpuSet,
    element: Element<'a, 'a>,
}

impl Kind<'_> {
    fn info(&self, name: &str) -> Option<&str> {
        let named = |child: &Element<'_, '_>| child.has_tag_name("info") && child.attribute("name") == Some(name);
        self.element.children().find(named)?.attribute("value")
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.trim().parse().ok().filter(|&number| number > 0)
    }

    fn assumed(&self) -> Option<u64> {
        match self.info("CoreType")? {
            "IntelCore" => Some(LARGEST),
            "IntelAtom" => Some(LARGEST / 2),
            "IntelLowPower" => Some(LARGEST / 4),
            _ => None,
        }
    }
}

/// Gives threads the capacity of their kind where the kinds differ.
pub(super) fn apply<'a>(root: Element<'a, 'a>, threads: &mut [HardwareThread], notes: &mut Vec<String>) {
    let cpus = |element: &Element<'_, '_>| element.attribute("cpuset").and_then(masks::ids::<CpuId>);
    let kinds: Vec<Kind<'_>> = root
        .children()
        .filter(|child| child.has_tag_name("cpukind"))
        .filter_map(|element| Some(Kind { cpus: cpus(&element)?, element }))
        .collect();
    if kinds.len() < 2 {
        return;
    }
    let all = |value: &dyn Fn(&Kind<'_>) -> Option<u64>| kinds.iter().map(value).collect::<Option<Vec<u64>>>();
    let measured = all(&|kind| kind.number("LinuxCapacity"))
        .map(|values| ("Linux's capacities", values))
        .or_else(|| Some(("the highest clock", all(&|kind| kind.number("FrequencyMaxMHz"))?)))
        .or_else(|| {
            Some(("an assumption, since the XML gives neither capacities nor clocks", all(&|kind| kind.assumed())?))
        });
    let Some((basis, values)) = measured else { return };
    let largest = values.iter().copied().max().unwrap_or(LARGEST);
    if values.iter().all(|&value| value == largest) {
        return;
    }
    for thread in threads {
        let kind = kinds.iter().zip(&values).find(|(kind, _)| kind.cpus.contains(thread.id));
        // A CPU of no kind is taken as a large one.
        let value = kind.map_or(largest, |(_, &value)| value);
        thread.capacity = Some(value.saturating_mul(LARGEST).div_ceil(largest).clamp(1, LARGEST) as u32);
    }
    let lists: Vec<String> = kinds.iter().map(|kind| format!("CPUs {}", kind.cpus)).collect();
    notes.push(format!("Cores of several kinds ({}): their relative capacity is from {basis}.", lists.join("; ")));
}
