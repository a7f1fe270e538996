//! Logins from one guest to another, for programs that start ranks there: sshd of the guest's own
//! packages, with keys that live in its memory and go with it.

use anyhow::{Context, bail, ensure};
use std::fs::{self, DirBuilder};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workloads::protocol::{PublicKeys, Trust};

/// In memory: `/run` is no disk.
const PLACE: &str = "/run/homenode-logins";
const SSHD: &str = "/usr/sbin/sshd";
const SSH: &str = "/usr/bin/ssh";
/// Not 22, where an image of somebody's own may have an sshd of its own.
const PORT: u16 = 7722;
/// How long sshd may take to listen: a guest under TCG is slow.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);
/// More ranks than a guest has: how many it gets is said with the command.
const SLOTS: u32 = 4096;
/// Seconds that one login may take.
const LOGIN_SECONDS: u32 = 60;

/// Makes the keys of this guest and of its user.
pub(crate) fn make_keys() -> anyhow::Result<PublicKeys> {
    for (program, package) in [(SSHD, "openssh-server"), (SSH, "openssh-client")] {
        ensure!(
            Path::new(program).exists(),
            "there is no {program} in this guest, by which MPI starts ranks in other VMs: add {package} to \
             guest.packages, or to the image"
        );
    }
    DirBuilder::new().mode(0o700).recursive(true).create(PLACE).with_context(|| format!("cannot make {PLACE}"))?;
    Ok(PublicKeys { user: make_key("user")?, host: make_key("host")? })
}

fn make_key(name: &str) -> anyhow::Result<String> {
    let path = format!("{PLACE}/{name}");
    // One of an earlier visit: it has done its work.
    let _ = fs::remove_file(&path);
    said(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &path]))?;
    let public = fs::read_to_string(format!("{path}.pub")).context("ssh-keygen wrote no key")?;
    Ok(public.trim().to_owned())
}

/// Runs a program to its end; an error has its words.
fn said(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = [output.stderr, output.stdout].map(|words| String::from_utf8_lossy(&words).trim().to_owned());
    bail!("{name}: {}: {}", output.status, words.join(" ").trim().replace(['\n', '\r'], " "))
}

/// Lets the first guest's user in, and tries to log in everywhere where that is asked for.
pub(crate) fn trust(trust: &Trust) -> anyhow::Result<()> {
    let known: String = trust.hosts.iter().map(|(name, key)| format!("{name} {key}\n")).collect();
    let names: String = trust.hosts.iter().map(|(name, _)| format!("{name} slots={SLOTS}\n")).collect();
    write("known", &known)?;
    write("authorized", &format!("{}\n", trust.user))?;
    write("hosts", &names)?;
    write("sshd.conf", &server())?;
    write("ssh.conf", &client())?;
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
    let parameters = Path::new(&home).join(".openmpi");
    fs::create_dir_all(&parameters)
        .and_then(|()| fs::write(parameters.join("mca-params.conf"), mpi(&trust.network)))?;
    fs::create_dir_all("/run/sshd").context("cannot make /run/sshd")?;
    serve()?;
    let others = trust.hosts.iter().skip(1).filter(|_| trust.tries);
    others.into_iter().try_for_each(|(name, _)| {
        said(Command::new(SSH).args(["-F", &format!("{PLACE}/ssh.conf"), name, "true"]))
            .with_context(|| format!("cannot log in to {name}, so that MPI starts no rank there"))
    })
}

/// Starts sshd, once, and waits until it listens. It becomes a child of process 1, so that it stays
/// when what a repetition has started is ended.
fn serve() -> anyhow::Result<()> {
    let listens = || TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)), LISTENS_WITHIN).is_ok();
    if listens() {
        return Ok(());
    }
    said(Command::new(SSHD).args(["-f", &format!("{PLACE}/sshd.conf")]))?;
    let deadline = Instant::now() + LISTENS_WITHIN;
    while !listens() {
        ensure!(Instant::now() < deadline, "{SSHD} does not listen within {} s", LISTENS_WITHIN.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn write(name: &str, text: &str) -> anyhow::Result<()> {
    let path = Path::new(PLACE).join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What stands in the environment of what logs in stands in that of what it starts: MPI's ranks
/// find the command's own. A login has no time limit here: between emulated guests that share few
/// CPUs the exchange of keys takes minutes, and whoever logs in has a limit of its own.
fn server() -> String {
    format!(
        "Port {PORT}\nHostKey {PLACE}/host\nAuthorizedKeysFile {PLACE}/authorized\nPidFile none\nUsePAM no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nStrictModes no\nUseDNS no\nAcceptEnv *\n\
         LoginGraceTime 0\nMaxStartups 1000\n"
    )
}

fn client() -> String {
    format!(
        "Host *\nPort {PORT}\nIdentityFile {PLACE}/user\nIdentitiesOnly yes\nUserKnownHostsFile {PLACE}/known\n\
         GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\nBatchMode yes\nConnectTimeout {LOGIN_SECONDS}\n\
         SendEnv *\n"
    )
}

/// Open MPI's parameters: over which network it talks, how it logs in, and where.
fn mpi(network: &str) -> String {
    format!(
        "plm_rsh_args = -F {PLACE}/ssh.conf\norte_default_hostfile = {PLACE}/hosts\n\
         btl_tcp_if_include = {network}\noob_tcp_if_include = {network}\n"
    )
}
