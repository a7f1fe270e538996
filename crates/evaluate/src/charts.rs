//! Charts. Measured: filled marks and solid lines. Modelled: open squares and dotted lines.
//! Published: open diamonds and dashed lines, in grey.

use crate::experiment::{Experiment, Published};
use crate::modelled::{Figure, Prediction, Unit};
use crate::resolve::Resolved;
use crate::summary::{ConfigurationSummary, Summary};
use crate::tables;
use plotly::common::{DashType, Font, Line, Marker, MarkerSymbol, Mode, Orientation, Title};
use plotly::configuration::DisplayModeBar;
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
pub(crate) fn all(resolved: &Resolved, summary: &Summary) -> Vec<Chart> {
    let quantities = scanned(summary);
    if quantities.is_empty() {
        return Vec::new();
    }
    let mut charts: Vec<Chart> = quantities.iter().map(|quantity| scan(resolved, summary, quantity)).collect();
    charts.extend(ratios(summary));
    charts
}

/// What was measured at numbers of threads.
fn scanned(summary: &Summary) -> Vec<Quantity> {
    let mut all: Vec<Quantity> = Vec::new();
    for configuration in
        summary.configurations.iter().filter(|one| one.cells.iter().any(|cell| cell.point.width().is_some()))
    {
        let of_one = tables::quantities(configuration).into_iter();
        let new: Vec<Quantity> = of_one.filter(|one| all.iter().all(|other| other.name != one.name)).collect();
        all.extend(new);
    }
    all
}

fn scan(resolved: &Resolved, summary: &Summary, quantity: &Quantity) -> Chart {
    let mut plot = plot("threads over all VMs", &quantity.unit);
    let mut counts = Vec::new();
    for (index, configuration) in summary.configurations.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let (best, every, rejected) = series(configuration, &quantity.name);
        counts.extend(best.0.iter().copied());
        let emulated = if summary.emulated && !configuration.native { " (emulated)" } else { "" };
        plot.add_trace(
            Scatter::new(every.0, every.1)
                .mode(Mode::Markers)
                .name(format!("{}: every repetition", configuration.name))
                .marker(Marker::new().color(colour).size(5).opacity(0.35))
                .show_legend(false),
        );
        plot.add_trace(
            Scatter::new(rejected.0, rejected.1)
                .mode(Mode::Markers)
                .name(format!("{}: rejected", configuration.name))
                .marker(Marker::new().color(colour).size(5).opacity(0.35).symbol(MarkerSymbol::XThinOpen))
                .show_legend(false),
        );
        plot.add_trace(
            Scatter::new(best.0, best.1)
                .mode(Mode::LinesMarkers)
                .name(format!("{}{emulated}: best", configuration.name))
                .line(Line::new().color(colour).width(2.0))
                .marker(Marker::new().color(colour).size(10)),
        );
    }
    for published in &resolved.experiment.published {
        if let Some(trace) = published_trace(published, &quantity.name) {
            counts.extend(published.threads.iter().map(|&count| f64::from(count)));
            plot.add_trace(trace);
        }
    }
    with_counts(&mut plot, "threads over all VMs", counts);
    // Of each configuration, every repetition and every rejected one are drawn too, without a name.
    let named = plot.data().len() - 2 * summary.configurations.len();
    Chart { heading: quantity.name.clone(), plot, named }
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

/// Best figure at each thread count, every repetition that counts, and every rejected one.
fn series(configuration: &ConfigurationSummary, quantity: &str) -> (Points, Points, Points) {
    let (mut best, mut every, mut rejected): (Points, Points, Points) = Default::default();
    for cell in &configuration.cells {
        let (Some(threads), Some(figures)) = (cell.point.width(), cell.of(quantity)) else { continue };
        best.0.push(f64::from(threads));
        best.1.push(figures.best);
        for &repetition in &figures.repetitions {
            every.0.push(f64::from(threads));
            every.1.push(repetition);
        }
        for &repetition in &figures.rejected {
            rejected.0.push(f64::from(threads));
            rejected.1.push(repetition);
        }
    }
    (best, every, rejected)
}

fn published_trace(published: &Published, quantity: &str) -> Option<Box<Scatter<f64, f64>>> {
    let figure = |&count: &u32| Some((f64::from(count), published.by_name(quantity, count)?));
    let points: Points = published.threads.iter().filter_map(figure).unzip();
    (!points.0.is_empty()).then(|| published_scatter(&published.title, points))
}

fn published_scatter(title: &str, points: Points) -> Box<Scatter<f64, f64>> {
    Scatter::new(points.0, points.1)
        .mode(Mode::LinesMarkers)
        .name(format!("PUBLISHED: {title}"))
        .line(Line::new().color(PUBLISHED).width(1.5).dash(DashType::Dash))
        .marker(Marker::new().color(PUBLISHED).size(10).symbol(MarkerSymbol::DiamondOpen))
}

/// Charts of a modelled experiment: each kernel or application against threads. Open squares and
/// dotted lines, unlike anything measured.
pub(crate) fn modelled(experiment: &Experiment, prediction: &Prediction) -> Vec<Chart> {
    let shows_seconds = experiment.application.as_ref().is_none_or(|section| section.shows_seconds);
    let mut names: Vec<(&str, Unit)> = Vec::new();
    for figure in prediction.figures.iter().filter(|figure| figure.threads.is_some() && figure.unit != Unit::Ratio) {
        if !names.contains(&(figure.figure.as_str(), figure.unit)) && shows_seconds {
            names.push((&figure.figure, figure.unit));
        }
    }
    names.into_iter().map(|(name, unit)| modelled_chart(experiment, prediction, name, unit)).collect()
}

fn modelled_chart(experiment: &Experiment, prediction: &Prediction, name: &str, unit: Unit) -> Chart {
    let axis_title = if unit == Unit::Seconds { "processes over all VMs" } else { "threads over all VMs" };
    let mut plot = plot(axis_title, unit.name());
    let mut counts = Vec::new();
    for (index, configuration) in prediction.configurations.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let own = |figure: &&Figure| figure.configuration == configuration.name && figure.figure == name;
        let points: Points = prediction
            .figures
            .iter()
            .filter(own)
            .filter_map(|figure| Some((f64::from(figure.threads?), figure.modelled)))
            .unzip();
        counts.extend(points.0.iter().copied());
        plot.add_trace(
            Scatter::new(points.0, points.1)
                .mode(Mode::LinesMarkers)
                .name(format!("MODELLED: {}", configuration.name))
                .line(Line::new().color(colour).width(1.5).dash(DashType::Dot))
                .marker(Marker::new().color(colour).size(9).symbol(MarkerSymbol::SquareOpen)),
        );
        let points = measured_points(prediction, &configuration.name, name);
        if !points.0.is_empty() {
            counts.extend(points.0.iter().copied());
            plot.add_trace(measured_scatter(prediction, &configuration.name, points, colour));
        }
    }
    for published in &experiment.published {
        if let Some(trace) = published_trace(published, name) {
            counts.extend(published.threads.iter().map(|&count| f64::from(count)));
            plot.add_trace(trace);
        }
    }
    with_counts(&mut plot, axis_title, counts);
    let measured = if prediction.beside.is_some() { " and measured" } else { "" };
    let named = plot.data().len();
    Chart { heading: format!("{name}, modelled{measured}"), plot, named }
}

/// Figures of a measured run beside the modelled ones, at each thread count.
fn measured_points(prediction: &Prediction, configuration: &str, name: &str) -> Points {
    let all = prediction.beside.iter().flat_map(|beside| &beside.figures);
    let own = all.filter(|one| one.configuration == configuration && one.figure.eq_ignore_ascii_case(name));
    own.filter_map(|one| Some((f64::from(one.threads?), one.measured))).unzip()
}

fn measured_scatter(
    prediction: &Prediction,
    configuration: &str,
    points: Points,
    colour: &'static str,
) -> Box<Scatter<f64, f64>> {
    let all = prediction.beside.iter().flat_map(|beside| &beside.figures);
    let emulated = all.filter(|one| one.configuration == configuration).any(|one| one.emulated);
    let suffix = if emulated { " (emulated)" } else { "" };
    Scatter::new(points.0, points.1)
        .mode(Mode::LinesMarkers)
        .name(format!("MEASURED: {configuration}{suffix}"))
        .line(Line::new().color(colour).width(2.0))
        .marker(Marker::new().color(colour).size(10))
}

fn ratios(summary: &Summary) -> Option<Chart> {
    let native = summary.configurations.iter().find(|configuration| configuration.native)?;
    let mut plot = plot("", "virtual / native");
    for (index, configuration) in summary.configurations.iter().enumerate().filter(|(_, other)| !other.native) {
        let (mut labels, mut values) = (Vec::new(), Vec::new());
        for cell in &configuration.cells {
            for figures in &cell.figures {
                let name = &figures.quantity.name;
                if let Some(ratio) = tables::ratio(Some(cell), native.cell(&cell.point), name) {
                    labels.push(format!("{name}, {}", cell.point));
                    values.push(ratio);
                }
            }
        }
        if !values.is_empty() {
            let marker = Marker::new().color(COLOURS[index % COLOURS.len()]);
            plot.add_trace(Bar::new(labels, values).name(&configuration.name).marker(marker));
        }
    }
    let layout = plot.layout().clone().bar_mode(BarMode::Group).x_axis(axis(""));
    plot.set_layout(layout);
    let emulated = if summary.emulated { ", EMULATED (TCG): not those of hardware virtualization" } else { "" };
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
        Configuration::new().responsive(true).display_logo(false).display_mode_bar(DisplayModeBar::Hover),
    );
    plot
}
