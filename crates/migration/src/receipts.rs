//! Where the destination decides whether a guest is here: one file a receipt, made once.
//!
//! **Rule.** The file holds `here` or `never`. It is made whole and only where there is none: who
//! comes second learns what the first one decided. It is on disk before anybody acts on it, and
//! stays until the source has said that its own guest has ended. One `here` can be taken back: by
//! a destination whose QEMU does not let the guest run, and only as long as nobody was told
//! ([`Receipts::take_back`], [`Receipts::tell`]: one of the two, under a lock on the file).
//!
//! **Example.** The link was cut after `go`. The source asks anew: no file, so `never` is written,
//! and the source's guest goes on. A `go` that is read only now finds `never`, and the QEMU there
//! ends.

use crate::MigrationError;
use crate::protocol::is_receipt;
use inventory::Inventory;
use linux::named_file::{self, NewFile};
use linux::sys::try_lock;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// In the directory of the VMs that are kept; no VM's name begins with a dot.
const DIRECTORY: &str = ".receipts";
/// Most bytes that are read of one.
const LONGEST_WORD: u64 = 16;
/// What stands instead of `here` once the source was told so.
const TOLD: &str = "here, told\n";
/// How long somebody may have a receipt who lets its guest run before he says so: QEMU's monitor
/// may take a while.
const LETS_RUN: Duration = Duration::from_secs(45);
/// How often somebody who waits for that looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The guest is at the destination, for good.
    Here,
    /// It is not, and will not be.
    Never,
}

impl Decision {
    fn word(self) -> &'static str {
        match self {
            Self::Here => "here\n",
            Self::Never => "never\n",
        }
    }
}

/// The receipts of the VMs that are kept in a directory.
#[derive(Clone, Debug)]
pub struct Receipts {
    inventory: Inventory,
    directory: PathBuf,
}

impl Receipts {
    /// Those beside the VMs of an inventory.
    pub fn of(inventory: &Inventory) -> Self {
        Self { inventory: inventory.clone(), directory: inventory.path().join(DIRECTORY) }
    }

    fn path(&self, receipt: &str) -> Result<PathBuf, MigrationError> {
        let no_receipt =
            || MigrationError::BadInput(format!("{receipt:?} is no receipt: 32 hexadecimal digits are one"));
        is_receipt(receipt).then(|| self.directory.join(receipt)).ok_or_else(no_receipt)
    }

    /// Decides, where nobody has; says what stands.
    ///
    /// # Errors
    /// It can be neither read nor written: nothing was decided.
    pub fn decide(&self, receipt: &str, decision: Decision) -> Result<Decision, MigrationError> {
        let path = self.path(receipt)?;
        self.inventory.check()?;
        let write = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            draft(&path, decision.word())?.take_free_place().map(drop)
        };
        let written = write();
        let decide = || match read(&path)? {
            Some(stands) => File::open(&self.directory)?.sync_all().map(|()| stands),
            None => Err(written.err().unwrap_or_else(|| ErrorKind::NotFound.into())),
        };
        decide().map_err(MigrationError::io(format!("write {}", path.display())))
    }

    /// What was decided; `None` where nothing is known of the receipt.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn decided(&self, receipt: &str) -> Result<Option<Decision>, MigrationError> {
        let path = self.path(receipt)?;
        read(&path).map_err(MigrationError::io(format!("read {}", path.display())))
    }

    /// Says what was decided to the source: does what has to be done before it is told (`first`),
    /// and writes down that it was. From then on it cannot be taken back.
    ///
    /// # Errors
    /// `first` failed, or it cannot be written: the source must not be told.
    pub fn tell(
        &self,
        receipt: &str,
        first: impl FnOnce(Decision) -> Result<(), MigrationError>,
    ) -> Result<Decision, MigrationError> {
        let path = self.path(receipt)?;
        let cannot = || MigrationError::io(format!("write {}", path.display()));
        let _lock = lock(&path).map_err(cannot())?;
        let decision = self.decided(receipt)?.unwrap_or(Decision::Never);
        first(decision)?;
        if decision == Decision::Here {
            self.replace(&path, TOLD).map_err(cannot())?;
        }
        Ok(decision)
    }

    /// Takes `here` back: `never` from now on. False where the source was told already that the
    /// guest is here.
    ///
    /// # Errors
    /// It cannot be written: `here` stands.
    pub fn take_back(&self, receipt: &str) -> Result<bool, MigrationError> {
        let path = self.path(receipt)?;
        let take = || {
            let _lock = lock(&path)?;
            if named_file::read(&path, LONGEST_WORD, &[])? == TOLD.as_bytes() {
                return Ok(false);
            }
            self.replace(&path, Decision::Never.word()).map(|()| true)
        };
        take().map_err(MigrationError::io(format!("write {}", path.display())))
    }

    fn replace(&self, path: &Path, word: &str) -> io::Result<()> {
        draft(path, word)?.take_place()?;
        File::open(&self.directory)?.sync_all()
    }

    /// Forgets a receipt that nobody will ask for.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget(&self, receipt: &str) -> Result<(), MigrationError> {
        let path = self.path(receipt)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(MigrationError::io(format!("remove {}", path.display()))(error))
            }
            _ => {
                // It is there for the next one.
                let _ = fs::remove_dir(&self.directory);
                Ok(())
            }
        }
    }
}

/// A file beside a receipt's place, with a word that is on disk.
fn draft(path: &Path, word: &str) -> io::Result<NewFile> {
    let mut draft = NewFile::beside(path, &linux::sys::thread_id().to_string(), &[])?;
    // Its lock is nobody else's to hold.
    draft.file.set_permissions(Permissions::from_mode(0o600))?;
    draft.file.write_all(word.as_bytes())?;
    draft.file.sync_all()?;
    Ok(draft)
}

/// The receipt's file, until the value is dropped nobody else's to tell or to take back.
fn lock(path: &Path) -> io::Result<File> {
    let deadline = Instant::now() + LETS_RUN;
    loop {
        let file = named_file::open(path, &[])?;
        let ours = try_lock(&file)?;
        // It may have been replaced before the lock was ours.
        if ours && file.metadata()?.ino() == path.symlink_metadata()?.ino() {
            return Ok(file);
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(ErrorKind::TimedOut, "another homenode has it"));
        }
        if !ours {
            thread::sleep(LOOK_AGAIN);
        }
    }
}

fn read(path: &Path) -> io::Result<Option<Decision>> {
    let word = match named_file::read(path, LONGEST_WORD, &[]) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        word => word?,
    };
    match [Decision::Here, Decision::Never].into_iter().find(|decision| decision.word().as_bytes() == word) {
        Some(decision) => Ok(Some(decision)),
        None if word == TOLD.as_bytes() => Ok(Some(Decision::Here)),
        None => Err(io::Error::new(ErrorKind::InvalidData, "it holds neither `here` nor `never`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_stands_whoever_asks() {
        let root = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(&Inventory::at(root.path().to_owned()));
        let (one, other) = ("1".repeat(32), "2".repeat(32));
        assert_eq!(receipts.decided(&one).unwrap(), None);
        assert_eq!(receipts.decide(&one, Decision::Never).unwrap(), Decision::Never);
        assert_eq!(receipts.decide(&one, Decision::Here).unwrap(), Decision::Never);
        assert_eq!(receipts.decide(&other, Decision::Here).unwrap(), Decision::Here);
        assert_eq!(receipts.decided(&other).unwrap(), Some(Decision::Here));
        receipts.forget(&one).unwrap();
        receipts.forget(&other).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        assert!(receipts.decide("../x", Decision::Here).is_err());
    }

    /// A file of any other name was emptied through a link.
    #[test]
    fn nothing_is_decided_through_a_link_or_where_others_may_write() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(&Inventory::at(root.path().to_owned()));
        let (receipt, other) = ("3".repeat(32), root.path().join("crontab"));
        fs::write(&other, "here\n").unwrap();
        fs::create_dir(root.path().join(DIRECTORY)).unwrap();
        symlink(&other, receipts.path(&receipt).unwrap()).unwrap();
        let draft = format!("{receipt}.{}", linux::sys::thread_id());
        symlink(&other, root.path().join(DIRECTORY).join(draft)).unwrap();
        assert!(receipts.decide(&receipt, Decision::Never).is_err());
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = receipts.decide(&"4".repeat(32), Decision::Never).unwrap_err().to_string();
        assert!(error.contains("others may write to it"), "{error}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "here\n");
    }

    /// `here` became `never` after the source was told `here` and had ended its guest.
    #[test]
    fn what_the_source_was_told_is_not_taken_back() {
        let root = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(&Inventory::at(root.path().to_owned()));
        for round in 0..50 {
            let receipt = format!("{round:032x}");
            receipts.decide(&receipt, Decision::Here).unwrap();
            let (asked, of_source) = (receipts.clone(), receipt.clone());
            let told = thread::spawn(move || asked.tell(&of_source, |_| Ok(())));
            let back = receipts.take_back(&receipt).unwrap();
            let told = told.join().unwrap().unwrap();
            assert_eq!(told == Decision::Never, back, "round {round}");
            assert_eq!(receipts.decided(&receipt).unwrap(), Some(told));
            receipts.forget(&receipt).unwrap();
        }
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        // What cannot be done first is not told, and can be taken back.
        let receipt = "5".repeat(32);
        receipts.decide(&receipt, Decision::Here).unwrap();
        assert!(receipts.tell(&receipt, |_| Err(MigrationError::called_off("b"))).is_err());
        assert!(receipts.take_back(&receipt).unwrap());
        assert!(receipts.take_back(&"6".repeat(32)).is_err(), "nothing was decided");
    }

    #[test]
    fn of_many_that_decide_at_once_all_learn_the_same() {
        let root = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(&Inventory::at(root.path().to_owned()));
        for round in 0..20 {
            let receipt = format!("{round:032x}");
            let decide = |decision| {
                let (receipts, receipt) = (receipts.clone(), receipt.clone());
                std::thread::spawn(move || receipts.decide(&receipt, decision))
            };
            let (one, other) = (decide(Decision::Here), decide(Decision::Never));
            assert_eq!(one.join().unwrap().unwrap(), other.join().unwrap().unwrap());
        }
    }
}
