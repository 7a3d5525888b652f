//! The report as an SVG picture: per recording the score over time, the threshold, the verdicts and the truth.

use std::fmt::Write;

use super::judge::{Report, Run, SENSITIVITIES, Tick};
use super::manifest::Label;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 60.0;
const PLOT_H: f64 = 90.0;
const ROW_H: f64 = 140.0;
/// Scores are drawn on a logarithmic axis between these two.
const SCORE_RANGE: (f64, f64) = (0.01, 30.0);

/// Draws the report. `runs` are those the report was made of, in the same order.
pub fn picture(report: &Report, runs: &[Run]) -> String {
    let height = 40.0 + ROW_H * runs.len() as f64;
    let mut svg = String::new();
    let w = LEFT + WIDTH + 20.0;
    // Writing to a String cannot fail, so the results of `write!` are of no interest here.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{height}\" viewBox=\"0 0 {w} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">Motion: score (line, 1 = threshold), verdict (bar), truth \
         (shade: red motion, green empty, blue still)</text>\n"
    );
    for (i, (run, row)) in runs.iter().zip(&report.recordings).enumerate() {
        let at = SENSITIVITIES.iter().position(|s| *s == row.sensitivity).unwrap_or(super::judge::DEFAULT);
        draw_row(&mut svg, run, &run.ticks[at], 40.0 + ROW_H * i as f64);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_row(svg: &mut String, run: &Run, ticks: &[Tick], top: f64) {
    let end = ticks.last().map_or(1.0, |t| t.t_s).max(1.0);
    let x = |t: f64| LEFT + t / end * WIDTH;
    let y = |score: f64| {
        let (lo, hi) = (SCORE_RANGE.0.ln(), SCORE_RANGE.1.ln());
        let v = (score.clamp(SCORE_RANGE.0, SCORE_RANGE.1).ln() - lo) / (hi - lo);
        top + 15.0 + PLOT_H * (1.0 - v)
    };
    let name = run.recording.path.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{name}</text>", top + 10.0);

    let mut whole = Vec::new();
    let stretches = match run.recording.label {
        Some(label) => {
            whole.push((0.0, end, label));
            whole
        }
        None => run.recording.truth.iter().map(|s| (s.from_s, s.to_s.min(end), s.label)).collect(),
    };
    for (from, to, label) in stretches {
        let colour = match label {
            Label::Empty => "#d5f0d5",
            Label::Motion => "#f8d5d5",
            Label::Still => "#d5e0f8",
        };
        let (x0, width) = (x(from), x(to) - x(from));
        let y0 = top + 15.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x0:.1}\" y=\"{y0:.1}\" width=\"{width:.1}\" height=\"{PLOT_H}\" fill=\"{colour}\"/>"
        );
    }
    let (t1, t2) = (x(0.0), x(end));
    let _ = writeln!(
        svg,
        "<line x1=\"{t1:.1}\" x2=\"{t2:.1}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#888\" stroke-dasharray=\"4\"/>",
        y(1.0)
    );
    let mut pen_down = false;
    let mut path = String::new();
    for tick in ticks {
        match tick.score {
            Some(score) => {
                let command = if pen_down { 'L' } else { 'M' };
                let _ = write!(path, "{command}{:.1} {:.1}", x(tick.t_s), y(f64::from(score)));
                pen_down = true;
            }
            None => pen_down = false,
        }
    }
    let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"#222\" stroke-width=\"1\"/>");
    let bar = top + 18.0 + PLOT_H;
    for run_of in ticks.chunk_by(|a, b| a.moving == b.moving) {
        let colour = match run_of[0].moving {
            Some(true) => "#c22",
            Some(false) => "#2a2",
            None => "#ccc",
        };
        let from = x((run_of[0].t_s - 0.125).max(0.0));
        let width = (x(run_of[run_of.len() - 1].t_s) - from).max(1.0);
        let _ =
            writeln!(svg, "<rect x=\"{from:.1}\" y=\"{bar:.1}\" width=\"{width:.1}\" height=\"6\" fill=\"{colour}\"/>");
    }
    let _ = writeln!(svg, "<text x=\"{t2:.1}\" y=\"{:.1}\" text-anchor=\"end\">{end:.0} s</text>", bar + 18.0);
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">1.0</text>", LEFT - 5.0, y(1.0) + 4.0);
}
