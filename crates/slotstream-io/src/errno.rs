//! Names of system errors, for messages.

use std::io;

use rustix::io::Errno;

const NAMES: [(Errno, &str); 17] = [
    (Errno::ACCESS, "EACCES"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::BADF, "EBADF"),
    (Errno::FAULT, "EFAULT"),
    (Errno::INTR, "EINTR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::IO, "EIO"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::MFILE, "EMFILE"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOENT, "ENOENT"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTTY, "ENOTTY"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::PERM, "EPERM"),
    (Errno::SPIPE, "ESPIPE"),
];

/// `EINVAL` and the like; the number where this list has no name, the text where there is no
/// number.
pub(crate) fn errno_name(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    NAMES
        .iter()
        .find(|(known, _)| known.raw_os_error() == number)
        .map_or_else(|| format!("errno {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(errno_name(&Errno::INVAL.into()), "EINVAL");
        assert_eq!(errno_name(&io::Error::from_raw_os_error(9999)), "errno 9999");
        assert_eq!(errno_name(&io::Error::other("made up")), "made up");
    }
}
