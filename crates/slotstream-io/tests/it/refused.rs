//! A system that refuses io_uring.

use std::path::PathBuf;

use slotstream_core::{Extent, FileId, RecordReader};
use slotstream_io::{UringOptions, UringReader};

use crate::alone::alone;
use crate::every::on_disk;

/// Lets every call of this thread through but the making of rings, which fails with `EPERM`: what
/// containers do.
#[expect(unsafe_code, reason = "nothing safe installs a filter")]
fn refuse_rings() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        // The number of the call is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            jf: 1,
            ..statement(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                libc::SYS_io_uring_setup as u32,
            )
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: both calls change this thread alone. The second reads `filter` and the four
    // instructions that it leads to, which live until the end of this function, and keeps a copy.
    let code = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_system_without_rings_is_named_and_read_without() {
    alone("refused::a_system_without_rings_is_named_and_read_without", || {
        let folder = on_disk();
        let path: PathBuf = folder.path().join("shard.bin");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        refuse_rings();
        let reader = UringReader::open(&[path], UringOptions::new()).unwrap();
        let mode = reader.effective();
        assert_ne!(mode.name, "uring");
        let said = "uring was wanted, but io_uring_setup failed with EPERM; ";
        assert!(mode.why.starts_with(said), "{mode:?}");
        let mut buffer = [0; 5000];
        let extent = Extent::new(FileId::new(0), 77, 5000).unwrap();
        reader.read_exact_at(&extent, &mut buffer).unwrap();
        assert_eq!(buffer, [7; 5000]);
    });
}
