//! Whose a process is: the least trusted of the users that it acts for.
//!
//! A process has three users: the real one, who started it, the effective one, whose rights it has,
//! and the saved one. A setuid program of root that user 1000 starts has `1000 0 0`, and does what
//! user 1000 tells it to: it is user 1000's. Root's is only what is root's in all three.

use crate::proc_text::status_text;

/// The owner, from `/proc/PID/status`; `None` where it does not say.
pub(crate) fn of(status: &str) -> Option<u32> {
    let mut ids = status_text(status, "Uid:")?.split_whitespace().map(|id| id.parse::<u32>().ok());
    let [real, effective, saved] = [ids.next()??, ids.next()??, ids.next()??];
    Some([real, effective, saved].into_iter().find(|&id| id != 0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_who_is_root_in_every_way() {
        let of = |ids: &str| of(&format!("Name:\tqemu\nUid:\t{ids}\nGid:\t0\t0\t0\t0\n"));
        assert_eq!(of("0\t0\t0\t0"), Some(0));
        assert_eq!(of("1000\t1000\t1000\t1000"), Some(1000));
        assert_eq!(of("1000\t0\t0\t0"), Some(1000)); // a setuid program of root, started by 1000
        assert_eq!(of("1000\t2000\t2000\t2000"), Some(1000)); // one of user 2000
        assert_eq!(of("0\t64055\t64055\t64055"), Some(64055)); // root gave its effective user away
        assert_eq!(of("0\t0\t1000\t0"), Some(1000)); // and can take this one back
        assert_eq!((of("0\t0"), of("x\t0\t0\t0"), super::of("")), (None, None, None));
    }
}
