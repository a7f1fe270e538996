//! A VM boots from its own disk image, raw and qcow2, and a forwarded port answers on loopback.

use crate::common::{lacks, open_directory, within_seconds};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SAYS: &str = "booted from this disk";

/// A boot sector that writes [`SAYS`] to the first serial port and halts.
fn boot_sector() -> Vec<u8> {
    let mut sector = vec![
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0xba, 0xf8, 0x03, // mov dx, 0x3f8: COM1
        0xbe, 0x15, 0x7c, // mov si, 0x7c15: the text, 21 bytes into the sector that firmware loads at 0x7c00
        0xac, // next: lodsb
        0x84, 0xc0, // test al, al
        0x74, 0x03, // jz halt
        0xee, // out dx, al
        0xeb, 0xf8, // jmp next
        0xf4, // halt: hlt
        0xeb, 0xfd, // jmp halt
    ];
    assert_eq!(sector.len(), 0x15);
    sector.extend(SAYS.bytes());
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector.resize(1 << 20, 0);
    sector
}

fn convert(raw: &Path, qcow2: &Path) {
    let done = Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]).arg(raw).arg(qcow2).status();
    assert!(done.expect("qemu-img").success());
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

fn end(mut homenode: Child) {
    linux::sys::send_signal(homenode.id(), libc::SIGTERM).expect("a signal");
    assert!(homenode.wait().expect("the end").success());
}

#[test]
fn raw_and_qcow2_images_boot_and_a_port_is_forwarded() {
    let test = "raw_and_qcow2_images_boot_and_a_port_is_forwarded";
    if lacks(test, "qemu-system-x86_64") || lacks(test, "qemu-img") {
        return;
    }
    let place = open_directory();
    let (raw, qcow2) = (place.path().join("disk.raw"), place.path().join("disk.qcow2"));
    std::fs::write(&raw, boot_sector()).expect("an image");
    convert(&raw, &qcow2);
    for format in ["raw", "qcow2"] {
        let name = format!("disk-{format}-{}", std::process::id());
        let (spec, log, port) = (place.path().join(format!("{format}.toml")), place.path().join(format), free_port());
        let text = format!(
            "name = \"{name}\"\nvcpus = 1\nmemory = \"64 MiB\"\nboot.from = \"disk\"\nconsole = \
            {{ to = \"file\", path = \"{format}\" }}\n\
             [[disk]]\npath = \"disk.{format}\"\nformat = \"{format}\"\nsnapshot = true\n\
             [[network]]\nkind = \"user\"\nforward = [{{ host = {port}, guest = 22 }}]\n"
        );
        std::fs::write(&spec, text).expect("a spec");
        let homenode = Command::new(env!("CARGO_BIN_EXE_homenode"))
            .arg("run")
            .arg(&spec)
            .env("HOMENODE_RUNTIME_DIR", place.path().join("runtime"))
            .stdin(Stdio::null())
            .spawn()
            .expect("homenode");
        let said = || std::fs::read_to_string(&log).is_ok_and(|said| said.contains(SAYS));
        let booted = within_seconds(60, said);
        let forwarded = TcpStream::connect(("127.0.0.1", port)).is_ok();
        end(homenode);
        assert!(booted, "{format}: {:?}", std::fs::read_to_string(&log));
        assert!(forwarded, "{format}: port {port}");
    }
}
