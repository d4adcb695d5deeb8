//! Charts of hit rates against sizes, as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::ReplayError;

/// What the vertical axis shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measure {
    /// Hits of lookups, upwards.
    #[default]
    HitRate,
    /// Misses of lookups.
    MissRatio,
}

/// A chart of hit rates (or miss ratios) against slots, one line a policy, `opt` in black.
///
/// ```
/// use slotstream_replay::Chart;
///
/// let mut chart = Chart::new("prose");
/// chart.push("opt", &[(100, 0.55), (200, 0.75)]);
/// chart.push("clock", &[(100, 0.25), (200, 0.45)]);
/// assert!(chart.svg()?.starts_with("<svg"));
/// # Ok::<(), slotstream_replay::ReplayError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    measure: Measure,
    logarithmic: bool,
    ceiling: Option<f64>,
    series: Vec<Series>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    /// Slots and hit rates.
    points: Vec<(usize, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

const SIZE: (u32, u32) = (960, 600);
const FONT: &str = "sans-serif";

/// Colours that stay apart, also for most people who see fewer of them (Okabe and Ito, 2008, and
/// darker ones).
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 60, 140),
    RGBColor(130, 110, 40),
    RGBColor(150, 30, 30),
    RGBColor(110, 110, 110),
];

impl Chart {
    /// An empty chart of hit rates on a linear axis.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.into(),
            measure: Measure::HitRate,
            logarithmic: false,
            ceiling: None,
            series: Vec::new(),
        }
    }

    /// What the vertical axis shows.
    #[must_use]
    pub fn measure(mut self, measure: Measure) -> Self {
        self.measure = measure;
        self
    }

    /// Slots on a logarithmic axis.
    #[must_use]
    pub fn logarithmic(mut self, logarithmic: bool) -> Self {
        self.logarithmic = logarithmic;
        self
    }

    /// A line at the hit rate that no pool can exceed, because first uses miss.
    #[must_use]
    pub fn ceiling(mut self, hit_rate: Option<f64>) -> Self {
        self.ceiling = hit_rate;
        self
    }

    /// Adds a policy's hit rates by slots.
    pub fn push(&mut self, name: &str, points: &[(usize, f64)]) {
        let mut points = points.to_vec();
        points.sort_unstable_by_key(|(slots, _)| *slots);
        self.series.push(Series { name: name.into(), points });
    }

    /// The chart.
    ///
    /// # Errors
    /// [`ReplayError::Chart`] when there is nothing to draw.
    pub fn svg(&self) -> Result<String, ReplayError> {
        let slots = || self.series.iter().flat_map(|series| series.points.iter().map(|p| p.0));
        let (Some(least), Some(most)) = (slots().min(), slots().max()) else {
            return Err(ReplayError::Chart { why: "it has no points" });
        };
        let (least, most) = (least as f64, most as f64);
        // One size alone still needs some width.
        let (from, to) = if least < most { (least, most) } else { (least * 0.9, least * 1.1) };
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let drawn = if self.logarithmic {
                self.draw(&area, (from..to).log_scale())
            } else {
                self.draw(&area, from..to)
            };
            drawn.map_err(|_| ReplayError::Chart { why: "the drawing library refuses it" })?;
        }
        Ok(svg)
    }

    fn value(&self, hit_rate: f64) -> f64 {
        match self.measure {
            Measure::HitRate => hit_rate * 100.0,
            Measure::MissRatio => (1.0 - hit_rate) * 100.0,
        }
    }

    /// The vertical axis: from 0, up to the next ten above every point.
    fn top(&self) -> f64 {
        let points = self.series.iter().flat_map(|series| series.points.iter().map(|p| p.1));
        let highest = points.chain(self.ceiling).map(|rate| self.value(rate)).fold(0.0, f64::max);
        ((highest / 10.0).ceil() * 10.0).clamp(10.0, 100.0)
    }

    fn draw<X>(&self, area: &Area<'_>, slots: X) -> Result<(), DrawingAreaErrorKind<std::io::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        area.fill(&WHITE)?;
        let (name, corner) = match self.measure {
            Measure::HitRate => ("hit rate, %", SeriesLabelPosition::LowerRight),
            Measure::MissRatio => ("miss ratio, %", SeriesLabelPosition::UpperRight),
        };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 26))
            .margin(16)
            .x_label_area_size(52)
            .y_label_area_size(66)
            .build_cartesian_2d(slots, 0.0..self.top())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .label_style((FONT, 17))
            .axis_desc_style((FONT, 18))
            .x_label_formatter(&|slots| format!("{slots:.0}"))
            .y_label_formatter(&|share| format!("{share:.0}"))
            .x_desc("slots")
            .y_desc(name)
            .draw()?;
        let colours = COLOURS.into_iter().cycle();
        let plain = self.series.iter().filter(|series| series.name != "opt").zip(colours);
        let best = self.series.iter().filter(|series| series.name == "opt").map(|s| (s, BLACK));
        // OPT comes first in the legend.
        for (series, colour) in best.chain(plain) {
            let style = colour.stroke_width(if colour == BLACK { 3 } else { 2 });
            let points: Vec<(f64, f64)> = series
                .points
                .iter()
                .map(|(slots, rate)| (*slots as f64, self.value(*rate)))
                .collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        }
        if let Some(ceiling) = self.ceiling {
            let ceiling = self.value(ceiling);
            let range = self.series.iter().flat_map(|s| s.points.iter().map(|p| p.0 as f64));
            let (least, most) =
                range.fold((f64::MAX, 0.0), |(a, b): (f64, f64), x| (a.min(x), b.max(x)));
            let style = BLACK.mix(0.45).stroke_width(1);
            chart
                .draw_series(LineSeries::new([(least, ceiling), (most, ceiling)], style))?
                .label("first uses only miss")
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        }
        chart
            .configure_series_labels()
            .position(corner)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 17))
            .draw()?;
        area.present()
    }
}
