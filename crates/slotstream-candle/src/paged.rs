//! Rows in pages, so that a cache grows without copying what it holds.

use candle_core::{DType, Device, Tensor};

use crate::{CandleContext, Error};

/// A growing array of f32 rows in pages of equal size.
#[derive(Debug)]
pub struct PagedTensor {
    pages: Vec<Tensor>,
    page_rows: usize,
    width: usize,
    len: usize,
    device: Device,
}

impl PagedTensor {
    /// An empty array of rows of `width` values in pages of `page_rows` rows.
    #[must_use]
    pub fn new(width: usize, page_rows: usize, device: &Device) -> Self {
        Self {
            pages: Vec::new(),
            page_rows: page_rows.max(1),
            width,
            len: 0,
            device: device.clone(),
        }
    }

    /// Rows held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Values a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Rows a page.
    #[must_use]
    pub const fn page_rows(&self) -> usize {
        self.page_rows
    }

    /// The pages, each `[page_rows, width]`.
    #[must_use]
    pub fn pages(&self) -> &[Tensor] {
        &self.pages
    }

    /// Bytes of all pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.pages.len() * self.page_rows * self.width * 4) as u64
    }

    /// Appends the rows of `rows`, `[n, width]` f32.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Candle`]; the array then holds what it held before.
    pub fn append(&mut self, rows: &Tensor) -> Result<(), Error> {
        const OP: &str = "append";
        let (n, width) = rows.dims2().within(OP)?;
        if width != self.width {
            let (expected, found) = (vec![n, self.width], vec![n, width]);
            return Err(Error::Shape { op: OP, tensor: "rows", expected, found });
        }
        let mut done = 0;
        while done < n {
            let at = self.len + done;
            let (page, row) = (at / self.page_rows, at % self.page_rows);
            if page == self.pages.len() {
                let shape = (self.page_rows, self.width);
                self.pages.push(Tensor::zeros(shape, DType::F32, &self.device).within(OP)?);
            }
            let count = (self.page_rows - row).min(n - done);
            let source = rows.narrow(0, done, count).and_then(|t| t.contiguous()).within(OP)?;
            self.pages[page].slice_set(&source, 0, row).within(OP)?;
            done += count;
        }
        self.len += n;
        Ok(())
    }

    /// Forgets all rows from `len` on and gives their pages back.
    ///
    /// # Errors
    /// [`Error::Candle`] when the device refuses; the array then holds what it held before.
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        if len >= self.len {
            return Ok(());
        }
        let pages = len.div_ceil(self.page_rows);
        if !len.is_multiple_of(self.page_rows) {
            // The last page will be written again, and a snapshot may share it.
            self.pages[pages - 1] = self.pages[pages - 1].copy().within("truncate")?;
        }
        self.pages.truncate(pages);
        self.len = len;
        Ok(())
    }

    /// The same rows as of now. Whole pages are shared, since nobody writes them any more; the
    /// page in use is copied.
    ///
    /// # Errors
    /// [`Error::Candle`] when the device refuses.
    pub fn snapshot(&self) -> Result<Self, Error> {
        let mut pages = self.pages.clone();
        if !self.len.is_multiple_of(self.page_rows)
            && let Some(last) = pages.last_mut()
        {
            *last = last.copy().within("snapshot")?;
        }
        let Self { page_rows, width, len, .. } = *self;
        Ok(Self { pages, page_rows, width, len, device: self.device.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(from: f32, n: usize) -> Tensor {
        Tensor::arange(from, from + 2.0 * n as f32, &Device::Cpu)
            .and_then(|t| t.reshape((n, 2)))
            .expect("small")
    }

    fn contents(paged: &PagedTensor) -> Vec<Vec<f32>> {
        let pages = paged.pages().iter().flat_map(|p| p.to_vec2::<f32>().expect("2d"));
        pages.take(paged.len()).collect()
    }

    #[test]
    fn rows_cross_pages() {
        let mut paged = PagedTensor::new(2, 3, &Device::Cpu);
        paged.append(&rows(0.0, 5)).expect("fits");
        paged.append(&rows(10.0, 5)).expect("fits");
        assert_eq!((paged.len(), paged.pages().len()), (10, 4));
        assert_eq!(contents(&paged)[9], [18.0, 19.0]);
        assert_eq!(paged.bytes(), 4 * 3 * 2 * 4);
        let wrong = Tensor::zeros((1, 3), DType::F32, &Device::Cpu).expect("small");
        assert!(matches!(paged.append(&wrong), Err(Error::Shape { .. })));
    }

    #[test]
    fn a_snapshot_keeps_its_rows() {
        let mut paged = PagedTensor::new(2, 3, &Device::Cpu);
        paged.append(&rows(0.0, 8)).expect("fits");
        let snapshot = paged.snapshot().expect("copies");
        let before = contents(&snapshot);
        paged.append(&rows(100.0, 3)).expect("fits");
        paged.truncate(4).expect("copies");
        assert_eq!((paged.len(), paged.pages().len()), (4, 2));
        paged.append(&rows(200.0, 5)).expect("fits");
        assert_eq!(contents(&snapshot), before);
        assert_eq!(contents(&paged)[3..5], [[6.0, 7.0], [200.0, 201.0]]);
    }
}
