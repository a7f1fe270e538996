use crate::{About, FileError, Opened, Unfinished, Written};
use proptest::prelude::*;
use std::fs::{self, File};
use std::io::{Read, Write, pipe};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
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

/// What came of a guest that went through a pipe into an unfinished file.
fn fill(file: &Unfinished, guest: &[u8]) -> Result<Written, FileError> {
    let (from, mut into) = pipe().unwrap();
    let filling = file.fill_from(from.into(), Bytes::GIB, Default::default())?;
    guest.chunks(100_001).for_each(|part| into.write_all(part).unwrap());
    drop(into);
    filling.all()
}

fn write(path: &Path, guest: &[u8]) -> Result<(), FileError> {
    let file = Unfinished::create(path)?;
    let written = fill(&file, guest)?;
    assert_eq!(written.guest(), Bytes(guest.len() as u64));
    file.finish("about", &written)
}

/// What came of pouring a guest into a pipe, and what arrived.
fn pour(path: &Path) -> Result<(Result<(), FileError>, Vec<u8>), FileError> {
    let (mut from, into) = pipe().unwrap();
    let (pouring, mut bytes) = (Opened::open(path)?.pour_into(into.into())?, Vec::new());
    from.read_to_end(&mut bytes).unwrap();
    Ok((pouring.all(), bytes))
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let (all, bytes) = pour(path)?;
    all.map(|()| bytes)
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
    let path = directory.path().join("5000000");
    let stored = fs::metadata(&path).unwrap().len() - (1 << 20);
    assert!((1_700_000..1_900_000).contains(&stored), "{stored}");
    assert_eq!(Opened::open(&path).unwrap().about(), "about");
}

#[test]
fn nothing_of_a_damaged_guest_that_is_wrong_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    let guest = guest(3_300_000, 5);
    write(&path, &guest).unwrap();
    let mut damaged = fs::read(&path).unwrap();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    fs::write(&path, damaged).unwrap();
    let (all, bytes) = pour(&path).unwrap();
    // Three whole pieces were right; the fourth is not given.
    assert!(all.unwrap_err().to_string().contains("piece 3 (behind 3 MiB of the guest)"));
    assert_eq!(bytes, guest[..3 << 20]);
}

/// A QEMU that its guest has taken over filled the disk.
#[test]
fn a_guest_has_no_more_than_its_vm() {
    let directory = tempfile::tempdir().unwrap();
    let file = Unfinished::create(&directory.path().join("web")).unwrap();
    let (from, mut into) = pipe().unwrap();
    let filling = file.fill_from(from.into(), Bytes::MIB, Default::default()).unwrap();
    let zeros = vec![0u8; 1 << 20];
    let taken = (0..1000).take_while(|_| into.write_all(&zeros).is_ok()).count();
    assert!(taken < 300, "{taken} MiB");
    assert!(filling.all().unwrap_err().to_string().contains("sends more than"));
}

#[test]
fn a_file_of_another_user_is_not_believed() {
    if linux::sys::effective_user_id() != 0 {
        return eprintln!("SKIPPED a_file_of_another_user_is_not_believed: it needs root");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    write(&path, &guest(1000, 3)).unwrap();
    std::os::unix::fs::chown(&path, Some(54_321), None).unwrap();
    let error = Opened::open(&path).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("belongs to user 54321"), "{error}");
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
    let left = directory.path().join("web.unfinished");
    fs::write(&left, "half").unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o600)).unwrap();
    let dropped = Unfinished::create(&path).unwrap();
    assert!(!path.exists());
    drop(dropped);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Two VMs into one file: before, the first to finish renamed what the other had begun.
#[test]
fn of_two_that_write_one_file_one_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    let first = Unfinished::create(&path).unwrap();
    let error = Unfinished::create(&path).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("another homenode writes"), "{error}");
    let written = fill(&first, b"first").unwrap();
    // What somebody else puts there meanwhile stays.
    fs::write(&path, "kept").unwrap();
    let error = first.finish("about", &written).unwrap_err();
    assert!(error.to_string().contains("it is there already"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// A QEMU that was stopped kept homenode for ever, and no signal helped.
#[test]
fn whoever_calls_it_off_waits_for_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let file = Unfinished::create(&directory.path().join("web")).unwrap();
    let (from, mut into) = pipe().unwrap();
    let called_off = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let filling = file.fill_from(from.into(), Bytes::GIB, called_off.clone()).unwrap();
    into.write_all(&guest(100_000, 1)).unwrap();
    called_off.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(filling.all(), Err(FileError::CalledOff { .. })));
    drop((into, file));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A disk that hangs, played by a pipe that nobody reads: neither QEMU nor whoever calls it off
/// waits for it.
#[test]
fn a_disk_that_hangs_keeps_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    let (_unread, full) = pipe().unwrap();
    let file = Unfinished::of(File::from(std::os::fd::OwnedFd::from(full)), &path);
    let (from, mut into) = pipe().unwrap();
    let called_off = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let filling = file.fill_from(from.into(), Bytes::GIB, called_off.clone()).unwrap();
    let qemu = std::thread::spawn(move || {
        // More than all that waits on the way.
        let piece = guest(1 << 20, 1);
        (0..200).find_map(|_| into.write_all(&piece).err())
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!qemu.is_finished(), "it was taken by nobody");
    called_off.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(qemu.join().unwrap().map(|error| error.kind()), Some(std::io::ErrorKind::BrokenPipe));
    let error = filling.all_within(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, FileError::Hangs { .. }), "{error}");
    file.leave();
}

#[test]
fn what_is_no_place_for_a_file_is_named_for_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("link")).unwrap();
    let (link, new) = (directory.path().join("link"), directory.path().join("new/"));
    let in_words = [(directory.path(), "a directory; name a file in it"), (&link, "a link"), (&new, "ends with a /")];
    for (path, words) in in_words.into_iter().chain([(Path::new("/dev/full"), "a device")]) {
        let error = Unfinished::create(path).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(words), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_was_not_finished_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web");
    let file = Unfinished::create(&path).unwrap();
    fill(&file, &guest(3_000_000, 1)).unwrap();
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
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for path in [&path, &directory.path().join("none"), directory.path(), &link] {
        assert!(read(path).unwrap_err().is_bad_input(), "{}", path.display());
    }
    assert!(read(&link).unwrap_err().to_string().contains("a link; name what it leads to"));
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
    let about = About::new(UnixSeconds(9), life.clone(), manifest).unwrap();
    assert_eq!(About::from_text(&about.to_text().unwrap()).unwrap(), about);
    assert!(about.is_of(&life) && !about.is_of(&vm::history::Life::planned(Default::default(), UnixSeconds(6))));
}

/// Two suspends within one second were one: the first one's file let the VM go on after it had run.
#[test]
fn of_two_files_of_one_second_one_is_the_last() {
    let manifest = vm::Manifest::from_text(include_str!("../../../fuzz/seeds/manifest/web.json").trim_end()).unwrap();
    let (mut life, at) = (vm::history::Life::planned(Default::default(), UnixSeconds(5)), UnixSeconds(9));
    let suspend = |life: &mut vm::history::Life| {
        let about = About::new(at, life.clone(), manifest.clone()).unwrap();
        life.tell(vm::history::LifeEvent::Suspended { file: "/web".into(), id: about.id.clone() }, at);
        about
    };
    let first = suspend(&mut life);
    assert!(first.is_last_of(&life) && !first.is_last_of(&first.life));
    let second = suspend(&mut life);
    assert!(second.is_last_of(&life) && !first.is_last_of(&life));
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
