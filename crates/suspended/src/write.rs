//! Writing the file.

use crate::head::{GUEST_AT, Head, LONGEST_ABOUT};
use crate::pipeline::{self, Into, thread_ended};
use crate::{FileError, piece};
use linux::named_file;
use linux::sys::{OPEN_NO_LINK, free_space, try_lock, wait_readable};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use topology::Bytes;
use zstd::bulk::Compressor;

/// Its owner's alone: it has all that is in the guest's memory.
const MODE: u32 = 0o600;
/// What QEMU says beside the guest's memory, at most: devices, firmware; each page has some bytes
/// more.
const DEVICES: Bytes = Bytes::from_mib(256);
/// How often somebody who waits for more looks whether it was called off.
const LOOK: Duration = Duration::from_millis(100);
/// How often is looked whether all is in the file.
const FINISHED: Duration = Duration::from_millis(2);
/// What the file takes beside the guest: head, and what each piece adds.
const OWN: Bytes = Bytes::from_mib(16);

/// A file that is being written, under another name than its own. Dropping it removes it.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    path: PathBuf,
    unfinished: PathBuf,
}

/// What was written of a guest.
#[derive(Debug)]
pub struct Written(pub(crate) Head);

impl Written {
    /// Bytes that it takes in the file.
    pub fn stored(&self) -> Bytes {
        Bytes(self.0.stored)
    }

    /// Bytes of the guest.
    pub fn guest(&self) -> Bytes {
        Bytes(self.0.guest)
    }
}

impl Unfinished {
    /// Makes the file, locked: of two that write it, one does. What a killed homenode left of it
    /// goes.
    ///
    /// # Errors
    /// There is a file of this name, somebody writes it, or none can be made.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let io = |action: &'static str| FileError::io(action, path);
        is_free(path)?;
        named_file::check_links(path).map_err(io("write"))?;
        let unfinished = unfinished(path);
        if !remove_left(&unfinished).map_err(io("replace"))? {
            return Err(FileError::Written { path: path.to_owned() });
        }
        let mut options = File::options();
        options.write(true).create_new(true).mode(MODE).custom_flags(OPEN_NO_LINK);
        let file = options.open(&unfinished).map_err(io("make"))?;
        if !try_lock(&file).map_err(io("lock"))? {
            return Err(FileError::Written { path: path.to_owned() });
        }
        let mut this = Self { file, path: path.to_owned(), unfinished };
        // Somebody may have come to the end of his since.
        is_free(path)?;
        this.file.set_len(GUEST_AT).map_err(io("write"))?;
        this.file.seek(SeekFrom::Start(GUEST_AT)).map_err(io("write"))?;
        Ok(this)
    }

    /// One whose bytes go somewhere else.
    #[cfg(test)]
    pub(crate) fn of(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), unfinished: unfinished(path) }
    }

    /// Whether there is room for a guest.
    ///
    /// # Errors
    /// There is not, or nobody can say.
    pub fn has_room(&self, guest: Bytes) -> Result<(), FileError> {
        let free = free_space(&self.file).map_err(FileError::io("look for room for", &self.path))?;
        let needed = guest.saturating_add(OWN);
        if free >= needed {
            return Ok(());
        }
        Err(FileError::NoRoom { path: self.path.clone(), needed, free, missing: needed.saturating_sub(free) })
    }

    /// Writes all that comes out of a pipe, in the background: the guest of a VM that may have so
    /// much memory. Who sends more than that makes is not believed. Once `called_off` is true it
    /// closes the pipe, also where nobody writes into it any more.
    ///
    /// # Errors
    /// The file cannot be opened once more.
    pub fn fill_from(&self, pipe: OwnedFd, memory: Bytes, called_off: Arc<AtomicBool>) -> Result<Filling, FileError> {
        let most = memory.saturating_add(Bytes(memory.0 / 64)).saturating_add(DEVICES);
        let file = self.file.try_clone().map_err(FileError::io("write", &self.path))?;
        let (mut pipe, path) = (File::from(pipe), self.path.clone());
        let all = std::thread::spawn(move || {
            let (pieces, behind) = compressed_into(file);
            let given = give(pieces, &mut pipe, most, &called_off);
            // A disk that hangs keeps what is behind, and not whoever writes into the pipe.
            drop(pipe);
            let io = || FileError::io("write", &path);
            let head = behind.join().unwrap_or_else(|_| Err(thread_ended())).map_err(io())?;
            match given.map_err(io())? {
                None => Err(FileError::CalledOff { path }),
                Some(given) if head.pieces < given.pieces => Err(io()(thread_ended())),
                Some(given) => Ok(Written(Head { guest: given.guest, ..head })),
            }
        });
        Ok(Filling { all, path: self.path.clone() })
    }

    /// Writes what the file is about, and makes it the one of its name. From then on it is there
    /// whatever happens.
    ///
    /// # Errors
    /// It cannot be written; then it is not there.
    pub fn finish(self, about: &str, written: &Written) -> Result<(), FileError> {
        self.finish_with(about, written.0)
    }

    /// Leaves what there is of it, unlocked once this process has ended: on a disk that hangs its
    /// removal would hang, too. The next one of this name replaces it.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn finish_with(self, about: &str, head: Head) -> Result<(), FileError> {
        let io = |action: &'static str| FileError::io(action, &self.path);
        if about.len() > LONGEST_ABOUT {
            let problem = format!("the description of the VM has {} bytes; at most {LONGEST_ABOUT} fit", about.len());
            return Err(FileError::Other { path: self.path.clone(), problem });
        }
        let head = Head { about: about.len() as u32, ..head };
        self.file.sync_data().map_err(io("write"))?;
        self.file.write_all_at(&head.encode(about), 0).map_err(io("write"))?;
        self.file.sync_all().map_err(io("write"))?;
        // A rename would replace what somebody put there meanwhile.
        is_free(&self.path)?;
        fs::rename(&self.unfinished, &self.path).map_err(io("rename"))?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let synced = File::open(directory.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all());
        synced.map_err(FileError::io("write the directory of", &self.path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Nobody can do more where this fails: the next one of this name removes it.
        let _ = fs::remove_file(&self.unfinished);
    }
}

/// A guest that comes through a pipe.
#[derive(Debug)]
pub struct Filling {
    all: JoinHandle<Result<Written, FileError>>,
    path: PathBuf,
}

impl Filling {
    /// The same as [`all`](Self::all) where the pipe is at its end or it was called off: only the
    /// disk is waited for then, and not for longer than that.
    ///
    /// # Errors
    /// It could not be written, or the disk hangs.
    pub fn all_within(self, limit: Duration) -> Result<Written, FileError> {
        let deadline = Instant::now() + limit;
        while !self.all.is_finished() {
            if Instant::now() > deadline {
                return Err(FileError::Hangs { path: self.path });
            }
            std::thread::sleep(FINISHED);
        }
        self.all()
    }

    /// Waits until the pipe is at its end and all is in the file.
    ///
    /// # Errors
    /// It could not be written; whoever writes into the pipe has seen it closed.
    pub fn all(self) -> Result<Written, FileError> {
        self.all.join().unwrap_or_else(|_| Err(FileError::io("write", &self.path)(thread_ended())))
    }
}

/// That there is nothing of this name, and that it is one of a file.
fn is_free(path: &Path) -> Result<(), FileError> {
    let other = |problem: &str| Err(FileError::Other { path: path.to_owned(), problem: problem.to_owned() });
    let text = path.as_os_str().as_encoded_bytes();
    match path.symlink_metadata() {
        Ok(seen) if seen.is_file() => Err(FileError::Exists { path: path.to_owned() }),
        Ok(seen) if seen.is_dir() => other("it is a directory; name a file in it"),
        Ok(_) => other("it is a link, a device or a pipe; a VM goes into a new file: name another one"),
        Err(_) if text.ends_with(b"/") => other("it ends with a /; name a file"),
        Err(_) => Ok(()),
    }
}

/// Removes what a killed homenode left; false where one that lives writes it.
fn remove_left(unfinished: &Path) -> io::Result<bool> {
    let left = match named_file::open(unfinished, &[]) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        left => left?,
    };
    if !try_lock(&left)? {
        return Ok(false);
    }
    // It may be another one by now than the one that is locked.
    let (ours, there) = (left.metadata()?, unfinished.symlink_metadata()?);
    if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
        return Ok(false);
    }
    fs::remove_file(unfinished).map(|()| true)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".unfinished");
    path.with_file_name(name)
}

/// Compresses pieces and writes them to the end of a file, until none comes any more. What comes of
/// it lacks the length of the guest.
fn compressed_into(mut file: File) -> (Into<Vec<u8>>, JoinHandle<io::Result<Head>>) {
    let (pieces, mut encoded) = pipeline::start(|| {
        let mut zstd = Compressor::new(piece::LEVEL);
        move |number, guest: Vec<u8>| {
            let zstd = zstd.as_mut().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
            Ok::<_, io::Error>(piece::encode(number, &guest, zstd))
        }
    });
    let behind = std::thread::spawn(move || {
        let mut head = Head::default();
        while let Some(encoded) = encoded.take() {
            let (piece, checksum) = encoded?;
            file.write_all(&piece)?;
            head.stored += piece.len() as u64;
            head.pieces += 1;
            head.sum = head.sum.wrapping_add(checksum);
        }
        Ok(head)
    });
    (pieces, behind)
}

/// Gives on all that comes out of a pipe, `most` at most, in pieces, and says how many bytes and
/// pieces that was; `None` where it was called off. It ends early where nobody takes them: whoever
/// should says why.
fn give(mut pieces: Into<Vec<u8>>, from: &mut File, most: Bytes, called_off: &AtomicBool) -> io::Result<Option<Head>> {
    let mut given = Head::default();
    loop {
        let Some(piece) = next_piece(from, called_off)? else { return Ok(None) };
        let count = piece.len();
        if count > 0 {
            given.guest += count as u64;
            given.pieces += 1;
            if given.guest > most.0 {
                return Err(io::Error::other(format!("its QEMU sends more than the {most} that it may have")));
            }
            if !pieces.put_unless(piece, called_off) {
                return Ok((!called_off.load(Ordering::Relaxed)).then_some(given));
            }
        }
        if count < piece::LARGEST {
            return Ok(Some(given));
        }
    }
}

/// The next bytes of a pipe: fewer than a piece has at its end only. `None` where it was called
/// off.
fn next_piece(from: &mut File, called_off: &AtomicBool) -> io::Result<Option<Vec<u8>>> {
    let (mut piece, mut filled) = (vec![0u8; piece::LARGEST], 0);
    while filled < piece.len() {
        let is_ready = match wait_readable(from, LOOK) {
            Err(error) if error.kind() == ErrorKind::Interrupted => false,
            ready => ready?,
        };
        if called_off.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if !is_ready {
            continue;
        }
        match from.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(filled);
    Ok(Some(piece))
}
