//! Columns of the input in the output: their names, and the same columns from every source.

use crate::data::{Kept, KeptField};
use crate::error::{Error, Result};

/// The end of the name of a column of the input whose own name is that of a column of the output.
const SUFFIX: &str = "_input";

/// Which columns of the sources are passed through.
pub(super) struct Passing {
    /// Whether columns of the output have types.
    typed: bool,
    /// The fields of the first source, by their names there.
    fields: Option<Vec<KeptField>>,
    /// For each of them its position in the current source.
    order: Vec<usize>,
}

impl Passing {
    pub(super) fn new(typed: bool) -> Passing {
        Passing { typed, fields: None, order: Vec::new() }
    }

    /// Whether there was a source.
    pub(super) fn begun(&self) -> bool {
        self.fields.is_some()
    }

    /// The fields of the first source by their names in the output, and notices about names that are changed because they
    /// are `taken`.
    pub(super) fn first(
        &mut self,
        fields: Vec<KeptField>,
        mut taken: Vec<String>,
    ) -> Result<(Vec<KeptField>, Vec<String>)> {
        if let Some(field) = fields.iter().find(|field| !self.typed && !field.kind.has_text()) {
            return Err(Error::setting(format!("a column of the type {} cannot be written as text", field.kind))
                .at_column(&field.name)
                .hint("write Parquet by `format=parquet`, or leave the column out of `keep`"));
        }
        let own = taken.len();
        taken.extend(fields.iter().map(|field| field.name.clone()));
        let (mut kept, mut notices) = (Vec::new(), Vec::new());
        for field in &fields {
            let mut name = field.name.clone();
            while taken[..own].contains(&name) || (name != field.name && taken.contains(&name)) {
                name.push_str(SUFFIX);
            }
            if name != field.name {
                notices.push(format!("the column {} of the input is called {name} in the output", field.name));
                taken.push(name.clone());
            }
            kept.push(KeptField { name, kind: field.kind.clone() });
        }
        self.order = (0..fields.len()).collect();
        self.fields = Some(fields);
        Ok((kept, notices))
    }

    /// Another source must have the same columns, in any order; of the same types where the output has types.
    pub(super) fn next(&mut self, fields: &[KeptField]) -> Result<()> {
        let typed = self.typed;
        let first = self.fields.as_deref().unwrap_or_default();
        let other = |field: &KeptField, what: &str| {
            Error::data(format!("the column {what}, so that it cannot be passed through"))
                .at_column(&field.name)
                .hint("give `keep` with columns that all files have in the same way, or predict the files one by one")
        };
        let place = |field: &KeptField| {
            let at = fields.iter().position(|f| f.name == field.name);
            let at = at.ok_or_else(|| other(field, "of the first file is missing"))?;
            if typed && fields[at].kind != field.kind {
                return Err(other(field, "has another type than in the first file"));
            }
            Ok(at)
        };
        let order = first.iter().map(place).collect::<Result<Vec<usize>>>()?;
        if let Some(field) = fields.iter().find(|field| !first.iter().any(|f| f.name == field.name)) {
            return Err(other(field, "is not in the first file"));
        }
        self.order = order;
        Ok(())
    }

    /// The columns of a block in the order of the output.
    pub(super) fn ordered<'k>(&self, kept: &'k [Kept]) -> Result<Vec<&'k Kept>> {
        let column = |&at: &usize| kept.get(at).ok_or_else(|| Error::data("a column to pass through is missing"));
        self.order.iter().map(column).collect()
    }
}
