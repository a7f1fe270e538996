//! Reading the file.

use crate::head::{GUEST_AT, HEAD, Head, damaged};
use crate::pipeline::{self, OutOf, thread_ended};
use crate::{FileError, piece};
use linux::named_file;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use topology::Bytes;
use zstd::bulk::Decompressor;

/// A file whose head and text are as they were written.
#[derive(Debug)]
pub struct Opened {
    file: File,
    path: PathBuf,
    pub(crate) head: Head,
    about: String,
}

impl Opened {
    /// Opens a file and looks at its head, its text and its length. It must be root's or ours: who
    /// wrote it says which files of this host the VM gets.
    ///
    /// # Errors
    /// It is no file of a suspended VM, another user's, it was cut, or its beginning was changed.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let io = |action: &'static str| FileError::io(action, path);
        let other = |problem: &str| FileError::Other { path: path.to_owned(), problem: problem.to_owned() };
        let mut file = named_file::open(path, &[]).map_err(io("open"))?;
        let seen = file.metadata().map_err(io("read"))?;
        let mut bytes = [0u8; HEAD];
        file.read_exact(&mut bytes).map_err(|_| other("no VM that homenode suspended is in it"))?;
        let head = Head::decode(&bytes, path)?;
        let mut about = vec![0u8; head.about as usize];
        file.read_exact(&mut about).map_err(|_| damaged(path, "it ends within its description of the VM"))?;
        if !Head::check(&bytes, &about) {
            return Err(damaged(path, "its beginning is not what was written"));
        }
        let length = GUEST_AT.saturating_add(head.stored);
        if seen.len() != length {
            let (is, was) = (seen.len(), length);
            return Err(damaged(path, format!("it has {is} bytes, and was written with {was}")));
        }
        let about = String::from_utf8(about).map_err(|_| damaged(path, "its description of the VM is no text"))?;
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

    /// Writes the guest into a pipe, in the background. A damaged file ends it early: nothing that
    /// is not as it was written gets into the pipe.
    ///
    /// # Errors
    /// The file cannot be read, or its guest is in another one.
    pub fn pour_into(&self, pipe: OwnedFd) -> Result<Pouring, FileError> {
        if self.head.beside {
            let problem = "its guest is in a file of libvirt's, beside it".to_owned();
            return Err(FileError::Other { path: self.path.clone(), problem });
        }
        let io = || FileError::io("read", &self.path);
        let mut file = self.file.try_clone().map_err(io())?;
        file.seek(SeekFrom::Start(GUEST_AT)).map_err(io())?;
        let mut guest = Guest::new(file, self.path.clone(), self.head);
        let (mut pipe, path) = (File::from(pipe), self.path.clone());
        let all = std::thread::spawn(move || {
            while let Some(piece) = guest.next()? {
                pipe.write_all(&piece).map_err(FileError::io("read", &path))?;
            }
            Ok(())
        });
        Ok(Pouring { all, path: self.path.clone() })
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
        self.all.join().unwrap_or_else(|_| Err(FileError::io("read", &self.path)(thread_ended())))
    }
}

/// The guest's bytes, in order. Each piece is checked before it is given; only at the end is it
/// known that none is missing.
struct Guest {
    path: PathBuf,
    head: Head,
    decoded: OutOf<Option<(Vec<u8>, u128)>>,
    given: Head,
    /// Reads the pieces; what it could not read is the next one that is missed.
    behind: Option<JoinHandle<io::Result<()>>>,
}

impl Guest {
    fn new(mut file: File, path: PathBuf, head: Head) -> Self {
        let (mut pieces, decoded) = pipeline::start(|| {
            let mut zstd = Decompressor::new();
            move |number, piece: Vec<u8>| piece::decode(number, piece, zstd.as_mut().ok()?)
        });
        let behind = std::thread::spawn(move || {
            for _ in 0..head.pieces {
                if !pieces.put(read_piece(&mut file)?) {
                    break;
                }
            }
            Ok(())
        });
        Self { path, head, decoded, given: Head::default(), behind: Some(behind) }
    }

    /// The next piece; `None` after the last, where all was there.
    fn next(&mut self) -> Result<Option<Vec<u8>>, FileError> {
        let Self { head, given, .. } = self;
        if given.pieces == head.pieces {
            let whole = given.sum == head.sum && given.guest == head.guest;
            let odd = || damaged(&self.path, "its pieces are not those that were written");
            return if whole { Ok(None) } else { Err(odd()) };
        }
        let number = given.pieces;
        match self.decoded.take() {
            Some(Some((piece, checksum))) => {
                given.pieces += 1;
                given.guest += piece.len() as u64;
                given.sum = given.sum.wrapping_add(checksum);
                Ok(Some(piece))
            }
            Some(None) => {
                let offset = Bytes(given.guest);
                let problem = format!("piece {number} (behind {offset} of the guest) is not what was written");
                Err(damaged(&self.path, problem))
            }
            None => {
                let read = self.behind.take().map(JoinHandle::join);
                let why = read.and_then(Result::ok).and_then(Result::err).unwrap_or_else(thread_ended);
                Err(damaged(&self.path, format!("piece {number} cannot be read: {why}")))
            }
        }
    }
}

/// The next piece of the file, as it lies there.
fn read_piece(file: &mut File) -> io::Result<Vec<u8>> {
    let mut prefix = [0u8; piece::PREFIX];
    file.read_exact(&mut prefix)?;
    let stored = piece::stored(&prefix).ok_or_else(|| io::Error::other("a length in it is impossible"))?;
    let mut piece = vec![0u8; piece::PREFIX + stored];
    piece[..piece::PREFIX].copy_from_slice(&prefix);
    file.read_exact(&mut piece[piece::PREFIX..])?;
    Ok(piece)
}
