//! Many policies and sizes in one run.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::{ReplayError, Requests, Run, Simulation, named_policy};

/// One policy at one size.
#[derive(Debug)]
#[non_exhaustive]
pub struct Point {
    /// The policy's name, as it was asked for.
    pub policy: String,
    /// Slots that were asked for.
    pub slots: usize,
    /// What was counted, or why nothing was: some policies refuse small pools.
    pub outcome: Result<Run, ReplayError>,
}

/// Replays `requests` under every policy (names as for [`named_policy`]) at every number of
/// slots, as `simulation` says otherwise, on all threads of the current rayon pool. Points come
/// by policy, then by size, whatever the order in which they were computed. `progress` hears how
/// many are done, from any thread.
///
/// # Errors
/// [`ReplayError::Policy`] for an unknown name, before anything is replayed;
/// [`ReplayError::Cancelled`].
pub fn curve(
    requests: &Requests,
    policies: &[String],
    slots: &[usize],
    simulation: &Simulation,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Point>, ReplayError> {
    for name in policies {
        named_policy(name, requests)?;
    }
    let grid: Vec<(&String, usize)> = policies
        .iter()
        .flat_map(|policy| slots.iter().map(move |slots| (policy, *slots)))
        .collect();
    let done = AtomicUsize::new(0);
    let points = grid.into_par_iter().map(|(policy, slots)| {
        let outcome = named_policy(policy, requests)
            .and_then(|policy| simulation.clone().slots(slots).run(requests, policy));
        if let Err(error @ ReplayError::Cancelled) = outcome {
            return Err(error);
        }
        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(Point { policy: policy.clone(), slots, outcome })
    });
    points.collect()
}
