use std::fmt;

/// How the products of activations and weights are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Arithmetic {
    /// Activations and sums with the precision of f32.
    #[default]
    Exact,
    /// Activations rounded to signed bytes with a scale for each group, for 4-bit weights: faster
    /// and a little wrong. All other products as in [`Exact`](Self::Exact).
    Fast,
}

impl Arithmetic {
    /// `exact` or `fast`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
