//! Prefill sweeps: Law 1, what they read, and what a prompt leaves in the pool.

use slotstream::core::{CancelToken, ErrorKind, Extent};
use slotstream::{EngineBuilder, PrefillSweep, SessionOptions, Sizing};
use slotstream_testkit::reader::Schedule;

use crate::rig::{Trip, builder, counted, faulty, golden, greedy, session};

/// A prompt of several passes: the goldens' own text twice, and what follows it.
fn prompt() -> Vec<u32> {
    let mut prompt = golden("p1.input_ids");
    prompt.extend(golden("p1.greedy_ids"));
    prompt.extend(golden("p1.input_ids"));
    prompt.truncate(150);
    prompt
}

fn tokens_of(builder: EngineBuilder) -> Vec<u32> {
    let engine = builder.build().expect("builds");
    let tokens = greedy(&mut session(&engine), &prompt(), 12);
    engine.inspect(|experts| experts.pool().validate()).expect("consistent");
    tokens
}

#[test]
fn no_threshold_chunk_pool_or_lane_changes_a_token() {
    let want = tokens_of(builder().prefill_sweep(PrefillSweep::Off).chunk(1));
    let rows = PrefillSweep::Rows;
    for (sweep, chunk, slots, lanes) in [
        (rows(64), 150, 18, 8),
        (PrefillSweep::Off, 150, 18, 8),
        (rows(1), 7, 18, 1),
        (rows(1), 1, 201, 8),
        (rows(16), 40, 201, 3),
        (rows(64), 64, 72, 16),
        (rows(150), 150, 672, 2),
        (rows(151), 150, 18, 2),
    ] {
        let builder = builder().prefill_sweep(sweep).chunk(chunk).lanes(lanes);
        let tokens = tokens_of(builder.sizing(Sizing::Slots(slots)));
        assert_eq!(tokens, want, "{sweep} {chunk} {slots} {lanes}");
    }
}

/// The bundled model's shards: a record is nine pieces, and a layer has 56 experts in four blocks.
#[test]
fn a_pass_reads_a_record_once_and_in_few_runs() {
    // The n-gram rows are cached whole, so that all reads of the second prompt are of experts.
    let engine = builder().sizing(Sizing::Slots(18)).chunk(150).ngram_cache_rows(16_384);
    let (engine, reader) = counted(engine.prefill_sweep(PrefillSweep::Rows(100)));
    session(&engine).prefill(&prompt()).expect("runs");
    let geometry = engine.checkpoint().geometry();
    let payload = engine.checkpoint().record_layout().payload_len() as u64;
    reader.clear();
    let mut again = session(&engine);
    again.prefill(&prompt()).expect("runs");
    let phase = again.metrics().prefill;
    assert_eq!((phase.sweeps, phase.hits, phase.misses), (geometry.layers() as u64, 0, 0));
    assert!(phase.swept_records > 20 * phase.sweeps, "{phase:?}");
    assert_eq!((phase.sweep_runs, phase.sweep_bytes), (phase.reads, phase.bytes_read));
    let log = reader.log();
    assert_eq!(log.len() as u64, phase.reads);
    let runs = 2 * 4 * 9 * phase.sweeps;
    assert!(phase.reads <= runs && phase.reads < 3 * phase.swept_records, "{phase:?}");
    // Gaps within a tensor are read over where they are small beside the run.
    let bytes: u64 = log.iter().map(Extent::len).sum();
    let wanted = phase.swept_records * payload;
    assert!((wanted..=wanted + wanted / 4).contains(&bytes), "{bytes} for {wanted}");
    assert_eq!(log.iter().map(Extent::len).max(), Some(phase.longest_run));
}

#[test]
fn passes_of_a_prompt_are_alike() {
    let engine = builder().prefill_sweep(PrefillSweep::Rows(32)).chunk(64).build().expect("builds");
    let mut session = session(&engine);
    let mut seen = Vec::new();
    session.prefill_with(&prompt()[..130], |done, _| seen.push(done)).expect("runs");
    // Not 64, 64 and 2: those two would go through the pool.
    assert_eq!(seen, [44, 87, 130]);
    assert_eq!(
        session.metrics().prefill.sweeps,
        3 * engine.checkpoint().geometry().layers() as u64
    );
}

#[test]
fn a_prompt_warms_the_pool_and_decoding_alone_is_counted() {
    let hits = |sweep| {
        let engine = builder().prefill_sweep(sweep).chunk(150).build().expect("builds");
        let mut session = session(&engine);
        greedy(&mut session, &prompt(), 8);
        let metrics = *session.metrics();
        let counters = engine.inspect(|experts| *experts.pool().counters());
        assert_eq!(counters.claims.prompt_hot, metrics.prefill.hot_admitted);
        assert_eq!(counters.decode.hits, metrics.decode.hits);
        let most = (engine.plan().slots / engine.checkpoint().geometry().layers()) as u64;
        assert!(metrics.prefill.hot_admitted <= most * metrics.prefill.sweeps);
        metrics
    };
    let (swept, plain) = (hits(PrefillSweep::Rows(64)), hits(PrefillSweep::Off));
    assert!(swept.prefill.hot_admitted > 100, "{swept:?}");
    assert_eq!((plain.prefill.sweeps, plain.prefill.hot_admitted), (0, 0));
    assert_eq!((swept.prefill.hits, swept.prefill.misses), (0, 0));
    assert!(plain.prefill.misses > 0);
    assert!(swept.decode.hits > 0, "the pool was empty before: {swept:?}");
    assert!(swept.prefill.bytes_read > 0 && swept.prefill.swept_records > 0);
}

#[test]
fn a_failed_or_cancelled_sweep_ends_one_pass() {
    let trip = Trip::default();
    let builder = builder()
        .sizing(Sizing::Slots(18))
        .prefill_sweep(PrefillSweep::Rows(32))
        .chunk(75)
        .sink(Box::new(trip.clone()));
    let (engine, reader) = faulty(builder, std::io::ErrorKind::InvalidData);
    let want = greedy(&mut session(&engine), &prompt(), 6);
    for n in [0, 11, 100, 301, 402, 519] {
        reader.arm(Schedule::Nth(n));
        let mut hurt = session(&engine);
        let error = hurt.prefill(&prompt()).expect_err("a read fails");
        reader.arm(Schedule::Never);
        assert_ne!(error.kind(), ErrorKind::Bug, "{n}: {error}");
        let rest: Vec<u32> = (0..6).map(|_| hurt.next().expect("goes on")).collect();
        assert_eq!(rest, want, "{n}");
    }
    for layer in [0, 7] {
        let token = CancelToken::new();
        let options = SessionOptions::new().with_cancel(token.clone());
        let mut doomed = engine.session(options).expect("legal");
        trip.set(Some((slotstream::core::LayerIdx::new(layer), token)));
        let error = doomed.prefill(&prompt()).expect_err("cancelled");
        trip.set(None);
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        let chain = crate::rig::chain(&error);
        assert!(chain.contains(&format!("experts of layer {layer} were read")), "{chain}");
        doomed.set_cancel(CancelToken::new());
        let rest: Vec<u32> = (0..6).map(|_| doomed.next().expect("goes on")).collect();
        assert_eq!(rest, want);
    }
}
