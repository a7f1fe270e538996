//! A real OpenSSH server of the tests' own: loopback, a free port, throw-away keys, everything it
//! reads in one directory. It ends with the value; if the tests are killed, the kernel ends it.

use linux::sys::{ChildSetup, Tie};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long it may take until it lets us in.
const READY: Duration = Duration::from_secs(120);
/// Somebody else may take the port that was free a moment ago.
const ATTEMPTS: usize = 5;
/// Debian's sshd wants this directory where it runs as root.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

pub(crate) struct Sshd {
    directory: tempfile::TempDir,
    daemon: Child,
    port: u16,
    user: String,
}

impl Sshd {
    /// Starts it and waits until it lets us in. `None`, with a word on standard error, where that
    /// cannot be.
    pub(crate) fn start(test: &str) -> Option<Self> {
        for program in ["sshd", "ssh", "ssh-keygen", "nc"] {
            if program_in_path(program).is_none() {
                eprintln!("SKIPPED {test}: no {program}");
                return None;
            }
        }
        // The far side of libvirt's ssh; not every nc knows sockets that are files.
        let help = Command::new("nc").arg("-h").stdin(Stdio::null()).output().expect("nc");
        if ![help.stdout, help.stderr].iter().any(|text| String::from_utf8_lossy(text).contains("-U")) {
            eprintln!("SKIPPED {test}: nc has no option -U (package netcat-openbsd)");
            return None;
        }
        for _ in 0..ATTEMPTS {
            let mut this = Self::spawn();
            match this.wait_until_ready() {
                Ok(()) => return Some(this),
                Err(Refusal::Ended) => {}
                Err(Refusal::Account) => {
                    eprintln!("SKIPPED {test}: sshd does not let this user in: {}", this.log());
                    return None;
                }
            }
        }
        panic!("sshd does not start");
    }

    fn spawn() -> Self {
        if linux::sys::effective_user_id() == 0 {
            // It stays, empty: another sshd may have been started meanwhile, and would refuse every
            // connection without it.
            std::fs::create_dir_all(PRIVILEGE_SEPARATION).expect("a directory");
        }
        let directory = tempfile::Builder::new().prefix("hnssh").tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        for key in ["host", "user", "stranger"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]).stdin(Stdio::null());
            assert!(keygen.status().expect("ssh-keygen").success(), "no key");
        }
        let text = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("a file");
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
        write("authorized", &text("user.pub"));
        write("known_hosts", &format!("[127.0.0.1]:{port} {}", text("host.pub")));
        write("no_hosts", "");
        let server = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes \
            no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel VERBOSE\n",
            at("host"),
            at("authorized")
        );
        write("sshd_config", &server);
        // The user's own keys and known hosts are neither read nor written.
        for (name, hosts) in [("ssh", "known_hosts"), ("ssh_to_stranger", "no_hosts")] {
            let options = format!(
                "IdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {}\nGlobalKnownHostsFile /dev/null\n",
                at(hosts)
            );
            write(&format!("{name}_config"), &options);
            let script = format!("exec ssh -F {} \"$@\"", at(&format!("{name}_config")));
            crate::common::write_script(&directory.path().join(name), &script);
        }
        let daemon = daemon(directory.path());
        let user = Command::new("id").arg("-un").output().expect("id").stdout;
        let user = String::from_utf8(user).expect("UTF-8").trim().to_owned();
        Self { directory, daemon, port, user }
    }

    fn wait_until_ready(&mut self) -> Result<(), Refusal> {
        let deadline = Instant::now() + READY;
        loop {
            let said = self.ssh_true();
            if said.status.success() {
                return Ok(());
            }
            if self.daemon.try_wait().expect("a child").is_some() {
                return Err(Refusal::Ended);
            }
            // 255 is ssh's own failure; any other is that of the account's shell.
            if said.status.code() != Some(255) || self.log().contains("not allowed because") {
                return Err(Refusal::Account);
            }
            let words = String::from_utf8_lossy(&said.stderr);
            assert!(Instant::now() < deadline, "sshd does not let us in: {words}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ssh_true(&self) -> Output {
        let mut ssh = Command::new(self.at("ssh"));
        ssh.args(["-o", "BatchMode=yes", "-i"]).arg(self.at("user")).args(["-p", &self.port.to_string()]);
        ssh.arg(format!("{}@127.0.0.1", self.user)).arg("true").stdin(Stdio::null()).output().expect("ssh")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A line of a shell script that becomes ssh to this server, with what follows as its command.
    pub(crate) fn exec(&self) -> String {
        let (ssh, key) = (self.at("ssh"), self.at("user"));
        format!("exec {} -T -i {} -p {} {}@127.0.0.1", ssh.display(), key.display(), self.port, self.user)
    }

    /// The libvirt behind a socket, over this server.
    pub(crate) fn uri(&self, socket: &str) -> String {
        self.uri_with("ssh", "user", socket)
    }

    /// As [`uri`](Self::uri), with a key that the server does not know.
    pub(crate) fn uri_with_strange_key(&self, socket: &str) -> String {
        self.uri_with("ssh", "stranger", socket)
    }

    /// As [`uri`](Self::uri), for a client that has never seen this server.
    pub(crate) fn uri_of_stranger(&self, socket: &str) -> String {
        self.uri_with("ssh_to_stranger", "user", socket)
    }

    fn uri_with(&self, command: &str, key: &str, socket: &str) -> String {
        let (command, key) = (self.at(command), self.at(key));
        let options = format!("command={}&keyfile={}&socket={socket}", command.display(), key.display());
        format!("qemu+ssh://{}@127.0.0.1:{}/session?{options}", self.user, self.port)
    }
}

enum Refusal {
    /// The server ended: somebody else has the port.
    Ended,
    /// This user's account may not log in.
    Account,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        if std::thread::panicking() {
            eprintln!("sshd said:\n{}", self.log());
        }
    }
}

fn daemon(directory: &Path) -> Child {
    // It starts itself again for each connection, and wants to know where it is.
    let mut command = Command::new(program_in_path("sshd").expect("it was found before"));
    command.args(["-D", "-f"]).arg(directory.join("sshd_config")).arg("-E").arg(directory.join("log"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: Vec::new(), cpus: None, user: None };
    linux::sys::spawn(command, setup).expect("sshd")
}

/// Daemons are where an ordinary user's PATH does not look.
fn program_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|directory| directory.join(program)).find(|path| path.exists())
}
