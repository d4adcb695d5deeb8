//! Policies by name, with the one that an engine cannot have.

use slotstream_cache::{ForecastAware, parse_policy, policy_names};
use slotstream_core::EvictionPolicy;

use crate::{Opt, ReplayError, Requests};

/// The name of [`Opt`].
pub(crate) const OPT: &str = "opt";

/// What a combinator combines where a list of all policies has to choose.
const INSIDE: &str = "clock";

/// The policy that `name` names in a replay of `requests`: `opt`, or whatever [`parse_policy`]
/// knows, also with `forecast-aware:` before it.
///
/// # Errors
/// [`ReplayError::Policy`] for an unknown name.
pub fn named_policy<'a>(
    name: &str,
    requests: &'a Requests,
) -> Result<Box<dyn EvictionPolicy + 'a>, ReplayError> {
    if name == OPT {
        return Ok(Box::new(Opt::new(requests)));
    }
    parse_known(name)
}

/// What a replay puts before a policy's name to spare what forecasts have named.
const AWARE: &str = "forecast-aware:";

/// A policy that an engine can have, too.
pub(crate) fn parse_known(name: &str) -> Result<Box<dyn EvictionPolicy>, ReplayError> {
    if let Some(inside) = name.strip_prefix(AWARE) {
        let inside = parse_policy(inside).map_err(|source| ReplayError::Policy { source })?;
        return Ok(Box::new(ForecastAware::new(inside)));
    }
    parse_policy(name).map_err(|source| ReplayError::Policy { source })
}

/// The names of all policies, `opt` first; combinators around `clock`.
#[must_use]
pub fn all_policies() -> Vec<String> {
    let built_in =
        policy_names().map(|name| if name.ends_with(':') { name + INSIDE } else { name });
    std::iter::once(OPT.to_owned()).chain(built_in).collect()
}
