//! Reading the file.

use crate::head::{GUEST_AT, HEAD, Head, damaged};
use crate::pipeline::{self, OutOf};
use crate::{FileError, piece};
use linux::sys::{OPEN_NO_LINK, OPEN_NO_WAIT};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use topology::Bytes;
use zstd::bulk::Decompressor;

/// A file whose head and text are as they were written.
#[derive(Debug)]
pub struct Opened {
    file: File,
    path: PathBuf,
    head: Head,
    about: String,
}

impl Opened {
    /// Opens a file and looks at its head, its text and its length.
    ///
    /// # Errors
    /// It is no file of a suspended VM, it was cut, or its beginning was changed.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let io = |action: &'static str| FileError::io(action, path);
        let other = |problem: &str| FileError::Other { path: path.to_owned(), problem: problem.to_owned() };
        let mut options = File::options();
        let mut file = options.read(true).custom_flags(OPEN_NO_LINK | OPEN_NO_WAIT).open(path).map_err(io("open"))?;
        let seen = file.metadata().map_err(io("read"))?;
        if !seen.is_file() {
            return Err(other("it is no file"));
        }
        let mut bytes = [0u8; HEAD];
        file.read_exact(&mut bytes).map_err(|_| other("it is no file of a VM that homenode suspended"))?;
        let head = Head::decode(&bytes, path)?;
        let mut about = vec![0u8; head.about as usize];
        file.read_exact(&mut about).map_err(|_| damaged(path, "it ends before what it is about"))?;
        if !Head::check(&bytes, &about) {
            return Err(damaged(path, "its beginning is not what was written"));
        }
        let length = GUEST_AT.saturating_add(head.stored);
        if seen.len() != length {
            let (is, was) = (seen.len(), length);
            return Err(damaged(path, format!("it has {is} bytes, and was written with {was}")));
        }
        let about = String::from_utf8(about).map_err(|_| damaged(path, "what it is about is no text"))?;
        Ok(Self { file, path: path.to_owned(), head, about })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is about, as it was written.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Bytes of the guest.
    pub fn guest_bytes(&self) -> Bytes {
        Bytes(self.head.guest)
    }

    /// Bytes that the guest takes in the file.
    pub fn stored(&self) -> Bytes {
        Bytes(self.head.stored)
    }

    /// The guest's bytes. Each is checked before it is given; only at the end is it known that none
    /// is missing.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn guest(&self) -> Result<Guest, FileError> {
        let mut file = self.file.try_clone().map_err(FileError::io("read", &self.path))?;
        file.seek(SeekFrom::Start(GUEST_AT)).map_err(FileError::io("read", &self.path))?;
        Ok(Guest::new(file, self.path.clone(), self.head))
    }

    /// Writes the guest into a pipe, in the background. A damaged file ends it early: nothing that
    /// is not as it was written gets into the pipe.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn pour_into(&self, pipe: OwnedFd) -> Result<Pouring, FileError> {
        let mut guest = self.guest()?;
        let (mut pipe, path) = (File::from(pipe), self.path.clone());
        let all = std::thread::spawn(move || {
            let damaged = |guest: &Guest, error| guest.damage().unwrap_or_else(|| FileError::io("read", &path)(error));
            loop {
                match guest.fetch() {
                    Ok(true) => pipe.write_all(&guest.piece).map_err(FileError::io("read", &path))?,
                    Ok(false) => return Ok(()),
                    Err(error) => return Err(damaged(&guest, error)),
                }
            }
        });
        Ok(Pouring { all, path: self.path.clone() })
    }

    /// Looks at every byte.
    ///
    /// # Errors
    /// It is damaged.
    pub fn check(&self) -> Result<(), FileError> {
        let mut guest = self.guest()?;
        let copied = io::copy(&mut guest, &mut io::sink());
        copied.map(drop).map_err(|error| guest.damage().unwrap_or_else(|| FileError::io("read", &self.path)(error)))
    }
}

/// A guest that goes into a pipe.
#[derive(Debug)]
pub struct Pouring {
    all: JoinHandle<Result<(), FileError>>,
    path: PathBuf,
}

impl Pouring {
    /// Waits until all is in the pipe, or nobody reads from it any more.
    ///
    /// # Errors
    /// The file is damaged, or the pipe was closed before its end.
    pub fn all(self) -> Result<(), FileError> {
        let broken = || FileError::io("read", &self.path)(io::Error::other("its thread ended"));
        self.all.join().unwrap_or_else(|_| Err(broken()))
    }
}

/// The guest's bytes, in order. Reading them fails where the file is damaged; [`Guest::damage`]
/// then says how.
#[derive(Debug)]
pub struct Guest {
    path: PathBuf,
    head: Head,
    decoded: OutOf<Option<(Vec<u8>, u128)>>,
    piece: Vec<u8>,
    at: usize,
    given: Head,
    broken: Arc<Mutex<Option<String>>>,
    damage: Option<String>,
}

impl Guest {
    fn new(mut file: File, path: PathBuf, head: Head) -> Self {
        let (mut pieces, decoded) = pipeline::start(|| {
            let mut zstd = Decompressor::new();
            move |number, piece: Vec<u8>| piece::decode(number, piece, zstd.as_mut().ok()?)
        });
        let broken = Arc::new(Mutex::new(None));
        let said = Arc::clone(&broken);
        std::thread::spawn(move || {
            for number in 0..head.pieces {
                match next(&mut file).map(|piece| pieces.put(piece)) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        let problem = format!("piece {number} cannot be read: {error}");
                        *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
                        return;
                    }
                }
            }
        });
        Self { path, head, decoded, piece: Vec::new(), at: 0, given: Head::default(), broken, damage: None }
    }

    /// What is wrong with the file, where reading has failed because of it.
    pub fn damage(&self) -> Option<FileError> {
        self.damage.as_ref().map(|problem| damaged(&self.path, problem.clone()))
    }

    /// Bytes that were given so far.
    pub fn given(&self) -> Bytes {
        Bytes(self.given.guest)
    }

    fn fail<T>(&mut self, problem: String) -> io::Result<T> {
        let error = io::Error::new(io::ErrorKind::InvalidData, problem.clone());
        self.damage = Some(problem);
        Err(error)
    }

    /// Fetches the next piece; false after the last, where all was there.
    fn fetch(&mut self) -> io::Result<bool> {
        if let Some(problem) = &self.damage {
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem.clone()));
        }
        if self.given.pieces == self.head.pieces {
            let whole = self.given.sum == self.head.sum && self.given.guest == self.head.guest;
            return if whole { Ok(false) } else { self.fail("its pieces are not those that were written".to_owned()) };
        }
        let number = self.given.pieces;
        match self.decoded.take() {
            Some(Some((piece, checksum))) => {
                self.given.pieces += 1;
                self.given.guest += piece.len() as u64;
                self.given.sum = self.given.sum.wrapping_add(checksum);
                (self.piece, self.at) = (piece, 0);
                Ok(true)
            }
            Some(None) => {
                let offset = Bytes(self.given.guest);
                self.fail(format!("piece {number} (behind {offset} of the guest) is not what was written"))
            }
            None => {
                let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.fail(broken.unwrap_or_else(|| format!("piece {number} is missing")))
            }
        }
    }
}

/// The next piece of the file, as it lies there.
fn next(file: &mut File) -> io::Result<Vec<u8>> {
    let mut prefix = [0u8; piece::PREFIX];
    file.read_exact(&mut prefix)?;
    let stored = piece::stored(&prefix).ok_or_else(|| io::Error::other("it says an impossible length"))?;
    let mut piece = vec![0u8; piece::PREFIX + stored];
    piece[..piece::PREFIX].copy_from_slice(&prefix);
    file.read_exact(&mut piece[piece::PREFIX..])?;
    Ok(piece)
}

impl Read for Guest {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() && !self.fetch()? {
            return Ok(0);
        }
        let count = into.len().min(self.piece.len() - self.at);
        into[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
