//! Agreement of forecasts with the router by layer: `plot_lookahead RECEIPT SVG`, of a receipt that
//! `compare.sh` wrote. Beside it what the original published of its own model, all layers together.

use std::error::Error;

use plotters::prelude::*;
use serde_json::Value;

/// Of the original: boundary-2, attention-tap, corrected.
const PUBLISHED: [(&str, f64); 3] =
    [("boundary-2", 0.62), ("attention tap", 0.73), ("corrected", 0.80)];

type Line = (String, Vec<(f64, f64)>);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(receipt), Some(svg)) = (arguments.next(), arguments.next()) else {
        return Err("usage: plot_lookahead RECEIPT SVG".into());
    };
    let receipt: Value = serde_json::from_slice(&std::fs::read(receipt)?)?;
    let lines = lines(&receipt["figures"]["held out"]);
    if lines.is_empty() {
        return Err("the receipt has no agreement on held-out text".into());
    }
    let mut drawn = String::new();
    draw(&lines, &mut drawn)?;
    std::fs::write(svg, drawn)?;
    Ok(())
}

/// By forecaster: layer and agreement, where it said anything of the layer.
fn lines(held_out: &Value) -> Vec<Line> {
    let forecasters = held_out.as_object().into_iter().flatten();
    let real = forecasters.filter(|(name, _)| *name != "oracle" && !name.contains("threshold"));
    let line = |(name, found): (&String, &Value)| {
        let layers = found["agreement"]["layers"].as_array().into_iter().flatten().enumerate();
        let said = layers.filter_map(|(layer, share)| Some((layer as f64, share.as_f64()?)));
        (name.clone(), said.filter(|(_, share)| *share > 0.0).collect())
    };
    real.map(line).collect()
}

fn draw(lines: &[Line], svg: &mut String) -> Result<(), Box<dyn Error>> {
    let last = lines.iter().flat_map(|(_, line)| line).map(|(layer, _)| *layer).fold(1.0, f64::max);
    let root = SVGBackend::with_string(svg, (860, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("demanded records that had been forecast", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        // Room for the names.
        .build_cartesian_2d(0.0..last * 1.4, 0.0..1.0)?;
    let whole = |layer: &f64| format!("{layer:.0}");
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("layer")
        .y_desc("agreement")
        .x_label_formatter(&whole)
        .draw()?;
    for (number, (name, line)) in lines.iter().enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    for (name, share) in PUBLISHED {
        let dashes = DashedLineSeries::new([(0.0, share), (last, share)], 4, 4, BLACK.into());
        chart.draw_series(dashes)?;
        let text = format!("original, {name}: {share:.2}");
        let at = (last * 1.01, share + 0.015);
        chart.draw_series([Text::new(text, at, ("sans-serif", 12))])?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    root.present()?;
    Ok(())
}
