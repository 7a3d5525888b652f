//! The report as a table for people.

use std::fmt::Write;

use super::judge::{Report, Summary};
use super::manifest::LeaveOneOut;

/// The table, one row a recording and the pooled figures with their intervals below.
pub fn table(report: &Report) -> String {
    let width = report.recordings.iter().map(|r| r.path.len()).max().unwrap_or(4).clamp(9, 60);
    let mut out = String::new();
    // Writing to a String cannot fail, so the results of `writeln!` are of no interest here.
    let _ = writeln!(
        out,
        "{:<width$} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>8} {:>6} {:>7} {:>7}",
        "recording", "n", "recall", "prec", "fp", "f1", "bal.acc", "auc", "coverage", "alarms", "detect", "clear"
    );
    for r in &report.recordings {
        let shown: String = r.path.chars().rev().take(width).collect::<Vec<_>>().into_iter().rev().collect();
        let _ = writeln!(
            out,
            "{shown:<width$} {} {:>6} {} {}",
            figures(&r.summary),
            r.alarms,
            seconds(r.time_to_detect_s),
            seconds(r.time_to_clear_s)
        );
    }
    let _ = writeln!(out, "{:<width$} {}", "pooled", figures(&report.pooled));
    if report.options.leave_one_out != LeaveOneOut::None {
        let _ = writeln!(out, "{:<width$} {}", "defaults", figures(&report.defaults));
    }
    out.push('\n');
    let p = &report.pooled;
    let ci = &p.ci95;
    for (name, value, interval) in [
        ("recall", p.figures.recall, ci.recall),
        ("precision", p.figures.precision, ci.precision),
        ("false-positive rate", p.figures.fp_rate, ci.fp_rate),
        ("F1", p.figures.f1, ci.f1),
        ("balanced accuracy", p.figures.balanced_accuracy, ci.balanced_accuracy),
        ("ROC AUC", p.figures.auc, ci.auc),
    ] {
        let Some(value) = value else { continue };
        let interval =
            interval.map_or(String::new(), |[lo, hi]| format!("  (95 %: {:.2} to {:.2} %)", lo * 100.0, hi * 100.0));
        let _ = writeln!(out, "{name:<20} {:6.2} %{interval}", value * 100.0);
    }
    if let Some(rate) = p.false_alarms_per_hour {
        let _ =
            writeln!(out, "{:<20} {rate:6.2} per hour, in {:.1} minutes of quiet", "false alarms", p.quiet_s / 60.0);
    }
    for fold in report.folds.iter().filter(|f| f.sensitivity != 1.0) {
        let _ = writeln!(out, "without {}: sensitivity {} fits the others best", fold.left_out, fold.sensitivity);
    }
    out
}

fn figures(s: &Summary) -> String {
    let f = &s.figures;
    let percent = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{:.2}", v * 100.0));
    format!(
        "{:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>8}",
        f.n_windows,
        percent(f.recall),
        percent(f.precision),
        percent(f.fp_rate),
        percent(f.f1),
        percent(f.balanced_accuracy),
        f.auc.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}")),
        percent(Some(f.coverage)),
    )
}

fn seconds(v: Option<f64>) -> String {
    v.map_or_else(|| format!("{:>7}", "-"), |v| format!("{v:>5.2} s"))
}
