use std::fmt;

#[cfg(target_arch = "x86_64")]
use super::amx;

/// An instruction set that the CPU kernels are written for. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstructionSet {
    /// Plain Rust; everywhere.
    Scalar,
    /// AVX2 and FMA (x86-64).
    Avx2,
    /// AVX-512 F, BW and VL (x86-64).
    Avx512,
    /// AVX-512 with VNNI, and AMX-INT8 for several rows in the fast arithmetic (x86-64, Linux).
    Amx,
    /// NEON (AArch64).
    Neon,
}

impl InstructionSet {
    /// From the slowest to the fastest.
    const ALL: [Self; 5] = [Self::Scalar, Self::Avx2, Self::Neon, Self::Avx512, Self::Amx];

    /// The fastest set that this machine has.
    #[must_use]
    pub fn detect() -> Self {
        Self::ALL.into_iter().rev().find(|set| set.is_available()).unwrap_or(Self::Scalar)
    }

    /// The sets that this machine has, from the slowest to the fastest.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|set| set.is_available()).collect()
    }

    /// Whether this machine has the set. The first look for [`Amx`](Self::Amx) asks Linux to let this
    /// process use it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Amx => {
                Self::Avx512.is_available() && Self::Avx512.has_dots() && amx::is_available()
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            _ => false,
        }
    }

    /// Whether this machine has dot products of bytes in the registers of this set.
    pub(super) fn has_dots(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Amx => is_x86_feature_detected!("avx512vnni"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
            _ => false,
        }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "avx512+amx",
            Self::Neon => "neon",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::InstructionSet;

    /// Whoever runs the tests on an emulated processor says what it has: `.ci/neon/check.sh`.
    #[test]
    fn the_expected_sets_are_found() {
        let found = InstructionSet::detect();
        let dots = if found.has_dots() { "+dots" } else { "" };
        if let Ok(expected) = std::env::var("SLOTSTREAM_EXPECTS") {
            assert_eq!(format!("{found}{dots}"), expected);
        }
    }
}
