//! Puts the ranks' profiles together into one file of the Trace Event format, which Perfetto opens.
//!
//! A process of the profile is a rank, a track an executor of the rank's operations, a slice an
//! operation; above them the collectives as the rank called them. Arrows are the dependencies
//! within a rank and the messages between ranks.

mod arrows;
mod events;
mod parts;
mod slices;

use crate::failure::cannot_read;
use parts::Parts;
use std::path::Path;
use tradewind::profile;

/// Number of ranks of a job: one more than the highest rank with a part in the directory.
pub(crate) fn ranks_in(directory: &Path) -> anyhow::Result<u32> {
    let failed = cannot_read(directory);
    let mut ranks = 0;
    for entry in std::fs::read_dir(directory).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name();
        let rank = name
            .to_str()
            .and_then(|name| name.strip_prefix("rank-")?.strip_suffix(".json")?.parse().ok());
        ranks = ranks.max(rank.map_or(0, |rank: u32| rank.saturating_add(1)));
    }
    let path = directory.display();
    anyhow::ensure!(
        ranks > 0,
        "{path}: no part of a profile here: start the ranks with TRADEWIND_TRACE set to this directory"
    );
    Ok(ranks)
}

/// Reads the part of every rank in `directory` and writes `file`. A rank that was killed has left
/// nothing. There are as many ranks as the parts say, and so many at least. Returns the number of
/// lines that cannot be read.
pub(crate) fn merge(directory: &Path, ranks: u32, file: &Path) -> anyhow::Result<u64> {
    let parts = Parts::read(directory, ranks);
    let ranks = parts.ranks;
    if parts.sizes.len() > 1 {
        let path = directory.display();
        anyhow::bail!(
            "{path}: these parts are of jobs of different sizes: give each job a directory of its own"
        );
    }
    if !parts.missing.is_empty() {
        let list: Vec<String> = parts.missing.iter().map(ToString::to_string).collect();
        eprintln!(
            "tradewind: the profile lacks ranks {}: they ended before they could write it",
            list.join(", ")
        );
    }
    for (rank, dropped) in &parts.dropped {
        eprintln!(
            "tradewind: the profile lacks {dropped} events of rank {rank}, which had no space for them"
        );
    }
    for (rank, lines) in &parts.unreadable {
        let part = profile::part(directory, *rank);
        eprintln!("tradewind: {}: {lines} lines cannot be read", part.display());
    }
    let slices = slices::slices(&parts, ranks);
    let arrows = arrows::arrows(&parts, &slices);
    crate::goal_file::write(file, &events::encode(&slices, &arrows)?)?;
    Ok(parts.unreadable.values().sum())
}
