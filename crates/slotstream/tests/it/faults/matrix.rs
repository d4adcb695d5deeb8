//! Fail, short, torn and slow, at every read of a generation through the page cache and at every
//! seventh of the other readers and of a mirror, from the shards and from a container.

use slotstream::checkpoint::container::ContainerKind;
use slotstream::core::ErrorKind;
use slotstream::io::ReaderKind;
use slotstream::{Engine, Error, Session};
use slotstream_testkit::reader::Schedule;

use super::rig::COPIES;
use super::{Armed, Source, Under, WAYS, Way, armed_engine, assert_sound};
use crate::container::repacked;
use crate::rig::{chain, random_builder, random_golden, random_model, session};

/// A prompt and a token after it do every kind of read.
const TOKENS: usize = 2;

pub(super) fn kind_of(way: Way) -> ErrorKind {
    match way {
        Way::Short | Way::Flipped => ErrorKind::Corrupt,
        _ => ErrorKind::Transient,
    }
}

pub(super) fn generation(
    session: &mut Session,
    prompt: &[u32],
    count: usize,
) -> Result<Vec<u32>, Error> {
    session.prefill(prompt)?;
    session.generate_ids(count).ignoring_eos(true).collect()
}

/// Spoils read `n` of a generation: a typed error that says what and where, a sound pool; the hurt
/// session goes on to the right tokens. Gives whether the read took place.
pub(super) fn hurt(
    engine: &Engine,
    reader: &dyn Armed,
    what: (Under, Way),
    n: u64,
    prompt: &[u32],
    want: &[u32],
) -> bool {
    // Behind a mirror the other copy would bring the bytes: all of them fail.
    reader.arm(if what.0 == Under::Mirror { Schedule::From(n) } else { Schedule::Nth(n) });
    let mut hurt = session(engine);
    let error = match generation(&mut hurt, prompt, want.len()) {
        Err(error) => error,
        Ok(tokens) => {
            assert_eq!(tokens, want, "{what:?} read {n}");
            return false;
        }
    };
    let told = chain(&error);
    assert_eq!(error.kind(), kind_of(what.1), "{what:?} read {n}: {told}");
    assert_names_the_place(&told);
    assert_sound(engine);
    reader.arm(Schedule::Never);
    let left = want.len() - hurt.generated().len();
    let rest: Result<Vec<u32>, Error> = hurt.generate_ids(left).ignoring_eos(true).collect();
    rest.expect("the next request works");
    assert_eq!(hurt.generated(), want, "{what:?} read {n}");
    true
}

/// File and offset; of a record its layer and expert, and the tensor where there are tensors; of
/// a row its number.
pub(super) fn assert_names_the_place(told: &str) {
    assert!(told.contains("offset "), "{told}");
    let [shard, records, rows] =
        [".safetensors", "experts.slots", "ngram.rows"].map(|name| told.contains(name));
    assert!(shard || records || rows, "{told}");
    if told.contains("n-gram") {
        assert!(!records && told.contains("row "), "{told}");
    } else {
        assert!(told.contains("layer ") && told.contains("expert "), "{told}");
        assert!(records || told.contains("switch_mlp"), "{told}");
    }
}

/// Spoils each `step`-th read of a generation until there is none left.
fn failing(source: Source<'_>, what: (Under, Way), step: u64) {
    let prompt = random_golden("p1.input_ids");
    let want = &random_golden("p1.greedy.ids")[..TOKENS];
    let (engine, reader) = armed_engine(random_builder().container(source.choice()), what);
    let loaded = reader.reads();
    assert_eq!(generation(&mut session(&engine), &prompt, TOKENS).expect("runs"), want);
    let cold = reader.reads() - loaded;
    // What is resident differs from one request to the next, and with it the number of reads.
    let mut n = 0;
    while hurt(&engine, &*reader, what, n, &prompt, want) {
        n += step;
    }
    assert!(n > cold / 2, "{what:?}: read {n} was the last, a cold generation does {cold}");
    // The next request, of another session.
    reader.arm(Schedule::Never);
    assert_eq!(generation(&mut session(&engine), &prompt, TOKENS).expect("works"), want);
}

/// Delays each `step`-th read of a generation, one a generation: nobody notices.
fn late(source: Source<'_>, under: Under, step: u64) {
    let prompt = random_golden("p1.input_ids");
    let want = &random_golden("p1.greedy.ids")[..TOKENS];
    let builder = random_builder().container(source.choice());
    let (engine, reader) = armed_engine(builder, (under, Way::Slow));
    let mut n = 0;
    loop {
        reader.arm(Schedule::Nth(n));
        let before = reader.faults();
        assert_eq!(generation(&mut session(&engine), &prompt, TOKENS).expect("runs"), want, "{n}");
        assert_sound(&engine);
        if reader.faults() == before {
            break;
        }
        n += step;
    }
    assert!(n > 0, "no read was late");
    // All of them.
    reader.arm(Schedule::Always);
    assert_eq!(generation(&mut session(&engine), &prompt, TOKENS).expect("runs"), want);
}

/// Each seventh read fails on the copy of a mirror that was chosen for it: another one brings the
/// bytes, and nobody notices.
fn one_copy(source: Source<'_>, way: Way) {
    let prompt = random_golden("p1.input_ids");
    let want = &random_golden("p1.greedy.ids")[..TOKENS];
    let mut n = 0;
    'fresh: loop {
        let builder = random_builder().container(source.choice());
        let (engine, reader) = armed_engine(builder, (Under::Mirror, way));
        // A copy that failed is left out for good: the last one has nobody to stand in for it.
        for _ in 1..COPIES {
            reader.arm(Schedule::Nth(n));
            let before = reader.faults();
            let tokens = generation(&mut session(&engine), &prompt, TOKENS);
            assert_eq!(tokens.expect("another copy has the bytes"), want, "{way:?} read {n}");
            assert_sound(&engine);
            if reader.faults() == before {
                break 'fresh;
            }
            n += STEP;
        }
    }
    assert!(n > 3 * STEP, "{way:?}: {n} reads");
}

fn matrix(source: Source<'_>, others: &[Under]) {
    for under in others {
        let step = if *under == BUFFERED { 1 } else { STEP };
        for way in WAYS {
            failing(source, (*under, way), step);
        }
        late(source, *under, step);
    }
}

/// What is not read at every index is read at each of these; it shares no factor with the nine
/// reads of a record and the three of a row.
const STEP: u64 = 7;

const BUFFERED: Under = Under::Kind(ReaderKind::Buffered);

/// Two tests of about the same length, from either source.
const HALVES: [&[Under]; 2] = [
    &[BUFFERED],
    &[
        Under::Kind(ReaderKind::Uncached),
        Under::Kind(ReaderKind::Direct),
        Under::Kind(ReaderKind::Uring),
        Under::Kind(ReaderKind::Memory),
        Under::Mapped,
        Under::Mirror,
    ],
];

#[test]
fn every_read_of_the_shards_through_the_page_cache() {
    matrix(Source::Shards, HALVES[0]);
}

#[test]
fn every_seventh_read_of_the_shards() {
    matrix(Source::Shards, HALVES[1]);
}

#[test]
fn reads_of_a_container() {
    let folder = repacked(&random_model(), &ContainerKind::ALL, false);
    HALVES.iter().for_each(|half| matrix(Source::Container(folder.path()), half));
}

#[test]
fn a_mirror_with_one_bad_copy_goes_on() {
    let folder = repacked(&random_model(), &ContainerKind::ALL, false);
    for way in WAYS {
        one_copy(Source::Shards, way);
        one_copy(Source::Container(folder.path()), way);
    }
}
