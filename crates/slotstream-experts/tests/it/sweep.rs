//! Sweeps: what they read, what they leave behind, and that they change no bit.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use slotstream_cache::Clock;
use slotstream_candle::{Error, ExpertProvider, HostOps};
use slotstream_core::{
    CancelToken, ErrorKind, EvictionPolicy, ExpertIdx, ExpertKey, Extent, FileId, Incoming,
    LayerIdx, Origin, PassId, Phase, ReadError, ReadQueue, ReaderMode, RecordReader, RemoveCause,
    Routing, SessionId, SlotId, SlotView, Step,
};
use slotstream_experts::{
    ExpertsError, PassHints, PrefillSweep, PromptPass, RecordIndex, StreamingExperts,
};
use slotstream_io::{LaneQueue, MemReader};
use slotstream_kernels::Reference;
use slotstream_replay::{ExactReplay, PoolEnd, Shared, TraceHeader};
use slotstream_testkit::reader::{CountingReader, FaultyReader, Schedule};

use super::{EXPERTS, File, TOP_K, geometry, layout, rows, weights};

/// More than a run reads over.
const APART: usize = (64 << 10) + 64;

/// How the records of [`File`] lie in the file that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As in shards: one stacked tensor for each layer and piece, far apart.
    Stacked,
    /// As in a container: whole records, a stride each.
    Container,
}

#[derive(Clone, Debug)]
struct Store {
    kind: Kind,
    bytes: Vec<u8>,
}

impl Store {
    fn new(kind: Kind) -> Self {
        let (file, layout) = (File::new(), layout());
        let mut store = Self { kind, bytes: Vec::new() };
        for record in 0..geometry().records() {
            let key = geometry().key(record).expect("in range");
            let from = file.pieces(key).expect("in range");
            for (piece, extent) in from.iter().enumerate() {
                let to = match kind {
                    Kind::Stacked => store.piece(record, piece),
                    Kind::Container => record * layout.stride() + layout.pieces()[piece].offset,
                };
                let bytes = &file.bytes[extent.offset() as usize..extent.end() as usize];
                let len = store.bytes.len().max(to + bytes.len());
                store.bytes.resize(len, 0);
                store.bytes[to..to + bytes.len()].copy_from_slice(bytes);
            }
        }
        store
    }

    /// Where a piece begins among stacked tensors.
    fn piece(&self, record: usize, piece: usize) -> usize {
        let lens = layout().pieces().map(|piece| piece.len);
        let tensors = |lens: &[usize]| lens.iter().map(|len| EXPERTS * len + APART).sum::<usize>();
        let (layer, expert) = (record / EXPERTS, record % EXPERTS);
        layer * tensors(&lens) + tensors(&lens[..piece]) + expert * lens[piece]
    }
}

impl RecordIndex for Store {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        let record = geometry().index(key)?;
        let layout = layout();
        Some(std::array::from_fn(|piece| {
            let (at, len) = (self.piece(record, piece), layout.pieces()[piece].len);
            Extent::new(FileId::new(0), at as u64, len as u64).expect("small")
        }))
    }

    fn whole(&self, key: ExpertKey) -> Option<Extent> {
        let (record, layout) = (geometry().index(key)?, layout());
        let (at, len) = (record * layout.stride(), layout.record_len());
        (self.kind == Kind::Container)
            .then(|| Extent::new(FileId::new(0), at as u64, len as u64).expect("small"))
    }

    fn tensor(&self, extent: &Extent) -> Option<String> {
        Some(format!("tensor at {}", extent.offset()))
    }
}

/// Sets a token when a read begins.
#[derive(Debug)]
struct Tripwire<R> {
    inner: R,
    left: AtomicU64,
    token: Mutex<CancelToken>,
}

impl<R: RecordReader> RecordReader for Tripwire<R> {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.token.lock().expect("not poisoned").cancel();
        }
        self.inner.read_exact_at(extent, buffer)
    }
    fn effective(&self) -> ReaderMode {
        self.inner.effective()
    }
    fn path(&self, file: FileId) -> Option<&std::path::Path> {
        self.inner.path(file)
    }
}

type Reader = Tripwire<FaultyReader<CountingReader<MemReader>>>;

/// A provider over a store, a policy that is watched, and a replay that runs beside.
struct Rig {
    experts: StreamingExperts,
    reader: Arc<Reader>,
    heard: Arc<Mutex<Vec<Heard>>>,
    replay: Shared<ExactReplay<Watched>>,
    passes: u64,
}

/// What a policy heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Hit(ExpertKey),
    Miss(ExpertKey),
    Insert(ExpertKey, Origin),
    Remove(ExpertKey, RemoveCause),
    Admit(ExpertKey, Origin),
    Routing(LayerIdx),
}

/// How a watched policy answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Lawful,
    /// Admits every second record only.
    Picky,
    /// Names a slot that there is not, when it is asked for the sake of a prompt.
    Unlawful,
}

/// Writes down what it hears.
#[derive(Debug)]
struct Watched {
    clock: Clock,
    mood: Mood,
    asked: u32,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Watched {
    fn new(mood: Mood, heard: Arc<Mutex<Vec<Heard>>>) -> Self {
        Self { clock: Clock::new(), mood, asked: 0, heard }
    }

    fn hear(&self, what: Heard) {
        self.heard.lock().expect("not poisoned").push(what);
    }
}

impl EvictionPolicy for Watched {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.hear(Heard::Insert(key, origin));
        self.clock.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.hear(Heard::Hit(key));
        self.clock.on_hit(slot, key);
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.hear(Heard::Miss(key));
        self.clock.on_miss(key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.hear(Heard::Remove(key, cause));
        self.clock.on_remove(slot, key, cause);
    }
    fn admit(&mut self, key: ExpertKey, origin: Origin) -> bool {
        self.hear(Heard::Admit(key, origin));
        self.asked += 1;
        self.mood != Mood::Picky || self.asked.is_multiple_of(2)
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.hear(Heard::Routing(routing.layer()));
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        if self.mood == Mood::Unlawful && incoming.origin == Origin::PromptHot {
            return Some(SlotId::new(u32::MAX));
        }
        self.clock.choose_victim(incoming, view)
    }
    fn bind(
        &mut self,
        geometry: &slotstream_core::Geometry,
        slots: usize,
    ) -> Result<(), slotstream_core::BindError> {
        self.clock.bind(geometry, slots)
    }
    fn reset(&mut self) {
        self.clock.reset();
    }
}

fn distinct([a, b, c]: [u16; TOP_K]) -> [u16; TOP_K] {
    let free = (0..8).map(|more| (c + more) % 8).find(|c| *c != a && *c != b);
    [a, b, free.expect("eight experts")]
}

/// Rows with routes that use every expert of a layer.
fn routes(m: usize) -> Vec<[u16; TOP_K]> {
    (0..m as u16).map(|i| [i % 8, (i + 3) % 8, (i * 3 + 6) % 8]).map(distinct).collect()
}

impl Rig {
    fn new(store: &Store, slots: usize, sweep: PrefillSweep, mood: Mood) -> Self {
        let reader = MemReader::from_bytes(vec![store.bytes.clone()]).expect("small");
        let fault = std::io::ErrorKind::InvalidData;
        let reader = FaultyReader::new(CountingReader::new(reader), Schedule::Never, fault);
        let (left, token) = (AtomicU64::new(u64::MAX), Mutex::default());
        let reader = Arc::new(Tripwire { inner: reader, left, token });
        let lanes = LaneQueue::new(Arc::clone(&reader) as Arc<dyn RecordReader>, 3);
        let queue: Arc<dyn ReadQueue> = Arc::new(lanes.expect("lanes"));
        let mut header = TraceHeader::requests(geometry());
        (header.slots, header.floor) = (slots, geometry().floor_slots());
        let replayed = Watched::new(mood, Arc::default());
        let replay = ExactReplay::with_pool(&header, replayed).expect("legal");
        let (heard, replay) = (Arc::default(), Shared::new(replay));
        let experts = StreamingExperts::builder(geometry(), layout(), slots)
            .with_policy(Box::new(Watched::new(mood, Arc::clone(&heard))))
            .with_sink(Box::new(replay.clone()))
            .with_sweep(sweep)
            .build(Arc::new(store.clone()), queue, Arc::new(HostOps::new(Arc::new(Reference))))
            .expect("builds");
        Self { experts, reader, heard, replay, passes: 0 }
    }

    /// One pass over both layers, the same routes in both; the sums of both.
    fn pass(&mut self, routes: &[[u16; TOP_K]], hints: PassHints) -> Result<Vec<f32>, Error> {
        self.passes += 1;
        let (m, tokens) = (routes.len(), vec![0; routes.len()]);
        let ids: Vec<_> = routes.concat().into_iter().map(ExpertIdx::new).collect();
        let phase = if m == 1 { Phase::Decode } else { Phase::Prefill };
        let (pass, session) = (PassId::new(self.passes), SessionId::new(1));
        let step = Step { pass, phase, session, position: 0, tokens: &tokens };
        self.experts.hint(hints);
        self.experts.begin_pass(&step)?;
        let run = |experts: &mut StreamingExperts, layer| {
            let routing = Routing::new(&step, LayerIdx::new(layer), TOP_K, &ids, &[]);
            experts.demand(&routing)?;
            let y = experts.compute(&rows(m), &weights(m))?;
            Ok(y.flatten_all().and_then(|t| t.to_vec1::<f32>()).expect("f32"))
        };
        let result: Result<Vec<_>, Error> =
            (0..2).map(|layer| run(&mut self.experts, layer)).collect();
        self.experts.end_pass();
        self.experts.pool().validate().expect("consistent");
        assert_eq!(self.experts.pool().open_claims(), 0);
        result.map(|sums| sums.concat())
    }

    fn plain(&mut self, routes: &[[u16; TOP_K]]) -> Vec<f32> {
        self.pass(routes, PassHints::new()).expect("runs")
    }

    fn log(&self) -> Vec<Extent> {
        self.reader.inner.inner().log()
    }

    fn take_heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.heard.lock().expect("not poisoned"))
    }

    fn is_resident(&self, layer: u16, expert: u16) -> bool {
        let key = ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert));
        self.experts.pool().is_resident(key)
    }

    /// The replay that ran beside ended with the same pool.
    fn assert_replayed(self) {
        let live = PoolEnd::of(self.experts.pool());
        drop(self.experts);
        let replay = self.replay.into_inner().expect("the provider is gone");
        assert_eq!(PoolEnd::of(&replay.finish().expect("the same")), live);
    }
}

fn last() -> PassHints {
    PassHints::new().with_prompt(PromptPass { first: true, last: true })
}

#[test]
fn a_sweep_changes_no_bit() {
    for kind in [Kind::Stacked, Kind::Container] {
        let store = Store::new(kind);
        for m in [2, 3, 8, 17] {
            let routes = routes(m);
            let want = Rig::new(&store, 6, PrefillSweep::Off, Mood::Lawful).plain(&routes);
            for slots in [6, 7, 16] {
                for rows in [1, m, m + 1] {
                    let sweep = PrefillSweep::Rows(rows);
                    let mut rig = Rig::new(&store, slots, sweep, Mood::Lawful);
                    // Cold, beside what the pool then holds, and with hot experts admitted.
                    for round in 0..4 {
                        let what = format!("{kind:?} {m} {slots} {rows} {round}");
                        let hints = if round < 2 { PassHints::new() } else { last() };
                        assert!(rig.pass(&routes, hints).expect("runs") == want, "{what}");
                        rig.plain(&[[1, 2, 5]]);
                    }
                    assert_eq!(rig.experts.metrics().sweeps, if rows > m { 0 } else { 8 });
                    rig.assert_replayed();
                }
            }
        }
    }
}

#[test]
fn every_record_is_read_once_and_with_its_neighbours() {
    let payload = layout().payload_len() as u64;
    for (kind, reads) in [(Kind::Stacked, 9), (Kind::Container, 1)] {
        let mut rig = Rig::new(&Store::new(kind), 6, PrefillSweep::Rows(2), Mood::Lawful);
        rig.plain(&routes(20));
        // A block has a quarter of the experts, here two.
        let log = rig.log();
        assert_eq!(log.len(), 2 * 4 * reads, "{kind:?}");
        let mut sorted = log.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0].end() <= pair[1].offset()), "{kind:?}");
        let metrics = *rig.experts.metrics();
        assert_eq!((metrics.sweeps, metrics.swept_records, metrics.swept_resident), (2, 16, 0));
        assert_eq!((metrics.sweep_runs, metrics.records_read), (log.len() as u64, 0));
        let bytes = log.iter().map(Extent::len);
        assert_eq!(metrics.sweep_bytes, bytes.clone().sum::<u64>());
        assert_eq!(metrics.longest_run, bytes.max().expect("some"));
        assert!(metrics.sweep_bytes >= 16 * payload);
        assert_eq!(rig.experts.pool().resident_count(), 0, "nothing asked to stay");
    }
}

#[test]
fn what_is_resident_is_not_read() {
    let store = Store::new(Kind::Container);
    let mut rig = Rig::new(&store, 16, PrefillSweep::Rows(2), Mood::Lawful);
    rig.plain(&[[1, 2, 5]]);
    let before = (PoolEnd::of(rig.experts.pool()), rig.log().len());
    rig.plain(&routes(20));
    let metrics = *rig.experts.metrics();
    assert_eq!((metrics.swept_records, metrics.swept_resident), (10, 6));
    assert_eq!(PoolEnd::of(rig.experts.pool()), before.0, "neither content nor counters");
    let stride = layout().stride() as u64;
    let read: Vec<u64> = rig.log()[before.1..].iter().map(Extent::offset).collect();
    assert!(read.iter().all(|at| ![1, 2, 5].contains(&(at / stride % 8))), "{read:?}");
}

#[test]
fn a_policy_hears_the_routing_and_nothing_else() {
    let store = Store::new(Kind::Stacked);
    let mut rig = Rig::new(&store, 6, PrefillSweep::Rows(2), Mood::Lawful);
    let layers = [0, 1].map(LayerIdx::new);
    rig.plain(&routes(20));
    assert_eq!(rig.take_heard(), layers.map(Heard::Routing));
    // A pass below the threshold goes through the pool.
    rig.plain(&[[1, 2, 5]]);
    let heard = rig.take_heard();
    assert!(heard.iter().any(|event| matches!(event, Heard::Miss(_))));
    rig.plain(&[[1, 2, 5]]);
    assert!(rig.take_heard().iter().any(|event| matches!(event, Heard::Hit(_))));
}

#[test]
fn the_hottest_of_the_prompt_are_admitted_when_it_ends() {
    for kind in [Kind::Stacked, Kind::Container] {
        let store = Store::new(kind);
        // Three slots a layer.
        let mut rig = Rig::new(&store, 6, PrefillSweep::Rows(2), Mood::Lawful);
        let prompt = |first, last| PassHints::new().with_prompt(PromptPass { first, last });
        // A prompt that was given up counts no more.
        rig.pass(&[[7, 6, 3]; 9], prompt(true, false)).expect("runs");
        rig.pass(&[[0, 1, 2], [0, 1, 4], [0, 1, 5]], prompt(true, false)).expect("runs");
        assert_eq!(rig.experts.pool().resident_count(), 0);
        rig.take_heard();
        let before = rig.log().len();
        // 0, 1 and 4 thrice each; 0 and 1 are not used by this pass and read to be admitted.
        rig.pass(&[[4, 5, 6], [4, 6, 7]], prompt(false, true)).expect("runs");
        for layer in [0, 1] {
            let resident: Vec<u16> = (0..8).filter(|e| rig.is_resident(layer, *e)).collect();
            assert_eq!(resident, [0, 1, 4], "{kind:?} {layer}");
        }
        let metrics = *rig.experts.metrics();
        assert_eq!((metrics.hot_admitted, metrics.hot_refused), (6, 0));
        assert_eq!(rig.experts.pool().counters().claims.prompt_hot, 6);
        assert_eq!(rig.experts.pool().counters().prefill, Default::default());
        let key = |layer, expert| ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert));
        let admitted = |layer| {
            let each = [0, 1, 4].map(|e| key(layer, e)).into_iter();
            let each = each.flat_map(|key| {
                [Heard::Admit(key, Origin::PromptHot), Heard::Insert(key, Origin::PromptHot)]
            });
            std::iter::once(Heard::Routing(LayerIdx::new(layer))).chain(each)
        };
        assert_eq!(rig.take_heard(), admitted(0).chain(admitted(1)).collect::<Vec<_>>());
        let read = rig.log().len();
        assert!(read > before);
        // What was admitted has its bytes: a token that uses it reads nothing.
        let want = Rig::new(&store, 16, PrefillSweep::Off, Mood::Lawful).plain(&[[4, 0, 1]]);
        assert!(rig.plain(&[[4, 0, 1]]) == want);
        assert_eq!(rig.log().len(), read);
        assert_eq!(rig.experts.pool().counters().decode.hits, 6);
        rig.assert_replayed();
    }
}

#[test]
fn a_full_pool_gives_up_what_its_policy_says() {
    let store = Store::new(Kind::Container);
    let mut rig = Rig::new(&store, 6, PrefillSweep::Rows(2), Mood::Lawful);
    rig.plain(&[[2, 3, 5]]);
    rig.take_heard();
    rig.pass(&[[6, 7, 5], [6, 7, 4]], last()).expect("runs");
    let heard = rig.take_heard();
    let key = |layer, expert| ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert));
    let mut slots: HashSet<ExpertKey> =
        [0, 1].into_iter().flat_map(|layer| [2, 3, 5].map(|expert| key(layer, expert))).collect();
    for event in &heard {
        match event {
            Heard::Remove(key, RemoveCause::Evicted) => assert!(slots.remove(key)),
            Heard::Insert(key, Origin::PromptHot) => assert!(slots.insert(*key)),
            Heard::Admit(_, Origin::PromptHot) | Heard::Routing(_) => {}
            other => panic!("{other:?}"),
        }
        assert!(slots.len() <= 6);
    }
    assert!(rig.is_resident(1, 6) && rig.is_resident(1, 7), "{heard:?}");
    rig.assert_replayed();
}

#[test]
fn a_policy_may_refuse_or_break_its_word() {
    let store = Store::new(Kind::Stacked);
    let (hot, want) = ([[6, 7, 5], [6, 7, 4]], [[1, 2, 5]]);
    let clean = Rig::new(&store, 6, PrefillSweep::Off, Mood::Lawful).plain(&want);
    let mut picky = Rig::new(&store, 6, PrefillSweep::Rows(2), Mood::Picky);
    picky.pass(&hot, last()).expect("a refusal is an answer");
    let metrics = *picky.experts.metrics();
    assert_eq!((metrics.hot_admitted, metrics.hot_refused), (3, 3));
    assert!(picky.plain(&want) == clean);
    picky.assert_replayed();
    let mut unlawful = Rig::new(&store, 6, PrefillSweep::Rows(2), Mood::Unlawful);
    unlawful.plain(&[[2, 3, 5]]);
    let error = unlawful.pass(&hot, last()).expect_err("no such slot");
    let source = std::error::Error::source(&error).expect("the provider's own");
    let source = source.downcast_ref::<ExpertsError>().expect("typed");
    assert!(matches!(source, ExpertsError::Cache { .. }), "{source}");
    assert!(unlawful.plain(&want) == clean, "the next request works");
    unlawful.assert_replayed();
}

#[test]
fn every_read_of_a_sweep_may_fail_and_leaves_no_trace() {
    for (kind, reads) in [(Kind::Stacked, 2 * 4 * 9), (Kind::Container, 2 * 4)] {
        let store = Store::new(kind);
        let routes = routes(20);
        let clean = Rig::new(&store, 6, PrefillSweep::Off, Mood::Lawful).plain(&routes);
        let mut rig = Rig::new(&store, 6, PrefillSweep::Rows(2), Mood::Lawful);
        rig.plain(&[[1, 2, 5]]);
        let resident = PoolEnd::of(rig.experts.pool());
        // Six records are resident: fewer runs than of a cold pool.
        let mut failed = 0;
        for n in 0..reads {
            rig.reader.inner.arm(Schedule::Nth(n));
            let result = rig.pass(&routes, PassHints::new());
            rig.reader.inner.arm(Schedule::Never);
            if let Err(error) = result {
                failed += 1;
                let source = std::error::Error::source(&error).expect("the provider's own");
                let source = source.downcast_ref::<ExpertsError>().expect("typed");
                let ExpertsError::ReadRun { tensor: Some(_), .. } = source else {
                    panic!("{source}")
                };
                assert_ne!(error.kind(), ErrorKind::Bug);
            }
            assert_eq!(PoolEnd::of(rig.experts.pool()), resident, "{kind:?} {n}");
            assert!(rig.plain(&routes) == clean, "{kind:?} {n}");
        }
        assert!(failed >= reads / 2, "{kind:?}: {failed}");
        rig.assert_replayed();
    }
}

#[test]
fn a_sweep_ends_when_it_is_cancelled() {
    let store = Store::new(Kind::Stacked);
    let routes = routes(20);
    let clean = Rig::new(&store, 6, PrefillSweep::Off, Mood::Lawful).plain(&routes);
    let mut rig = Rig::new(&store, 6, PrefillSweep::Rows(2), Mood::Lawful);
    // In a read of one of the first three blocks of either layer, and not of those next to the
    // fourth: three lanes read at once.
    for n in [0, 5, 13, 22, 40, 58] {
        let token = CancelToken::new();
        *rig.reader.token.lock().expect("not poisoned") = token.clone();
        rig.reader.left.store(n, Ordering::SeqCst);
        let error = rig.pass(&routes, last().with_cancel(token)).expect_err("cancelled");
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{n}");
        rig.experts.clear();
        assert!(rig.plain(&routes) == clean, "{n}");
    }
    rig.assert_replayed();
}

#[test]
fn an_abandoned_sweep_is_joined() {
    let store = Store::new(Kind::Stacked);
    let mut rig = Rig::new(&store, 6, PrefillSweep::Rows(1), Mood::Lawful);
    let tokens = [0; 4];
    let (pass, session, phase) = (PassId::new(1), SessionId::new(1), Phase::Prefill);
    let step = Step { pass, phase, session, position: 0, tokens: &tokens };
    let ids: Vec<_> = routes(4).concat().into_iter().map(ExpertIdx::new).collect();
    let routing = Routing::new(&step, LayerIdx::new(0), TOP_K, &ids, &[]);
    rig.experts.begin_pass(&step).expect("begins");
    rig.experts.demand(&routing).expect("queues");
    rig.experts.end_pass();
    rig.experts.begin_pass(&step).expect("begins");
    rig.experts.demand(&routing).expect("the memory was given back");
    rig.experts.compute(&rows(4), &weights(4)).expect("runs");
    rig.experts.end_pass();
    rig.assert_replayed();
}

#[test]
fn options_are_read_and_planned() {
    for (text, rows) in [("off", None), ("7", Some(7))] {
        let sweep: PrefillSweep = text.parse().expect("legal");
        assert_eq!((sweep.rows(), sweep.to_string()), (rows, text.to_owned()));
        let bytes = sweep.planned_bytes(&layout(), &geometry(), 3);
        assert_eq!(bytes > 0, rows.is_some());
    }
    for text in ["", "0", "-1", "on", "auto", "1.5"] {
        let error = text.parse::<PrefillSweep>().expect_err(text);
        assert!(error.to_string().contains("off or a number"), "{error}");
    }
    let bytes = |lanes| PrefillSweep::Rows(1).planned_bytes(&layout(), &geometry(), lanes);
    let blocks = 8 * layout().stride() as u64;
    assert!(bytes(1) > blocks && bytes(9) - bytes(1) == 8 * 2 * (2048 + 256));
}
