//! `mcdd methods`: all methods and detectors, with their references and requirements.

use std::fmt::Write as _;
use std::process::ExitCode;

use mcdd::detector::{DetectorConfig, Needs};
use mcdd::head::HeadConfig;
use serde_json::{Value, json};

use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd methods                    list all
  mcdd methods knn gda            description, reference and settings of some
  mcdd methods --json

A method is trained: mcdd train DATA --method NAME. A detector gives the confidence: on a trained network with \
mcdd train DATA --method NAME --detector NAME, on features of another network with mcdd score and mcdd fit-detector. \
Settings follow a name as :key=value, e.g. --detector knn:k=10:on=inputs.";

/// List all methods and detectors with their references and requirements
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Methods and detectors to describe in full [default: a short list of all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One method or detector.
struct Item {
    kind: &'static str,
    name: &'static str,
    summary: &'static str,
    reference: &'static str,
    needs: String,
    settings: String,
}

fn items() -> Vec<Item> {
    let methods = HeadConfig::all().into_iter().map(|config| {
        let e = config.about();
        let needs = if config.classifies() { "a table with labels" } else { "a table; labels are not used" };
        Item {
            kind: "method",
            name: e.name,
            summary: e.summary,
            reference: e.reference,
            needs: needs.into(),
            settings: mcdd::spec::settings(&config),
        }
    });
    let detectors = DetectorConfig::all();
    let detectors = detectors.iter().map(|c| {
        let about = c.about();
        Item {
            kind: "detector",
            name: about.name,
            summary: about.summary,
            reference: about.reference,
            needs: needs(about.needs),
            settings: match (mcdd::spec::settings(c), about.needs.features) {
                (own, false) => own,
                (own, true) => format!(
                    "{own}{}on=auto (latents, inputs, layers or last-two; mcdd train only)",
                    if own.is_empty() { "" } else { ", " }
                ),
            },
        }
    });
    methods.chain(detectors).collect()
}

fn needs(n: Needs) -> String {
    let all = [
        (n.features, "features"),
        (n.logits, "logits"),
        (n.labels, "training labels"),
        (n.linear, "a linear last layer"),
        (n.head, "a trained model"),
    ];
    all.iter().filter(|(needed, _)| *needed).map(|(_, what)| *what).collect::<Vec<_>>().join(", ")
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let all = items();
    let mut chosen: Vec<&Item> = Vec::new();
    for name in &args.names {
        let found: Vec<&Item> = all.iter().filter(|i| i.name == name).collect();
        if found.is_empty() {
            let mut names: Vec<&str> = all.iter().map(|i| i.name).collect();
            names.dedup();
            return Err(mcdd::spec::unknown("method or detector", name, &names).into());
        }
        chosen.extend(found);
    }
    let whole = args.names.is_empty();
    if whole {
        chosen.extend(&all);
    }
    let text = if args.json {
        format!("{:#}\n", chosen.iter().map(|i| entry(i)).collect::<Value>())
    } else if whole {
        table(&chosen)?
    } else {
        chosen.iter().map(|i| long(i)).collect::<Vec<_>>().join("\n")
    };
    ui::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn entry(i: &Item) -> Value {
    json!({
        "kind": i.kind,
        "name": i.name,
        "summary": i.summary,
        "reference": i.reference,
        "needs": i.needs,
        "settings": i.settings,
    })
}

fn table(items: &[&Item]) -> anyhow::Result<String> {
    let mut out = String::new();
    for (kind, title) in [
        ("method", "Methods (mcdd train --method NAME)"),
        ("detector", "\nDetectors (mcdd train --detector NAME, mcdd score, mcdd fit-detector)"),
    ] {
        writeln!(out, "{title}")?;
        for i in items.iter().filter(|i| i.kind == kind) {
            writeln!(out, "  {:<22}{}", i.name, i.summary)?;
            writeln!(out, "  {:<22}needs {}", "", i.needs)?;
            writeln!(out, "  {:<22}{}", "", i.reference)?;
        }
    }
    writeln!(out, "\nmcdd methods NAME shows the settings of a method or a detector.")?;
    Ok(out)
}

fn long(i: &Item) -> String {
    let settings = if i.settings.is_empty() { "none" } else { &i.settings };
    format!(
        "{} ({})\n  summary    {}\n  needs      {}\n  settings   {settings}\n  reference  {}\n",
        i.name, i.kind, i.summary, i.needs, i.reference
    )
}
