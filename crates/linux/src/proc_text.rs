//! Single values in the files that `/proc` has of a process or a thread (proc(5)).

use std::str::FromStr;

/// A field of `stat`, counted as proc(5) does, from the third on: the name in the second may hold
/// spaces and parentheses.
pub(crate) fn stat_field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// The text behind a field of `status`, such as `Cpus_allowed_list:`.
pub(crate) fn status_text<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(field)).map(str::trim)
}

/// What a field of `status` says.
pub(crate) fn status_field<T: FromStr>(status: &str, field: &str) -> Option<T> {
    status_text(status, field)?.parse().ok()
}

/// An amount of `status`: `VmRSS:   1024 kB`.
pub(crate) fn status_amount(status: &str, field: &str) -> Option<topology::Bytes> {
    status_text(status, field)?.strip_suffix(" kB")?.parse().ok().map(topology::Bytes::from_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194304 9 0 0 0 12 34 0 0 20 0 1 0 5 0 0";
        assert_eq!((stat_field::<char>(stat, 3), stat_field::<u64>(stat, 14)), (Some('S'), Some(12)));
        assert_eq!((stat_field::<u64>(stat, 2), stat_field::<u64>("7", 3)), (None, None));
    }

    #[test]
    fn a_field_of_status_is_read() {
        let status = "Uid:\t0\t1000\nVmPin:\t 512 kB\nCpus_allowed_list:\t0-3\n";
        assert_eq!(status_amount(status, "VmPin:"), Some(topology::Bytes::from_kib(512)));
        assert_eq!(status_field(status, "Cpus_allowed_list:"), Some("0-3".to_owned()));
        assert_eq!((status_text(status, "Uid:"), status_amount(status, "VmRSS:")), (Some("0\t1000"), None));
    }
}
