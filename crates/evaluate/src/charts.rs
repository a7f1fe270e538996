//! Charts. Measured: filled marks and solid lines. Modelled: open squares and dotted lines.
//! Published: open diamonds and dashed lines, in grey.

use crate::evaluation::{Evaluation, Shown};
use crate::experiment::APPLICATION;
use crate::figure::{Figure, Origin};
use crate::tables;
use plotly::common::{DashType, Font, Line, Marker, MarkerSymbol, Mode, Orientation, Title};
use plotly::configuration::{DisplayModeBar, ImageButtonFormats, ToImageButtonOptions};
use plotly::layout::{Axis, AxisType, BarMode, Legend, Margin, RangeMode};
use plotly::{Bar, Configuration, Layout, Plot, Scatter};
use workloads::workload::Quantity;

/// Told apart by people who see red and green alike (Okabe and Ito); the last two, dark, for
/// experiments of many configurations.
const COLOURS: [&str; 8] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B2A86", "#7A4B00"];
/// Reads on white and on black.
const INK: &str = "#808890";
/// No colour of any measured line.
const PUBLISHED: &str = "#808890";

/// A chart with the heading above it.
pub(crate) struct Chart {
    pub(crate) heading: String,
    pub(crate) plot: Plot,
    /// Names below it, most of which are too long for two in a line.
    pub(crate) named: usize,
}

impl Chart {
    /// Height that leaves the curves as much room as the names below take.
    pub(crate) fn height_rem(&self) -> f64 {
        (19.0 + 1.25 * self.named as f64).max(24.0)
    }
}

/// All charts; none of pairs of nodes, whose tables say it better.
pub(crate) fn all(evaluation: &Evaluation) -> Vec<Chart> {
    let of_one = |shown: &Shown| evaluation.quantities(shown, |point| point.width().is_some());
    let mut quantities: Vec<Quantity> = Vec::new();
    for quantity in evaluation.configurations.iter().flat_map(of_one) {
        if !quantities.iter().any(|known| known.name == quantity.name) {
            quantities.push(quantity);
        }
    }
    let mut charts: Vec<Chart> = quantities.iter().map(|quantity| scan(evaluation, quantity)).collect();
    if evaluation.origin == Origin::Measured && !charts.is_empty() {
        charts.extend(ratios(evaluation, &quantities));
    }
    charts
}

/// A quantity against the number of threads: a curve of each configuration and provenance.
fn scan(evaluation: &Evaluation, quantity: &Quantity) -> Chart {
    let figures: Vec<&Figure> = evaluation.figures.iter().filter(|figure| figure.is_of(&quantity.name)).collect();
    let is_application = figures.iter().any(|figure| figure.point.workload == APPLICATION);
    let title = if is_application { "processes over all VMs" } else { "threads over all VMs" };
    let mut plot = plot(title, &quantity.unit);
    let mut named = 0;
    for (index, shown) in evaluation.configurations.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let own: Vec<&Figure> = figures.iter().copied().filter(|figure| figure.configuration == shown.name).collect();
        for origin in [Origin::Modelled, Origin::Measured] {
            let of_origin: Vec<&Figure> = own.iter().copied().filter(|figure| figure.origin() == origin).collect();
            if of_origin.is_empty() {
                continue;
            }
            named += 1;
            if origin == Origin::Measured {
                repetitions(&mut plot, &shown.name, &of_origin, colour);
            }
            plot.add_trace(curve(evaluation, shown, &of_origin, colour));
        }
    }
    for published in &evaluation.published {
        let points = points(published.figures("").iter().filter(|figure| figure.is_of(&quantity.name)));
        if !points.0.is_empty() {
            named += 1;
            plot.add_trace(published_curve(&published.title, points));
        }
    }
    with_counts(&mut plot, title, figures.iter().filter_map(|figure| figure.threads()).map(f64::from).collect());
    let heading = match (evaluation.origin, figures.iter().any(|figure| figure.origin() == Origin::Measured)) {
        (Origin::Modelled, true) => format!("{}, modelled and measured", quantity.name),
        (Origin::Modelled, false) => format!("{}, modelled", quantity.name),
        _ => quantity.name.clone(),
    };
    Chart { heading, plot, named }
}

/// Gives the horizontal axis a tick at each count.
fn with_counts(plot: &mut Plot, title: &str, mut counts: Vec<f64>) {
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    let labels = counts.iter().map(|count| format!("{count:.0}")).collect();
    let axis = axis(title).type_(AxisType::Log).tick_values(counts).tick_text(labels);
    let layout = plot.layout().clone().x_axis(axis);
    plot.set_layout(layout);
}

type Points = (Vec<f64>, Vec<f64>);

fn points<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Points {
    figures.into_iter().filter_map(|figure| Some((f64::from(figure.threads()?), figure.value))).unzip()
}

fn curve(evaluation: &Evaluation, shown: &Shown, figures: &[&Figure], colour: &'static str) -> Box<Scatter<f64, f64>> {
    let points = points(figures.iter().copied());
    let curve = Scatter::new(points.0, points.1).mode(Mode::LinesMarkers);
    let emulated = if figures.iter().any(|figure| figure.is_emulated()) { " (emulated)" } else { "" };
    let is_modelled = figures.iter().any(|figure| figure.origin() == Origin::Modelled);
    if is_modelled {
        return curve
            .name(format!("MODELLED: {}", shown.name))
            .line(Line::new().color(colour).width(1.5).dash(DashType::Dot))
            .marker(Marker::new().color(colour).size(9).symbol(MarkerSymbol::SquareOpen));
    }
    let name = match evaluation.origin {
        Origin::Modelled => format!("MEASURED: {}{emulated}", shown.name),
        _ => format!("{}{emulated}: best", shown.name),
    };
    curve.name(name).line(Line::new().color(colour).width(2.0)).marker(Marker::new().color(colour).size(10))
}

/// Every repetition that counts and every rejected one, without names of their own below.
fn repetitions(plot: &mut Plot, name: &str, figures: &[&Figure], colour: &'static str) {
    let (mut every, mut rejected): (Points, Points) = Default::default();
    for (figure, spread) in figures.iter().filter_map(|figure| Some((figure, figure.spread.as_ref()?))) {
        let threads = f64::from(figure.point.threads);
        for (points, values) in [(&mut every, &spread.repetitions), (&mut rejected, &spread.rejected)] {
            points.0.extend(values.iter().map(|_| threads));
            points.1.extend(values);
        }
    }
    let dots = |points: Points, what: &str, marker: Marker| {
        let name = format!("{name}: {what}");
        Scatter::new(points.0, points.1).mode(Mode::Markers).name(name).marker(marker).show_legend(false)
    };
    let marker = Marker::new().color(colour).size(5).opacity(0.35);
    plot.add_trace(dots(every, "every repetition", marker.clone()));
    plot.add_trace(dots(rejected, "rejected", marker.symbol(MarkerSymbol::XThinOpen)));
}

fn published_curve(title: &str, points: Points) -> Box<Scatter<f64, f64>> {
    Scatter::new(points.0, points.1)
        .mode(Mode::LinesMarkers)
        .name(format!("PUBLISHED: {title}"))
        .line(Line::new().color(PUBLISHED).width(1.5).dash(DashType::Dash))
        .marker(Marker::new().color(PUBLISHED).size(10).symbol(MarkerSymbol::DiamondOpen))
}

fn ratios(evaluation: &Evaluation, quantities: &[Quantity]) -> Option<Chart> {
    let mut plot = plot("", "virtual / native");
    for (index, shown) in evaluation.configurations.iter().enumerate().filter(|(_, shown)| !shown.native) {
        let (mut labels, mut values) = (Vec::new(), Vec::new());
        for point in &shown.points {
            for quantity in quantities {
                let ratios = tables::ratios_at(evaluation, shown, point, quantity);
                if let Some(ratio) = ratios.iter().find(|ratio| ratio.origin() == evaluation.origin) {
                    labels.push(format!("{}, {point}", quantity.name));
                    values.push(ratio.value);
                }
            }
        }
        if !values.is_empty() {
            let marker = Marker::new().color(COLOURS[index % COLOURS.len()]);
            plot.add_trace(Bar::new(labels, values).name(&shown.name).marker(marker));
        }
    }
    let layout = plot.layout().clone().bar_mode(BarMode::Group).x_axis(axis(""));
    plot.set_layout(layout);
    let is_emulated = evaluation.configurations.iter().any(|shown| shown.emulated);
    let emulated = if is_emulated { ", EMULATED (TCG): not those of hardware virtualization" } else { "" };
    let named = plot.data().len();
    (named > 0).then(|| Chart { heading: format!("Virtual / native{emulated}"), plot, named })
}

fn axis(title: &str) -> Axis {
    Axis::new().title(Title::with_text(title)).grid_color("rgba(128,136,144,0.25)").color(INK)
}

fn plot(x: &str, y: &str) -> Plot {
    let mut plot = Plot::new();
    plot.set_layout(
        Layout::new()
            .x_axis(axis(x))
            .y_axis(axis(y).range_mode(RangeMode::ToZero))
            .legend(Legend::new().font(Font::new().color(INK)).orientation(Orientation::Horizontal).y(-0.25))
            .margin(Margin::new().top(36).right(16).left(64).bottom(48))
            .font(Font::new().color(INK))
            .paper_background_color("rgba(0,0,0,0)")
            .plot_background_color("rgba(0,0,0,0)"),
    );
    plot.set_configuration(
        Configuration::new()
            .responsive(true)
            .display_logo(false)
            .display_mode_bar(DisplayModeBar::Hover)
            .to_image_button_options(ToImageButtonOptions::new().format(ImageButtonFormats::Svg)),
    );
    plot
}
