use outside_forecaster::PreviousToken;
use slotstream_core::{
    ExpertIdx, ExpertKey, Forecaster, LayerIdx, PassId, Phase, Prediction, ProbeResults, Routing,
    SessionId, Step, Tap,
};

/// Plays a pass of one token over three layers, of which layer l wants the experts e + l and
/// 7 + l; gives what was predicted.
fn pass(forecaster: &mut PreviousToken, session: u64, expert: u16) -> Vec<Prediction> {
    let (session, tokens) = (SessionId::new(session), [3]);
    let step =
        Step { pass: PassId::new(0), phase: Phase::Decode, session, position: 0, tokens: &tokens };
    let mut predictions = Vec::new();
    for number in 0..3 {
        let layer = LayerIdx::new(number);
        let results = ProbeResults { rows: 1, results: &[] };
        for tap in [Tap::BeforeLayer(layer), Tap::AfterAttention(layer)] {
            let mut probes = Vec::new();
            forecaster.probes(tap, &mut probes);
            assert!(probes.is_empty());
        }
        forecaster.predict(Tap::BeforeLayer(layer), &results, &mut predictions);
        let ids = [ExpertIdx::new(expert + number), ExpertIdx::new(7 + number)];
        forecaster.observe(&Routing::new(&step, layer, 2, &ids, &[]));
        forecaster.predict(Tap::AfterAttention(layer), &results, &mut predictions);
    }
    predictions
}

#[test]
fn the_forecaster_is_lawful() {
    slotstream_testkit::forecaster::assert_lawful(|_geometry| Box::new(PreviousToken::new()));
}

#[test]
fn it_expects_of_a_session_what_that_session_wanted() {
    let mut forecaster = PreviousToken::new();
    assert!(pass(&mut forecaster, 1, 0).is_empty());
    assert!(pass(&mut forecaster, 2, 4).is_empty(), "another session knows nothing");

    let key = |layer, expert| ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert));
    let predictions = pass(&mut forecaster, 1, 2);
    let keys: Vec<_> = predictions.iter().map(|prediction| prediction.key).collect();
    assert_eq!(keys, [key(1, 1), key(1, 8), key(2, 2), key(2, 9)]);
    assert!(predictions.iter().all(|p| p.needed_by.layer == p.key.layer()));

    forecaster.reset(SessionId::new(1));
    assert!(pass(&mut forecaster, 1, 0).is_empty(), "it was reset");
    assert!(!pass(&mut forecaster, 2, 4).is_empty(), "this one was not");
}
