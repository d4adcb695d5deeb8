//! A batch of jobs that own their buffers.

#![expect(unsafe_code, reason = "buffers are lent to a batch beside the jobs that own them")]

use std::slice::from_raw_parts_mut;

use slotstream_core::{Extent, Job, ReadError, ReadRequest, RecordReader};

use super::UringReader;

/// Reads `jobs` as one batch and ends each as it completes.
pub(super) fn read_jobs(reader: &UringReader, jobs: Vec<Job>) {
    let mut jobs: Vec<Option<Job>> = jobs.into_iter().map(Some).collect();
    let mut requests = Vec::with_capacity(jobs.len());
    // Which job a request is of: those without a right buffer have none.
    let mut places = Vec::with_capacity(jobs.len());
    for (place, slot) in jobs.iter_mut().enumerate() {
        match request(slot) {
            Some(Ok((extent, address, len))) => {
                // SAFETY: `request` had them from the job's own `&mut [u8]`, and the job, whose
                // exclusive borrow that was, is neither touched nor moved (`jobs` does not grow)
                // until it is taken out below. That happens when the reader, which is the one of
                // this module and no stranger's, calls `landed`: it has then given up what it had
                // of the buffer, the kernel included (see `ring.rs`), and the reference that is
                // left in `requests` is not used again. The same holds if `landed` unwinds:
                // reads in flight are waited for before `jobs`, made before `requests`, is
                // dropped.
                let buffer = unsafe { from_raw_parts_mut(address, len) };
                requests.push(ReadRequest { extent, buffer });
                places.push(place);
            }
            Some(Err(error)) => end(slot, Err(error)),
            None => {}
        }
    }
    reader.read_batch(&mut requests, &mut |request, result| {
        if let Some(slot) = places.get(request).and_then(|place| jobs.get_mut(*place)) {
            end(slot, result);
        }
    });
}

/// The extent of a job and its buffer as an address and a length.
fn request(slot: &mut Option<Job>) -> Option<Result<(Extent, *mut u8, usize), ReadError>> {
    let job = slot.as_mut()?;
    let extent = *job.extent();
    let buffer = job.buffer();
    Some(if buffer.len() as u64 == extent.len() {
        Ok((extent, buffer.as_mut_ptr(), buffer.len()))
    } else {
        Err(ReadError::buffer_length(&extent, buffer.len()))
    })
}

fn end(slot: &mut Option<Job>, result: Result<(), ReadError>) {
    if let Some(job) = slot.take() {
        job.complete(result);
    }
}
