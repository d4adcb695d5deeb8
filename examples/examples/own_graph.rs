//! A mixture of experts of one's own on `slotstream-experts`: two layers of 8 experts, top 2.
//! The experts lie in a file and stream through a pool too small for them.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::{error::Error, path::Path, sync::Arc};

use slotstream::candle::{Device, Tensor};
use slotstream_candle::{ExpertProvider, HostOps, Ops};
use slotstream_core::{
    AffineFormat, ExpertIdx, ExpertKey, ExpertShape, Extent, FileId, Geometry, LayerIdx,
    PIECE_ORDER, Part, PassId, Phase, RecordLayout, Routing, SessionId, Step, f32_to_bf16,
};
use slotstream_experts::{RecordIndex, StreamingExperts};
use slotstream_io::{LaneQueue, ReaderKind, open_reader};
use slotstream_kernels::Cpu;

const HIDDEN: usize = 64;
const TOP_K: usize = 2;

/// Where the records lie: one file, record after record, piece after piece.
#[derive(Debug)]
struct Records(Geometry, RecordLayout);

impl RecordIndex for Records {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        let mut offset = (self.0.index(key)? * self.1.payload_len()) as u64;
        let pieces = self.1.pieces().map(|piece| {
            offset += piece.len as u64;
            Extent::new(FileId::new(0), offset - piece.len as u64, piece.len as u64).ok()
        });
        pieces.into_iter().collect::<Option<Vec<_>>>()?.try_into().ok()
    }
}

/// Writes experts of random 4-bit weights around zero: `w = scale * q + bias`.
fn write_experts(path: &Path, Records(geometry, layout): &Records) -> std::io::Result<()> {
    let (mut bytes, mut noise) = (Vec::new(), 1_u32);
    for (matrix, part) in std::iter::repeat_n(PIECE_ORDER, geometry.records()).flatten() {
        let constant = if part == Part::Scales { 0.05 } else { -0.05 * 7.5 };
        let constant = f32_to_bf16(constant).to_le_bytes();
        bytes.extend((0..layout.piece(matrix, part).len).map(|i| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if part == Part::Weight { (noise >> 24) as u8 } else { constant[i % 2] }
        }));
    }
    std::fs::write(path, bytes)
}

/// `[rows, columns]` of some numbers between -1 and 1.
fn tensor(rows: usize, columns: usize, seed: f32) -> slotstream::candle::Result<Tensor> {
    let numbers = (0..rows * columns).map(|i| (i as f32 * seed).sin()).collect();
    Tensor::from_vec(numbers, (rows, columns), &Device::Cpu)
}

/// The graph: in each layer a router, and the experts that it chooses added to the stream.
fn pass(
    (ops, routers): (&dyn Ops, &[Tensor]),
    mut x: Tensor,
    number: u64,
    experts: &mut dyn ExpertProvider,
) -> Result<Tensor, Box<dyn Error>> {
    let (pass, phase, session) = (PassId::new(number), Phase::Decode, SessionId::new(0));
    let step = Step { pass, phase, session, position: number, tokens: &[0] };
    experts.begin_pass(&step)?;
    for (layer, router) in (0..).map(LayerIdx::new).zip(routers) {
        let (ids, weights) = ops.route(&x.matmul(router)?, TOP_K)?;
        let (ids, floats) = ops.read_back(&ids, &[&weights])?;
        let ids: Vec<_> = ids.iter().map(|id| ExpertIdx::new(*id as u16)).collect();
        experts.demand(&Routing::new(&step, layer, TOP_K, &ids, &floats[0]))?; // reads begin
        x = (&x + experts.compute(&x, &weights)?)?; // and are waited for
    }
    experts.end_pass();
    Ok(x.broadcast_div(&x.sqr()?.sum_all()?.sqrt()?)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let shape = ExpertShape::new(HIDDEN, HIDDEN, AffineFormat::Q4_G64)?;
    let (geometry, layout) = (Geometry::new(2, 8, TOP_K as u16)?, RecordLayout::new(shape));
    let records = Arc::new(Records(geometry, layout.clone()));
    let file = tempfile::NamedTempFile::new()?;
    write_experts(file.path(), &records)?;
    let ops: Arc<dyn Ops> = Arc::new(HostOps::new(Arc::new(Cpu::new(1)?)));
    let routers = [tensor(HIDDEN, 8, 0.7)?, tensor(HIDDEN, 8, 1.3)?];
    for slots in [geometry.floor_slots(), geometry.records()] {
        let reader = open_reader(ReaderKind::Auto, &[file.path().into()])?;
        let queue = Arc::new(LaneQueue::new(reader, 4)?);
        let builder = StreamingExperts::builder(geometry, layout.clone(), slots);
        let mut experts = builder.build(records.clone(), queue, Arc::clone(&ops))?;
        let mut x = tensor(1, HIDDEN, 0.3)?;
        for number in 0..24 {
            x = pass((&*ops, &routers), x, number, &mut experts)?;
        }
        let (rate, x) = (experts.pool().counters().decode.hit_rate(), x.to_vec2::<f32>()?);
        println!("{slots:>2} slots: hit rate {rate:.2?}, result {:?}...", &x[0][..4]);
    }
    Ok(())
}
