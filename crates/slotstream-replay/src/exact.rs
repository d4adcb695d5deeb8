//! The recorded run once more: requests and outcomes through a pool of the same policy.

use slotstream_cache::{Abort, CacheError, Claim, Demand, Ensured, Found, SlotPool, parse_policy};
use slotstream_core::{
    EventSink, EvictionPolicy, ExpertKey, LayerIdx, Origin, Outcome, Phase, Prediction, Routing,
    SlotId, Step, Tap,
};

use crate::trace::{Played, PoolEnd, TraceError, TraceHeader};

/// Drives a pool through a recording's requests and outcomes, as the engine drove its own: at the
/// end every counter and every slot's content is that of the engine.
///
/// It is an [`EventSink`]: play a trace into it, or let it run beside an engine. The first thing
/// that does not fit is kept ([`error`](Self::error)) and ends the replay.
///
/// # Exactness
/// Policy, parameters and seed must be those of the recorded run. Outcomes are needed: a
/// recording of requests alone diverges at once. A recorded run whose policy panicked cannot be
/// replayed, because the replay's policy panics as well.
#[derive(Debug)]
pub struct ExactReplay<P: EvictionPolicy = Box<dyn EvictionPolicy>> {
    pool: SlotPool<P>,
    demand: Demand,
    ensured: Ensured,
    call: Option<Call>,
    /// Claims of forecasts that no layer has demanded.
    reserved: Vec<Claim>,
    /// Number of the next event.
    event: u64,
    error: Option<TraceError>,
}

/// A layer's call.
#[derive(Debug)]
struct Call {
    layer: LayerIdx,
    phase: Phase,
    /// Records of a wave; 0 until the call begins, which is when something is told of it: a call
    /// that was lost in a panic of somebody else's never reached the pool.
    capacity: usize,
    /// Experts that are in waves so far.
    begun: usize,
    /// Claims of the running wave.
    open: Vec<Claim>,
    /// Adopted forecasts of the running wave that were not yet told.
    adopted: Vec<ExpertKey>,
    refused: Refused,
}

/// Whether the pool refused a wave of the call.
#[derive(Debug)]
enum Refused {
    No,
    /// The replay's pool did; the recording has not said so yet.
    Here(CacheError),
    /// Both did.
    Told,
}

impl ExactReplay {
    /// A replay of a trace with this header under the built-in policy that it names.
    ///
    /// # Errors
    /// [`TraceError::Policy`] when it names another one; as [`new`](Self::new).
    pub fn recorded(header: &TraceHeader) -> Result<Self, TraceError> {
        let policy = parse_policy(&header.policy);
        Self::new(header, policy.map_err(|source| TraceError::Policy { source })?)
    }
}

impl<P: EvictionPolicy> ExactReplay<P> {
    /// A replay of a trace with this header, under `policy`, which must be the recorded one.
    ///
    /// # Errors
    /// [`TraceError::Diverged`] when the header is of no pool or the policy has another name than
    /// the recorded one; [`TraceError::Pool`] when the pool refuses its size or the policy.
    pub fn new(header: &TraceHeader, policy: P) -> Result<Self, TraceError> {
        let differs = |expected: String, found: String| {
            Err(TraceError::Diverged { event: 0, expected, found })
        };
        if header.slots == 0 {
            return differs("a recorded pool".into(), "requests of no pool".into());
        }
        // As a user wrote it, a name may have another form than the policy's own.
        let recorded = parse_policy(&header.policy).map(|recorded| recorded.name());
        if recorded.as_ref().unwrap_or(&header.policy) != &policy.name() {
            return differs(format!("policy {}", policy.name()), format!("{:?}", header.policy));
        }
        Self::with_pool(header, policy)
    }

    /// [`new`](Self::new) for a policy whose name does not say its parameters: it may be called
    /// otherwise than in the header.
    ///
    /// # Errors
    /// [`TraceError::Pool`] when the pool refuses its size or the policy.
    pub fn with_pool(header: &TraceHeader, policy: P) -> Result<Self, TraceError> {
        let TraceHeader { geometry, slots, floor, .. } = *header;
        let pool = if floor == geometry.floor_slots() {
            SlotPool::new(geometry, slots, policy)
        } else {
            SlotPool::unfloored(geometry, slots, policy)
        };
        Ok(Self {
            pool: pool.map_err(|source| TraceError::pool(0, source))?,
            demand: Demand::new(),
            ensured: Ensured::with_capacity(geometry.experts()),
            call: None,
            reserved: Vec::new(),
            event: 0,
            error: None,
        })
    }

    /// The pool as it is now.
    #[must_use]
    pub const fn pool(&self) -> &SlotPool<P> {
        &self.pool
    }

    /// What ended the replay before its time.
    #[must_use]
    pub const fn error(&self) -> Option<&TraceError> {
        self.error.as_ref()
    }

    /// The pool at the end.
    ///
    /// # Errors
    /// What ended the replay before its time; [`TraceError::Diverged`] when it stopped within the
    /// call of a layer.
    pub fn finish(mut self) -> Result<SlotPool<P>, TraceError> {
        match (self.error.take(), &self.call) {
            (Some(error), _) => Err(error),
            (None, Some(call)) => {
                let expected = format!("the end of the call of {}", call.layer);
                Err(self.diverged(expected, "the end of the recording"))
            }
            (None, None) => Ok(self.pool),
        }
    }

    /// [`finish`](Self::finish), after comparing the pool with the recorded one, if the trace has
    /// it at its end.
    ///
    /// # Errors
    /// As [`finish`](Self::finish); [`TraceError::Diverged`] when counters, slots or content
    /// differ.
    pub fn verify(self, played: &Played) -> Result<SlotPool<P>, TraceError> {
        let event = self.event;
        let pool = self.finish()?;
        let Some(live) = played.end.and_then(|end| end.pool) else { return Ok(pool) };
        let here = PoolEnd::of(&pool);
        if live == here {
            return Ok(pool);
        }
        let [expected, found] = [(here, live), (live, here)].map(|(one, other)| {
            let differ = one.differences(other).map(|(name, figure, _)| format!("{name} {figure}"));
            differ.collect::<Vec<_>>().join(", ")
        });
        Err(TraceError::Diverged { event, expected, found })
    }

    fn diverged(&self, expected: impl Into<String>, found: impl Into<String>) -> TraceError {
        // Events are counted when they come.
        let event = self.event.saturating_sub(1);
        TraceError::Diverged { event, expected: expected.into(), found: found.into() }
    }

    /// Takes the next event, unless an earlier one did not fit.
    fn attempt(&mut self, take: impl FnOnce(&mut Self) -> Result<(), TraceError>) {
        if self.error.is_none() {
            self.event += 1;
            self.error = take(self).err();
        }
    }

    fn refused(&self, source: CacheError) -> TraceError {
        TraceError::pool(self.event.saturating_sub(1), source)
    }

    /// Between two calls.
    fn between(&self, found: &str) -> Result<(), TraceError> {
        match &self.call {
            None => Ok(()),
            Some(call) => {
                let expected = format!("what befell the call of {}, or its end", call.layer);
                Err(self.diverged(expected, found))
            }
        }
    }

    fn routing(&mut self, routing: &Routing<'_>) -> Result<(), TraceError> {
        self.between("the routing of another layer")?;
        self.pool.routing(routing).map_err(|e| self.refused(e))?;
        self.demand.read(routing);
        self.call = Some(Call {
            layer: routing.layer(),
            phase: routing.phase(),
            capacity: 0,
            begun: 0,
            open: Vec::new(),
            adopted: Vec::new(),
            refused: Refused::No,
        });
        Ok(())
    }

    /// The running call; its first wave is there from now on.
    fn begin(&mut self) -> Result<(), TraceError> {
        let capacity = self.pool.capacity();
        let Some(call) = &mut self.call else { return Ok(()) };
        if call.capacity > 0 || !matches!(call.refused, Refused::No) {
            return Ok(());
        }
        if let Err(error) = self.pool.waves(&[]) {
            // Every slot is claimed.
            call.begun = self.demand.experts().len();
            call.refused = Refused::Here(error);
            return Ok(());
        }
        call.capacity = capacity;
        self.demand.split(capacity);
        self.start_wave()
    }

    /// Waves that have not begun.
    fn waves_left(&self) -> usize {
        let Some(call) = &self.call else { return 0 };
        (self.demand.experts().len() - call.begun).div_ceil(call.capacity.max(1))
    }

    /// Pins and claims what the next wave needs.
    fn start_wave(&mut self) -> Result<(), TraceError> {
        let Some(call) = &mut self.call else { return Ok(()) };
        let end = (call.begun + call.capacity).min(self.demand.experts().len());
        let wave = call.begun..end;
        call.begun = end;
        let (experts, counts) = (&self.demand.experts()[wave.clone()], &self.demand.counts()[wave]);
        let (layer, phase, ensured) = (call.layer, call.phase, &mut self.ensured);
        match self.pool.ensure_counted(layer, experts, counts, phase, ensured) {
            Ok(()) => {}
            // The engine's pool has refused it, too, if the policy is the same.
            Err(e @ (CacheError::PolicyViolation { .. } | CacheError::Exhausted { .. })) => {
                call.refused = Refused::Here(e);
                return Ok(());
            }
            Err(e) => return Err(self.refused(e)),
        }
        call.open.extend(ensured.take_claims());
        for entry in ensured.entries().iter().filter(|entry| entry.found == Found::Adopted) {
            let key = ExpertKey::new(layer, entry.expert);
            if let Some(at) = self.reserved.iter().position(|claim| claim.key() == key) {
                call.open.push(self.reserved.remove(at));
                call.adopted.push(key);
            }
        }
        Ok(())
    }

    /// All reads of the running wave that did not fail have arrived.
    fn complete_wave(&mut self) -> Result<(), TraceError> {
        let open = self.call.as_mut().map(|call| std::mem::take(&mut call.open));
        for claim in open.into_iter().flatten() {
            self.pool.publish(claim).map_err(|e| self.refused(e))?;
        }
        self.pool.release();
        Ok(())
    }

    /// Goes on to the next wave; `false` when there is none.
    fn next_wave(&mut self) -> Result<bool, TraceError> {
        let stopped = self.call.as_ref().is_none_or(|c| !matches!(c.refused, Refused::No));
        if stopped || self.waves_left() == 0 {
            return Ok(false);
        }
        self.complete_wave()?;
        self.start_wave()?;
        Ok(true)
    }

    /// Goes on to the wave that has claimed `key`, and takes the claim.
    fn claim_of(&mut self, key: ExpertKey) -> Result<Claim, TraceError> {
        if let Some(at) = self.reserved.iter().position(|claim| claim.key() == key) {
            return Ok(self.reserved.remove(at));
        }
        self.begin()?;
        loop {
            if let Some(call) = &mut self.call
                && let Some(at) = call.open.iter().position(|claim| claim.key() == key)
            {
                return Ok(call.open.remove(at));
            }
            if !self.next_wave()? {
                return Err(self.diverged("a record that is being read", key.to_string()));
            }
        }
    }

    fn give_up(
        &mut self,
        (slot, key, origin): (SlotId, ExpertKey, Origin),
        why: Abort,
    ) -> Result<(), TraceError> {
        let claim = self.claim_of(key)?;
        self.same_claim(&claim, slot, origin)?;
        self.pool.abort(claim, why).map_err(|e| self.refused(e))
    }

    fn same_claim(&self, claim: &Claim, slot: SlotId, origin: Origin) -> Result<(), TraceError> {
        if claim.slot() == slot && claim.origin() == origin {
            return Ok(());
        }
        let told = |slot: SlotId, origin| format!("{} in {slot} ({origin:?})", claim.key());
        Err(self.diverged(told(claim.slot(), claim.origin()), told(slot, origin)))
    }

    /// A claim outside of any call.
    fn claim(&mut self, slot: SlotId, key: ExpertKey, o: Origin) -> Result<Claim, TraceError> {
        self.begin()?;
        let claim = self.pool.claim(key, o).map_err(|e| self.refused(e))?;
        self.same_claim(&claim, slot, o)?;
        Ok(claim)
    }

    /// A record that was to be admitted and was not.
    fn not_admitted(&mut self, key: ExpertKey, origin: Origin) -> Result<(), TraceError> {
        self.begin()?;
        match self.pool.claim(key, origin) {
            Err(CacheError::NotAdmitted { .. } | CacheError::PolicyViolation { .. }) => Ok(()),
            Err(error) => Err(self.refused(error)),
            Ok(claim) => {
                let expected = format!("{key} admitted to {}", claim.slot());
                Err(self.diverged(expected, "that it was not"))
            }
        }
    }

    fn withdraw(&mut self, key: ExpertKey) -> Result<(), TraceError> {
        let Some(at) = self.reserved.iter().position(|claim| claim.key() == key) else {
            return Err(self.diverged("a reserved record", key.to_string()));
        };
        let claim = self.reserved.remove(at);
        self.pool.abort(claim, Abort::Withdrawn).map_err(|e| self.refused(e))
    }

    /// A forecast record was demanded: goes on to the wave that adopts it.
    fn adopt(&mut self, key: ExpertKey, slot: Option<SlotId>) -> Result<(), TraceError> {
        self.begin()?;
        loop {
            if let Some(call) = &mut self.call
                && let Some(at) = call.adopted.iter().position(|adopted| *adopted == key)
            {
                call.adopted.remove(at);
                let claim = call.open.iter().find(|claim| claim.key() == key);
                let found = claim.map(Claim::slot);
                if slot.is_some() && slot != found {
                    let (expected, found) = (format!("{found:?}"), format!("{slot:?}"));
                    return Err(self.diverged(expected, found));
                }
                return Ok(());
            }
            if !self.next_wave()? {
                return Err(self.diverged("an adopted record", key.to_string()));
            }
        }
    }

    fn refuse(&mut self, layer: LayerIdx) -> Result<(), TraceError> {
        self.begin()?;
        loop {
            match &mut self.call {
                Some(call) if call.layer == layer => {
                    if let Refused::Here(_) = call.refused {
                        call.refused = Refused::Told;
                        return Ok(());
                    }
                }
                _ => {}
            }
            if !self.next_wave()? {
                let found = format!("a refused wave of {layer}");
                return Err(self.diverged("no wave to be refused", found));
            }
        }
    }

    fn end(&mut self, layer: LayerIdx, waves: usize) -> Result<(), TraceError> {
        self.begin()?;
        if self.call.as_ref().is_none_or(|call| call.layer != layer) {
            let running = self.call.as_ref().map(|call| call.layer);
            let expected = running.map_or("no call".to_owned(), |l| format!("the call of {l}"));
            return Err(self.diverged(expected, format!("the end of the call of {layer}")));
        }
        while self.waves_left() > waves && self.next_wave()? {}
        let left = self.waves_left();
        if let Some(Call { refused: Refused::Here(error), .. }) = &self.call {
            return Err(self.diverged(format!("a refusal: {error}"), "the end of the call"));
        }
        if left != waves {
            let expected = format!("{left} waves of {layer} left");
            return Err(self.diverged(expected, format!("{waves}")));
        }
        self.complete_wave()?;
        self.call = None;
        Ok(())
    }

    fn resize(&mut self, slots: usize) -> Result<(), TraceError> {
        self.between("another size of the pool")?;
        self.pool.resize(slots).map_err(|e| self.refused(e))
    }

    /// Claims are stale from now on: they are dropped.
    fn clear(&mut self) {
        self.call = None;
        self.reserved.clear();
        self.ensured.clear();
        self.pool.clear();
    }

    fn outcome(&mut self, outcome: &Outcome) -> Result<(), TraceError> {
        match *outcome {
            Outcome::Failed { slot, key, origin } => {
                self.give_up((slot, key, origin), Abort::ReadFailed)
            }
            // Admitted, and then there was no memory for it.
            Outcome::Withdrawn { slot, key, origin } if self.call.is_none() => {
                let claim = self.claim(slot, key, origin)?;
                self.pool.abort(claim, Abort::Withdrawn).map_err(|e| self.refused(e))
            }
            Outcome::Withdrawn { slot, key, origin } => {
                self.give_up((slot, key, origin), Abort::Withdrawn)
            }
            Outcome::Reserved { slot, key } => {
                let claim = self.claim(slot, key, Origin::Prefetch)?;
                self.reserved.push(claim);
                Ok(())
            }
            Outcome::Admitted { slot, key, origin } => {
                let claim = self.claim(slot, key, origin)?;
                self.pool.publish(claim).map_err(|e| self.refused(e))
            }
            Outcome::NotAdmitted { key, origin } => self.not_admitted(key, origin),
            Outcome::Adopted { slot, key } => self.adopt(key, Some(slot)),
            Outcome::Late { key } => self.adopt(key, None),
            Outcome::Cancelled { key } | Outcome::Expired { key } => self.withdraw(key),
            Outcome::Refused { layer } => self.refuse(layer),
            Outcome::Ended { layer, waves } => self.end(layer, waves),
            Outcome::Resized { slots } => self.resize(slots),
            Outcome::Swept { layer, .. } => {
                // Read outside of the pool, which never saw the call.
                let swept = self.call.take_if(|call| call.layer == layer && call.capacity == 0);
                let told = swept.map(|_| ());
                told.ok_or_else(|| self.diverged("a routing before the sweep", layer.to_string()))
            }
            Outcome::Cleared => {
                self.clear();
                Ok(())
            }
            Outcome::CountersReset => {
                self.begin()?;
                self.pool.reset_counters();
                Ok(())
            }
            _ => Err(self.diverged("an outcome that this version knows", format!("{outcome:?}"))),
        }
    }
}

impl<P: EvictionPolicy> EventSink for ExactReplay<P> {
    fn on_step(&mut self, step: &Step<'_>) {
        self.attempt(|replay| {
            replay.between("a new pass")?;
            replay.pool.begin_step(step).map_err(|e| replay.refused(e))
        });
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.attempt(|replay| replay.routing(routing));
    }

    fn on_forecast(&mut self, _at: Tap, predictions: &[Prediction]) {
        self.attempt(|replay| {
            replay.begin()?;
            replay.pool.forecast(predictions).map_err(|e| replay.refused(e))
        });
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        self.attempt(|replay| replay.outcome(outcome));
    }
}
