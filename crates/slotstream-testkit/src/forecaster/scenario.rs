//! What is played: small models with different mixes of passes.

use slotstream_core::Geometry;

/// How many of a hundred passes, taps or layers are special.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// A pass has up to this many rows.
    pub(super) rows: usize,
    /// Sessions whose passes interleave.
    pub(super) sessions: usize,
    /// A pass begins with the reset of a session.
    pub(super) reset: u32,
    /// The predictions before a layer are asked for after its routing.
    pub(super) device: u32,
    /// A pass has no taps.
    pub(super) untapped: u32,
    /// A pass ends early.
    pub(super) cut: u32,
    /// None of a tap's probes is answered.
    pub(super) unanswered: u32,
    /// One of a tap's probes is not answered.
    pub(super) missing: u32,
    /// An answer holds numbers that are not finite.
    pub(super) not_finite: u32,
    /// All weights of a layer are zero.
    pub(super) zero: u32,
    /// A layer's weights and logits are not lent.
    pub(super) bare: u32,
}

const PLAIN: Mix = Mix {
    rows: 1,
    sessions: 1,
    reset: 0,
    device: 0,
    untapped: 0,
    cut: 0,
    unanswered: 0,
    missing: 0,
    not_finite: 0,
    zero: 0,
    bare: 0,
};

const EVERYTHING: Mix = Mix {
    rows: 4,
    sessions: 3,
    reset: 4,
    device: 30,
    untapped: 5,
    cut: 15,
    unanswered: 10,
    missing: 15,
    not_finite: 5,
    zero: 5,
    bare: 10,
};

/// A model and what is played to it.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Layers, experts, top-k.
    shape: (u16, u16, u16),
    pub(super) passes: usize,
    pub(super) mix: Mix,
}

impl Scenario {
    pub(super) fn geometry(&self) -> Geometry {
        let (layers, experts, top_k) = self.shape;
        Geometry::new(layers, experts, top_k).expect("the shapes below are legal")
    }
}

/// All scenarios, the plainest first.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "tokens", shape: (5, 12, 3), passes: 60, mix: PLAIN },
    Scenario { name: "one layer", shape: (1, 12, 2), passes: 60, mix: PLAIN },
    Scenario { name: "every expert is used", shape: (3, 4, 4), passes: 60, mix: PLAIN },
    Scenario { name: "one expert", shape: (3, 1, 1), passes: 40, mix: PLAIN },
    Scenario {
        name: "prompts of many rows",
        shape: (4, 12, 3),
        passes: 20,
        mix: Mix { rows: 300, ..PLAIN },
    },
    Scenario {
        name: "unanswered probes",
        shape: (4, 10, 2),
        passes: 60,
        mix: Mix { unanswered: 60, ..PLAIN },
    },
    Scenario {
        name: "missing answers",
        shape: (4, 10, 2),
        passes: 60,
        mix: Mix { rows: 3, missing: 60, ..PLAIN },
    },
    Scenario {
        name: "numbers that are not finite",
        shape: (4, 10, 2),
        passes: 60,
        mix: Mix { rows: 2, not_finite: 60, ..PLAIN },
    },
    Scenario {
        name: "zero and unknown weights",
        shape: (4, 10, 2),
        passes: 60,
        mix: Mix { rows: 2, zero: 40, bare: 40, ..PLAIN },
    },
    Scenario {
        name: "passes that end early",
        shape: (5, 10, 2),
        passes: 100,
        mix: Mix { rows: 2, cut: 50, ..PLAIN },
    },
    Scenario {
        name: "one readback a layer",
        shape: (4, 10, 2),
        passes: 60,
        mix: Mix { device: 100, ..PLAIN },
    },
    Scenario { name: "no taps", shape: (4, 10, 2), passes: 60, mix: Mix { untapped: 50, ..PLAIN } },
    Scenario { name: "resets", shape: (4, 10, 2), passes: 100, mix: Mix { reset: 10, ..PLAIN } },
    Scenario {
        name: "sessions in turn",
        shape: (4, 10, 2),
        passes: 150,
        mix: Mix { sessions: 3, ..PLAIN },
    },
    Scenario { name: "everything", shape: (6, 16, 4), passes: 400, mix: EVERYTHING },
];
