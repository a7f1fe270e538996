// A printed page is narrower than most windows: charts are drawn anew for A4, and again for the window.
for (const [when, size] of [["beforeprint", { width: 680 }], ["afterprint", { width: null, autosize: true }]]) {
  addEventListener(when, () => {
    for (const chart of document.querySelectorAll(".js-plotly-plot")) Plotly.relayout(chart, size);
  });
}
