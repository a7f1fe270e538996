//! Charts of a STREAM evaluation. Measured: filled marks and solid lines. Published: open diamonds and dashed lines, in grey.

use crate::experiment::{Published, WorkloadKind};
use crate::kernels;
use crate::point::Point;
use crate::resolve::Resolved;
use crate::summary::{ConfigurationSummary, Summary};
use crate::tables;
use plotly::common::{DashType, Font, Line, Marker, MarkerSymbol, Mode, Orientation, Title};
use plotly::configuration::DisplayModeBar;
use plotly::layout::{Axis, AxisType, BarMode, Legend, Margin, RangeMode};
use plotly::{Bar, Configuration, Layout, Plot, Scatter};

/// Told apart by people who see red and green alike (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
/// Reads on white and on black.
const INK: &str = "#808890";
/// No colour of any measured line.
const PUBLISHED: &str = "#808890";

/// A chart with the heading above it.
pub(crate) struct Chart {
    pub(crate) heading: String,
    pub(crate) plot: Plot,
}

/// All charts; none for a matrix, whose tables say it better.
pub(crate) fn all(resolved: &Resolved, summary: &Summary) -> Vec<Chart> {
    if resolved.experiment.workload != WorkloadKind::Stream {
        return Vec::new();
    }
    let mut charts: Vec<Chart> = (0..4).map(|kernel| bandwidth(resolved, summary, kernel)).collect();
    charts.extend(ratios(summary));
    charts
}

fn bandwidth(resolved: &Resolved, summary: &Summary, kernel: usize) -> Chart {
    let mut plot = plot("threads over all VMs", "MB/s");
    let mut counts = Vec::new();
    for (index, configuration) in summary.configurations.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let (best, every, rejected) = series(configuration, kernel);
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
        if let Some(trace) = published_trace(published, kernel) {
            counts.extend(published.threads.iter().map(|&count| f64::from(count)));
            plot.add_trace(trace);
        }
    }
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    let labels = counts.iter().map(|count| format!("{count:.0}")).collect();
    let axis = axis("threads over all VMs").type_(AxisType::Log).tick_values(counts).tick_text(labels);
    let layout = plot.layout().clone().x_axis(axis);
    plot.set_layout(layout);
    Chart { heading: kernels::NAMES[kernel].to_owned(), plot }
}

type Points = (Vec<f64>, Vec<f64>);

/// Best figure at each thread count, every repetition that counts, and every rejected one.
fn series(configuration: &ConfigurationSummary, kernel: usize) -> (Points, Points, Points) {
    let (mut best, mut every, mut rejected): (Points, Points, Points) = Default::default();
    for cell in &configuration.cells {
        let (Point::Stream { threads }, Some(figures)) = (cell.point, cell.kernels.get(kernel)) else { continue };
        best.0.push(f64::from(threads));
        best.1.push(figures.best_mb_per_s);
        for &repetition in &figures.repetitions_mb_per_s {
            every.0.push(f64::from(threads));
            every.1.push(repetition);
        }
        for &repetition in &figures.rejected_mb_per_s {
            rejected.0.push(f64::from(threads));
            rejected.1.push(repetition);
        }
    }
    (best, every, rejected)
}

fn published_trace(published: &Published, kernel: usize) -> Option<Box<Scatter<f64, f64>>> {
    let figures = published.mb_per_s.in_order()[kernel]?.clone();
    let threads = published.threads.iter().map(|&count| f64::from(count)).collect();
    let trace = Scatter::new(threads, figures)
        .mode(Mode::LinesMarkers)
        .name(format!("PUBLISHED: {}", published.title))
        .line(Line::new().color(PUBLISHED).width(1.5).dash(DashType::Dash))
        .marker(Marker::new().color(PUBLISHED).size(10).symbol(MarkerSymbol::DiamondOpen));
    Some(trace)
}

fn ratios(summary: &Summary) -> Option<Chart> {
    let native = summary.configurations.iter().find(|configuration| configuration.native)?;
    let mut plot = plot("", "virtual / native");
    for (index, configuration) in summary.configurations.iter().enumerate().filter(|(_, other)| !other.native) {
        let (mut labels, mut values) = (Vec::new(), Vec::new());
        for cell in &configuration.cells {
            for (kernel, name) in kernels::NAMES.iter().enumerate() {
                if let Some(ratio) = tables::ratio(Some(cell), native.cell(cell.point), kernel) {
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
    (!plot.data().is_empty()).then(|| Chart { heading: format!("Virtual / native{emulated}"), plot })
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
            .margin(Margin::new().top(16).right(16).left(64).bottom(48))
            .font(Font::new().color(INK))
            .paper_background_color("rgba(0,0,0,0)")
            .plot_background_color("rgba(0,0,0,0)"),
    );
    plot.set_configuration(
        Configuration::new().responsive(true).display_logo(false).display_mode_bar(DisplayModeBar::Hover),
    );
    plot
}
