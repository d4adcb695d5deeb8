//! The plan that the loader makes.

use slotstream_checkpoint::{Checkpoint, NgramPlan};
use slotstream_core::ErrorKind;
use slotstream_ngram::{NgramError, NgramHasher, NgramStore, NgramTable};
use std::path::PathBuf;
use std::sync::Arc;

use crate::fixture::Fixture;
use crate::queues::Inline;

fn plan() -> NgramPlan {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../slotstream-qwen/tests/fixtures/random/checkpoint");
    Checkpoint::open(&folder).unwrap().ngram().unwrap().clone()
}

#[test]
fn the_plan_of_the_loaded_fixture() {
    let fixture = Fixture::open();
    let plan = &plan();
    assert_eq!(NgramHasher::new(plan).unwrap(), fixture.hasher);
    let (ids, rows) = fixture.prompt("p200");
    let mut store =
        NgramStore::new(plan, 100, Arc::new(Inline(Arc::clone(&fixture.reader)))).unwrap();
    assert_eq!(*store.table(), NgramTable::new(plan).unwrap());
    let ticket = store.request(&[], &ids).unwrap();
    let mut out = vec![0.0; ticket.values()];
    store.join(ticket, &mut out).unwrap();
    assert_eq!(out, fixture.values(&rows));
}

#[test]
fn plans_that_contradict_themselves() {
    let plan = plan();
    let refused = |change: &dyn Fn(&mut NgramPlan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        let error = NgramHasher::new(&plan).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error
    };
    let array = |error| match error {
        NgramError::Constants { array, .. } => array,
        e => panic!("{e:?}"),
    };
    assert_eq!(
        array(refused(&|p| {
            p.multipliers.pop();
        })),
        "layer_multipliers"
    );
    assert_eq!(array(refused(&|p| p.ngram_size = 4)), "layer_multipliers");
    assert_eq!(array(refused(&|p| p.heads_per_ngram = 7)), "ngram_heads_vocab_sizes");
    assert_eq!(array(refused(&|p| p.heads_per_ngram = usize::MAX)), "ngram_heads_vocab_sizes");
    assert_eq!(array(refused(&|p| p.head_offsets.push(0))), "ngram_heads_offsets");
    assert!(matches!(
        refused(&|p| {
            p.shards.pop();
        }),
        NgramError::HeadRange { head: 15, .. }
    ));
    assert!(matches!(
        refused(&|p| p.shards.clear()),
        NgramError::HeadRange { head: 0, rows: 0, .. }
    ));
}
