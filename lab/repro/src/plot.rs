//! Plots: what to draw, and drawing it as SVG and PNG by the same code.
//!
//! Letters are set in the font of `font/README.md`, so that both look alike on every machine.

use std::sync::Once;

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement};
use plotters::prelude::DrawingBackend;
use plotters::series::LineSeries;
use plotters::style::{
    BLACK, Color, FontStyle, RGBColor, ShapeStyle, TextStyle, WHITE, register_font,
};

/// Width and height, in pixels.
const SIZE: (u32, u32) = (960, 540);
/// Of the width, for the names of the series.
const LEGEND: u32 = 190;
static FONT: &[u8] = include_bytes!("../font/Roboto-Subset.ttf");
/// Distinguishable also for people who see colours differently (Okabe and Ito's palette).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// An axis: what it measures, and its scale. It spans the points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// Powers of ten, not steps.
    pub log: bool,
}

impl Axis {
    /// In equal steps, from zero.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), log: false }
    }

    /// In powers of ten; points must be above zero.
    #[must_use]
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), log: true }
    }

    /// From below the lowest to above the highest of these values.
    fn span(&self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let highest = values.clone().fold(f64::MIN_POSITIVE, f64::max);
        if self.log {
            let lowest = values.filter(|&value| value > 0.0).fold(highest, f64::min);
            (lowest / 1.5, highest * 1.5)
        } else {
            (0.0, highest * 1.05)
        }
    }
}

/// A line of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// In order of x.
    pub points: Vec<(f64, f64)>,
    /// A mark at each point, for those that are few.
    pub marked: bool,
    /// Broad, so that another line on top of it does not hide it.
    pub broad: bool,
}

impl Series {
    fn width(&self) -> u32 {
        if self.broad { 5 } else { 2 }
    }
}

/// Why a plot could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The library refused.
    #[error("drawing \"{title}\": {why}")]
    Drawing {
        /// The plot's title.
        title: String,
        /// What the library says.
        why: String,
    },
    /// The picture could not be packed.
    #[error("packing the picture: {0}")]
    Packing(#[from] png::EncodingError),
}

impl Plot {
    /// As a text of SVG. The same plot gives the same text.
    ///
    /// # Errors
    /// [`PlotError::Drawing`].
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(text)
    }

    /// As the bytes of a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, PlotError> {
        let mut pixels = vec![0; SIZE.0 as usize * SIZE.1 as usize * 3];
        self.draw(BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, SIZE.0, SIZE.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        Ok(bytes)
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), PlotError> {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // It fails for what is no font only; a test draws with this one.
            let _ = register_font("sans-serif", FontStyle::Normal, FONT);
        });
        let xs = self.series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
        let ys = self.series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
        let ((x0, x1), (y0, y1)) = (self.x.span(xs), self.y.span(ys));
        let drawn = match (self.x.log, self.y.log) {
            (false, false) => self.draw_on(&area, x0..x1, y0..y1),
            (false, true) => self.draw_on(&area, x0..x1, (y0..y1).log_scale()),
            (true, false) => self.draw_on(&area, (x0..x1).log_scale(), y0..y1),
            (true, true) => self.draw_on(&area, (x0..x1).log_scale(), (y0..y1).log_scale()),
        };
        drawn.map_err(|error| PlotError::Drawing {
            title: self.title.clone(),
            why: error.to_string(),
        })
    }

    fn draw_on<B: DrawingBackend, X, Y>(
        &self,
        area: &DrawingArea<B, Shift>,
        x: X,
        y: Y,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        area.fill(&WHITE)?;
        let letters = |size: f64| TextStyle::from(("sans-serif", size));
        let (left, right) = area.split_horizontally(SIZE.0 - LEGEND);
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, letters(20.0))
            .margin(14)
            .margin_right(24)
            .x_label_area_size(46)
            .y_label_area_size(74)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.12))
            .label_style(letters(14.0))
            .axis_desc_style(letters(16.0))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_label_formatter(&|value| tick(*value))
            .y_label_formatter(&|value| tick(*value))
            .draw()?;
        let coloured = self.series.iter().zip(COLOURS.iter().cycle());
        for ((series, colour), y) in coloured.zip((70..).step_by(26)) {
            let style = colour.stroke_width(series.width());
            draw_series(&mut chart, series, style)?;
            right.draw(&PathElement::new([(0, y), (20, y)], style))?;
            right.draw_text(&series.name, &letters(14.0), (28, y - 7))?;
        }
        area.present()
    }
}

fn draw_series<'a, B: DrawingBackend + 'a, X, Y>(
    chart: &mut ChartContext<'a, B, plotters::coord::cartesian::Cartesian2d<X, Y>>,
    series: &Series,
    style: ShapeStyle,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart.draw_series(LineSeries::new(series.points.iter().copied(), style))?;
    if series.marked {
        let marks = series.points.iter().map(|&point| Circle::new(point, 4, style.filled()));
        chart.draw_series(marks)?;
    }
    Ok(())
}

/// A number at an axis: `65k`, `1.5`, `20M`.
fn tick(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Steps are sums of floats: 0.30000000000000004.
    let rounded = (scaled * 1e4).round() / 1e4;
    format!("{rounded}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let series = |name: &str, marked, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            points: points.to_vec(),
            marked,
            broad: !marked,
        };
        Plot {
            title: "Title".to_owned(),
            x: Axis::log("streams"),
            y: Axis::linear("ns"),
            series: vec![
                series("ours", true, &[(4.0, 10.0), (1e6, 60.0)]),
                series("theirs", false, &[(4.0, 39.0), (32.0, 132.0)]),
            ],
        }
    }

    #[test]
    fn svg_holds_all_words_and_is_the_same_each_time() {
        let svg = plot().svg().unwrap();
        for word in ["Title", "streams", "ns", "ours", "theirs", "1M"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert_eq!(svg, plot().svg().unwrap());
    }

    #[test]
    fn png_is_a_picture_with_something_in_it() {
        let bytes = plot().png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), SIZE);
        let dark = pixels.chunks(3).filter(|pixel| pixel.iter().all(|&part| part < 100)).count();
        assert!(dark > 500, "letters and axes are drawn: {dark} dark pixels");
    }

    #[test]
    fn ticks_are_short() {
        let shown = [0.0, 0.1 + 0.2, 1500.0, 65536.0, 2e7, -3e9].map(tick);
        assert_eq!(shown, ["0", "0.3", "1500", "65.536k", "20M", "-3G"]);
    }
}
