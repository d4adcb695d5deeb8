//! Rows in pages that lie anywhere.

use slotstream_kernels::Paged;
use slotstream_kernels::metal::{BufferId, PagedView, View};

use crate::case::Case;

/// Rows of `width` values in pages of `page_rows`; the last page is whole.
pub(crate) struct Pages {
    pub(crate) pages: Vec<Vec<f32>>,
    pub(crate) page_rows: usize,
    pub(crate) width: usize,
    rows: usize,
}

impl Pages {
    pub(crate) fn new(values: &[f32], page_rows: usize, width: usize) -> Self {
        let mut pages: Vec<Vec<f32>> =
            values.chunks(page_rows * width).map(<[f32]>::to_vec).collect();
        if let Some(last) = pages.last_mut() {
            last.resize(page_rows * width, f32::NAN);
        }
        Self { pages, page_rows, width, rows: values.len() / width }
    }

    pub(crate) fn slices(&self) -> Vec<&[f32]> {
        self.pages.iter().map(Vec::as_slice).collect()
    }

    pub(crate) fn paged<'a>(&self, pages: &'a [&'a [f32]]) -> Paged<'a> {
        Paged { pages, page_rows: self.page_rows, width: self.width }
    }

    /// Every page in a buffer of its own, found by a table of addresses. With `far`, the pages lie
    /// in one buffer, 3 GiB apart.
    pub(crate) fn view(&self, case: &mut Case, far: bool) -> PagedView<BufferId> {
        let table = case.memory.poisoned(8 * self.pages.len());
        let apart = 3 << 30;
        let slab = far.then(|| case.memory.sparse(apart * self.pages.len()));
        for (i, page) in self.pages.iter().enumerate() {
            match slab {
                Some(slab) => {
                    let bytes = page.iter().flat_map(|v| v.to_le_bytes()).collect();
                    case.memory.write(slab, i * apart, bytes);
                    case.memory.address(table, 8 * i, slab, i * apart);
                }
                None => {
                    let page = case.memory.floats(page);
                    case.memory.address(table, 8 * i, page, 0);
                }
            }
        }
        let pages = View::new(table, 0, 8 * self.pages.len());
        PagedView { pages, page_rows: self.page_rows, rows: self.rows }
    }
}
