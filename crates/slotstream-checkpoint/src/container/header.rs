//! The header of a container's file.

use std::path::Path;

use slotstream_core::{AffineFormat, ExpertShape, Geometry, LayerIdx, RecordLayout};

use super::content::{Content, PAGE, Places};
use super::source::{ContainerKind, Digest, SourceIdentity, SourceShard};
use super::wire::{Fields, Put};
use super::{ContainerError, RowLayout};

/// The version of the format that is read and written.
pub const CONTAINER_VERSION: u16 = 1;

/// First bytes of a file: as those of PNG, they show what a transfer as text does to them.
const MAGIC: [u8; 8] = *b"\x89SLCT\r\n\x1a";

/// Bytes before the part whose length varies: up to the checksum.
pub(super) const FRONT: usize = 24;

/// Where the checksum stands.
const CHECKSUM_AT: usize = 20;

/// The longest header: 65,535 shards with the longest names take less.
const HEADER_LIMIT: u64 = 32 << 20;

/// The only layout of records and rows there is.
const LAYOUT: u16 = 1;

/// The flag of a file that is complete.
const COMPLETE: u16 = 1;

/// A checked header: what the file holds and what it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerHeader {
    /// Whether the file was finished.
    pub complete: bool,
    /// What it was made from.
    pub source: SourceIdentity,
    /// What it holds.
    pub content: Content,
    places: Places,
}

impl ContainerHeader {
    /// The header of a file with this content; `None` when the file would be too long.
    pub(super) fn new(content: Content, source: SourceIdentity) -> Option<Self> {
        let none = Places { table_offset: 0, data_offset: 0, file_len: 0 };
        let mut header = Self { complete: false, source, content, places: none };
        let header_len = (header.encode_fields().len() as u64).next_multiple_of(PAGE);
        header.places = header.content.places(header_len)?;
        Some(header)
    }

    /// The header of the same file once it is complete.
    pub(super) const fn completed(mut self) -> Self {
        self.complete = true;
        self
    }

    /// Where the checksum table begins; the header ends there.
    #[must_use]
    pub const fn table_offset(&self) -> u64 {
        self.places.table_offset
    }

    /// Where the records or rows begin.
    #[must_use]
    pub const fn data_offset(&self) -> u64 {
        self.places.data_offset
    }

    /// Size of the file in bytes.
    #[must_use]
    pub const fn file_len(&self) -> u64 {
        self.places.file_len
    }

    /// The bytes of the header, padded, with its checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.encode_fields();
        let len = usize::try_from(self.places.table_offset).unwrap_or(out.len());
        out.resize(len, 0);
        let checksum = checksum(&out);
        out[CHECKSUM_AT..FRONT].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    fn encode_fields(&self) -> Vec<u8> {
        let Places { table_offset, data_offset, file_len } = self.places;
        let mut out = MAGIC.to_vec();
        out.put_u16(CONTAINER_VERSION);
        out.put_u16(self.content.kind().number());
        out.put_u16(if self.complete { COMPLETE } else { 0 });
        out.put_u16(0);
        out.put_u32(u32::try_from(table_offset).unwrap_or(u32::MAX));
        out.put_u32(0);
        for number in [self.content.blocks(), table_offset, data_offset, file_len] {
            out.put_u64(number);
        }
        out.put(self.source.config.bytes());
        out.put(self.source.sample.bytes());
        encode_content(&mut out, &self.content);
        out.put_u16(u16::try_from(self.source.shards.len()).unwrap_or(u16::MAX));
        for shard in &self.source.shards {
            out.put_text(&shard.name);
            out.put_u64(shard.size);
            out.put(shard.header.bytes());
        }
        out
    }

    /// Looks at the first 24 bytes of a file of `file_len` bytes, which must be of this kind; the
    /// length of its header.
    pub(super) fn front(
        path: &Path,
        front: &[u8],
        file_len: u64,
    ) -> Result<(ContainerKind, u64), ContainerError> {
        let mut read = Fields::new(path, front);
        let magic = front.get(..MAGIC.len()).unwrap_or(front);
        if magic != MAGIC {
            let found = if magic.is_empty() { "nothing".into() } else { hex(magic) };
            let expected = hex(&MAGIC);
            return Err(ContainerError::Magic { path: path.into(), found, expected });
        }
        read.bytes("magic", MAGIC.len())?;
        let found = read.u16("version")?;
        if found != CONTAINER_VERSION {
            let (path, known) = (path.into(), CONTAINER_VERSION);
            return Err(ContainerError::Version { path, found, known });
        }
        let at = read.at();
        let number = read.u16("kind")?;
        let Some(kind) = ContainerKind::ALL.into_iter().find(|kind| kind.number() == number) else {
            return Err(read.bad(at, "kind", "1 or 2", number.to_string()));
        };
        read.u32("flags")?;
        let at = read.at();
        let header_len = u64::from(read.u32("header length")?);
        let most = HEADER_LIMIT.min(file_len);
        if header_len == 0 || !header_len.is_multiple_of(PAGE) || header_len > most {
            let expected = format!("a multiple of {PAGE}, at most {most}");
            return Err(read.bad(at, "header length", expected, header_len.to_string()));
        }
        Ok((kind, header_len))
    }

    /// Checks the bytes of a header; `path` is for messages, `file_len` the size of its file. The
    /// bytes end where the header says that it ends. Whether the file is complete is told, not
    /// judged.
    ///
    /// # Errors
    /// Names the byte, the field, its value and what was expected; see [`ContainerError`].
    pub fn from_bytes(path: &Path, bytes: &[u8], file_len: u64) -> Result<Self, ContainerError> {
        let (kind, header_len) = Self::front(path, bytes, file_len)?;
        let mut read = Fields::new(path, bytes);
        if bytes.len() as u64 != header_len {
            let (expected, found) = (header_len, bytes.len() as u64);
            return Err(ContainerError::Length { path: path.into(), expected, found });
        }
        read.bytes("magic, version and kind", MAGIC.len() + 4)?;
        let at = read.at();
        let (flags, reserved) = (read.u16("flags")?, read.u16("reserved")?);
        read.u32("header length")?;
        let (expected, found) = (read.u32("checksum")?, checksum(bytes));
        if expected != found {
            let (path, what) = (path.into(), "header");
            return Err(ContainerError::Checksum { path, what, offset: 0, expected, found });
        }
        if flags & !COMPLETE != 0 || reserved != 0 {
            return Err(read.bad(at, "flags", "0 or 1", format!("{flags}, {reserved}")));
        }
        let header = Self::decode(&mut read, kind, flags == COMPLETE, header_len)?;
        read.finish()?;
        let expected = header.places.file_len;
        // What is not complete grows while it is written.
        if header.complete && expected != file_len {
            return Err(ContainerError::Length { path: path.into(), expected, found: file_len });
        }
        Ok(header)
    }

    fn decode(
        read: &mut Fields<'_>,
        kind: ContainerKind,
        complete: bool,
        header_len: u64,
    ) -> Result<Self, ContainerError> {
        let at = read.at();
        let mut numbers = [0; 4];
        for (number, field) in
            numbers.iter_mut().zip(["blocks", "table offset", "data offset", "file length"])
        {
            *number = read.u64(field)?;
        }
        let config = Digest::new(read.array("config")?);
        let sample = Digest::new(read.array("sample")?);
        let content = match kind {
            ContainerKind::Experts => decode_experts(read)?,
            ContainerKind::Ngram => decode_ngram(read)?,
        };
        let places = content.places(header_len);
        let expected =
            places.map(|p| [content.blocks(), p.table_offset, p.data_offset, p.file_len]);
        let Some(places) = places.filter(|_| expected == Some(numbers)) else {
            let expected = expected.map_or("less than 2^63 bytes".into(), |n| format!("{n:?}"));
            return Err(read.bad(at, "blocks and places", expected, format!("{numbers:?}")));
        };
        let shards = decode_shards(read)?;
        let source = SourceIdentity { config, sample, shards };
        Ok(Self { complete, source, content, places })
    }
}

fn decode_shards(read: &mut Fields<'_>) -> Result<Vec<SourceShard>, ContainerError> {
    let count = read.u16("shards")?;
    // Grows with the bytes that are there, whatever the count says.
    let mut shards = Vec::new();
    for _ in 0..count {
        shards.push(SourceShard {
            name: read.text("name of a shard")?,
            size: read.u64("size of a shard")?,
            header: Digest::new(read.array("header of a shard")?),
        });
    }
    Ok(shards)
}

fn encode_content(out: &mut Vec<u8>, content: &Content) {
    // Numbers of a geometry and of a shape fit their fields.
    let short = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let long = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    out.put_u16(LAYOUT);
    match content {
        Content::Experts { geometry, layout } => {
            let shape = layout.shape();
            out.put_u16(short(geometry.layers()));
            out.put_u16(short(geometry.experts()));
            out.put_u16(short(geometry.top_k()));
            out.put_u32(long(shape.hidden()));
            out.put_u32(long(shape.intermediate()));
            out.put_u16(short(shape.format().bits()));
            out.put_u16(short(shape.format().group_size()));
            out.put_u32(0);
            out.put_u64(layout.record_len() as u64);
            out.put_u64(layout.stride() as u64);
            for piece in layout.pieces() {
                out.put_u64(piece.offset as u64);
                out.put_u64(piece.len as u64);
            }
        }
        Content::Ngram { layer, rows, layout } => {
            out.put_u16(layer.get());
            out.put_u16(short(layout.format().bits()));
            out.put_u16(short(layout.format().group_size()));
            out.put_u64(*rows);
            for number in row_numbers(layout) {
                out.put_u64(number);
            }
        }
    }
}

/// The numbers of a row in the order of the format: its width, its parts, its length, its stride
/// and the rows of a block.
fn row_numbers(layout: &RowLayout) -> [u64; 10] {
    let [weight, scales, biases] = layout.parts();
    [
        layout.width(),
        weight.offset,
        weight.len,
        scales.offset,
        scales.len,
        biases.offset,
        biases.len,
        layout.row_len(),
        layout.stride(),
        layout.rows_per_block(),
    ]
    .map(|number| number as u64)
}

fn decode_layout_id(read: &mut Fields<'_>) -> Result<(), ContainerError> {
    let at = read.at();
    let layout = read.u16("layout")?;
    if layout == LAYOUT {
        return Ok(());
    }
    let expected = format!("{LAYOUT}, the only one that this build knows");
    Err(read.bad(at, "layout", expected, layout.to_string()))
}

fn decode_format(read: &mut Fields<'_>) -> Result<AffineFormat, ContainerError> {
    let at = read.at();
    let (bits, group) = (read.u16("bits")?, read.u16("group size")?);
    AffineFormat::new(u32::from(bits), u32::from(group)).map_err(|error| {
        read.bad(at, "bits and group size", "4 or 8, and 32, 64 or 128", error.to_string())
    })
}

fn decode_experts(read: &mut Fields<'_>) -> Result<Content, ContainerError> {
    decode_layout_id(read)?;
    let at = read.at();
    let numbers = (read.u16("layers")?, read.u16("experts")?, read.u16("top_k")?);
    let geometry = Geometry::new(numbers.0, numbers.1, numbers.2).map_err(|error| {
        read.bad(at, "geometry", "at least 1 each, top_k at most experts", error.to_string())
    })?;
    let at = read.at();
    let (hidden, intermediate) = (read.u32("hidden")?, read.u32("intermediate")?);
    let format = decode_format(read)?;
    let shape = ExpertShape::new(hidden as usize, intermediate as usize, format)
        .map_err(|error| read.bad(at, "shape", "whole groups, at most 2^20", error.to_string()))?;
    let at = read.at();
    let reserved = read.u32("reserved")?;
    if reserved != 0 {
        return Err(read.bad(at, "reserved", "0", reserved.to_string()));
    }
    let layout = RecordLayout::new(shape);
    read.exactly("record length", layout.record_len() as u64)?;
    read.exactly("stride", layout.stride() as u64)?;
    for piece in layout.pieces() {
        read.exactly("offset of a piece", piece.offset as u64)?;
        read.exactly("length of a piece", piece.len as u64)?;
    }
    Ok(Content::Experts { geometry, layout })
}

fn decode_ngram(read: &mut Fields<'_>) -> Result<Content, ContainerError> {
    const FIELDS: [&str; 10] = [
        "width of a row",
        "offset of the weight",
        "length of the weight",
        "offset of the scales",
        "length of the scales",
        "offset of the biases",
        "length of the biases",
        "length of a row",
        "stride of rows",
        "rows of a block",
    ];
    decode_layout_id(read)?;
    let layer = LayerIdx::new(read.u16("layer")?);
    let format = decode_format(read)?;
    let at = read.at();
    let rows = read.u64("rows")?;
    if rows == 0 {
        return Err(read.bad(at, "rows", "at least 1", "0"));
    }
    let at = read.at();
    let mut numbers = [0; 10];
    for (number, field) in numbers.iter_mut().zip(FIELDS) {
        *number = read.u64(field)?;
    }
    // The stride alone tells whether rows are padded.
    let width = usize::try_from(numbers[0]).unwrap_or(usize::MAX);
    let layouts = [false, true].map(|padded| RowLayout::new(width, format, padded));
    let legal = |layout: &RowLayout| row_numbers(layout) == numbers;
    match layouts.into_iter().flatten().find(legal) {
        Some(layout) => Ok(Content::Ngram { layer, rows, layout }),
        None => {
            let expected = layouts[0].map(|layout| row_numbers(&layout));
            let expected = expected.map_or("rows of whole groups".into(), |n| format!("{n:?}"));
            Err(read.bad(at, "layout of rows", expected, format!("{numbers:?}")))
        }
    }
}

/// The checksum of a header: all of its bytes but those of the checksum.
pub(super) fn checksum(header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header.get(..CHECKSUM_AT).unwrap_or_default());
    hasher.update(header.get(FRONT..).unwrap_or_default());
    hasher.finalize()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
