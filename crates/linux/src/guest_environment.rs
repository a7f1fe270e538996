//! What programs that are measured find around them, in a guest of packages and natively in its
//! files: the same.

/// What programs of a built guest find in their environment, in the guest and natively: the same.
/// MPI of Debian refuses to run as root without the last two, and in such a guest there is nobody
/// else.
pub const GUEST_ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LC_ALL", "C.UTF-8"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

/// The directory below which such a program finds files of the host that an experiment brings, each
/// under its absolute path.
pub const GUEST_FILES: &str = "/run/homenode-files";
