use crate::{About, FileError, Opened, Unfinished};
use proptest::prelude::*;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use topology::Bytes;
use vm::history::UnixSeconds;

/// Bytes that zstd cannot make smaller, bytes that it can, and zeros, by turns of 64 KiB.
fn guest(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let byte = |at: usize| match (at >> 16) % 3 {
        0 => {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        }
        1 => (at >> 4) as u8,
        _ => 0,
    };
    (0..length).map(byte).collect()
}

fn write(path: &Path, guest: &[u8]) -> Result<(), FileError> {
    let file = Unfinished::create(path)?;
    let mut writer = file.guest()?;
    guest.chunks(100_001).for_each(|part| writer.write_all(part).unwrap());
    let written = writer.finish()?;
    assert_eq!(written.guest(), Bytes(guest.len() as u64));
    file.finish("about", &written)
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = Opened::open(path)?;
    let (mut guest, mut bytes) = (file.guest()?, Vec::new());
    match guest.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(guest.damage().unwrap_or_else(|| panic!("{error}"))),
    }
}

#[test]
fn a_guest_is_read_as_it_was_written_and_its_file_is_its_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    for length in [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000] {
        let path = directory.path().join(length.to_string());
        write(&path, &guest(length, 7)).unwrap();
        assert_eq!(read(&path).unwrap(), guest(length, 7), "{length}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // 26 of its 77 turns cannot be made smaller: 26 x 64 KiB = 1.70 MB; of the others some 0.1 MB
    // stay.
    let file = Opened::open(&directory.path().join("5000000")).unwrap();
    assert!((1_700_000..1_900_000).contains(&file.stored().0), "{}", file.stored().0);
    assert_eq!((file.about(), file.guest_bytes()), ("about", Bytes(5_000_000)));
}

#[test]
fn a_guest_goes_through_pipes_and_nothing_of_a_damaged_one_that_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    let guest = guest(3_300_000, 5);
    let file = Unfinished::create(&path).unwrap();
    let (from, into) = linux::sys::wide_pipe().unwrap();
    let filling = file.fill_from(from, Default::default()).unwrap();
    fs::File::from(into).write_all(&guest).unwrap();
    file.finish("about", &filling.all().unwrap()).unwrap();
    let pour = || {
        let (from, into) = linux::sys::wide_pipe().unwrap();
        let (pouring, mut bytes) = (Opened::open(&path).unwrap().pour_into(into).unwrap(), Vec::new());
        fs::File::from(from).read_to_end(&mut bytes).unwrap();
        (pouring.all(), bytes)
    };
    let (all, bytes) = pour();
    assert!(all.is_ok() && bytes == guest);
    let mut damaged = fs::read(&path).unwrap();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(&path, damaged).unwrap();
    let (all, bytes) = pour();
    // Three whole pieces were right; the fourth is not given.
    assert!(all.unwrap_err().to_string().contains("piece 3 (behind 3 MiB of the guest)"));
    assert_eq!(bytes, guest[..3 << 20]);
}

#[test]
fn a_file_that_is_there_stays_and_one_that_was_not_finished_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    write(&path, b"first").unwrap();
    let error = write(&path, b"second").unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("it is there already"), "{error}");
    assert_eq!(read(&path).unwrap(), b"first");
    fs::remove_file(&path).unwrap();
    // A homenode that was killed leaves this.
    fs::write(directory.path().join("web.unfinished"), "half").unwrap();
    let dropped = Unfinished::create(&path).unwrap();
    assert!(!path.exists());
    drop(dropped);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_was_not_finished_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    let file = Unfinished::create(&path).unwrap();
    let mut writer = file.guest().unwrap();
    writer.write_all(&guest(3_000_000, 1)).unwrap();
    writer.finish().unwrap();
    fs::copy(directory.path().join("web.unfinished"), &path).unwrap();
    let error = read(&path).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("not written to its end"), "{error}");
}

#[test]
fn a_disk_without_room_says_how_much_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let file = Unfinished::create(&directory.path().join("web")).unwrap();
    assert!(file.has_room(Bytes::MIB).is_ok());
    let error = file.has_room(Bytes(1 << 60)).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("are missing"), "{error}");
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    fs::write(&path, vec![7u8; 4096]).unwrap();
    for path in [&path, &directory.path().join("none"), directory.path()] {
        assert!(read(path).unwrap_err().is_bad_input(), "{}", path.display());
    }
    write(&directory.path().join("new"), b"x").unwrap();
    let mut bytes = fs::read(directory.path().join("new")).unwrap();
    bytes[16] = 2;
    fs::write(&path, bytes).unwrap();
    assert!(read(&path).unwrap_err().to_string().ends_with("version 2: this homenode reads version 1"));
}

#[test]
fn what_a_file_is_about_is_read_as_it_was_written() {
    let manifest = vm::Manifest::from_text(include_str!("../../../fuzz/seeds/manifest/web.json").trim_end()).unwrap();
    let life = vm::history::Life::planned(Default::default(), UnixSeconds(5));
    let about = About { saved_at: UnixSeconds(9), life: life.clone(), manifest };
    assert_eq!(About::from_text(&about.to_text().unwrap()).unwrap(), about);
    assert!(about.is_of(&life) && !about.is_of(&vm::history::Life::planned(Default::default(), UnixSeconds(6))));
}

properties::properties! {
    #![cases(40)]

    /// Any byte that is changed, and any cut, is found.
    #[test]
    fn damage_is_found(place in 0.0..1.0f64, bit in 0u8..8, cuts in any::<bool>(), behind in any::<bool>()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web");
        static GUEST: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| guest(2_200_000, 3));
        write(&path, &GUEST).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        // The head and its text, or the pieces: between them lies a hole, of which nothing is read.
        let (from, to) = if behind { (1 << 20, bytes.len()) } else { (0, 80 + "about".len()) };
        let at = from + ((to - from) as f64 * place) as usize;
        if cuts {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        fs::write(&path, &bytes).unwrap();
        let error = read(&path).unwrap_err();
        prop_assert!(error.is_bad_input(), "{}", error);
    }
}
