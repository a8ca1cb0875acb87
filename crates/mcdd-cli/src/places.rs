//! The files and folders of a command: outputs can be written, and overwrite neither its inputs nor each other.

use std::path::Path;

use mcdd::files::{check_folder, check_not_input};

/// The paths that a command reads and writes. Outputs are checked before anything is read or written.
pub struct Places<'a>(Vec<&'a Path>);

impl<'a> Places<'a> {
    /// The inputs of a command.
    pub fn reading(inputs: impl IntoIterator<Item = &'a Path>) -> Places<'a> {
        Places(inputs.into_iter().collect())
    }

    /// Checks a file that will be written; `option` is the one that names it.
    ///
    /// # Errors
    /// If it cannot be written, or is another file of the command.
    pub fn file(&mut self, output: &'a Path, option: &str) -> mcdd::Result<()> {
        self.check(output, option)?;
        let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(mcdd::Error::setting("no such folder")
                .at_file(folder)
                .hint(format!("create it, or give another `{option}`")));
        }
        if output.is_dir() {
            return Err(mcdd::Error::setting("is a folder")
                .at_file(output)
                .hint(format!("give the name of a file with `{option}`")));
        }
        // A device or a pipe is written in place; any other file is written next to it first.
        if !output.exists() || output.is_file() {
            check_folder(folder)?;
        }
        Ok(())
    }

    /// Checks a folder that will be written to.
    ///
    /// # Errors
    /// If it is another file or folder of the command.
    pub fn folder(&mut self, folder: &'a Path, option: &str) -> mcdd::Result<()> {
        self.check(folder, option)
    }

    fn check(&mut self, output: &'a Path, option: &str) -> mcdd::Result<()> {
        check_not_input(output, option, self.0.iter().copied())?;
        self.0.push(output);
        Ok(())
    }
}
