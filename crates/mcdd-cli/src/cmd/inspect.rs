//! `mcdd inspect`: the contents of a model file.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::data::{ColumnKind, Form};
use mcdd::error::count;
use mcdd::head::{HeadConfig, Loop};
use mcdd::model::{Calibration, Model, Saved, Scorer, Threshold};
use mcdd::net::{Graph, Layer};
use mcdd::train::Settings;
use mcdd::train::optim::{Optimizer, Schedule};
use serde_json::{Value, json};

use crate::options::Loading;
use crate::ui::{self, percent};

const EXAMPLES: &str = "\
Examples:
  mcdd inspect flowers.mcdd
  mcdd inspect flowers.mcdd --json | jq .threshold";

/// Show the contents of a model or a detector: classes, columns, training, threshold, warnings
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model or detector file
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let saved = args.loading.saved(&args.model)?;
    let bytes = std::fs::metadata(&args.model).map_or(0, |m| m.len());
    match (&saved, args.json) {
        (Saved::Model(model), true) => ui::print_json(&json(model, bytes)?)?,
        (Saved::Model(model), false) => ui::print(&cut_lines(&text(model, bytes)?))?,
        (Saved::Scorer(scorer), true) => ui::print_json(&scorer_json(scorer, bytes)?)?,
        (Saved::Scorer(scorer), false) => ui::print(&cut_lines(&scorer_text(scorer, bytes)?))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn network(graph: &Graph) -> String {
    let mut out = graph.input.to_string();
    for node in &graph.nodes {
        match node.layer {
            Layer::Linear { outputs, .. } => {
                let _ = write!(out, " -> {outputs}");
            }
            Layer::Relu => out.push_str(" ReLU"),
            Layer::Gelu => out.push_str(" GELU"),
            Layer::BatchNorm { .. } => out.push_str(" BatchNorm"),
            Layer::Clip { limit } => {
                let _ = write!(out, " -> clip ±{limit}");
            }
            Layer::Bins { ref bins } => {
                let _ = write!(out, " + {} in bins", bins.len());
            }
            _ => {
                let _ = write!(out, " -> {}", node.name);
            }
        }
    }
    out
}

fn parameters(model: &Model) -> usize {
    let of = |graph: &Graph| graph.specs().iter().map(mcdd::net::ParamSpec::len).sum::<usize>();
    let (binned, count) = model.binned().map_or((0, 0), |(graph, count)| (of(graph), count));
    let heads = model.members() * model.head(0).map_or(0, |h| h.params().data.len());
    (model.members() - count) * of(model.graph()) + count * binned + heads
}

fn text(model: &Model, bytes: u64) -> anyhow::Result<String> {
    let mut out = String::new();
    let s = model.settings();
    writeln!(out, "mcdd model of version {}, {bytes} bytes", model.version())?;
    match (model.classifies(), model.classes()) {
        (true, classes) => writeln!(out, "\nclasses      {}: {}", classes.len(), shortened(classes))?,
        (false, []) => writeln!(out, "\nclasses      none: the method does not classify")?,
        (false, labels) => {
            writeln!(
                out,
                "\nclasses      none: the method does not classify (labels in training: {})",
                shortened(labels)
            )?;
        }
    }
    let (mut numeric, mut times, mut categorical, mut dropped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for c in &model.schema().columns {
        let form = c.form.as_ref().map(Form::describe);
        match &c.kind {
            ColumnKind::Numeric { .. } => numeric.push(match form {
                Some(form) => format!("{} ({form})", c.name),
                None => c.name.clone(),
            }),
            ColumnKind::Time { cycles, .. } => {
                let parts: Vec<&str> = cycles.iter().map(|cycle| cycle.name()).collect();
                let parts = if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) };
                times.push(format!("{} ({}{parts})", c.name, form.unwrap_or_default()));
            }
            ColumnKind::Categorical { categories, other, .. } => {
                let other = if *other { " and other" } else { "" };
                categorical.push(format!("{} ({}{other})", c.name, categories.len()))
            }
            ColumnKind::Dropped { why } => dropped.push(format!("{} ({why})", c.name)),
        }
    }
    for (name, list) in [("numeric", numeric), ("times", times), ("categories", categorical), ("dropped", dropped)] {
        if !list.is_empty() {
            writeln!(out, "{name:<12} {}: {}", list.len(), shortened(&list))?;
        }
    }
    if let (Some(spec), Some(image)) = (&model.schema().image, &s.image) {
        writeln!(out, "images       {}x{}x{}", spec.height, spec.width, spec.channels)?;
        writeln!(out, "preset       {}", preset(s))?;
        writeln!(out, "network      {}, {} latent features", image.net, model.graph().latent()?)?;
        let changes = image.augment.map_or("none".into(), |a| {
            format!("shifted by up to {} pixels{}", a.crop_padding, if a.flip { ", flipped" } else { "" })
        });
        writeln!(out, "augmentation {changes}")?;
        if image.test_flips {
            writeln!(out, "prediction   the mean over an image and its mirror image")?;
        }
        if let Some(hash) = &image.init {
            let frozen = if image.frozen { ", frozen" } else { "" };
            writeln!(out, "initial      weights of a file with SHA-256 {hash}{frozen}")?;
        }
    } else {
        writeln!(out, "preset       {}", preset(s))?;
        writeln!(out, "network      {}", network(model.graph()))?;
        if let Some((graph, count)) = model.binned() {
            writeln!(out, "with bins    {count} of {}: {}", model.members(), network(graph))?;
        }
    }
    if let Some(backbone) = model.backbone() {
        if let Some(spec) = &model.schema().image {
            writeln!(out, "images       {}x{}x{}", spec.height, spec.width, spec.channels)?;
        }
        let place = if backbone.embedded { "in this file" } else { "a file of its own" };
        let layers: Vec<String> = backbone.layers.iter().map(|l| mcdd::error::plain(l)).collect();
        writeln!(out, "backbone     {} ({place}), layer {}", mcdd::error::plain(&backbone.name), layers.join(", "))?;
        writeln!(out, "             SHA-256 {}", mcdd::error::plain(&backbone.sha256))?;
    }
    writeln!(out, "members      {}, {} parameters in total", model.members(), parameters(model))?;
    writeln!(out, "method       {}", described(s.head.name(), &s.head))?;
    let confidence = if s.detector.is_own() {
        "the method's own score".into()
    } else {
        described(s.detector.detector.name(), &s.detector)
    };
    writeln!(out, "confidence   {confidence}")?;
    if s.head.trained_by() == Loop::ClosedForm {
        writeln!(out, "training     {}, in closed form, seed {}", count(model.training_rows(), "row"), s.seed)?;
        if let Some((&[e], _)) = model.history(0) {
            let accuracy = e.validation_accuracy.map_or("n/a".into(), |a| format!("{}%", percent(a)));
            writeln!(
                out,
                "             loss {:.4}, validation loss {:.4}, validation accuracy {accuracy}",
                e.loss, e.validation_loss
            )?;
        }
    } else {
        training(&mut out, model)?;
    }
    calibration(&mut out, model.calibration(), model.threshold()?)?;
    if model.findings().is_empty() {
        writeln!(out, "findings     none")?;
    }
    for f in model.findings().iter().take(MOST_FINDINGS) {
        writeln!(out, "warning      {f}")?;
    }
    if let Some(more) = model.findings().len().checked_sub(MOST_FINDINGS).filter(|more| *more > 0) {
        writeln!(out, "warning      … and {more} more")?;
    }
    Ok(out)
}

/// The preset, and the settings that differ from it.
fn preset(s: &Settings) -> String {
    let (name, changed) = (s.preset.name(), s.changed().join(", ").replace('_', "-"));
    if changed.is_empty() { name.into() } else { format!("{name}; changed: {changed}") }
}

/// A name with its settings.
fn described(name: &str, settings: &impl serde::Serialize) -> String {
    let settings = mcdd::spec::settings(settings);
    if settings.is_empty() { name.into() } else { format!("{name}, {settings}") }
}

/// Settings of training that are only shown if they are used.
fn more(s: &Settings) -> String {
    let mut out = String::new();
    if s.weight_decay > 0.0 {
        out.push_str(&format!(", weight decay {}", s.weight_decay));
    }
    if let Some(image) = s.image.as_ref().filter(|i| i.warmup > 0.0) {
        out.push_str(&format!(", warmup over the first {} of the run", image.warmup));
    }
    if let (Optimizer::Sgd { .. }, HeadConfig::DeepMcdd(_)) = (s.optimizer, &s.head) {
        out.push_str(", on nu times the loss");
    }
    out
}

fn training(out: &mut String, model: &Model) -> anyhow::Result<()> {
    let s = model.settings();
    let optimizer = match s.optimizer {
        Optimizer::Adam { .. } => "Adam".into(),
        Optimizer::Sgd { momentum } => format!("SGD with Nesterov momentum {momentum}"),
    };
    let schedule = match &s.schedule {
        Schedule::Constant => "constant".into(),
        Schedule::Cosine => "with cosine decay to 0".into(),
        Schedule::Triangle { peak, .. } => format!("up to {peak} of the run, then down"),
        Schedule::Steps { at, factor } => format!("times {factor} at {at:?} of the run"),
    };
    writeln!(
        out,
        "training     {}, {} of batches of {}{}, {}, lr {} {}{}, seed {}",
        count(model.training_rows(), "row"),
        count(s.epochs_for(model.training_rows()), "epoch"),
        s.batch,
        s.steps.map_or(String::new(), |steps| format!(" (at most {steps} steps)")),
        optimizer,
        s.lr,
        schedule,
        more(s),
        s.seed
    )?;
    for m in 0..model.members() {
        if let Some((history, Some(kept))) = model.history(m)
            && let Some(e) = history.get(kept)
        {
            writeln!(
                out,
                "  member {}   epoch {} of {} kept: loss {:.4}, validation loss {:.4}, validation accuracy {}",
                m + 1,
                kept + 1,
                history.len(),
                e.loss,
                e.validation_loss,
                e.validation_accuracy.map_or("n/a".into(), |a| format!("{}%", percent(a)))
            )?;
        } else if let Some((history, None)) = model.history(m) {
            writeln!(out, "  member {}   interrupted in epoch {}", m + 1, history.len() + 1)?;
        }
    }
    if let Some(accuracy) = model.validation_accuracy() {
        writeln!(out, "accuracy     {}% of the validation rows", percent(accuracy))?;
    }
    Ok(())
}

fn calibration(out: &mut String, calibration: &Calibration, t: Threshold) -> anyhow::Result<()> {
    writeln!(out, "calibration  {}", count(calibration.scores().len(), "row"))?;
    writeln!(
        out,
        "threshold    confidence of at least {:.4}, which keeps {}% of known rows",
        t.confidence,
        percent(t.tpr)
    )?;
    Ok(())
}

fn scorer_text(scorer: &Scorer, bytes: u64) -> anyhow::Result<String> {
    let mut out = String::new();
    let s = scorer.settings();
    writeln!(out, "mcdd detector of version {}, {bytes} bytes", scorer.version())?;
    writeln!(out, "\ndetector     {}", described(s.detector.name(), &s.detector))?;
    let (features, logits) = (scorer.detector().width(), scorer.detector().logit_classes());
    if features > 0 {
        let layers =
            if scorer.parts().len() > 1 { format!(", in layers of {:?}", scorer.parts()) } else { String::new() };
        writeln!(out, "features     {features} per row{layers}")?;
    }
    if logits > 0 {
        writeln!(out, "logits       {logits} per row")?;
    }
    if scorer.classifies() {
        writeln!(out, "classes      {}: {}", scorer.classes().len(), shortened(scorer.classes()))?;
    } else {
        writeln!(out, "classes      none: the detector does not classify")?;
    }
    writeln!(out, "fitted on    {}, seed {}", count(scorer.training_rows(), "row"), s.seed)?;
    calibration(&mut out, scorer.calibration(), scorer.threshold()?)?;
    Ok(out)
}

fn scorer_json(scorer: &Scorer, bytes: u64) -> anyhow::Result<Value> {
    Ok(json!({
        "version": scorer.version(),
        "bytes": bytes,
        "settings": scorer.settings(),
        "classes": scorer.classes(),
        "features": scorer.detector().width(),
        "layers": scorer.parts(),
        "logits": scorer.detector().logit_classes(),
        "training_rows": scorer.training_rows(),
        "calibration_rows": scorer.calibration().scores().len(),
        "threshold": scorer.threshold()?,
    }))
}

/// How many warnings are shown.
const MOST_FINDINGS: usize = 50;

/// Any text of a file may be long: its version, the names of layers.
fn cut_lines(text: &str) -> String {
    text.lines().map(|line| ui::short(line, ui::LONGEST) + "\n").collect()
}

/// The longest name that is shown whole.
const MAX_NAME: usize = 80;

fn shortened(names: &[String]) -> String {
    let shown = names.iter().take(12).map(|name| ui::short(name, MAX_NAME)).collect::<Vec<_>>().join(", ");
    if names.len() > 12 { format!("{shown}, … and {} more", names.len() - 12) } else { shown }
}

fn json(model: &Model, bytes: u64) -> anyhow::Result<Value> {
    let members: Vec<Value> = (0..model.members())
        .filter_map(|m| model.history(m))
        .map(|(history, kept)| json!({ "history": history, "kept_epoch": kept }))
        .collect();
    Ok(json!({
        "version": model.version(),
        "bytes": bytes,
        "classes": model.classes(),
        "schema": model.schema(),
        "backbone": model.backbone(),
        "graph": model.graph(),
        "graph_with_bins": model.binned().map(|(graph, _)| graph),
        "parameters": parameters(model),
        "settings": model.settings(),
        "training_rows": model.training_rows(),
        "calibration_rows": model.calibration().scores().len(),
        "validation_accuracy": model.validation_accuracy(),
        "members": members,
        "threshold": model.threshold()?,
        "findings": model.findings(),
    }))
}
