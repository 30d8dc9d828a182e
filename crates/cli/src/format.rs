//! Formats of the output.

/// Format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Text and tables.
    #[default]
    Table,
    /// JSON.
    Json,
}

impl Format {
    /// Writes the text or the JSON.
    pub(crate) fn print(
        self,
        table: impl FnOnce() -> String,
        json: &impl serde::Serialize,
    ) -> anyhow::Result<()> {
        use crate::failure::OutputError;
        use std::io::Write;
        let line = match self {
            Format::Table => table(),
            Format::Json => serde_json::to_string_pretty(json).map_err(std::io::Error::from)?,
        };
        writeln!(std::io::stdout(), "{line}").map_err(OutputError)?;
        Ok(())
    }
}
