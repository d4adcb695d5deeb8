//! GB/s against the reads at once, a panel a way.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::Row;
use crate::Failure;

/// Pixels of a panel.
const PANEL: (u32, u32) = (520, 360);

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The rows as an SVG.
pub(super) fn draw(rows: &[Row]) -> Result<String, Failure> {
    let mut svg = String::new();
    panels(rows, &mut svg).map_err(|error| Failure::Chart { reason: error.to_string() })?;
    Ok(svg)
}

fn panels(rows: &[Row], svg: &mut String) -> Drawn {
    let mut ways: Vec<_> = rows.iter().map(|row| row.way).collect();
    ways.dedup();
    let (across, down) = (ways.len().clamp(1, 2), ways.len().div_ceil(2).max(1));
    let size = (PANEL.0 * across as u32, PANEL.1 * down as u32);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, way) in root.split_evenly((down, across)).iter().zip(ways) {
        let own: Vec<&Row> = rows.iter().filter(|row| row.way == way).collect();
        panel(area, &format!("{way:?}").to_lowercase(), &own)?;
    }
    root.present()?;
    Ok(())
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, rows: &[&Row]) -> Drawn {
    let most = rows.iter().map(|row| row.gb_s).fold(0.0, f64::max);
    let deepest = rows.iter().map(|row| row.depth).max().unwrap_or(1);
    let depths = (0.9..f64::from(deepest) * 1.1).log_scale();
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(depths, 0.0..(most * 1.1).max(1e-6))?;
    let whole = |depth: &f64| format!("{depth:.0}");
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("reads at once")
        .y_desc("GB/s")
        .x_label_formatter(&whole)
        .draw()?;
    let mut readers: Vec<&str> = rows.iter().map(|row| row.reader.as_str()).collect();
    readers.sort_unstable();
    readers.dedup();
    for (number, reader) in readers.into_iter().enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        let mut points: Vec<(f64, f64)> = rows
            .iter()
            .filter(|row| row.reader == reader)
            .map(|row| (f64::from(row.depth), row.gb_s))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = LineSeries::new(points, style).point_size(3);
        chart
            .draw_series(line)?
            .label(reader)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    Ok(())
}
