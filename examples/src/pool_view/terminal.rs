//! A frame as text.

use super::frame::{Frame, Slot, State, colour};

/// Letters of the layers; there are more layers than letters in no known model.
const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The frame with `width` slots a row.
pub(super) fn draw(frame: &Frame, width: usize, coloured: bool) -> String {
    let mut text = format!("{}\n", frame.title);
    for (row, slots) in frame.slots.chunks(width).enumerate() {
        for (column, slot) in slots.iter().enumerate() {
            let hand = frame.hand == Some(row * width + column);
            text.push(if hand { '>' } else { ' ' });
            let cell = cell(slot);
            match slot.layer.filter(|_| coloured) {
                Some(layer) => {
                    let (red, green, blue) = colour(layer, frame.layers);
                    text += &format!("\x1b[30;48;2;{red};{green};{blue}m{cell}\x1b[0m");
                }
                None => text += &cell,
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Two letters: the owner and what happens.
fn cell(slot: &Slot) -> String {
    let Some(layer) = slot.layer else { return ". ".into() };
    let letter = LETTERS.get(layer).map_or('?', |letter| char::from(*letter));
    let sign = match (slot.state, slot.referenced) {
        (State::Pinned, _) => '*',
        (State::InFlight, _) => '+',
        (State::Idle, true) => '\'',
        (State::Idle, false) => ' ',
    };
    format!("{letter}{sign}")
}
