//! How results are written.

/// For people or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

impl Format {
    /// Writes one line: what people read, or what programs read.
    pub(crate) fn print(
        self,
        table: impl FnOnce() -> String,
        json: &impl serde::Serialize,
    ) -> Result<(), crate::failure::Failure> {
        use std::io::Write;
        let line = match self {
            Format::Table => table(),
            Format::Json => serde_json::to_string_pretty(json).map_err(std::io::Error::from)?,
        };
        writeln!(std::io::stdout(), "{line}")?;
        Ok(())
    }
}
