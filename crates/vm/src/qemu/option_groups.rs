//! A whole command line as QEMU takes it: which word is an option, which its value, what is merged
//! with what, and what comes from configuration files.
//!
//! **Problem.** Scripts append options to those that they were given, distributions keep them in
//! files, and of an option that is there twice sometimes the last counts, sometimes both.
//!
//! **Rule** (QEMU's system/vl.c, util/qemu-config.c). Options come in their order, a file's where
//! it is named. All that is said of the machine, of its CPUs and memory and of the guest's name is
//! one description, of which the last word for each key counts: `-smp 4` is `smp.cpus=4` of
//! `-machine`, and `-m` counts more than `memory.size`. Of an option with one value the last
//! counts. Each `-object`, `-device`, `-numa` is one more. `-set` changes one that is there.
//!
//! **Properties.** What a file says that cannot be read is unknown, and so is the whole VM: no
//! default stands for it.
//!
//! **Example.** `-smp 2,sockets=2 -smp 4`: 4 vCPUs in 2 sockets.

use super::config_file;
use super::flags;
use super::options::Options;
use std::collections::BTreeMap;
use std::fmt;

/// Reads a configuration file of a process: its text, or why it cannot be read.
pub type ReadFile<'a> = dyn FnMut(&str) -> Result<String, UnreadBecause> + 'a;

/// Why a configuration file cannot be read, or is not that which QEMU read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadBecause {
    /// There is none.
    #[error("there is no such file (any more)")]
    Gone,
    /// Only a command line is at hand.
    #[error("files of other hosts are not read")]
    Elsewhere,
    /// Anybody could have made it.
    #[error("neither its user nor that of the VM is trusted; the VM's user can ask")]
    Untrusted,
    /// It is younger than the process.
    #[error("it changed since QEMU read it")]
    Changed,
    /// It is no UTF-8.
    #[error("it is no text")]
    NoText,
    /// A line that QEMU does not take, from 1.
    #[error("line {0} is none that QEMU takes")]
    Line(usize),
    /// More files than are read.
    #[error("more than {MOST_FILES} files")]
    TooMany,
    /// The system says why.
    #[error("{0}")]
    Failed(String),
}

/// A configuration file of which nobody knows what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadFile {
    /// As it is named on the command line.
    pub file: String,
    /// Why.
    pub why: UnreadBecause,
}

impl fmt::Display for UnreadFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "its options in {} cannot be read: {}", topology::input::excerpt(&self.file), self.why)
    }
}

/// The options of a QEMU.
#[derive(Debug)]
pub struct OptionGroups<'a> {
    arguments: &'a [String],
    given: Vec<Given>,
    /// Places in `given`, by group and id: the first that has it, as QEMU finds it.
    by_id: BTreeMap<(String, String), usize>,
    /// Places of the groups that are one description.
    merged: BTreeMap<&'static str, usize>,
    unread: Option<UnreadFile>,
    files: usize,
}

/// One option.
#[derive(Debug)]
struct Given {
    group: String,
    /// Its value as it stands, where it stands on the command line.
    text: String,
    options: Options,
}

/// What QEMU reads of itself, where nobody forbids it.
const USUAL_FILE: &str = "/etc/qemu/qemu.conf";
/// Configuration files of a VM: QEMU has no limit.
const MOST_FILES: usize = 16;

/// Words among which a loader's program is.
const LOADERS_WORDS: usize = 8;

/// The group of an option whose value has keys, and the key of a first word without one.
fn group_of(option: &str) -> Option<(&'static str, &'static str)> {
    Some(match option {
        "m" | "memory" => ("memory", "size"),
        "smp" | "smp-opts" => ("smp-opts", "cpus"),
        "machine" | "M" => ("machine", "type"),
        "name" => ("name", "guest"),
        "object" => ("object", "qom-type"),
        "device" => ("device", "driver"),
        "numa" => ("numa", "type"),
        "netdev" => ("netdev", "type"),
        "chardev" => ("chardev", "backend"),
        "mon" => ("mon", "chardev"),
        "smbios" => ("smbios", ""),
        "overcommit" => ("overcommit", ""),
        "realtime" => ("realtime", ""),
        _ => return None,
    })
}

impl<'a> OptionGroups<'a> {
    /// Reads program and arguments, of which no file can be read.
    pub fn of(arguments: &'a [String]) -> Self {
        Self::with_files(arguments, &mut |_| Err(UnreadBecause::Elsewhere))
    }

    /// Reads program and arguments, and the files that they name.
    pub fn with_files(arguments: &'a [String], read: &mut ReadFile<'_>) -> Self {
        let mut this = Self {
            arguments,
            given: Vec::new(),
            by_id: BTreeMap::new(),
            merged: BTreeMap::new(),
            unread: None,
            files: 0,
        };
        let words = words(arguments);
        if !words.iter().any(|(option, _)| matches!(*option, "no-user-config" | "nodefconfig"))
            && let Ok(text) = read(USUAL_FILE)
        {
            this.add_file(USUAL_FILE, &text);
        }
        for (option, value) in words {
            match option {
                "readconfig" => this.read_config(value, read),
                "set" => this.set(value),
                option => match group_of(option) {
                    Some((group, implied)) => this.add(group, value, Options::parse(value, implied)),
                    None => this.add(option, value, Options::default()),
                },
            }
        }
        this
    }

    fn read_config(&mut self, file: &str, read: &mut ReadFile<'_>) {
        self.files += 1;
        let text = if self.files > MOST_FILES { Err(UnreadBecause::TooMany) } else { read(file) };
        match text {
            Ok(text) => self.add_file(file, &text),
            Err(why) => self.unread = Some(UnreadFile { file: file.to_owned(), why }),
        }
    }

    fn add_file(&mut self, file: &str, text: &str) {
        match config_file::parse(text) {
            Ok(sections) => sections.into_iter().for_each(|(group, options)| self.add(&group, "", options)),
            Err(line) => self.unread = Some(UnreadFile { file: file.to_owned(), why: UnreadBecause::Line(line) }),
        }
    }

    /// Adds an option, or merges it with what was said before.
    fn add(&mut self, group: &str, text: &str, options: Options) {
        let (single, prefix) = match group {
            "machine" => (Some("machine"), ""),
            "smp-opts" => (Some("machine"), "smp."),
            "memory" => (Some("memory"), ""),
            "name" => (Some("name"), ""),
            _ => (None, ""),
        };
        if let Some(place) = single.and_then(|single| self.merged.get(single)) {
            return self.given[*place].options.merge(options, prefix);
        }
        let mut own = Options::default();
        if let Some(single) = single {
            self.merged.insert(single, self.given.len());
            own.merge(options, prefix);
        } else {
            own = options;
        }
        if let Some(id) = own.get("id") {
            self.by_id.entry((group.to_owned(), id.to_owned())).or_insert(self.given.len());
        }
        self.given.push(Given { group: single.unwrap_or(group).to_owned(), text: text.to_owned(), options: own });
    }

    /// `-set GROUP.ID.KEY=VALUE`.
    fn set(&mut self, value: &str) {
        let Some((place, value)) = value.split_once('=') else { return };
        let mut parts = place.splitn(3, '.');
        let (Some(group), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else { return };
        if let Some(place) = self.by_id.get(&(group.to_owned(), id.to_owned())) {
            self.given[*place].options.add(key, value);
        }
    }

    /// The words as they stand, the program first.
    pub(crate) fn arguments(&self) -> &'a [String] {
        self.arguments
    }

    /// The program; of one that a loader runs (`ld-linux.so.2 PROGRAM ...`) that one.
    pub(crate) fn program(&self) -> &'a str {
        let Some(first) = self.arguments.first() else { return "" };
        let is_loader = first.rsplit('/').next().is_some_and(|name| name.starts_with("ld-") || name.starts_with("ld."));
        let loaded = || self.arguments.iter().take(LOADERS_WORDS).find(|word| super::is_qemu(word));
        if is_loader { loaded().unwrap_or(first) } else { first }
    }

    /// A file of which nobody knows what it said.
    pub fn unread(&self) -> Option<&UnreadFile> {
        self.unread.as_ref()
    }

    /// Every option of a group, in order.
    pub(crate) fn all(&self, group: &str) -> impl Iterator<Item = &Options> {
        self.given.iter().filter(move |given| given.group == group).map(|given| &given.options)
    }

    /// One value of a description (`machine`, `memory`, `name`).
    pub(crate) fn one(&self, group: &str, key: &str) -> Option<&str> {
        self.given.get(*self.merged.get(group)?)?.options.get(key)
    }

    /// The value of an option that has one, without keys: of several the last.
    pub(crate) fn text(&self, option: &str) -> Option<&str> {
        self.texts(option).last()
    }

    /// The values of all options of this name, as they stand.
    pub(crate) fn texts(&self, option: &str) -> impl Iterator<Item = &str> {
        self.given.iter().filter(move |given| given.group == option).map(|given| given.text.as_str())
    }

    /// Whether an option is there.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.texts(option).next().is_some()
    }
}

/// Each option with its value; `--option` is `-option`. What is no option is a disk.
///
/// An option takes the next word whatever it is. One that QEMU does not know (a patched one has
/// more) takes it unless it looks like an option.
fn words(arguments: &[String]) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = arguments.iter().skip(1).map(String::as_str).peekable();
    while let Some(word) = rest.next() {
        let Some(option) = word.strip_prefix('-') else { continue };
        let option = option.strip_prefix('-').unwrap_or(option);
        let takes = !flags::is_flag(option)
            && (flags::takes_a_value(option) || rest.peek().is_some_and(|next| !next.starts_with('-')));
        found.push((option, if takes { rest.next().unwrap_or_default() } else { "" }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_last_word_for_each_key_of_the_machine_counts() {
        let line =
            arguments("qemu -smp 2,sockets=2 -M q35,smp.cpus=3 --smp cpus=4 -name a -name guest=b -uuid 1 -uuid 2");
        let groups = OptionGroups::of(&line);
        let machine = |key: &str| groups.one("machine", key);
        assert_eq!([machine("type"), machine("smp.cpus"), machine("smp.sockets")], [Some("q35"), Some("4"), Some("2")]);
        assert_eq!((groups.one("name", "guest"), groups.text("uuid"), groups.unread()), (Some("b"), Some("2"), None));
    }

    #[test]
    fn an_option_takes_the_next_word_whatever_it_is() {
        let line =
            arguments("qemu -S -append -smp -nographic disk.img -m 64 -new-one x -new-flag -enable-kvm -smp 2 -hda");
        let groups = OptionGroups::of(&line);
        assert_eq!((groups.text("append"), groups.one("machine", "smp.cpus")), (Some("-smp"), Some("2")));
        assert!(groups.has("nographic") && groups.has("enable-kvm") && groups.text("new-one") == Some("x"));
        assert_eq!((groups.one("memory", "size"), groups.text("hda")), (Some("64"), Some("")));
    }

    #[test]
    fn a_file_counts_where_it_is_named_and_set_changes_what_is_there() {
        let line = arguments("qemu -m 32 -readconfig a.cfg -smp 8 -set device.d.node=1 -set device.none.node=2 -set x");
        let text = "[memory]\n size = \"64\"\n[smp-opts]\n cpus = \"4\"\n sockets = \"2\"\n[device \"d\"]\n driver = \"pc-dimm\"\n";
        let groups = OptionGroups::with_files(&line, &mut |file| {
            if file == "a.cfg" { Ok(text.to_owned()) } else { Err(UnreadBecause::Gone) }
        });
        let machine = |key: &str| groups.one("machine", key);
        assert_eq!(
            (groups.one("memory", "size"), machine("smp.cpus"), machine("smp.sockets")),
            (Some("64"), Some("8"), Some("2"))
        );
        let device = groups.all("device").next().expect("a device");
        assert_eq!((device.get("driver"), device.number("node")), (Some("pc-dimm"), Some(1)));
    }

    #[test]
    fn what_a_file_said_that_cannot_be_read_is_unknown() {
        let line = arguments("qemu -readconfig a.cfg");
        let said = |read: Result<&str, UnreadBecause>| {
            let read = read.map(str::to_owned);
            let mut files = |file: &str| if file == USUAL_FILE { Err(UnreadBecause::Gone) } else { read.clone() };
            OptionGroups::with_files(&line, &mut files).unread().map(ToString::to_string)
        };
        assert_eq!(said(Ok("[memory]\nsize = \"1\"\n")), None);
        let unknown = "its options in a.cfg cannot be read: ";
        assert_eq!(said(Err(UnreadBecause::Gone)), Some(format!("{unknown}there is no such file (any more)")));
        assert_eq!(said(Err(UnreadBecause::Failed("a pipe".to_owned()))), Some(format!("{unknown}a pipe")));
        assert_eq!(said(Ok("[memory]\nsize = 1\n")), Some(format!("{unknown}line 2 is none that QEMU takes")));
    }
}
