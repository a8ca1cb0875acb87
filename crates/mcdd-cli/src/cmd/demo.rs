//! `mcdd demo`: training and detection on built-in data.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::{Column, Table, digits};
use mcdd::evaluate::{Bootstrap, Evaluation};
use mcdd::model::{Model, Predictions};
use mcdd::report::model::{About, Report, ReportData};
use mcdd::stream::verdict;
use mcdd::train::{Run, Settings};

use crate::report::{Reporting, quoted};
use crate::ui::{self, percent};

const EXAMPLES: &str = "\
Examples:
  mcdd demo
  mcdd demo --leave-out 3 --seed 5";

/// Train on handwritten digits without one of them, and detect that digit as unknown
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Digit to leave out of training
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=9))]
    leave_out: u8,

    /// Random seed
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Output folder of the model, the tables and the report
    #[arg(short, long, value_name = "DIR", default_value = "mcdd-demo")]
    output: PathBuf,

    /// Print no progress
    #[arg(short, long)]
    quiet: bool,
}

struct Outcome {
    model: Model,
    id: Predictions,
    ood: Predictions,
    evaluation: Evaluation,
}

fn measure(train: &Table, test: &Table, unknown: &Table, settings: &Settings, quiet: bool) -> mcdd::Result<Outcome> {
    let progress = ui::Progress::new(quiet, "row");
    let fitted = Model::fit_with(train, settings, &Run { callback: &progress, ..Run::default() });
    progress.finish();
    let model = fitted?.model;
    let (id, ood) = (model.predict(test)?, model.predict(unknown)?);
    let sets = [("unknown", unknown)];
    let evaluation = Evaluation::of_tables(&model, test, &sets, model.threshold()?, Bootstrap::none())?;
    Ok(Outcome { model, id, ood, evaluation })
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let digit = args.leave_out.to_string();
    let (known, unknown) = digits().leave_out(&digit)?;
    let (train, test) = known.split(0.2, args.seed)?;
    std::fs::create_dir_all(&args.output).map_err(|e| mcdd::Error::io(e, &args.output))?;
    if !args.quiet {
        ui::note(&format!("training the default on {} digits without any {digit}", train.rows()));
    }
    let settings = Settings::builder().seed(args.seed);
    let ours = measure(&train, &test, &unknown, &settings.build()?, args.quiet)?;
    if !args.quiet {
        ui::note("training the same number of softmax networks on the same rows");
    }
    let softmax = settings.method("softmax").build()?;
    let softmax = measure(&train, &test, &unknown, &softmax, args.quiet)?;

    let file = |name: &str| args.output.join(name);
    ours.model.save(file("digits.mcdd"))?;
    for (name, table) in [("known.csv", &test), ("unknown.csv", &unknown)] {
        mcdd::files::write_beside(&file(name), |to| table.write_csv(to))?;
    }
    report(&ours, &test, &unknown, &args)?;
    let mut out = String::new();
    table(&mut out, &ours, &softmax, &digit, test.rows(), unknown.rows())?;
    verdicts(&mut out, &ours, &test, &unknown, &digit)?;
    next(&mut out, &args.output)?;
    ui::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the same report as `mcdd evaluate --report`.
fn report(ours: &Outcome, test: &Table, unknown: &Table, args: &Args) -> mcdd::Result<()> {
    let file = |name: &str| quoted(&args.output.join(name).display().to_string());
    let (model, id, ood, page) = (file("digits.mcdd"), file("known.csv"), file("unknown.csv"), file(PAGE));
    let about = About {
        title: format!("Handwritten digits without any {}", args.leave_out),
        data: "known.csv".into(),
        on_calibration_rows: false,
        command: format!("mcdd evaluate {model} {id} --ood {ood} --report {page}"),
        notices: Vec::new(),
    };
    let report = Report::of_data(
        &ours.model,
        ReportData::Table(test),
        &[("unknown.csv", ReportData::Table(unknown))],
        about,
        args.seed,
        Pool::shared(),
    )?;
    let reporting = Reporting { report: Some(args.output.join(PAGE)), figures: None };
    reporting.write(&report, true)
}

/// File name of the report.
const PAGE: &str = "report.html";

fn table(
    out: &mut String,
    ours: &Outcome,
    softmax: &Outcome,
    digit: &str,
    known: usize,
    unknown: usize,
) -> std::fmt::Result {
    writeln!(
        out,
        "Tested on {known} other digits of the known classes and on all {unknown} {digit}s, a class that was not in training.\n"
    )?;
    writeln!(out, "{:<36}{:>10}{:>16}", "%", "mcdd", "softmax (MSP)")?;
    let mut row = |name: &str, a: f64, b: f64| writeln!(out, "{name:<36}{:>10}{:>16}", percent(a), percent(b));
    let (ours, softmax) = (&ours.evaluation, &softmax.evaluation);
    if let (Some(ours), Some(softmax)) = (&ours.accuracy, &softmax.accuracy) {
        row("accuracy on known digits", ours.value, softmax.value)?;
    }
    for (ours, softmax) in ours.ood.iter().zip(&softmax.ood) {
        for (a, b) in ours.metrics().iter().zip(softmax.metrics()) {
            row(&format!("{}, positive: {}", a.name, a.positive), a.value, b.value)?;
        }
    }
    Ok(())
}

/// Prints three known digits and three unknown ones: the most, a middling and the least confident.
fn verdicts(out: &mut String, ours: &Outcome, test: &Table, unknown: &Table, digit: &str) -> anyhow::Result<()> {
    let threshold = ours.model.threshold()?;
    let kept = |p: &Predictions| p.confidence.iter().filter(|&&c| threshold.known(c)).count();
    writeln!(
        out,
        "\nThe threshold, set to keep {}% of the calibration rows, keeps {} of {} known digits and rejects {} of {} {digit}s.\n",
        percent(threshold.tpr),
        kept(&ours.id),
        ours.id.rows(),
        ours.ood.rows() - kept(&ours.ood),
        ours.ood.rows()
    )?;
    let mut cards = Vec::new();
    for (table, p) in [(test, &ours.id), (unknown, &ours.ood)] {
        let mut order: Vec<usize> = (0..p.rows()).collect();
        order.sort_by(|&a, &b| p.confidence[b].total_cmp(&p.confidence[a]));
        for at in [0, order.len() / 2, order.len() - 1] {
            let i = order[at];
            let is = table.label_name(i).unwrap_or("?");
            let says = &ours.model.classes()[p.class[i] as usize];
            let known = threshold.known(p.confidence[i]);
            let mut card = picture(table, i);
            card.push(format!("is a {is}"));
            card.push(if known { format!("says {says}") } else { format!("says {}", verdict(false)) });
            card.push(format!("p = {:.3}", p.p_value[i]));
            cards.push(card);
        }
    }
    for line in 0..cards[0].len() {
        let row: Vec<String> = cards.iter().map(|c| format!("{:<16}", c[line])).collect();
        writeln!(out, "  {}", row.join("  ").trim_end())?;
    }
    writeln!(
        out,
        "\n(the most, a middling and the least confident row: known digits on the left, {digit}s on the right;\np: the fraction of known rows with at most this confidence)"
    )?;
    Ok(())
}

/// Draws a digit as 8 lines of 16 characters.
fn picture(table: &Table, row: usize) -> Vec<String> {
    let pixel = |i: usize| match &table.columns[i] {
        Column::Number(values) => values[row],
        Column::Text { .. } => 0.0,
    };
    (0..8)
        .map(|y| {
            (0..8)
                .map(|x| {
                    let shade =
                        [' ', '.', ':', 'o', '#'][(pixel(8 * y + x) / 16.0 * 4.0).round().clamp(0.0, 4.0) as usize];
                    format!("{shade}{shade}")
                })
                .collect()
        })
        .collect()
}

fn next(out: &mut String, folder: &Path) -> std::fmt::Result {
    // The command as it was called, so that the lines can be copied.
    let me = std::env::args().next().unwrap_or_else(|| "mcdd".into());
    let file = |name: &str| quoted(&folder.join(name).display().to_string());
    let (model, known, unknown) = (file("digits.mcdd"), file("known.csv"), file("unknown.csv"));
    let me = quoted(&me);
    writeln!(out, "\nReport: open {} in a browser.", file(PAGE))?;
    writeln!(out, "\nTry next:")?;
    writeln!(out, "  {me} predict {model} {unknown}")?;
    writeln!(out, "  {me} predict {model} {known} --tpr 0.99 --format jsonl --probs")?;
    writeln!(out, "  {me} evaluate {model} {known} --ood {unknown}")?;
    writeln!(out, "  {me} explain {model} {unknown} --row 1")?;
    writeln!(out, "  {me} inspect {model}")?;
    writeln!(out, "  {me} train {known} --label label -o {}", file("mine.mcdd"))
}
