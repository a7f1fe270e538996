//! The agent's way into a disk image that somebody else made: a seed disk for cloud-init.
//!
//! **Problem.** A cloud image brings its own boot loader, kernel and init, and no agent of ours.
//! What clouds have for that is cloud-init: it looks for a disk with the label `cidata` (NoCloud)
//! and does what `user-data` there says.
//!
//! **Rule.** The seed is a FAT file system with `user-data`, `meta-data`, a script and an archive:
//! our agent, a systemd unit for it, and the files of an experiment. cloud-init runs the script
//! early (`bootcmd`); it unpacks the archive and queues the unit, which starts when the system is
//! up, so that a measurement does not share the processors with the boot. When the agent ends, the
//! unit powers the guest off in order. A VM without the agent's port skips the unit.
//!
//! FAT, as cloud-init knows only it and ISO 9660, and each file has a name of its own in the
//! archive: FAT keeps neither modes nor case. The file system is made in memory, so that nothing is
//! left when homenode is killed.
//!
//! **Example.** [`seed`] of the agent alone: 7.3 MB.

use linux::{GUEST_ENVIRONMENT, GUEST_FILES};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};

/// What cloud-init looks for.
const LABEL: [u8; 11] = *b"cidata     ";
/// Where the agent is in the guest. Not below `/run`, which some systems mount without the right
/// to run programs.
const AGENT: &str = "usr/local/sbin/homenode-guest";
/// Where the files of an experiment are in the guest: on its disk, not in its memory.
const FILES: &str = "var/lib/homenode/files";
const UNIT: &str = "run/systemd/system/homenode-agent.service";
const ARCHIVE: &str = "homenode.tar";
const SCRIPT: &str = "homenode.sh";

/// Modules of cloud-init that the guest needs; all others (keys, users, packages) only cost time,
/// since nobody logs in and all is thrown away.
const USER_DATA: &str = "#cloud-config
bootcmd:
  - mkdir -p /run/homenode-seed
  - mount -o ro LABEL=cidata /run/homenode-seed
  - sh /run/homenode-seed/homenode.sh
cloud_init_modules: [bootcmd, growpart, resizefs, set_hostname, update_etc_hosts]
cloud_config_modules: []
cloud_final_modules: []
manage_etc_hosts: localhost
";
const META_DATA: &str = "instance-id: homenode\nlocal-hostname: guest\n";

/// A file for the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedFile {
    /// Its path in the guest, below [`GUEST_FILES`].
    pub path: PathBuf,
    /// Whether it can be run.
    pub is_program: bool,
    /// What is in it.
    pub content: Vec<u8>,
}

/// A seed disk with this agent, which serves the virtio-serial port of that name, and these files,
/// as a raw image. The same content gives the same bytes.
///
/// # Errors
/// A path that no archive holds, or more than a FAT file system holds.
pub fn seed(agent: &[u8], port: &str, files: &[SeedFile]) -> io::Result<Vec<u8>> {
    let archive = archive(agent, port, files)?;
    // The tables of a FAT file system and what the last clusters leave empty.
    let size = archive.len() + archive.len() / 64 + (2 << 20);
    let mut image = vec![0; size.next_multiple_of(1 << 20)];
    let options = fatfs::FormatVolumeOptions::new().volume_label(LABEL);
    fatfs::format_volume(Cursor::new(&mut image), options)?;
    let volume = fatfs::FileSystem::new(Cursor::new(&mut image), fatfs::FsOptions::new())?;
    let script = script();
    for (name, content) in [
        ("user-data", USER_DATA.as_bytes()),
        ("meta-data", META_DATA.as_bytes()),
        (SCRIPT, script.as_bytes()),
        (ARCHIVE, &archive),
    ] {
        volume.root_dir().create_file(name)?.write_all(content)?;
    }
    volume.unmount()?;
    Ok(image)
}

fn archive(agent: &[u8], port: &str, files: &[SeedFile]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |path: &Path, mode: u32, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        archive.append_data(&mut header, path, content)
    };
    add(Path::new(AGENT), 0o755, agent)?;
    add(Path::new(UNIT), 0o644, unit(port).as_bytes())?;
    for file in files {
        let outside = || io::Error::other(format!("{} is not below {GUEST_FILES}", file.path.display()));
        let path = file.path.strip_prefix(GUEST_FILES).map_err(|_| outside())?;
        add(&Path::new(FILES).join(path), if file.is_program { 0o755 } else { 0o644 }, &file.content)?;
    }
    archive.into_inner()
}

fn script() -> String {
    // SELinux's label of programs where there is SELinux. cloud-init's later stages have nothing to
    // do, and would take a processor from what is measured.
    format!(
        "set -e\n\
         mkdir -p /{FILES}\n\
         tar -xf /run/homenode-seed/{ARCHIVE} -C /\n\
         ! command -v restorecon >/dev/null || restorecon -R /{AGENT} /{FILES} || true\n\
         ln -sfn /{FILES} {GUEST_FILES}\n\
         systemctl daemon-reload\n\
         systemctl stop --no-block cloud-config.service cloud-final.service || true\n\
         systemctl start --no-block homenode-agent.service\n"
    )
}

fn unit(port: &str) -> String {
    let environment: String =
        GUEST_ENVIRONMENT.iter().map(|(name, value)| format!("Environment={name}={value}\n")).collect();
    format!(
        "[Unit]\n\
         Description=Agent of homenode\n\
         ConditionPathExists=/dev/virtio-ports/{port}\n\
         After=multi-user.target\n\
         SuccessAction=poweroff\n\
         FailureAction=poweroff\n\
         [Service]\n\
         ExecStart=/{AGENT} --in-guest\n\
         StandardOutput=journal+console\n\
         StandardError=journal+console\n\
         {environment}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn files() -> Vec<SeedFile> {
        let file = |path: &str, is_program, content: &[u8]| SeedFile {
            path: Path::new(GUEST_FILES).join(path),
            is_program,
            content: content.to_vec(),
        };
        // Names that a FAT file system would take for one.
        vec![file("home/In.lj", false, b"one"), file("home/in.LJ", true, b"two")]
    }

    #[test]
    fn a_seed_has_what_cloud_init_looks_for_and_the_files_as_they_are() {
        let mut image = seed(b"agent", "port", &files()).unwrap();
        assert_eq!(image, seed(b"agent", "port", &files()).unwrap());
        let volume = fatfs::FileSystem::new(Cursor::new(&mut image), fatfs::FsOptions::new()).unwrap();
        assert_eq!(volume.volume_label_as_bytes(), b"cidata");
        let read = |name: &str| {
            let mut content = Vec::new();
            volume.root_dir().open_file(name).unwrap().read_to_end(&mut content).unwrap();
            content
        };
        assert!(read("user-data").starts_with(b"#cloud-config\n"));
        assert!(read("meta-data").starts_with(b"instance-id: "));
        let archive = read(ARCHIVE);
        let mut archive = tar::Archive::new(archive.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), content)
        });
        let entries: Vec<(String, u32, Vec<u8>)> = entries.filter(|(path, ..)| path != UNIT).collect();
        let expected = [
            (AGENT.to_owned(), 0o755, b"agent".to_vec()),
            (format!("{FILES}/home/In.lj"), 0o644, b"one".to_vec()),
            (format!("{FILES}/home/in.LJ"), 0o755, b"two".to_vec()),
        ];
        assert_eq!(entries, expected);
    }

    #[test]
    fn a_large_file_fits_and_one_from_elsewhere_is_refused() {
        let file = SeedFile { path: Path::new(GUEST_FILES).join("a"), is_program: false, content: vec![7; 70 << 20] };
        assert!(seed(b"agent", "port", std::slice::from_ref(&file)).unwrap().len() > 70 << 20);
        let elsewhere = SeedFile { path: "/etc/passwd".into(), ..file };
        assert!(seed(b"agent", "port", &[elsewhere]).unwrap_err().to_string().contains("/etc/passwd"));
    }
}
