//! The cores of the ranks.

use crate::error::ServiceError;

/// Cores on which ranks may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// A core for each rank if there are enough, otherwise no binding.
    #[default]
    Auto,
    /// A core for each rank.
    Core,
    /// No binding.
    None,
    /// These cores, in turn.
    Map(Vec<usize>),
}

/// Returns the core of each rank; empty without binding.
pub(super) fn cores(ranks: u32, binding: &Binding) -> Result<Vec<usize>, ServiceError> {
    let mut allowed = shm::process::allowed_cores();
    let enough = ranks as usize <= allowed.len();
    match binding {
        Binding::Map(map) => return mapped(map, ranks, &allowed),
        Binding::None => return Ok(Vec::new()),
        Binding::Auto if !enough => return Ok(Vec::new()),
        Binding::Core if !enough => {
            return Err(ServiceError::Cores { ranks, cores: allowed.len() });
        }
        Binding::Auto | Binding::Core => {}
    }
    allowed.truncate(ranks as usize);
    Ok(allowed)
}

/// Returns a core of the map for each rank. This process may use all of them.
fn mapped(map: &[usize], ranks: u32, allowed: &[usize]) -> Result<Vec<usize>, ServiceError> {
    match map.iter().find(|core| !allowed.contains(core)) {
        Some(core) => Err(ServiceError::NoCore { core: *core, allowed: allowed.to_vec() }),
        None => Ok(map.iter().copied().cycle().take(ranks as usize).collect()),
    }
}
