//! Safetensors headers.

use crate::checkpoint::edit;
use serde_json::json;
use slotstream_checkpoint::CheckpointError as E;
use slotstream_core::ErrorKind::Corrupt;

use super::{FIRST, NORM, Row, brackets, entry, file_of, get, header, put, stretch};

pub(super) const HEADERS: &[Row] = &[
    (
        "length 0",
        Corrupt,
        |f| edit::set_header_length(&f.join(FIRST), 0),
        |e| matches!(e, E::HeaderLength { length: 0, .. }),
        &[FIRST, "claims 0 bytes"],
    ),
    (
        "length past the end",
        Corrupt,
        |f| edit::set_header_length(&f.join(FIRST), 50_000_000),
        |e| matches!(e, E::HeaderLength { .. }),
        &[FIRST, "50000000"],
    ),
    (
        "length of all ones",
        Corrupt,
        |f| edit::set_header_length(&f.join(FIRST), u64::MAX),
        |e| matches!(e, E::HeaderLength { length: u64::MAX, .. }),
        &[FIRST],
    ),
    (
        "length over the cap in a file that is long enough",
        Corrupt,
        |f| {
            edit::set_header_length(&f.join(FIRST), 100_000_001)?;
            stretch(&f.join(FIRST), 300_000_000)
        },
        |e| matches!(e, E::HeaderLength { limit: 100_000_000, .. }),
        &[FIRST, "100000001"],
    ),
    (
        "a file of three bytes",
        Corrupt,
        |f| put(&f.join(FIRST), b"abc"),
        |e| matches!(e, E::NoHeader { found: 3, .. }),
        &[FIRST, "download it again"],
    ),
    (
        "length one byte past the end",
        Corrupt,
        |f| {
            let len = get(&f.join(FIRST))?.len() as u64;
            edit::set_header_length(&f.join(FIRST), len - 7)
        },
        |e| matches!(e, E::HeaderLength { length, available, .. } if *length == available + 1),
        &[FIRST, "at most"],
    ),
    (
        "header is not UTF-8",
        Corrupt,
        |f| header(f, b"{\"a\xff\": 1}"),
        |e| matches!(e, E::Utf8 { offset: 3, .. }),
        &[FIRST, "UTF-8"],
    ),
    (
        "header is not JSON",
        Corrupt,
        |f| header(f, b"{\"a\": ]"),
        |e| matches!(e, E::Json { .. }),
        &[FIRST, "not valid JSON", "column"],
    ),
    (
        "header is a list",
        Corrupt,
        |f| header(f, b"[1, 2]"),
        |e| matches!(e, E::Json { .. }),
        &[FIRST, "the header"],
    ),
    (
        "header of 200,000 brackets",
        Corrupt,
        |f| header(f, &brackets("")),
        |e| matches!(e, E::Json { .. }),
        &[FIRST],
    ),
    (
        "200,000 brackets in a tensor",
        Corrupt,
        |f| header(f, &brackets("{\"x\": {\"shape\": ")),
        |e| matches!(e, E::Json { .. }),
        &[FIRST, "`x`"],
    ),
    (
        "200,000 brackets in an unknown field",
        Corrupt,
        |f| header(f, &brackets("{\"x\": {\"other\": ")),
        |e| matches!(e, E::Json { .. }),
        &[FIRST, "`x`"],
    ),
    (
        "a tensor twice in a header",
        Corrupt,
        |f| {
            let one = r#""a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}"#;
            header(f, format!("{{{one}, {one}}}").as_bytes())
        },
        // The data no longer fit either; the duplicate is found first.
        |e| matches!(e, E::DuplicateKey { .. }),
        &[FIRST, "`a` twice"],
    ),
    (
        "a field twice",
        Corrupt,
        |f| header(f, br#"{"a": {"dtype": "U8", "dtype": "U8"}}"#),
        |e| matches!(e, E::DuplicateKey { .. }),
        &[FIRST, "`a.dtype` twice"],
    ),
    (
        "no dtype",
        Corrupt,
        |f| entry(f, NORM, |t| drop(t.as_object_mut().map(|map| map.remove("dtype")))),
        |e| matches!(e, E::TensorField { field: "dtype", .. }),
        &[NORM, "dtype"],
    ),
    (
        "unknown dtype",
        Corrupt,
        |f| entry(f, NORM, |t| t["dtype"] = json!("Q4_K")),
        |e| matches!(e, E::UnknownDtype { .. }),
        &[NORM, "Q4_K"],
    ),
    (
        "negative offset",
        Corrupt,
        |f| entry(f, NORM, |t| t["data_offsets"][0] = json!(-8)),
        |e| matches!(e, E::TensorNumber { found: -8, .. }),
        &[NORM, "-8"],
    ),
    (
        "negative dimension",
        Corrupt,
        |f| entry(f, NORM, |t| t["shape"][0] = json!(-32)),
        |e| matches!(e, E::TensorNumber { field: "shape", .. }),
        &[NORM, "-32"],
    ),
    (
        "offset beyond 2^63",
        Corrupt,
        |f| entry(f, NORM, |t| t["data_offsets"] = json!([u64::MAX - 64, u64::MAX])),
        |e| matches!(e, E::TensorNumber { .. }),
        &[NORM, "18446744073709551551"],
    ),
    (
        "a dimension that is not whole",
        Corrupt,
        |f| entry(f, NORM, |t| t["shape"][0] = json!(32.5)),
        |e| matches!(e, E::Json { .. }),
        &[NORM, "whole number"],
    ),
    (
        "thousands of dimensions",
        Corrupt,
        |f| entry(f, NORM, |t| t["shape"] = json!(vec![1; 5000])),
        |e| matches!(e, E::Json { .. }),
        &[NORM, "at most 8"],
    ),
    (
        "shape product overflows",
        Corrupt,
        |f| entry(f, NORM, |t| t["shape"] = json!([1_u64 << 40, 1_u64 << 40])),
        |e| matches!(e, E::ShapeOverflow { .. }),
        &[NORM, "overflows"],
    ),
    (
        "shape and bytes disagree",
        Corrupt,
        |f| entry(f, NORM, |t| t["shape"] = json!([31])),
        |e| matches!(e, E::TensorBytes { expected: 62, .. }),
        &[NORM, "62"],
    ),
    (
        "end before begin",
        Corrupt,
        |f| {
            entry(f, NORM, |t| {
                t["data_offsets"].as_array_mut().into_iter().for_each(|list| list.reverse());
            })
        },
        |e| matches!(e, E::TensorBytes { .. }),
        &[NORM],
    ),
    (
        "overlapping extents",
        Corrupt,
        |f| {
            entry(f, NORM, |t| {
                let begin = t["data_offsets"][0].as_u64().unwrap_or(0);
                t["data_offsets"] = json!([begin - 2, begin + 62]);
            })
        },
        |e| matches!(e, E::TensorPlacement { .. }),
        &["overlap"],
    ),
    (
        "a gap",
        Corrupt,
        |f| {
            edit::edit_header(&file_of(f, NORM)?, |header| {
                for tensor in header.values_mut() {
                    for offset in tensor["data_offsets"].as_array_mut().into_iter().flatten() {
                        *offset = json!(offset.as_u64().unwrap_or(0) + 2);
                    }
                }
            })
        },
        |e| matches!(e, E::TensorPlacement { expected: 0, found: 2, .. }),
        &["belong to no tensor"],
    ),
    (
        "an extent out of the file",
        Corrupt,
        |f| {
            edit::edit_header(&f.join(FIRST), |header| {
                let end = header.values().filter_map(|t| t["data_offsets"][1].as_u64()).max();
                let end = end.unwrap_or(0);
                let value = json!({"dtype": "U8", "shape": [9], "data_offsets": [end, end + 9]});
                header.insert("far".to_owned(), value);
            })
        },
        |e| matches!(e, E::Truncated { .. }),
        &[FIRST, "download it again"],
    ),
];
