//! A frame as SVG.

use super::frame::{Frame, State, colour};

/// Pixels of a slot with the space around it.
const CELL: usize = 22;
const MARGIN: usize = 16;
const TITLE: usize = 28;

/// The frame with `width` slots a row: a dot is a reference bit, a dark border a slot in use, a
/// dashed one a slot that is being read into, a triangle the hand.
pub(super) fn draw(frame: &Frame, width: usize) -> String {
    let columns = frame.slots.len().min(width).max(1);
    let rows = frame.slots.len().div_ceil(width);
    // The title is longer than a small pool is wide.
    let wide = (columns * CELL).max(7 * frame.title.len()) + 2 * MARGIN;
    let high = rows * CELL + TITLE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" \
         viewBox=\"0 0 {wide} {high}\" font-family=\"sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"{}\" font-size=\"13\" fill=\"#222222\">{}</text>\n",
        MARGIN + 12,
        escape(&frame.title)
    );
    for (number, slot) in frame.slots.iter().enumerate() {
        let (x, y) = (MARGIN + number % width * CELL, MARGIN + TITLE + number / width * CELL);
        let fill = slot.layer.map_or("#f2f2f2".to_owned(), |layer| {
            let (red, green, blue) = colour(layer, frame.layers);
            format!("#{red:02x}{green:02x}{blue:02x}")
        });
        let border = match slot.state {
            State::Idle => "stroke=\"#bbbbbb\"",
            State::Pinned => "stroke=\"#000000\" stroke-width=\"2\"",
            State::InFlight => "stroke=\"#000000\" stroke-width=\"2\" stroke-dasharray=\"3 2\"",
        };
        svg += &format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"18\" height=\"18\" fill=\"{fill}\" {border}/>"
        );
        if let Some(layer) = slot.layer {
            svg += &format!(
                "<text x=\"{}\" y=\"{}\" font-size=\"9\" text-anchor=\"middle\">{layer}</text>",
                x + 9,
                y + 12
            );
        }
        if slot.referenced {
            svg += &format!("<circle cx=\"{}\" cy=\"{}\" r=\"2\"/>", x + 15, y + 3);
        }
        if frame.hand == Some(number) {
            let (left, tip) = (x.saturating_sub(4), y + 9);
            svg += &format!(
                "<path d=\"M{left} {} L{} {tip} L{left} {} Z\" fill=\"#cc0000\"/>",
                y + 4,
                x + 4,
                y + 14
            );
        }
        svg.push('\n');
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
