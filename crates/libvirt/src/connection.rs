//! One libvirt, by its URI.

use crate::LibvirtError;
use crate::error::Which;
use crate::virsh::{self, Said};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;
use topology::input::one_line;
use topology::limits::LONGEST_MESSAGE;
use topology::words::quoted;

/// How long libvirt has for an answer, ssh's connection included.
const ANSWER: Duration = Duration::from_secs(30);
/// The kernel takes no argument of more than 128 KiB (MAX_ARG_STRLEN): longer batches are several.
const LONGEST_BATCH: usize = 96 << 10;
/// What a command reads that is given a text. Unlike `/dev/stdin` it is there wherever there are
/// processes.
pub(crate) const STDIN: &str = "/proc/self/fd/0";

/// One libvirt, by its URI; without one, the one that `virsh` takes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    uri: Option<String>,
    limit: Duration,
    /// Whether a libvirt of this user's own (`qemu:///session`) is started where none runs.
    starts_session: bool,
}

impl Connection {
    /// Nothing is asked before the first call. A libvirt that was named is started as `virsh` does
    /// it: if it is this user's own (`qemu:///session`) and does not run. One that is only looked
    /// for is not.
    pub fn new(uri: Option<&str>) -> Self {
        Self { uri: uri.map(str::to_owned), limit: ANSWER, starts_session: uri.is_some() }
    }

    /// One of this host that was found, not named: it is not started.
    pub fn of_this_host(uri: &str) -> Self {
        Self { starts_session: false, ..Self::new(Some(uri)) }
    }

    /// The same libvirt, started where it is this user's own and does not run, also if it was not
    /// named.
    #[must_use]
    pub fn starting_session(&self) -> Self {
        Self { starts_session: true, ..self.clone() }
    }

    /// The same libvirt, with another time for each answer than 30 s.
    #[must_use]
    pub fn with_limit(&self, limit: Duration) -> Self {
        Self { limit, ..self.clone() }
    }

    /// The URI that it was made with.
    pub fn uri(&self) -> Option<&str> {
        self.uri.as_deref()
    }

    /// How a person calls `virsh` for this libvirt in a shell.
    pub fn command_by_hand(&self) -> String {
        self.uri.as_deref().map_or_else(|| "virsh".to_owned(), |uri| format!("virsh --connect {}", quoted(uri)))
    }

    /// The URI as libvirt says it: also where none was given.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn effective_uri(&self) -> Result<String, LibvirtError> {
        Ok(self.ask(&["uri"])?.trim().to_owned())
    }

    /// The host that it speaks of, where that is another one than this: the one that the URI names.
    /// libvirt is asked only where the given URI names none: it may be an alias (`uri_aliases` of
    /// libvirt.conf), or virsh's own choice.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn other_host(&self) -> Result<Option<String>, LibvirtError> {
        match self.uri.as_deref().and_then(host_of) {
            Some(host) => Ok(Some(host)),
            None => Ok(host_of(&self.effective_uri()?)),
        }
    }

    /// What `virsh` prints for a command and its arguments; none of them is quoted.
    ///
    /// # Errors
    /// There is no `virsh`, libvirt cannot be reached, it refuses, or it does not answer in time.
    pub fn ask(&self, command: &[&str]) -> Result<String, LibvirtError> {
        self.ask_with(command, None)
    }

    /// Has libvirt forget a domain, with the variables of its UEFI firmware, which libvirt keeps
    /// otherwise and then does not forget the domain. Not every driver of libvirt knows of those.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn undefine(&self, uuid: &str) -> Result<String, LibvirtError> {
        match self.ask(&["undefine", "--domain", uuid]) {
            Err(error) if error.to_string().contains("with nvram") => {
                self.ask(&["undefine", "--domain", uuid, "--nvram"])
            }
            undefined => undefined,
        }
    }

    /// As [`ask`](Self::ask), with a text that the command reads as the file `/proc/self/fd/0`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_with(&self, command: &[&str], input: Option<&str>) -> Result<String, LibvirtError> {
        let mut arguments = self.arguments();
        arguments.extend(command.iter().map(|&word| word.to_owned()));
        let said = virsh::run(&arguments, input, self.limit, self.starts_session)?;
        if said.success { Ok(said.output) } else { Err(self.failure(&command.join(" "), &said.errors)) }
    }

    /// Several commands in as few runs of `virsh` as possible, since each run over ssh is a
    /// connection of its own. Answers in the order of the commands; one that fails does not hinder
    /// the others.
    ///
    /// # Errors
    /// There is no `virsh`, libvirt cannot be reached, or it does not answer in time.
    pub fn ask_all(&self, commands: &[Vec<String>]) -> Result<Vec<Result<String, LibvirtError>>, LibvirtError> {
        let mut answers = Vec::with_capacity(commands.len());
        let (mut batch, mut first, mark) = (String::new(), 0, mark());
        for (index, command) in commands.iter().enumerate() {
            let text = batched(command, &mark);
            if !batch.is_empty() && batch.len() + text.len() > LONGEST_BATCH {
                answers.extend(self.run_batch(&std::mem::take(&mut batch), &mark, &commands[first..index])?);
                first = index;
            }
            batch += &text;
        }
        if !batch.is_empty() {
            answers.extend(self.run_batch(&batch, &mark, &commands[first..])?);
        }
        Ok(answers)
    }

    fn run_batch(
        &self,
        batch: &str,
        mark: &str,
        commands: &[Vec<String>],
    ) -> Result<Vec<Result<String, LibvirtError>>, LibvirtError> {
        let mut arguments = self.arguments();
        arguments.push(batch.to_owned());
        let names: Vec<String> = commands.iter().map(|command| command.join(" ")).collect();
        let said =
            virsh::run(&arguments, None, self.limit, self.starts_session).map_err(|error| name_batch(error, &names))?;
        let all = || match names.len() {
            1 => names[0].clone(),
            count => format!("{} and {} more commands", names[0], count - 1),
        };
        let answers = split(&said, mark, names.len()).ok_or_else(|| self.failure(&all(), &said.errors))?;
        let answer = |((output, errors), name): ((String, String), &String)| {
            let failed = errors.lines().any(|line| line.starts_with("error:"));
            if failed { Err(self.failure(name, &errors)) } else { Ok(output) }
        };
        let answers: Vec<_> = answers.into_iter().zip(&names).map(answer).collect();
        // Then it could not be reached for the others either.
        match answers.iter().find_map(|answer| answer.as_ref().err().filter(|error| error.is_of_connection())) {
            Some(error) => Err(error.clone()),
            None => Ok(answers),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--quiet".to_owned()];
        if let Some(uri) = &self.uri {
            arguments.extend(["--connect".to_owned(), without_terminal(uri)]);
        }
        arguments
    }

    fn failure(&self, operation: &str, errors: &str) -> LibvirtError {
        LibvirtError::told(&self.which(), operation, errors)
    }

    pub(crate) fn which(&self) -> Which {
        Which(self.uri.clone())
    }

    /// An answer that is not what it should be.
    pub(crate) fn strange(&self, operation: &str, problem: impl Into<String>) -> LibvirtError {
        let problem = one_line(&problem.into(), LONGEST_MESSAGE);
        LibvirtError::Answer { libvirt: self.which(), operation: operation.to_owned(), problem }
    }
}

/// ssh asks the person at the terminal unless the URI says that there is none.
fn without_terminal(uri: &str) -> String {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    if !scheme.ends_with("+ssh") || uri.contains("no_tty=") {
        return uri.to_owned();
    }
    format!("{uri}{}no_tty=1", if uri.contains('?') { '&' } else { '?' })
}

/// `driver+transport://user@host:port/path?parameters`: the host, if there is one.
fn host_of(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    (!host.is_empty()).then(|| host.to_owned())
}

/// Stands between the answers of a batch. Nobody who writes a domain's name or description can know
/// it.
fn mark() -> String {
    format!("-- homenode: end of answer {:016x} --", RandomState::new().build_hasher().finish())
}

/// A command of a batch: every word quoted as for a shell, which is how `virsh` reads it, and marks
/// after its answer on both outputs.
fn batched(command: &[String], mark: &str) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    format!("{}; echo '{mark}'; echo --err '{mark}'; ", words.join(" "))
}

/// A batch that had no answer in time, by its commands instead of all that stands between them.
fn name_batch(error: LibvirtError, names: &[String]) -> LibvirtError {
    match (error, names) {
        (LibvirtError::Timeout { seconds, .. }, [first]) => LibvirtError::Timeout { operation: first.clone(), seconds },
        (LibvirtError::Timeout { seconds, .. }, [first, rest @ ..]) => {
            LibvirtError::Timeout { operation: format!("{first} and {} more", rest.len()), seconds }
        }
        (error, _) => error,
    }
}

/// The answers between the marks: what each command wrote on standard output and on standard error.
/// `None` if marks are missing: then `virsh` understood a command otherwise, and ran none of them.
fn split(said: &Said, mark: &str, commands: usize) -> Option<Vec<(String, String)>> {
    let parts = |text: &str, end: &str| -> Option<Vec<String>> {
        // Some versions of `virsh` end the line after what `echo` says, others do not.
        let part = |part: &str| part.strip_prefix('\n').unwrap_or(part).to_owned();
        let mut parts: Vec<String> = text.split(end).map(part).collect();
        parts.pop();
        (parts.len() == commands).then_some(parts)
    };
    // What `echo` writes on standard error it calls an error.
    let errors = parts(&said.errors, &format!("error: {mark}"))?;
    Some(parts(&said.output, mark)?.into_iter().zip(errors).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_is_told_that_nobody_is_there() {
        assert_eq!(without_terminal("qemu+ssh://h/system"), "qemu+ssh://h/system?no_tty=1");
        assert_eq!(without_terminal("qemu+ssh://h/system?keyfile=k"), "qemu+ssh://h/system?keyfile=k&no_tty=1");
        assert_eq!(without_terminal("qemu+ssh://h/system?no_tty=0"), "qemu+ssh://h/system?no_tty=0");
        assert_eq!(without_terminal("qemu:///system"), "qemu:///system");
    }

    #[test]
    fn a_host_is_the_one_of_the_uri() {
        let host = |uri: &str| host_of(uri);
        for here in ["qemu:///system", "qemu+unix:///session?socket=/a@b/c", "test:///default", "test:///a//b@c"] {
            assert_eq!(host(here), None, "{here}");
        }
        assert_eq!(host("qemu+ssh://root@node7:22/system?no_tty=1").unwrap(), "node7");
        assert_eq!(host("qemu+tls://[fe80::1]:16514/system").unwrap(), "fe80::1");
    }

    #[test]
    fn answers_are_told_apart_by_their_marks() {
        let (mark, other) = (mark(), mark());
        assert!(mark != other && batched(&[], &mark).contains(&format!("--err '{mark}'")));
        let said = Said {
            success: true,
            output: format!("a\nb\n{mark}{mark}"),
            errors: format!("error: {mark}\nerror: no\nerror: {mark}\n"),
        };
        let answers = split(&said, &mark, 2).unwrap();
        assert_eq!(answers[0], ("a\nb\n".to_owned(), String::new()));
        assert_eq!(answers[1], (String::new(), "error: no\n".to_owned()));
        assert!(split(&said, &mark, 3).is_none() && split(&said, &other, 2).is_none());
    }
}
