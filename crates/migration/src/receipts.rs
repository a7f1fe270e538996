//! Where the destination decides whether a guest is here: one file a receipt, made once.
//!
//! **Rule.** The file holds `here` or `never`. It is made whole and only where there is none: who
//! comes second learns what the first one decided. It is on disk before anybody acts on it, and
//! stays until the source has said that its own guest has ended.
//!
//! **Example.** The link was cut after `go`. The source asks anew: no file, so `never` is written,
//! and the source's guest goes on. A `go` that is read only now finds `never`, and the QEMU there
//! ends.

use crate::MigrationError;
use crate::protocol::is_receipt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// In the directory of the VMs that are kept; no VM's name begins with a dot.
const DIRECTORY: &str = ".receipts";

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
pub struct Receipts(PathBuf);

impl Receipts {
    /// Those beside the VMs of an inventory.
    pub fn of(inventory: &inventory::Inventory) -> Self {
        Self(inventory.path().join(DIRECTORY))
    }

    fn path(&self, receipt: &str) -> Result<PathBuf, MigrationError> {
        let no_receipt =
            || MigrationError::BadInput(format!("{receipt:?} is no receipt: 32 hexadecimal digits are one"));
        is_receipt(receipt).then(|| self.0.join(receipt)).ok_or_else(no_receipt)
    }

    /// Decides, where nobody has; says what stands.
    ///
    /// # Errors
    /// It can be neither read nor written: nothing was decided.
    pub fn decide(&self, receipt: &str, decision: Decision) -> Result<Decision, MigrationError> {
        let path = self.path(receipt)?;
        let decide = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            let draft = self.0.join(format!("{receipt}.{}", linux::sys::thread_id()));
            let written = write(&draft, decision).and_then(|()| match fs::hard_link(&draft, &path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                linked => linked.and_then(|()| File::open(&self.0)?.sync_all()),
            });
            // One that stays decides nothing.
            let _ = fs::remove_file(&draft);
            written?;
            read(&path)?.ok_or_else(|| ErrorKind::NotFound.into())
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
                let _ = fs::remove_dir(&self.0);
                Ok(())
            }
        }
    }
}

fn write(path: &Path, decision: Decision) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(decision.word().as_bytes())?;
    file.sync_all()
}

fn read(path: &Path) -> io::Result<Option<Decision>> {
    let mut word = String::new();
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?.take(16).read_to_string(&mut word)?,
    };
    match [Decision::Here, Decision::Never].into_iter().find(|decision| decision.word() == word) {
        Some(decision) => Ok(Some(decision)),
        None => Err(io::Error::new(ErrorKind::InvalidData, "it holds neither `here` nor `never`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_stands_whoever_asks() {
        let root = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(&inventory::Inventory::at(root.path().to_owned()));
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

    #[test]
    fn of_many_that_decide_at_once_all_learn_the_same() {
        let root = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(&inventory::Inventory::at(root.path().to_owned()));
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
