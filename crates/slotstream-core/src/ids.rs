//! Newtypes for everything that is numbered.

use std::fmt;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($repr:ty), $label:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name($repr);

        impl $name {
            /// Wraps a raw number.
            #[must_use]
            pub const fn new(raw: $repr) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[must_use]
            pub const fn get(self) -> $repr {
                self.0
            }

            /// The number as an index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }
    };
}

id!(
    /// A transformer layer, counted from zero as in the tensor names (`model.layers.L`).
    LayerIdx(u16),
    "layer"
);
id!(
    /// An expert within one layer, counted from zero as in the router's output rows.
    ExpertIdx(u16),
    "expert"
);
id!(
    /// A slot of the pool: the space for exactly one expert record.
    SlotId(u32),
    "slot"
);
id!(
    /// A file of a checkpoint: an index into the list of paths that the checkpoint reports.
    FileId(u16),
    "file"
);
id!(
    /// One pass of the graph over one or more rows; counts up over the life of a pool.
    PassId(u64),
    "pass"
);
id!(
    /// One sequence. Passes of different sessions may interleave.
    SessionId(u64),
    "session"
);
id!(
    /// A point in the device's order of work. A slot handed back `after` a tick may be
    /// written only once that tick has completed.
    Tick(u64),
    "tick"
);

/// One record of the checkpoint: an expert of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExpertKey {
    layer: LayerIdx,
    expert: ExpertIdx,
}

impl ExpertKey {
    /// The record of `expert` in `layer`.
    #[must_use]
    pub const fn new(layer: LayerIdx, expert: ExpertIdx) -> Self {
        Self { layer, expert }
    }

    /// The layer that routes to this record.
    #[must_use]
    pub const fn layer(self) -> LayerIdx {
        self.layer
    }

    /// The expert within its layer.
    #[must_use]
    pub const fn expert(self) -> ExpertIdx {
        self.expert
    }
}

impl fmt::Display for ExpertKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.layer, self.expert)
    }
}
