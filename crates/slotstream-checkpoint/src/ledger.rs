//! Where the bytes of a checkpoint go.

use std::fmt;

use serde::Serialize;

macro_rules! classes {
    ($($(#[$meta:meta])* $name:ident = $label:literal, $unit:literal;)+) => {
        /// What a tensor is for: the rows of the byte ledger.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum TensorClass {
            $($(#[$meta])* $name,)+
        }

        impl TensorClass {
            /// All classes in the order of the ledger.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// A short name.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }

            /// What [`LedgerRow::count`] counts.
            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self {
                    $(Self::$name => $unit,)+
                }
            }
        }
    };
}

classes! {
    /// Stacked routed experts: streamed.
    RoutedExperts = "routed experts", "layers";
    /// Shards of the n-gram table: rows are read one by one.
    NgramTable = "n-gram table", "shards";
    /// `mlp.gate`.
    Router = "router", "layers";
    /// `mlp.shared_expert`.
    SharedExpert = "shared expert", "layers";
    /// `mlp.shared_expert_gate`.
    SharedExpertGate = "shared expert gate", "layers";
    /// Hyper-connection mixers, the final one included.
    HyperConnection = "hyper-connections", "mixers";
    /// `block_inject_weight` of the hyper-connections.
    BlockInject = "block inject", "mixers";
    /// `linear_attn.in_proj_qkv`.
    LinearQkv = "linear attention qkv", "layers";
    /// `linear_attn.in_proj_z`.
    LinearZ = "linear attention z", "layers";
    /// `linear_attn.out_proj`.
    LinearOut = "linear attention out", "layers";
    /// `linear_attn.in_proj_a` and `in_proj_b`.
    LinearAb = "linear attention a, b", "layers";
    /// `linear_attn.conv1d`.
    LinearConv = "linear attention conv", "layers";
    /// `linear_attn.A_log`, `dt_bias` and `norm`.
    LinearSmall = "linear attention small", "layers";
    /// `self_attn.q_proj`, output gate included.
    AttentionQ = "attention q and gate", "layers";
    /// `self_attn.k_proj` and `v_proj`.
    AttentionKv = "attention k, v", "layers";
    /// `self_attn.o_proj`.
    AttentionOut = "attention out", "layers";
    /// `self_attn.indexer.index_qk_proj`.
    Indexer = "attention indexer", "layers";
    /// `self_attn` norms, those of the indexer included.
    AttentionNorms = "attention norms", "layers";
    /// `ple.key_proj` and `value_proj`.
    PleProjections = "PLE projections", "layers";
    /// PLE norms and convolution.
    PleSmall = "PLE norms and conv", "layers";
    /// Multipliers, offsets and sizes of the n-gram hash.
    NgramConstants = "n-gram constants", "layers";
    /// `embed_tokens`.
    Embedding = "embed_tokens", "modules";
    /// `lm_head`.
    Head = "lm_head", "modules";
    /// `vision_tower`: not loaded.
    VisionTower = "vision tower", "tensors";
    /// `mtp`: the optional draft head.
    DraftHead = "draft head", "tensors";
}

/// One row of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LedgerRow {
    /// What the bytes are for.
    pub class: TensorClass,
    /// How many there are, in [`TensorClass::unit`]s.
    pub count: u64,
    /// Tensors.
    pub tensors: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Bytes of a checkpoint by class, from the headers alone.
///
/// Every class has a row, an empty one too. All sums are of tensor bytes, without file headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ledger {
    /// One row a class, in the order of [`TensorClass::ALL`].
    pub rows: Vec<LedgerRow>,
    /// Bytes of the routed experts.
    pub expert_bytes: u64,
    /// Bytes of the n-gram table.
    pub ngram_bytes: u64,
    /// Bytes of everything else, vision tower and draft head included.
    pub rest_bytes: u64,
    /// Bytes of everything else without vision tower and draft head: what stays in memory.
    pub resident_bytes: u64,
    /// Bytes of all tensors.
    pub total_bytes: u64,
    /// Bytes of one expert: its nine pieces.
    pub record_bytes: u64,
}

impl Ledger {
    /// Adds up tensors, given as class, unit and bytes.
    pub(crate) fn new(
        tensors: impl Iterator<Item = (TensorClass, u32, u64)>,
        record_bytes: u64,
    ) -> Self {
        let mut sums: Vec<_> = TensorClass::ALL
            .iter()
            .map(|class| {
                let row = LedgerRow { class: *class, count: 0, tensors: 0, bytes: 0 };
                (row, std::collections::BTreeSet::new())
            })
            .collect();
        for (class, unit, bytes) in tensors {
            // A class is its own index: ALL lists the variants in order.
            let (row, units) = &mut sums[class as usize];
            row.tensors += 1;
            row.bytes = row.bytes.saturating_add(bytes);
            units.insert(unit);
            row.count = units.len() as u64;
        }
        let rows: Vec<_> = sums.into_iter().map(|(row, _)| row).collect();
        let bytes = |class: TensorClass| rows[class as usize].bytes;
        let total_bytes = rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.bytes));
        let expert_bytes = bytes(TensorClass::RoutedExperts);
        let ngram_bytes = bytes(TensorClass::NgramTable);
        let rest_bytes = total_bytes - expert_bytes - ngram_bytes;
        let unloaded = bytes(TensorClass::VisionTower) + bytes(TensorClass::DraftHead);
        Self {
            expert_bytes,
            ngram_bytes,
            rest_bytes,
            resident_bytes: rest_bytes - unloaded,
            total_bytes,
            record_bytes,
            rows,
        }
    }

    /// The row of a class.
    #[must_use]
    pub fn row(&self, class: TensorClass) -> &LedgerRow {
        &self.rows[class as usize]
    }
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24} {:>14} {:>8} {:>18}", "class", "count", "tensors", "bytes")?;
        for row in &self.rows {
            let unit = row.class.unit();
            let unit = if row.count == 1 { unit.trim_end_matches('s') } else { unit };
            let count = format!("{} {unit}", row.count);
            let bytes = grouped(row.bytes);
            writeln!(f, "{:<24} {count:>14} {:>8} {bytes:>18}", row.class.label(), row.tensors)?;
        }
        let sums = [
            ("routed experts", self.expert_bytes),
            ("n-gram table", self.ngram_bytes),
            ("everything else", self.rest_bytes),
            ("  of it resident", self.resident_bytes),
            ("total", self.total_bytes),
            ("one record", self.record_bytes),
        ];
        for (i, (name, bytes)) in sums.into_iter().enumerate() {
            write!(f, "{}{name:<24} {:>42}", if i == 0 { "" } else { "\n" }, grouped(bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_index_the_rows() {
        for (i, class) in TensorClass::ALL.iter().enumerate() {
            assert_eq!(*class as usize, i);
        }
    }

    #[test]
    fn thousands() {
        assert_eq!(
            [0, 999, 1000, 67_947_724_800].map(grouped),
            ["0", "999", "1,000", "67,947,724,800"]
        );
    }

    #[test]
    fn sums() {
        let tensors = [
            (TensorClass::RoutedExperts, 0, 10),
            (TensorClass::RoutedExperts, 0, 5),
            (TensorClass::RoutedExperts, 1, 5),
            (TensorClass::Head, 0, 7),
            (TensorClass::VisionTower, 0, 100),
        ];
        let ledger = Ledger::new(tensors.into_iter(), 3);
        let row = ledger.row(TensorClass::RoutedExperts);
        assert_eq!((row.count, row.tensors, row.bytes), (2, 3, 20));
        assert_eq!((ledger.rest_bytes, ledger.resident_bytes, ledger.total_bytes), (107, 7, 127));
        let text = ledger.to_string();
        assert!(text.contains("vision tower") && text.ends_with("3"), "{text}");
    }
}
