//! What can go wrong between homenode and libvirt, told from libvirt's own words, each with what to
//! do.

use topology::input::one_line;
use topology::limits::LONGEST_MESSAGE;

/// What can go wrong between homenode and libvirt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibvirtError {
    /// There is no `virsh`.
    #[error("virsh cannot be started: {reason}; install libvirt's clients (Debian: libvirt-clients)")]
    NoVirsh {
        /// The system's words.
        reason: String,
    },
    /// The URI names no libvirt.
    #[error("{libvirt}: {words}; a URI looks like qemu:///system, qemu:///session or qemu+ssh://host/system")]
    BadUri {
        /// Which libvirt.
        libvirt: Which,
        /// What it said.
        words: String,
    },
    /// Nobody answers there.
    #[error(
        "{libvirt}: no libvirt answers: {words}; start it (systemctl start libvirtd.socket, or virtqemud.socket), or \
        name another with --connect"
    )]
    NoDaemon {
        /// Which libvirt.
        libvirt: Which,
        /// What it said.
        words: String,
    },
    /// libvirt does not let this user in.
    #[error(
        "{libvirt}: this user may not use it: {words}; join the group libvirt and log in again, have polkit allow \
        org.libvirt.unix.manage, or run this as root"
    )]
    NotAllowed {
        /// Which libvirt.
        libvirt: Which,
        /// What it said.
        words: String,
    },
    /// The host cannot be reached by ssh.
    #[error(
        "{libvirt}: ssh fails: {words}; homenode answers no question of ssh: `ssh HOST true` must work without one (a \
        key in the agent, the host in known_hosts), and the host needs libvirt and nc"
    )]
    Ssh {
        /// Which libvirt.
        libvirt: Which,
        /// What it said.
        words: String,
    },
    /// The connection fails for another reason.
    #[error("{libvirt}: cannot be reached: {words}")]
    Unreachable {
        /// Which libvirt.
        libvirt: Which,
        /// What it said.
        words: String,
    },
    /// It has no such domain.
    #[error("{libvirt}: {operation}: no such domain; `virsh list --all` shows those that it has")]
    NoSuchDomain {
        /// Which libvirt.
        libvirt: Which,
        /// What was asked.
        operation: String,
    },
    /// A domain of that name is there already.
    #[error("{libvirt}: a domain named {name} is there already ({state}); choose another `name`, or end it: {cure}")]
    NameTaken {
        /// Which libvirt.
        libvirt: Which,
        /// The name.
        name: String,
        /// What it does.
        state: &'static str,
        /// The command that ends it.
        cure: String,
    },
    /// A file that the VM needs is closed to the user that QEMU runs as.
    #[error(
        "{libvirt}: {words}; QEMU of libvirt runs as a user of its own (qemu:///system: libvirt-qemu or qemu), which \
        must be able to read kernel, initrd and disks, and to enter every directory above them: put them where all may \
        read, below /var/lib/libvirt/images for one"
    )]
    FileClosed {
        /// Which libvirt.
        libvirt: Which,
        /// What it said.
        words: String,
    },
    /// It refused something, or failed at it.
    #[error("{libvirt}: {operation}: {words}")]
    Refused {
        /// Which libvirt.
        libvirt: Which,
        /// What was asked.
        operation: String,
        /// What it said.
        words: String,
    },
    /// It did not answer in time.
    #[error("libvirt: {operation}: no answer within {seconds} s")]
    Timeout {
        /// What was asked.
        operation: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It answered something that homenode does not understand.
    #[error("{libvirt}: {operation}: {problem}")]
    Answer {
        /// Which libvirt.
        libvirt: Which,
        /// What was asked.
        operation: String,
        /// What is wrong with the answer.
        problem: String,
    },
}

/// One libvirt, as messages name it: by its URI, or as the one that `virsh` takes by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which(pub Option<String>);

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(uri) => write!(f, "libvirt at {uri}"),
            None => f.write_str("libvirt (virsh's own choice; another by --connect)"),
        }
    }
}

/// What libvirt says of a connection, and which error it is.
type Make = fn(Which, String) -> LibvirtError;
const CONNECTION: [(&str, Make); 16] = [
    ("Unable to parse URI", bad_uri),
    ("no connection driver available for", bad_uri),
    ("not find any connection driver", bad_uri),
    ("QEMU URI path", bad_uri),
    ("transport in URL not recognised", bad_uri),
    ("invalid transport", bad_uri),
    ("unknown URI", bad_uri),
    ("Host key verification failed", ssh),
    ("Permission denied (", ssh),
    ("ssh: ", ssh),
    ("authentication", not_allowed),
    ("polkit", not_allowed),
    ("access denied", not_allowed),
    ("Permission denied", not_allowed),
    ("No such file or directory", no_daemon),
    ("Connection refused", no_daemon),
];

fn bad_uri(libvirt: Which, words: String) -> LibvirtError {
    LibvirtError::BadUri { libvirt, words }
}

fn ssh(libvirt: Which, words: String) -> LibvirtError {
    LibvirtError::Ssh { libvirt, words }
}

fn not_allowed(libvirt: Which, words: String) -> LibvirtError {
    LibvirtError::NotAllowed { libvirt, words }
}

fn no_daemon(libvirt: Which, words: String) -> LibvirtError {
    LibvirtError::NoDaemon { libvirt, words }
}

fn unreachable(libvirt: Which, words: String) -> LibvirtError {
    LibvirtError::Unreachable { libvirt, words }
}

impl LibvirtError {
    /// The error that `virsh` means by what it wrote on standard error.
    pub(crate) fn told(libvirt: &Which, operation: &str, errors: &str) -> Self {
        let lines: Vec<&str> = errors.lines().filter_map(|line| line.strip_prefix("error: ")).map(str::trim).collect();
        let words = if lines.is_empty() { errors.trim().to_owned() } else { lines.join(": ") };
        // Names and paths in them are whoever's.
        let words = one_line(&words, LONGEST_MESSAGE);
        if let Some(position) = lines.iter().position(|line| *line == "failed to connect to the hypervisor") {
            // A batch tries again for each of its commands, and says the same each time.
            let words = lines.get(position + 1).map_or(words, |line| one_line(line, LONGEST_MESSAGE));
            let known = CONNECTION.iter().find(|(sign, _)| words.contains(sign));
            return known.map_or(unreachable as Make, |(_, make)| *make)(libvirt.clone(), words);
        }
        let (libvirt, operation) = (libvirt.clone(), operation.to_owned());
        if ["failed to get domain", "Domain not found", "no domain with matching"]
            .iter()
            .any(|sign| words.contains(sign))
        {
            return Self::NoSuchDomain { libvirt, operation };
        }
        if words.contains("access denied") || words.contains("operation forbidden") {
            return Self::NotAllowed { libvirt, words };
        }
        Self::Refused { libvirt, operation, words }
    }

    /// Whether what the user wrote is the cause, and nothing was changed.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::BadUri { .. })
    }

    /// Whether libvirt could not be reached or used at all.
    pub fn is_of_connection(&self) -> bool {
        use LibvirtError::{BadUri, NoDaemon, NotAllowed, Ssh, Unreachable};
        matches!(self, BadUri { .. } | NoDaemon { .. } | NotAllowed { .. } | Ssh { .. } | Unreachable { .. })
    }

    /// Whether there is no such domain (any more).
    pub fn is_no_such_domain(&self) -> bool {
        matches!(self, Self::NoSuchDomain { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What virsh 9.0 prints.
    fn told(second_line: &str) -> LibvirtError {
        let errors = format!("error: failed to connect to the hypervisor\nerror: {second_line}\n");
        LibvirtError::told(&Which(Some("qemu:///system".to_owned())), "list", &errors)
    }

    #[test]
    fn failures_to_connect_are_told_apart() {
        let socket = "/var/run/libvirt/libvirt-sock";
        let none = told(&format!("Failed to connect socket to '{socket}': No such file or directory"));
        assert!(matches!(none, LibvirtError::NoDaemon { .. }), "{none:?}");
        let refused = told(&format!("Failed to connect socket to '{socket}': Permission denied"));
        assert!(matches!(refused, LibvirtError::NotAllowed { .. }) && refused.to_string().contains("group libvirt"));
        let polkit = told(
            "authentication unavailable: no polkit agent available to authenticate action 'org.libvirt.unix.manage'",
        );
        assert!(matches!(polkit, LibvirtError::NotAllowed { .. }), "{polkit:?}");
        let uri = told("internal error: Unable to parse URI ::::");
        assert!(uri.is_bad_input() && uri.to_string().contains("qemu+ssh://host/system"), "{uri}");
        let ssh = told(
            "Cannot recv data: ssh: connect to host 127.0.0.1 port 1: Connection refused: Connection reset by peer",
        );
        assert!(matches!(ssh, LibvirtError::Ssh { .. }), "{ssh:?}");
        let key = told("Cannot recv data: a@h: Permission denied (publickey).: Connection reset by peer");
        assert!(matches!(key, LibvirtError::Ssh { .. }), "{key:?}");
        let password =
            told("Cannot recv data: a@h: Permission denied (gssapi-with-mic,password).: Connection reset by peer");
        assert!(matches!(password, LibvirtError::Ssh { .. }), "{password:?}");
        let certificate = told("Cannot read CA certificate '/etc/pki/CA/cacert.pem': Input/output error");
        assert!(matches!(certificate, LibvirtError::Unreachable { .. }), "{certificate:?}");
    }

    #[test]
    fn a_domain_that_is_not_there_is_no_other_failure() {
        let which = Which(None);
        let gone = LibvirtError::told(&which, "dumpxml a", "error: failed to get domain 'a'\n");
        assert!(gone.is_no_such_domain() && !gone.is_bad_input());
        let other = LibvirtError::told(&which, "start a", "error: Failed to start domain 'a'\nerror: no memory\n");
        assert!(other.to_string().ends_with("start a: Failed to start domain 'a': no memory"), "{other}");
    }

    #[test]
    fn what_it_says_is_one_short_line() {
        let long = format!("a\x1b]0;b\x07\nerror: {}", "x".repeat(5000));
        for errors in [format!("error: {long}"), long.clone(), told(&long).to_string()] {
            let said = LibvirtError::told(&Which(None), "start a", &errors).to_string();
            assert!(said.chars().all(|c| !c.is_control()) && said.chars().count() < 2200, "{said}");
        }
    }
}
