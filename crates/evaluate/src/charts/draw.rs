//! A chart as SVG: axes, grid and lines by kuva; marks, words and the legend stand on its scene.
//!
//! **Rule.** The width is always the same and the height follows what has to be said, so that no
//! name is cut and none lies on another. All sizes are in units of the picture, which scales.

use super::chart::{Chart, Mark, Over, Series};
use super::words::{self, LINE, Line};
use crate::figure::Origin;
use kuva::prelude::{
    Layout, LinePlot, LineStyle, MarkerShape, Plot, ReferenceLine, ScatterPlot, SvgBackend, TickFormat,
};
use kuva::render::layout::ComputedLayout;
use kuva::render::render::{PathData, Primitive, Scene, render_multiple};
use std::sync::Arc;

/// Width of each chart: two stand side by side on a wide window, one fills a telephone.
pub(super) const WIDTH: f64 = 480.0;
/// Height of the axes and what is between them, of a chart over counts.
const CURVES_HEIGHT: f64 = 280.0;
/// What a row takes below its words.
const ROW_HEIGHT: f64 = 26.0;
/// The axis below the rows.
const AXIS_HEIGHT: f64 = 70.0;
/// Distance of the words of a row, and of a legend, from the left.
const INDENT: f64 = 14.0;
/// Words of the legend begin here: left of them stands a piece of the line.
const SAMPLE_WIDTH: f64 = 46.0;
const MARK: f64 = 5.0;
const INK: &str = "#3c454e";
const GRID: &str = "#dfe4e8";
const REFERENCE: &str = "#3c454e";
const PUBLISHED: &str = "#6b737b";
pub(crate) const FONT: &str = "system-ui, 'DejaVu Sans', 'Liberation Sans', Arial, sans-serif";
/// Told apart by people who see red and green alike (Okabe and Ito); the last four, dark, for
/// experiments of many configurations.
const COLOURS: [&str; 10] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B2A86", "#7A4B00", "#1F5E3A", "#8A1C3B"];

impl Chart {
    /// The chart as a file of its own. In a page it may stand beside others: what it names has its
    /// own name in it.
    pub fn svg(&self) -> String {
        let (plots, layout) = self.plots();
        let place = ComputedLayout::from_layout(&layout);
        let mut drawn = render_multiple(plots, layout);
        for series in &self.series {
            for mark in &series.marks {
                self.mark(&mut drawn, &place, series, mark);
            }
        }
        self.row_words(&mut drawn, &place);
        let framed = self.framed(drawn);
        let size = (framed.width, framed.height);
        let svg = SvgBackend::new().render_scene(&framed);
        // It scales with its page.
        let fixed = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
        let scaling = format!(
            "viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"",
            size.0,
            size.1,
            crate::report::escape(&self.title)
        );
        self.own_clip(&svg.replacen(&fixed, &scaling, 1))
    }

    /// The clipping path with the chart's own name: kuva numbers those of a process, and the same
    /// chart has to give the same bytes, and be beside no other of its name in a page.
    fn own_clip(&self, svg: &str) -> String {
        let mut parts = svg.split("kuva-clip-");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |svg, part| {
            let rest = part.trim_start_matches(|character: char| character.is_ascii_digit());
            format!("{svg}{}-clip{rest}", self.name)
        })
    }

    /// Lines and repetitions, and the axes around them.
    fn plots(&self) -> (Vec<Plot>, Layout) {
        let mut plots: Vec<Plot> = self.series.iter().flat_map(|series| self.of_series(series)).collect();
        // Marks are drawn later, and the axes have to hold them and how far they reach.
        plots.push(self.invisible().into());
        let layout = Layout::auto_from_plots(&plots)
            .with_width(WIDTH)
            .with_tick_size(13)
            .with_label_size(14)
            .with_font_family(FONT)
            .with_theme(theme());
        let last = self.over.len().saturating_sub(1) as f64;
        let layout = match &self.over {
            Over::Counts { title, counts } => {
                let labels: Vec<String> = counts.iter().map(u32::to_string).collect();
                layout
                    .with_height(CURVES_HEIGHT)
                    .with_x_label(words::literal(title))
                    .with_y_label(words::literal(&self.value))
                    .with_x_axis_min(-0.4)
                    .with_x_axis_max(last + 0.4)
                    .with_y_axis_min(0.0)
                    .with_x_tick_step(1.0)
                    .with_x_tick_format(TickFormat::Custom(Arc::new(move |at| at_place(&labels, at))))
                    .with_y_tick_format(TickFormat::Custom(Arc::new(words::number)))
            }
            Over::Sizes { title, .. } => layout
                .with_height(CURVES_HEIGHT)
                .with_log_scale()
                .with_x_label(words::literal(title))
                .with_y_label(words::literal(&self.value))
                .with_x_tick_format(TickFormat::Custom(Arc::new(words::short)))
                .with_y_tick_format(TickFormat::Custom(Arc::new(words::short))),
            Over::Rows(_) => layout
                .with_height(AXIS_HEIGHT + self.row_height() * self.over.len() as f64)
                .with_force_margins(INDENT, self.right_margin())
                .with_ticks(4)
                .with_x_label(words::literal(&self.value))
                .with_x_axis_min(0.0)
                .with_y_axis_min(-0.4)
                .with_y_axis_max(last + 0.6)
                .with_y_tick_step(1.0)
                .with_x_tick_format(TickFormat::Custom(Arc::new(words::number)))
                .with_y_tick_format(TickFormat::Custom(Arc::new(|_| String::new()))),
        };
        let layout = match (self.reference, &self.over) {
            (Some(value), Over::Rows(_)) => layout.with_reference_line(reference(ReferenceLine::vertical(value))),
            (Some(value), _) => layout.with_reference_line(reference(ReferenceLine::horizontal(value))),
            (None, _) => layout,
        };
        (plots, layout)
    }

    fn of_series(&self, series: &Series) -> Vec<Plot> {
        let mut plots: Vec<Plot> = Vec::new();
        let colour = colour(series);
        if self.over.has_curves() && series.marks.len() > 1 {
            let points = series.marks.iter().map(|mark| self.point(mark.place, mark.value));
            plots.push(
                LinePlot::new()
                    .with_data(points)
                    .with_color(colour)
                    .with_stroke_width(if series.origin == Origin::Measured { 2.0 } else { 1.5 })
                    .with_line_style(line_style(series.origin))
                    .into(),
            );
        }
        for (values, shape) in [(&series.repetitions, MarkerShape::Circle), (&series.rejected, MarkerShape::Cross)] {
            if !values.is_empty() {
                let dots = values.iter().map(|&(place, value)| self.point(place, value));
                let plot = ScatterPlot::new().with_data(dots).with_color(colour).with_size(2.5).with_marker(shape);
                plots.push(plot.with_marker_opacity(0.35).into());
            }
        }
        plots
    }

    fn point(&self, place: usize, value: f64) -> (f64, f64) {
        match self.over {
            Over::Counts { .. } => (place as f64, value),
            Over::Sizes { ref sizes, .. } => (sizes[place] as f64, value),
            Over::Rows(ref rows) => (value, (rows.len() - 1 - place) as f64),
        }
    }

    /// The largest value of all, and what it is compared with.
    fn extent(&self) -> f64 {
        let marks = self.series.iter().flat_map(|series| &series.marks);
        let ends = marks.map(|mark| mark.spread.map_or(mark.value, |(_, most)| most.max(mark.value)));
        ends.chain(self.reference).fold(0.0, f64::max)
    }

    /// Of a chart of rows: half of the last number below the axis is right of where the axis ends.
    fn right_margin(&self) -> f64 {
        let numbers = [self.extent(), self.extent() / 8.0].map(|value| words::number(value).len());
        let longest = numbers.into_iter().max().unwrap_or(0) + 1;
        (words::width(longest, 13.0) / 2.0 + 4.0).max(2.0 * INDENT)
    }

    /// What the axes have to hold: from zero, or from the smallest where zero has no place.
    fn invisible(&self) -> ScatterPlot {
        let values = self.series.iter().flat_map(|series| &series.marks).map(|mark| mark.value);
        let least = if matches!(self.over, Over::Sizes { .. }) { values.fold(f64::INFINITY, f64::min) } else { 0.0 };
        let ends = [self.point(0, least), self.point(self.over.len().saturating_sub(1), self.extent())];
        ScatterPlot::new().with_data(ends).with_color("none").with_size(0.0)
    }

    fn mark(&self, scene: &mut Scene, place: &ComputedLayout, series: &Series, mark: &Mark) {
        let at = |value: f64| {
            let (x, y) = self.point(mark.place, value);
            (place.map_x(x), place.map_y(y))
        };
        scene.add(group(Some(mark.says.clone()), None));
        scene.has_tooltips = true;
        if let Some((least, most)) = mark.spread {
            let (from, to) = (at(least), at(most));
            let cap = if self.over.has_curves() { (4.0, 0.0) } else { (0.0, 4.0) };
            scene.add(line(from, to, colour(series), 1.5, None));
            for end in [from, to] {
                let (begin, end) = ((end.0 - cap.0, end.1 - cap.1), (end.0 + cap.0, end.1 + cap.1));
                scene.add(line(begin, end, colour(series), 1.5, None));
            }
        }
        scene.add(shape(series, at(mark.value)));
        scene.add(Primitive::GroupEnd);
    }

    fn row_height(&self) -> f64 {
        let Over::Rows(rows) = &self.over else { return 0.0 };
        let lines = rows.iter().map(|row| words::wrapped(row, WIDTH - 4.0 * INDENT, 13.0).len()).max().unwrap_or(1);
        ROW_HEIGHT + LINE * lines as f64
    }

    /// The words of each row, above its line.
    fn row_words(&self, scene: &mut Scene, place: &ComputedLayout) {
        let Over::Rows(rows) = &self.over else { return };
        for (index, row) in rows.iter().enumerate() {
            let lines = words::wrapped(row, WIDTH - 4.0 * INDENT, 13.0);
            let bottom = place.map_y(self.point(index, 0.0).1) - 11.0;
            let top = bottom - LINE * (lines.len() - 1) as f64;
            for (number, content) in lines.into_iter().enumerate() {
                let line =
                    Line { x: place.margin_left + 6.0, y: top + LINE * number as f64, size: 13, bold: false, content };
                scene.add(words::paper(&line));
                scene.add(words::text(line));
            }
        }
    }

    /// The drawing below its title and above its legend.
    fn framed(&self, mut drawn: Scene) -> Scene {
        let title = words::wrapped(&self.title, WIDTH - 2.0 * INDENT, 16.0);
        let top = 10.0 + 20.0 * title.len() as f64;
        let mut scene = Scene::new(WIDTH, 0.0);
        scene.background_color = Some("#ffffff".to_owned());
        scene.font_family = Some(FONT.to_owned());
        scene.has_tooltips = true;
        scene.defs.append(&mut drawn.defs);
        for (index, content) in title.into_iter().enumerate() {
            let y = 20.0 + 20.0 * index as f64;
            scene.add(words::text(Line { x: INDENT, y, size: 15, bold: true, content }));
        }
        scene.add(group(None, Some(format!("translate(0,{top})"))));
        drawn.elements.into_iter().for_each(|one| scene.add(one));
        scene.add(Primitive::GroupEnd);
        scene.height = self.legend(&mut scene, top + drawn.height + 8.0) + 8.0;
        scene
    }

    /// The legend, from a height down; where it ends. One that says nothing that the title does not
    /// is left out.
    fn legend(&self, scene: &mut Scene, mut top: f64) -> f64 {
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let middle = (INDENT + SAMPLE_WIDTH / 2.0 - 5.0, top + LINE / 2.0);
            if self.over.has_curves() {
                let reach = SAMPLE_WIDTH / 2.0 - 7.0;
                let (begin, end) = ((middle.0 - reach, middle.1), (middle.0 + reach, middle.1));
                scene.add(line(begin, end, colour(series), 2.0, line_style(series.origin).dasharray()));
            }
            scene.add(shape(series, middle));
            for content in words::wrapped(&series.name, WIDTH - 2.0 * INDENT - SAMPLE_WIDTH, 13.0) {
                let line = Line { x: INDENT + SAMPLE_WIDTH, y: top + LINE / 2.0 + 4.5, size: 13, bold: false, content };
                scene.add(words::text(line));
                top += LINE;
            }
            top += 3.0;
        }
        top
    }
}

fn theme() -> kuva::prelude::Theme {
    kuva::prelude::Theme {
        background: "#ffffff".to_owned(),
        axis_color: INK.to_owned(),
        tick_color: INK.to_owned(),
        text_color: INK.to_owned(),
        grid_color: GRID.to_owned(),
        ..kuva::prelude::Theme::default()
    }
}

fn reference(line: ReferenceLine) -> ReferenceLine {
    line.with_color(REFERENCE)
}

/// The label of a place; none beside the places.
fn at_place(labels: &[String], at: f64) -> String {
    let near = (at - at.round()).abs() < 0.01 && at > -0.5;
    near.then(|| labels.get(at.round() as usize).cloned()).flatten().unwrap_or_default()
}

fn colour(series: &Series) -> &'static str {
    if series.origin == Origin::Published { PUBLISHED } else { COLOURS[series.colour % COLOURS.len()] }
}

fn line_style(origin: Origin) -> LineStyle {
    match origin {
        Origin::Measured => LineStyle::Solid,
        Origin::Modelled => LineStyle::Dotted,
        Origin::Published => LineStyle::Dashed,
    }
}

/// Measured: a filled circle. Modelled: an open square. Published: an open diamond.
fn shape(series: &Series, (x, y): (f64, f64)) -> Primitive {
    let colour = colour(series);
    match series.origin {
        Origin::Measured => Primitive::Circle {
            cx: x,
            cy: y,
            r: MARK,
            fill: colour.into(),
            fill_opacity: None,
            stroke: Some("#ffffff".into()),
            stroke_width: Some(1.0),
        },
        Origin::Modelled => Primitive::Rect {
            x: x - MARK + 0.5,
            y: y - MARK + 0.5,
            width: 2.0 * MARK - 1.0,
            height: 2.0 * MARK - 1.0,
            fill: "#ffffff".into(),
            stroke: Some(colour.into()),
            stroke_width: Some(1.8),
            opacity: None,
        },
        Origin::Published => {
            let reach = MARK + 1.0;
            Primitive::Path(Box::new(PathData {
                d: format!(
                    "M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z",
                    y - reach,
                    x + reach,
                    y + reach,
                    x - reach
                ),
                fill: Some("#ffffff".into()),
                stroke: colour.into(),
                stroke_width: 1.8,
                opacity: None,
                stroke_dasharray: None,
            }))
        }
    }
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dashes: Option<String>) -> Primitive {
    Primitive::Line {
        x1: from.0,
        y1: from.1,
        x2: to.0,
        y2: to.1,
        stroke: colour.into(),
        stroke_width: width,
        stroke_dasharray: dashes,
    }
}

fn group(title: Option<String>, transform: Option<String>) -> Primitive {
    Primitive::GroupStart { transform, title, extra_attrs: None }
}
