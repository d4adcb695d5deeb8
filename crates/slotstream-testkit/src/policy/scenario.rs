//! What is played: small pools with different mixes of requests.

use slotstream_core::Geometry;

/// How many of a hundred steps do something special.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// A demand of up to this many rows.
    pub(super) rows: u32,
    /// Block everything that the demand does not need.
    pub(super) squeeze: u32,
    /// Block everything and expect no victim.
    pub(super) all_pinned: u32,
    /// Show one layer only.
    pub(super) one_layer: u32,
    /// Reserve a slot for a forecast.
    pub(super) reserve: u32,
    /// Give a reservation up.
    pub(super) expire: u32,
    /// A read fails.
    pub(super) fail: u32,
    /// A record is admitted without a demand.
    pub(super) admit: u32,
    /// The pool gets another size.
    pub(super) resize: u32,
    /// The pool is emptied.
    pub(super) clear: u32,
    /// A pass whose routing is not told.
    pub(super) silent: u32,
    /// A layer that is routed and demands nothing of the pool.
    pub(super) sweep: u32,
}

const PLAIN: Mix = Mix {
    rows: 1,
    squeeze: 0,
    all_pinned: 0,
    one_layer: 0,
    reserve: 0,
    expire: 0,
    fail: 0,
    admit: 0,
    resize: 0,
    clear: 0,
    silent: 0,
    sweep: 0,
};

const EVERYTHING: Mix = Mix {
    rows: 3,
    squeeze: 10,
    all_pinned: 10,
    one_layer: 10,
    reserve: 20,
    expire: 5,
    fail: 5,
    admit: 5,
    resize: 4,
    clear: 1,
    silent: 10,
    sweep: 5,
};

/// A pool and what is played to it.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Layers, experts, top-k.
    shape: (u16, u16, u16),
    /// Slots; `None` for the floor.
    slots: Option<usize>,
    pub(super) steps: usize,
    pub(super) mix: Mix,
}

impl Scenario {
    pub(super) fn geometry(&self) -> Geometry {
        let (layers, experts, top_k) = self.shape;
        Geometry::new(layers, experts, top_k).expect("the shapes below are legal")
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.unwrap_or_else(|| self.geometry().floor_slots())
    }
}

/// All scenarios, the plainest first.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "one key a pass", shape: (1, 24, 1), slots: Some(8), steps: 400, mix: PLAIN },
    Scenario { name: "routes", shape: (4, 12, 3), slots: Some(20), steps: 300, mix: PLAIN },
    Scenario {
        name: "a pool at its floor",
        shape: (3, 10, 3),
        slots: None,
        steps: 300,
        mix: PLAIN,
    },
    Scenario {
        name: "a pool that holds everything",
        shape: (2, 6, 2),
        slots: Some(12),
        steps: 100,
        mix: Mix { all_pinned: 20, ..PLAIN },
    },
    Scenario {
        name: "one slot",
        shape: (2, 5, 1),
        slots: Some(1),
        steps: 200,
        mix: Mix { fail: 10, all_pinned: 10, ..PLAIN },
    },
    Scenario {
        name: "waves",
        shape: (2, 20, 4),
        slots: None,
        steps: 200,
        mix: Mix { rows: 6, ..PLAIN },
    },
    Scenario {
        name: "keys without routing",
        shape: (2, 16, 2),
        slots: Some(10),
        steps: 300,
        mix: Mix { rows: 2, silent: 100, ..PLAIN },
    },
    Scenario {
        name: "sweeps",
        shape: (3, 12, 3),
        slots: Some(14),
        steps: 300,
        mix: Mix { rows: 5, sweep: 40, admit: 30, ..PLAIN },
    },
    Scenario {
        name: "everything pinned",
        shape: (3, 10, 2),
        slots: Some(9),
        steps: 300,
        mix: Mix { all_pinned: 50, ..PLAIN },
    },
    Scenario {
        name: "all but the last slots pinned",
        shape: (3, 10, 2),
        slots: Some(9),
        steps: 300,
        mix: Mix { squeeze: 60, ..PLAIN },
    },
    Scenario {
        name: "one layer in view",
        shape: (4, 8, 2),
        slots: Some(14),
        steps: 300,
        mix: Mix { one_layer: 60, ..PLAIN },
    },
    Scenario {
        name: "forecasts",
        shape: (4, 10, 2),
        slots: Some(16),
        steps: 400,
        mix: Mix { reserve: 40, expire: 10, ..PLAIN },
    },
    Scenario {
        name: "failed reads",
        shape: (3, 10, 2),
        slots: Some(12),
        steps: 300,
        mix: Mix { rows: 2, fail: 30, ..PLAIN },
    },
    Scenario {
        name: "hot and warm admissions",
        shape: (3, 10, 2),
        slots: Some(12),
        steps: 300,
        mix: Mix { admit: 40, ..PLAIN },
    },
    Scenario {
        name: "resizes",
        shape: (3, 12, 2),
        slots: Some(16),
        steps: 400,
        mix: Mix { resize: 15, ..PLAIN },
    },
    Scenario {
        name: "clears",
        shape: (3, 10, 2),
        slots: Some(12),
        steps: 300,
        mix: Mix { reserve: 10, clear: 5, ..PLAIN },
    },
    Scenario {
        name: "everything",
        shape: (4, 14, 3),
        slots: Some(22),
        steps: 1500,
        mix: EVERYTHING,
    },
    Scenario {
        name: "everything at the floor",
        shape: (5, 16, 4),
        slots: None,
        steps: 1500,
        mix: EVERYTHING,
    },
];
