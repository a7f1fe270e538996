//! What resctrl's files say (Documentation/filesystems/resctrl.rst): words and numbers, without
//! any file.

use scheduler::Traffic;
use topology::Bytes;

/// Bytes a second of one client that are believed: more than any machine's memory gives.
const MOST_PER_SECOND: f64 = 1e13;
/// Bytes of caches that are believed.
const MOST_OCCUPANCY: u64 = 1 << 40;

/// One counter of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Bytes.
    Bytes(u64),
    /// The group has no hardware counter for it (AMD's assignable counters).
    Unassigned,
    /// `Unavailable`, `Error`, or anything else that is no number.
    Unavailable,
}

impl Reading {
    pub(super) fn parse(text: &str) -> Self {
        match text.trim() {
            "Unassigned" => Self::Unassigned,
            text => text.parse().map_or(Self::Unavailable, Self::Bytes),
        }
    }

    fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The counters of one domain (a last-level cache); `None`: the CPU has no such counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainReading {
    pub(super) total: Option<Reading>,
    pub(super) local: Option<Reading>,
    pub(super) occupancy: Option<Reading>,
}

/// Traffic between two readings of all domains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    /// To local and to other memory.
    Split(Traffic),
    /// All of it, in bytes a second.
    Unsplit(f64),
}

/// Traffic between two readings of the same domains, `seconds` apart. `None` where a counter said
/// no number in one of them, went backwards, or says more than a machine can carry: none of that is
/// nothing.
pub(super) fn rate(before: &[DomainReading], now: &[DomainReading], seconds: f64) -> Option<Rate> {
    if before.len() != now.len() || now.is_empty() || seconds <= 0.0 {
        return None;
    }
    let sum = |of: fn(&DomainReading) -> Option<Reading>| -> Option<f64> {
        let added = |(before, now): (&DomainReading, &DomainReading)| {
            of(now)?.bytes()?.checked_sub(of(before)?.bytes()?).map(|bytes| bytes as f64)
        };
        let bytes: f64 = before.iter().zip(now).map(added).sum::<Option<f64>>()?;
        Some(bytes / seconds).filter(|rate| *rate <= MOST_PER_SECOND)
    };
    let total = sum(|domain| domain.total)?;
    Some(match sum(|domain| domain.local) {
        Some(local) => Rate::Split(Traffic { local, remote: (total - local).max(0.0) }),
        None => Rate::Unsplit(total),
    })
}

/// What of all caches a group's data holds.
pub(super) fn occupancy(now: &[DomainReading]) -> Option<Bytes> {
    let each = now.iter().map(|domain| domain.occupancy?.bytes());
    let sum = each.reduce(|sum, bytes| sum?.checked_add(bytes?))??;
    (sum <= MOST_OCCUPANCY).then_some(Bytes(sum))
}

/// Whether a counter of traffic is missing for want of hardware counters.
pub(super) fn is_unassigned(now: &[DomainReading]) -> bool {
    now.iter().any(|domain| domain.total == Some(Reading::Unassigned))
}

/// Where a thread is: its control group and its monitoring group, as `cpu_resctrl_groups` of
/// `/proc` says; each empty for the first of all, and the default. `None` where resctrl is not
/// mounted, or a name cannot be one of a directory.
pub(super) fn groups_of(text: &str) -> Option<(String, String)> {
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let control = line("res:").filter(|name| !name.is_empty())?;
    let (control, monitor) = (control.strip_prefix('/').unwrap_or(control), line("mon:")?);
    let plain = |name: &str| !name.contains('/') && name != "." && name != "..";
    (plain(control) && plain(monitor)).then(|| (control.to_owned(), monitor.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(total: &str, local: &str, occupancy: &str) -> DomainReading {
        let of = |text| Some(Reading::parse(text));
        DomainReading { total: of(total), local: of(local), occupancy: of(occupancy) }
    }

    #[test]
    fn a_rate_is_what_was_added_over_all_domains() {
        let before = [domain("150\n", "100\n", "10\n"), domain("50\n", "0\n", "20\n")];
        let now = [domain("450\n", "300\n", "30\n"), domain("450\n", "100\n", "40\n")];
        // 2 s: local 400 - 100 = 300, all 900 - 200 = 700, remote 700 - 300 = 400.
        assert_eq!(rate(&before, &now, 2.0), Some(Rate::Split(Traffic { local: 150.0, remote: 200.0 })));
        assert_eq!(occupancy(&now), Some(Bytes(70)));
        // Local traffic that was read a moment later than all of it is not more than all.
        let later = [domain("160", "170", "0"), domain("50", "0", "0")];
        assert_eq!(rate(&before, &later, 1.0), Some(Rate::Split(Traffic { local: 70.0, remote: 0.0 })));
        let without = |domain: DomainReading| DomainReading { local: None, ..domain };
        assert_eq!(rate(&before.map(without), &now.map(without), 2.0), Some(Rate::Unsplit(350.0)));
    }

    #[test]
    fn what_is_no_number_or_goes_back_is_unknown_and_never_zero() {
        let good = [domain("100", "50", "7")];
        for text in ["Unavailable", "Error", "Unassigned", "", "-1", "1e9", "18446744073709551616", "12 13", "\0\0"] {
            let bad = [domain(text, "60", text)];
            assert_eq!((rate(&good, &bad, 1.0), rate(&bad, &good, 1.0)), (None, None), "{text}");
            assert_eq!(occupancy(&bad), None, "{text}");
        }
        assert!(is_unassigned(&[good[0], domain("Unassigned", "Unassigned", "7")]));
        assert_eq!(rate(&good, &[domain("99", "60", "7")], 1.0), None); // backwards
        assert_eq!(rate(&good, &[domain("18446744073709551615", "60", "7")], 1.0), None); // 1.8 x 10^19 bytes in 1 s
        assert_eq!(occupancy(&[domain("0", "0", "18446744073709551615"), good[0]]), None);
        assert_eq!((rate(&good, &[good[0], good[0]], 1.0), rate(&good, &good, 0.0)), (None, None));
        assert_eq!((rate(&[], &[], 1.0), occupancy(&[])), (None, None));
        // Only the remote part is unknown where local traffic alone is.
        assert_eq!(rate(&good, &[domain("300", "Unavailable", "7")], 1.0), Some(Rate::Unsplit(200.0)));
    }

    #[test]
    fn the_kernel_says_where_a_thread_is() {
        let is = |control: &str, monitor: &str| Some((control.to_owned(), monitor.to_owned()));
        assert_eq!(groups_of("res:/\nmon:\n"), is("", ""));
        assert_eq!(groups_of("res:/\nmon:mon0\n"), is("", "mon0"));
        assert_eq!(groups_of("res:group0\nmon:\n"), is("group0", ""));
        assert_eq!(groups_of("res:group0\nmon:mon1\n"), is("group0", "mon1"));
        for text in
            ["res:\nmon:\n", "", "garbage", "res:/\n", "res:..\nmon:\n", "res:/\nmon:a/../../b\n", "res:/a/b\nmon:\n"]
        {
            assert_eq!(groups_of(text), None, "{text}");
        }
    }
}
