//! Charts of hit rates against sizes, as SVG.

use plotters::chart::DualCoordChartContext;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
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

/// A chart of hit rates (or miss ratios) against slots, one line a policy, `opt` in black. The
/// legend stands beside the lines and lists them from the top to the bottom; lines that share a
/// colour differ in dashes and marks.
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
    /// Slots of a token's route.
    route: Option<usize>,
    series: Vec<Series>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    /// Slots and hit rates.
    points: Vec<(usize, f64)>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    style: ShapeStyle,
    stroke: Stroke,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stroke {
    /// With filled circles at the points.
    Solid,
    /// With triangles.
    Dashed,
    /// With crosses.
    Dotted,
    /// Without marks.
    Bare,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Plane<X> = Cartesian2d<X, RangedCoordf64>;
type Context<'a, 'b, X> = DualCoordChartContext<'a, SVGBackend<'b>, Plane<X>, Plane<X>>;

/// Lines and axes; the legend is as wide as its longest name needs.
const PLOT: (u32, u32) = (880, 600);
/// Of the legend.
const LEFT: i32 = 10;
const ROW: u32 = 23;
const SAMPLE: i32 = 34;
const LETTER: usize = 8;
const LONGEST_NAME: usize = 48;
const FONT: &str = "sans-serif";

/// Colours that stay apart, also for most people who see fewer of them (Okabe and Ito, 2008, and
/// darker ones).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 60, 140),
    RGBColor(130, 110, 40),
];
const STROKES: [Stroke; 3] = [Stroke::Solid, Stroke::Dashed, Stroke::Dotted];

impl Chart {
    /// An empty chart of hit rates on a linear axis.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.into(),
            measure: Measure::HitRate,
            logarithmic: false,
            ceiling: None,
            route: None,
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

    /// A second horizontal axis in token routes of `slots` slots each (layers x top-k).
    #[must_use]
    pub fn routes_of(mut self, slots: usize) -> Self {
        self.route = (slots > 0).then_some(slots);
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
        let range = from..to;
        let lines = self.lines((least, most));
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, size(&lines)).into_drawing_area();
            let route = self.route.unwrap_or(1) as f64;
            let routes = range.start / route..range.end / route;
            let drawn = if self.logarithmic {
                self.draw(&area, &lines, (range.log_scale(), routes.log_scale()))
            } else {
                self.draw(&area, &lines, (range, routes))
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

    /// Every line in the order of the legend, which is that of their means, the highest first.
    fn lines(&self, (least, most): (f64, f64)) -> Vec<Line> {
        let mut looks = looks();
        let mut lines: Vec<Line> = Vec::new();
        for series in self.series.iter().filter(|series| !series.points.is_empty()) {
            let look = if series.name == "opt" { Some(BEST) } else { looks.next() };
            let points = series.points.iter();
            lines.push(Line {
                name: shortened(&series.name),
                look: look.unwrap_or(BEST),
                points: points.map(|(slots, rate)| (*slots as f64, self.value(*rate))).collect(),
            });
        }
        if let Some(ceiling) = self.ceiling.map(|rate| self.value(rate)) {
            let style = BLACK.mix(0.45).stroke_width(1);
            lines.push(Line {
                name: "first uses only miss".into(),
                look: Look { style, stroke: Stroke::Bare },
                points: vec![(least, ceiling), (most, ceiling)],
            });
        }
        lines.sort_by(|one, other| other.mean().total_cmp(&one.mean()));
        lines
    }

    fn draw<X>(&self, area: &Area<'_>, lines: &[Line], (slots, routes): (X, X)) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(PLOT.0);
        let top = 0.0..self.top();
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, (FONT, 26))
            .margin(16)
            .x_label_area_size(52)
            .y_label_area_size(66)
            .top_x_label_area_size(if self.route.is_some() { 52 } else { 0 })
            .build_cartesian_2d(slots, top.clone())?
            .set_secondary_coord(routes, top);
        self.draw_axes(&mut chart)?;
        for line in lines {
            line.draw(&mut chart)?;
        }
        draw_legend(&legend, lines)?;
        area.present()
    }

    fn draw_axes<X>(&self, chart: &mut Context<'_, '_, X>) -> Drawn
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let measure = match self.measure {
            Measure::HitRate => "hit rate, % of lookups",
            Measure::MissRatio => "miss ratio, % of lookups",
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .label_style((FONT, 17))
            .axis_desc_style((FONT, 18))
            .x_label_formatter(&|slots| format!("{slots:.0}"))
            .y_label_formatter(&|share| format!("{share:.0}"))
            .x_desc("pool, slots")
            .y_desc(measure)
            .draw()?;
        let Some(route) = self.route else { return Ok(()) };
        chart
            .configure_secondary_axes()
            .label_style((FONT, 17))
            .axis_desc_style((FONT, 18))
            .x_label_formatter(&|routes| ((routes * 100.0).round() / 100.0).to_string())
            .x_desc(format!("pool, token routes of {route} slots"))
            .draw()
    }
}

/// A line of the chart.
#[derive(Clone, Debug)]
struct Line {
    name: String,
    look: Look,
    /// Slots and percent, by slots.
    points: Vec<(f64, f64)>,
}

const BEST: Look = Look {
    style: ShapeStyle { color: RGBAColor(0, 0, 0, 1.0), filled: true, stroke_width: 3 },
    stroke: Stroke::Solid,
};

/// Looks that differ: as many as there are colours and strokes, then the same again.
fn looks() -> impl Iterator<Item = Look> {
    let each = STROKES.into_iter().flat_map(|stroke| {
        COLOURS.into_iter().map(move |colour| Look { style: colour.stroke_width(2), stroke })
    });
    each.collect::<Vec<_>>().into_iter().cycle()
}

impl Line {
    fn mean(&self) -> f64 {
        self.points.iter().map(|point| point.1).sum::<f64>() / self.points.len() as f64
    }

    fn draw<X: Ranged<ValueType = f64>>(&self, chart: &mut Context<'_, '_, X>) -> Drawn {
        let (points, Look { style, stroke }) = (&self.points, self.look);
        if let Some((dash, gap)) = stroke.dashes() {
            let line = DashedLineSeries::new(points.iter().copied(), dash, gap, style);
            chart.draw_series(line)?;
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        }
        let filled = style.filled();
        match stroke {
            Stroke::Solid => {
                chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, filled)))?;
            }
            Stroke::Dashed => {
                chart.draw_series(points.iter().map(|at| TriangleMarker::new(*at, 5, filled)))?;
            }
            Stroke::Dotted => {
                chart.draw_series(points.iter().map(|at| Cross::new(*at, 4, style)))?;
            }
            Stroke::Bare => {}
        }
        Ok(())
    }

    /// The same in the legend, from `(x, y)` to the right.
    fn draw_sample(&self, area: &Area<'_>, (x, y): (i32, i32)) -> Drawn {
        let Look { style, stroke } = self.look;
        let ends = [(x, y), (x + SAMPLE, y)];
        if let Some((dash, gap)) = stroke.dashes() {
            area.draw(&DashedPathElement::new(ends, dash, gap, style))?;
        } else {
            area.draw(&PathElement::new(ends, style))?;
        }
        let (middle, filled) = ((x + SAMPLE / 2, y), style.filled());
        match stroke {
            Stroke::Solid => area.draw(&Circle::new(middle, 3, filled)),
            Stroke::Dashed => area.draw(&TriangleMarker::new(middle, 5, filled)),
            Stroke::Dotted => area.draw(&Cross::new(middle, 4, style)),
            Stroke::Bare => Ok(()),
        }
    }
}

impl Stroke {
    /// Lengths of a dash and of the gap behind it.
    const fn dashes(self) -> Option<(i32, i32)> {
        match self {
            Self::Solid | Self::Bare => None,
            Self::Dashed => Some((9, 5)),
            Self::Dotted => Some((2, 5)),
        }
    }
}

/// Room for the plot and for the legend of `lines`.
fn size(lines: &[Line]) -> (u32, u32) {
    let rows = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    let longest = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    // At most the longest name that is shown.
    let width = (LEFT + SAMPLE).unsigned_abs() + 24 + u32::try_from(longest * LETTER).unwrap_or(0);
    (PLOT.0 + width, PLOT.1.max(rows.saturating_mul(ROW).saturating_add(100)))
}

fn draw_legend(area: &Area<'_>, lines: &[Line]) -> Drawn {
    let mut y = 60;
    for line in lines {
        line.draw_sample(area, (LEFT, y))?;
        // A text hangs from its upper left corner.
        area.draw(&Text::new(line.name.as_str(), (LEFT + SAMPLE + 8, y - 8), (FONT, 16)))?;
        y += ROW.cast_signed();
    }
    Ok(())
}

/// A name that fits into the legend.
fn shortened(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.into();
    }
    name.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_24_lines_look_alike() {
        let looks: Vec<Look> = looks().take(24).chain([BEST]).collect();
        for (at, look) in looks.iter().enumerate() {
            assert!(!looks[..at].contains(look), "{at}");
        }
    }

    #[test]
    fn long_names_are_cut_at_a_letter() {
        assert_eq!(shortened(&"ä".repeat(48)), "ä".repeat(48));
        assert_eq!(shortened(&"ä".repeat(49)), "ä".repeat(47) + "…");
    }
}
