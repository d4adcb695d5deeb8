//! The scratch pool: a page that comes back reaches whoever waits for it.

use loom::thread;
use slotstream_io::ScratchPool;

use crate::explore::explore;

#[test]
fn a_returned_page_wakes_a_waiting_thread() {
    explore(3, 100, || {
        let pool = ScratchPool::new(64, 1).expect("one page");
        let others: Vec<_> = (1..3_u8)
            .map(|mark| {
                let pool = pool.clone();
                thread::spawn(move || {
                    let mut page = pool.take().expect("64 bytes");
                    page.fill(mark);
                    assert!(page.iter().all(|byte| *byte == mark), "the page is this thread's");
                })
            })
            .collect();
        drop(pool.take().expect("64 bytes"));
        for other in others {
            other.join().expect("it does not panic");
        }
        assert_eq!(pool.available(), 1);
    });
}
