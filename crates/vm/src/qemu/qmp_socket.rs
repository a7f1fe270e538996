//! Where a VM's monitor listens, from QEMU's command line.

use super::option_groups::OptionGroups;
use super::options::Options;
use super::sizes::is_yes;
use std::path::PathBuf;

/// The socket of the first `-qmp unix:PATH,server,nowait`, in each way to write that, with an
/// absolute path.
pub fn qmp_socket(groups: &OptionGroups<'_>) -> Option<PathBuf> {
    groups.texts("qmp").chain(groups.texts("qmp-pretty")).find_map(|value| {
        let socket = Options::parse(value, "path");
        let path = socket.get("path")?.strip_prefix("unix:")?;
        // A QEMU that waits for its first visitor is left alone.
        let listens = socket.is_on("server") && socket.get("wait").is_some_and(|wait| !is_yes(wait));
        (listens && path.starts_with('/')).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(arguments: &str) -> Option<PathBuf> {
        qmp_socket(&OptionGroups::of(&arguments.split(' ').map(str::to_owned).collect::<Vec<_>>()))
    }

    #[test]
    fn only_a_plain_listening_socket_is_a_monitor_to_ask() {
        let socket = Some(PathBuf::from("/run/a.qmp"));
        assert_eq!(monitor("qemu -qmp unix:/run/a.qmp,server,nowait -S"), socket);
        assert_eq!(monitor("qemu -qmp unix:/run/a.qmp,server=on,wait=off"), socket);
        assert_eq!(monitor("qemu -qmp unix:/run/a,,b,server=on,wait=no"), Some(PathBuf::from("/run/a,b")));
        for other in [
            "qemu -qmp unix:/run/a.qmp,server",
            "qemu -qmp unix:a.qmp,server,nowait",
            "qemu -qmp stdio",
            "qemu -chardev socket,id=m,path=/run/a.qmp,server=on,wait=off -mon chardev=m,mode=control",
        ] {
            assert_eq!(monitor(other), None, "{other}");
        }
    }
}
