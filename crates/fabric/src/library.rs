//! The library, opened at run time.

use crate::abi::{DuplicateInfo, FreeInfo, GetInfo, GetVersion, OpenFabric};
use crate::error::Error;
use libloading::os::unix::{Library as SharedObject, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::Path;

/// File that the system's linker finds.
const NAME: &str = "libfabric.so.1";
/// Oldest version with the structures of [`abi`](crate::abi).
const OLDEST: (u32, u32) = (1, 17);

/// The functions that a library exports. All others lie in tables of its objects.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// `fi_version`.
    pub version: GetVersion,
    /// `fi_getinfo`.
    pub get_info: GetInfo,
    /// `fi_freeinfo`.
    pub free_info: FreeInfo,
    /// `fi_dupinfo`.
    pub duplicate_info: DuplicateInfo,
    /// `fi_fabric`.
    pub open_fabric: OpenFabric,
}

/// An open library. It stays open until the process ends, because providers have threads and
/// handlers of their own.
#[derive(Debug)]
pub struct Library {
    path: String,
    version: (u32, u32),
    pub(crate) functions: Functions,
}

impl Library {
    /// Opens the library of a path, or the system's.
    ///
    /// # Errors
    /// If there is none, or one of another version.
    ///
    /// ```
    /// match fabric::Library::open(None) {
    ///     Ok(library) => println!("{library}"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    pub fn open(path: Option<&Path>) -> Result<Library, Error> {
        let path = path.unwrap_or(Path::new(NAME));
        // SAFETY: the library runs its initialisers. The path is the user's choice or the system's:
        // code that this user trusts to run.
        let opened = unsafe { SharedObject::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let opened = opened.map_err(|error| Error::NoLibrary { why: error.to_string() })?;
        let shown = path.display().to_string();
        let handle = opened.into_raw();
        let find = |function: &'static CStr, version: &'static CStr| {
            // SAFETY: the handle is that of a library which is never closed, and both names end
            // with a zero.
            let found = unsafe { libc::dlvsym(handle, function.as_ptr(), version.as_ptr()) };
            (!found.is_null()).then_some(found).ok_or_else(|| Error::NoFunction {
                path: shown.clone(),
                function: function.to_str().unwrap_or_default(),
                version: version.to_str().unwrap_or_default(),
            })
        };
        let version = find(c"fi_version", c"FABRIC_1.0")?;
        let get_info = find(c"fi_getinfo", c"FABRIC_1.3")?;
        let free_info = find(c"fi_freeinfo", c"FABRIC_1.3")?;
        let duplicate_info = find(c"fi_dupinfo", c"FABRIC_1.3")?;
        let open_fabric = find(c"fi_fabric", c"FABRIC_1.1")?;
        // SAFETY: each type is that of the function of this name, in the version of its symbol,
        // which fixes the layouts of what it takes and returns.
        let functions = unsafe {
            Functions {
                version: std::mem::transmute::<*mut c_void, GetVersion>(version),
                get_info: std::mem::transmute::<*mut c_void, GetInfo>(get_info),
                free_info: std::mem::transmute::<*mut c_void, FreeInfo>(free_info),
                duplicate_info: std::mem::transmute::<*mut c_void, DuplicateInfo>(duplicate_info),
                open_fabric: std::mem::transmute::<*mut c_void, OpenFabric>(open_fabric),
            }
        };
        // SAFETY: these are the functions of a library that stays open.
        unsafe { Library::with_functions(shown, functions) }
    }

    /// Takes the functions of a library. Tests pass those of a provider of their own.
    ///
    /// # Safety
    /// The functions follow libfabric's interface, version 1.17.
    ///
    /// # Errors
    /// If the version is too old.
    pub unsafe fn with_functions(path: String, functions: Functions) -> Result<Library, Error> {
        // SAFETY: the function takes nothing.
        let packed = unsafe { (functions.version)() };
        let version = (packed >> 16, packed & 0xffff);
        if version < OLDEST {
            let (major, minor) = version;
            return Err(Error::Version { path, major, minor });
        }
        Ok(Library { path, version, functions })
    }

    /// Returns the version: major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }
}

impl fmt::Display for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version;
        write!(formatter, "{}, version {major}.{minor}", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_libraries_are_refused() {
        let missing = Library::open(Some(Path::new("/nowhere/libfabric.so.1")));
        let missing = missing.expect_err("no file").to_string();
        assert!(missing.contains("/nowhere/libfabric.so.1"), "{missing}");
        assert!(missing.contains("TRADEWIND_LIBFABRIC"), "{missing}");
        let other = Library::open(Some(Path::new("libc.so.6"))).expect_err("not libfabric");
        assert!(other.to_string().contains("no fi_version of interface FABRIC_1.0"), "{other}");
    }
}
