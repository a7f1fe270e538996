//! Where a VM's monitor listens, from QEMU's command line.

use std::path::{Path, PathBuf};

/// The socket of the first `-qmp unix:PATH,server,nowait`, in each way to write that, with an
/// absolute path.
pub fn qmp_socket(arguments: &[String]) -> Option<PathBuf> {
    let is_qmp = |option: &str| matches!(option, "-qmp" | "--qmp" | "-qmp-pretty" | "--qmp-pretty");
    arguments.windows(2).filter(|pair| is_qmp(&pair[0])).find_map(|pair| {
        let mut parts = pair[1].strip_prefix("unix:")?.split(',');
        let path = Path::new(parts.next()?);
        let rest: Vec<&str> = parts.collect();
        let says = |words: &[&str]| rest.iter().any(|part| words.contains(part));
        // A doubled comma is part of the path: left alone, as is a QEMU that waits for its first
        // visitor.
        let plain = path.is_absolute() && !rest.contains(&"");
        (plain && says(&["server", "server=on"]) && says(&["nowait", "wait=off"])).then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(arguments: &str) -> Option<PathBuf> {
        qmp_socket(&arguments.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn only_a_plain_listening_socket_is_a_monitor_to_ask() {
        let socket = Some(PathBuf::from("/run/a.qmp"));
        assert_eq!(monitor("qemu -qmp unix:/run/a.qmp,server,nowait -S"), socket);
        assert_eq!(monitor("qemu -qmp unix:/run/a.qmp,server=on,wait=off"), socket);
        for other in [
            "qemu -qmp unix:/run/a.qmp,server",
            "qemu -qmp unix:a.qmp,server,nowait",
            "qemu -qmp unix:/run/a,,b,server,nowait",
            "qemu -qmp stdio",
            "qemu -chardev socket,id=m,path=/run/a.qmp,server=on,wait=off -mon chardev=m,mode=control",
        ] {
            assert_eq!(monitor(other), None, "{other}");
        }
    }
}
