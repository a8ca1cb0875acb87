//! The page of a reproduction: the paper's numbers, ours and the differences, all figures, and what is missing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::bench::files::figures_in;
use super::bench::page::{Section, cell, document, footer, legend, named, picture, tables};
use super::bench::{METRICS, Study};
use super::html::html;
use crate::error::{Error, Result};
use crate::files::write_beside;
use crate::protocol::published::METHODS;
use crate::protocol::reproduction::{Gap, Part, Plan, Step};
use crate::protocol::results::{self, About, Cell};

const TITLE: &str = "The paper's tables and figures, reproduced";
/// The name of the page in the folder of a reproduction.
pub const PAGE: &str = "index.html";

/// Writes the page of a reproduction into its folder: of the results and figures that are there, whichever run made them.
/// `gaps` are reasons that only showed when steps were run.
///
/// # Errors
/// If results cannot be read, or the page cannot be written.
pub fn write(folder: &Path, plan: &Plan, gaps: &[Gap]) -> Result<()> {
    let mut loaded: Vec<(&Step, About, Vec<Cell>)> = Vec::new();
    for step in plan.studies() {
        let known = loaded.iter().any(|(s, ..)| s.name == step.name);
        if !known && folder.join(&step.name).join("results.jsonl").exists() {
            let (about, cells) = results::load(&folder.join(&step.name))?;
            loaded.push((step, about, cells));
        }
    }
    let with_cells = loaded.iter().filter(|(_, _, cells)| !cells.is_empty());
    let studies: Vec<(&Step, Study)> =
        with_cells.map(|(step, about, cells)| (*step, Study::new(about, cells))).collect();
    let mut figures = figures_in(folder)?;
    let of = |name: &str, step: &Step| {
        name.strip_prefix(&step.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    figures.sort_by_key(|(name, _)| plan.steps.iter().position(|step| of(name, step)).unwrap_or(usize::MAX));
    let text = page(plan, &studies, &figures, gaps);
    let path = folder.join(PAGE);
    write_beside(&path, |w| w.write_all(text.as_bytes()).map_err(|e| Error::io(e, &path)))
}

fn page(plan: &Plan, studies: &[(&Step, Study)], figures: &[(String, Vec<u8>)], gaps: &[Gap]) -> String {
    let mut sections: Vec<Section> = Vec::new();
    let mut add = |id: &str, title: &str, body: String| {
        if !body.is_empty() {
            sections.push(Section { id: id.to_owned(), title: title.to_owned(), body });
        }
    };
    add("overview", "AUROC at a glance", overview(studies));
    add("missing", "Not run, or run in part", missing(plan, studies, gaps));
    for (step, study) in studies.iter().filter(|(s, _)| s.part == Part::Tables) {
        add(&step.name, &step.title, section(plan, step, study));
    }
    add("figures", "Figures", figures.iter().map(|(name, svg)| picture(name, svg)).collect());
    for (step, study) in studies.iter().filter(|(s, _)| s.part == Part::Images) {
        add(&step.name, &step.title, section(plan, step, study));
    }
    let quick = match plan.quick {
        true => format!(
            "<p class=warn>This is a quick run: {}. It shows that everything works. Its numbers cannot be compared with the \
             paper's, which are not shown.</p>\n",
            html(&Plan::quick_terms())
        ),
        false => String::new(),
    };
    let top = format!(
        "<h1>{TITLE}</h1>\n<p class=lead>Lee, Yu, Yu: Multi-Class Data Description for Out-of-distribution Detection (KDD \
         2020).</p>\n{quick}"
    );
    let versions: BTreeSet<String> = studies.iter().map(|(_, s)| s.versions()).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let end = if versions.is_empty() { String::new() } else { footer(&versions.join(", ")) };
    document(TITLE, "", &top, &sections, &end)
}

/// The mean AUROC of the methods with printed numbers, a line for each study.
fn overview(studies: &[(&Step, Study)]) -> String {
    let Some(auroc) = METRICS.iter().find(|m| m.key == "auroc") else { return String::new() };
    let rows: Vec<&(&Step, Study)> =
        studies.iter().filter(|(_, s)| METHODS.iter().any(|m| s.mean(m, auroc).is_some())).collect();
    if rows.is_empty() {
        return String::new();
    }
    let beside = rows.iter().any(|(_, s)| METHODS.iter().any(|m| s.paper(m, None, auroc).is_some()));
    let below = if beside { " Below a number: the paper's, and the difference of ours." } else { "" };
    let heads: String = METHODS.iter().map(|m| format!("<th scope=col>{}</th>", named(m))).collect();
    let mut out = format!(
        "<p class=note>Means in percent over classes or sets, ± standard deviation over folds or seeds.{below}</p>\n<div \
         class=wide><table>\n<thead><tr><th scope=col>study</th>{heads}</tr></thead>\n<tbody>\n"
    );
    for (step, study) in rows {
        let cells = METHODS.map(|m| cell(study.mean(m, auroc), study.paper(m, None, auroc), false, 0, ""));
        let _ = writeln!(
            out,
            "<tr><th scope=row><a href=\"#{}\">{}</a></th>{}</tr>",
            html(&step.name),
            html(&step.title),
            cells.concat()
        );
    }
    out + "</tbody></table></div>\n"
}

/// A study: how it was made, its tables, and the link to its own page.
fn section(plan: &Plan, step: &Step, study: &Study) -> String {
    let commands = plan.studies().filter(|s| s.name == step.name).map(|s| s.command.join(" "));
    let commands: Vec<String> = commands.map(|c| format!("<code>mcdd {}</code>", html(&c))).collect();
    let name = html(&step.name);
    format!(
        "{}<p class=note>{}. <a href=\"{name}/index.html\">All metrics and methods</a></p>\n{}",
        legend(study),
        commands.join(", "),
        tables(study)
    )
}

/// What is missing and why: by the plan, as it showed in the run, and what has no results yet.
fn missing(plan: &Plan, studies: &[(&Step, Study)], gaps: &[Gap]) -> String {
    let mut all: Vec<Gap> = plan.gaps.iter().chain(gaps).cloned().collect();
    for step in plan.studies() {
        let explained = gaps.iter().any(|g| g.what == step.title) || all.iter().any(|g| g.what == step.title);
        if !explained && !studies.iter().any(|(s, _)| s.name == step.name) {
            all.push(Gap { what: step.title.clone(), why: "not run yet; mcdd reproduce resumes".into() });
        }
    }
    for (step, study) in studies {
        let failed = study.failures().len();
        if failed > 0 {
            let why = format!("{failed} of its cells failed: see its own page; --retry computes them again");
            all.push(Gap { what: step.title.clone(), why });
        }
    }
    let line = |g: &Gap| format!("<li><b>{}</b>: {}.</li>\n", html(&g.what), html(&g.why));
    if all.is_empty() { String::new() } else { format!("<ul>\n{}</ul>\n", all.iter().map(line).collect::<String>()) }
}
