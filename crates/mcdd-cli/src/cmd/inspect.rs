//! `mcdd inspect`: what is in a model file.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::data::ColumnKind;
use mcdd::head::HeadConfig;
use mcdd::model::Model;
use mcdd::net::Layer;
use mcdd::train::optim::{Optimizer, Schedule};
use serde_json::{Value, json};

use crate::ui::{self, percent};

const EXAMPLES: &str = "\
Examples:
  mcdd inspect flowers.mcdd
  mcdd inspect flowers.mcdd --json | jq .threshold";

/// Show what a model knows, how it was trained, and what is wrong with it
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model
    model: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let model = Model::load(&args.model)?;
    let bytes = std::fs::metadata(&args.model).map_or(0, |m| m.len());
    let text = if args.json {
        format!("{:#}\n", json(&model, bytes)?)
    } else {
        text(&model, bytes)?.lines().map(|l| ui::plain(l) + "\n").collect()
    };
    ui::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn network(model: &Model) -> String {
    let mut out = model.graph().input.to_string();
    for node in &model.graph().nodes {
        match node.layer {
            Layer::Linear { outputs, .. } => {
                let _ = write!(out, " -> {outputs}");
            }
            Layer::Relu => out.push_str(" ReLU"),
            _ => {
                let _ = write!(out, " -> {}", node.name);
            }
        }
    }
    out
}

fn parameters(model: &Model) -> usize {
    let net: usize = model.graph().specs().iter().map(mcdd::net::ParamSpec::len).sum();
    model.members() * (net + model.head(0).map_or(0, |h| h.params().data.len()))
}

fn text(model: &Model, bytes: u64) -> anyhow::Result<String> {
    let mut out = String::new();
    let s = model.settings();
    writeln!(out, "mcdd model of version {}, {bytes} bytes", model.version())?;
    writeln!(out, "\nclasses      {}: {}", model.classes().len(), shortened(model.classes()))?;
    let (mut numeric, mut categorical, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for c in &model.schema().columns {
        match &c.kind {
            ColumnKind::Numeric { .. } => numeric.push(c.name.clone()),
            ColumnKind::Categorical { categories, .. } => {
                categorical.push(format!("{} ({})", c.name, categories.len()))
            }
            ColumnKind::Dropped { why } => dropped.push(format!("{} ({why})", c.name)),
        }
    }
    for (name, list) in [("numeric", numeric), ("categories", categorical), ("dropped", dropped)] {
        if !list.is_empty() {
            writeln!(out, "{name:<12} {}: {}", list.len(), shortened(&list))?;
        }
    }
    writeln!(out, "network      {}", network(model))?;
    writeln!(out, "members      {}, {} parameters in all", model.members(), parameters(model))?;
    let method = match s.head {
        HeadConfig::DeepMcdd { nu, sigma } => {
            format!("deep-mcdd, nu {nu}, sigma {}", format!("{sigma:?}").to_lowercase())
        }
        ref other => other.name().into(),
    };
    writeln!(out, "method       {method}")?;
    let optimizer = match s.optimizer {
        Optimizer::Adam { .. } => "Adam".into(),
        Optimizer::Sgd { momentum } => format!("SGD with Nesterov momentum {momentum}"),
    };
    let schedule = match &s.schedule {
        Schedule::Constant => "constant".into(),
        Schedule::Cosine => "down to 0 along a cosine".into(),
        Schedule::Steps { at, factor } => format!("times {factor} at {at:?} of the run"),
    };
    writeln!(
        out,
        "training     {} rows, {} epochs of batches of {}, {}, lr {} {}, seed {}",
        model.training_rows(),
        s.epochs,
        s.batch,
        optimizer,
        s.lr,
        schedule,
        s.seed
    )?;
    for m in 0..model.members() {
        if let Some((history, Some(kept))) = model.history(m)
            && let Some(e) = history.get(kept)
        {
            writeln!(
                out,
                "  member {}   epoch {} of {} kept: loss {:.4}, held-out loss {:.4}, held-out accuracy {}%",
                m + 1,
                kept + 1,
                history.len(),
                e.loss,
                e.held_out_loss,
                percent(e.held_out_accuracy)
            )?;
        }
    }
    let t = model.threshold()?;
    writeln!(out, "calibration  {} held-out rows", model.calibration().scores().len())?;
    writeln!(
        out,
        "threshold    known is a confidence of {:.4} or more: keeps {}% of known rows",
        t.confidence,
        percent(t.tpr)
    )?;
    if model.findings().is_empty() {
        writeln!(out, "findings     none")?;
    }
    for f in model.findings() {
        writeln!(out, "warning      {f}")?;
    }
    Ok(out)
}

fn shortened(names: &[String]) -> String {
    let shown = names.iter().take(12).cloned().collect::<Vec<_>>().join(", ");
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
        "graph": model.graph(),
        "parameters": parameters(model),
        "settings": model.settings(),
        "training_rows": model.training_rows(),
        "held_out_rows": model.calibration().scores().len(),
        "members": members,
        "threshold": model.threshold()?,
        "findings": model.findings(),
    }))
}
