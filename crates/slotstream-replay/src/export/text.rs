//! The text with one token and layer a line.

use std::io::{self, Write};

use super::failed;
use crate::Requests;
use crate::import::TOKEN_IDS;
use crate::trace::TraceError;

/// Writes requests as a text trace: every row of a pass is a token of its own, in order. `note`
/// becomes the first line.
///
/// # Errors
/// [`TraceError::Io`].
pub fn write_text(requests: &Requests, note: &str, out: impl Write) -> Result<(), TraceError> {
    let mut out = io::BufWriter::new(out);
    write(requests, note, &mut out).and_then(|()| out.flush()).map_err(|e| failed(0, e))
}

fn write(requests: &Requests, note: &str, out: &mut impl Write) -> io::Result<()> {
    let geometry = requests.geometry();
    let (layers, experts, top_k) = (geometry.layers(), geometry.experts(), geometry.top_k());
    let tokens: usize = requests.passes().map(|pass| pass.step().tokens.len()).sum();
    writeln!(out, "# {}", note.lines().next().unwrap_or("routing"))?;
    write!(out, "# tokens {tokens} layers {layers} experts {experts} top_k {top_k}; ")?;
    writeln!(out, "line: token layer ids (descending router weight)")?;
    write!(out, "# {TOKEN_IDS}")?;
    for pass in requests.passes() {
        for token in pass.step().tokens {
            write!(out, " {token}")?;
        }
    }
    writeln!(out)?;
    let mut first = 0;
    for pass in requests.passes() {
        let rows = pass.step().tokens.len();
        for row in 0..rows {
            for visit in pass.visits() {
                write!(out, "{} {}", first + row, visit.layer().get())?;
                for id in visit.ids().iter().skip(row * top_k).take(top_k) {
                    write!(out, " {}", id.get())?;
                }
                writeln!(out)?;
            }
        }
        first += rows;
    }
    Ok(())
}
