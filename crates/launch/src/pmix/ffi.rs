//! The functions of libpmix and the layouts of their arguments, which are the same in versions 3.1
//! to 6.1 and on all 64-bit machines. All unsafe code of this crate is here.
#![allow(unsafe_code)]

use super::error::Error;
use libloading::os::unix::{Library as SharedObject, RTLD_GLOBAL, RTLD_NOW, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;

/// Rank that stands for all ranks of a namespace.
pub(super) const WILDCARD: u32 = u32::MAX - 1;
const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = -46;
const GLOBAL: u8 = 3;
const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Process {
    namespace: [c_char; NAMESPACE_BYTES],
    pub(super) rank: u32,
}

/// `pmix_value_t`: a type, and a union with members of up to 24 bytes.
#[repr(C)]
struct RawValue {
    kind: u16,
    data: RawData,
}

#[repr(C)]
#[derive(Clone, Copy)]
union RawData {
    flag: bool,
    text: *mut c_char,
    number_16: u16,
    number_32: u32,
    words: [u64; 3],
}

/// `pmix_info_t`.
#[repr(C)]
struct RawInfo {
    key: [c_char; KEY_BYTES],
    flags: u32,
    value: RawValue,
}

const _: () = assert!(size_of::<Process>() == 260);
const _: () = assert!(size_of::<RawValue>() == 32);
const _: () = assert!(size_of::<RawInfo>() == 552);

const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT16: u16 = 13;
const UINT32: u16 = 14;
const PROC_RANK: u16 = 40;

/// A value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u32),
    Text(String),
    /// A value of a type that is not used here.
    Other(u16),
}

type Init = unsafe extern "C" fn(*mut Process, *const RawInfo, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const Process,
    *const c_char,
    *const RawInfo,
    usize,
    *mut *mut RawValue,
) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut RawValue) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const RawInfo, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const RawInfo, usize) -> c_int;
type GetVersion = unsafe extern "C" fn() -> *const c_char;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions of an open library. It stays open until the process ends, because it has threads.
pub(super) struct Library {
    path: String,
    version: String,
    init: Init,
    get: Get,
    put: Put,
    commit: Commit,
    fence: Fence,
    finalize: Finalize,
    error_string: ErrorString,
}

impl fmt::Display for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.version)
    }
}

impl Library {
    /// Opens a library and checks its version.
    pub(super) fn open(path: &Path) -> Result<Library, Error> {
        let shown = path.display().to_string();
        // SAFETY: the library runs its initialisers. The path is the user's choice, the library of
        // the launcher, or the system's: each of them is code that this user trusts to run.
        // RTLD_GLOBAL: the library loads plug-ins that use its symbols.
        let opened = unsafe { SharedObject::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        let opened = opened.map_err(|error| Error::NoLibrary { why: error.to_string() })?;
        // Leaked: the threads of the library may run until the process ends.
        let library: &'static SharedObject = Box::leak(Box::new(opened));
        // SAFETY: each type is that of the function of this name in pmix.h of versions 3 to 6. The
        // version is checked before any function but the one that returns it is called. The
        // pointers stay valid because the library is never closed.
        let library = unsafe {
            let version = version(*function::<GetVersion>(library, &shown, "PMIx_Get_version")?);
            if !is_supported(&version) {
                return Err(Error::Version { path: shown, version });
            }
            Library {
                init: *function(library, &shown, "PMIx_Init")?,
                get: *function(library, &shown, "PMIx_Get")?,
                put: *function(library, &shown, "PMIx_Put")?,
                commit: *function(library, &shown, "PMIx_Commit")?,
                fence: *function(library, &shown, "PMIx_Fence")?,
                finalize: *function(library, &shown, "PMIx_Finalize")?,
                error_string: *function(library, &shown, "PMIx_Error_string")?,
                path: shown,
                version,
            }
        };
        Ok(library)
    }

    /// Connects with the server of this process. Returns the process's namespace and rank.
    pub(super) fn init(&self) -> Result<Process, Error> {
        let mut process = Process { namespace: [0; NAMESPACE_BYTES], rank: u32::MAX };
        // SAFETY: the function fills in one process; it reads no information, of which there is
        // none.
        let status = unsafe { (self.init)(&raw mut process, ptr::null(), 0) };
        self.check("PMIx_Init", status)?;
        Ok(process)
    }

    /// Looks up the value of a key of a rank in the namespace of `process`.
    pub(super) fn get(
        &self,
        process: &Process,
        rank: u32,
        key: &str,
    ) -> Result<Option<Value>, Error> {
        let name = text(key)?;
        let of = Process { rank, ..*process };
        let mut found: *mut RawValue = ptr::null_mut();
        // SAFETY: `of` and `name` live during the call; the function stores one pointer.
        let status =
            unsafe { (self.get)(&raw const of, name.as_ptr(), ptr::null(), 0, &raw mut found) };
        if status == NOT_FOUND {
            return Ok(None);
        }
        self.check(&format!("PMIx_Get of {key}"), status)?;
        if found.is_null() {
            return Ok(None);
        }
        // SAFETY: on success the pointer leads to a value that belongs to the caller and that the
        // library has allocated with malloc. The member of the union that is read is that of the
        // type. The value, and a text in it, are freed once and not used afterwards.
        unsafe {
            let RawValue { kind, data } = found.read();
            let value = match kind {
                UINT16 => Value::Number(data.number_16.into()),
                UINT32 | PROC_RANK => Value::Number(data.number_32),
                STRING if !data.text.is_null() => {
                    let text = CStr::from_ptr(data.text).to_string_lossy().into_owned();
                    libc::free(data.text.cast::<c_void>());
                    Value::Text(text)
                }
                other => Value::Other(other),
            };
            libc::free(found.cast::<c_void>());
            Ok(Some(value))
        }
    }

    /// Publishes a text for all processes, with the next commit.
    pub(super) fn put(&self, key: &str, value: &str) -> Result<(), Error> {
        let name = text(key)?;
        let contents = text(value)?;
        let mut value = RawValue { kind: STRING, data: RawData { words: [0; 3] } };
        value.data.text = contents.as_ptr().cast_mut();
        // SAFETY: the function copies the key and the value, which live during the call, and does
        // not write to the text.
        let status = unsafe { (self.put)(GLOBAL, name.as_ptr(), &raw mut value) };
        self.check(&format!("PMIx_Put of {key}"), status)
    }

    pub(super) fn commit(&self) -> Result<(), Error> {
        // SAFETY: the function has no arguments.
        self.check("PMIx_Commit", unsafe { (self.commit)() })
    }

    /// Waits for all processes of the namespace, and collects what they have committed.
    pub(super) fn fence(&self, process: &Process) -> Result<(), Error> {
        let all = Process { rank: WILDCARD, ..*process };
        let mut collect = RawInfo {
            key: [0; KEY_BYTES],
            flags: 0,
            value: RawValue { kind: BOOL, data: RawData { words: [0; 3] } },
        };
        for (to, from) in collect.key.iter_mut().zip(*b"pmix.collect") {
            *to = from.cast_signed();
        }
        collect.value.data.flag = true;
        // SAFETY: one process and one piece of information, both of which live during the call.
        let status = unsafe { (self.fence)(&raw const all, 1, &raw const collect, 1) };
        self.check("PMIx_Fence", status)
    }

    pub(super) fn finalize(&self) -> Result<(), Error> {
        // SAFETY: no information is passed.
        self.check("PMIx_Finalize", unsafe { (self.finalize)(ptr::null(), 0) })
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function returns a constant text for any number.
        let why = unsafe { version_text((self.error_string)(status)) };
        Err(Error::Call { call: call.into(), path: self.path.clone(), why, status })
    }
}

/// Returns a function of the library.
///
/// # Safety
/// `T` is the type of the function of this name.
unsafe fn function<T>(
    library: &'static SharedObject,
    path: &str,
    name: &str,
) -> Result<Symbol<T>, Error> {
    let symbol = CString::new(name).unwrap_or_default();
    // SAFETY: passed on to the caller.
    unsafe { library.get(symbol.as_bytes_with_nul()) }
        .map_err(|_| Error::NoFunction { path: path.into(), function: name.into() })
}

/// Returns the text of a version.
///
/// # Safety
/// The function returns null or a constant text.
unsafe fn version(get: GetVersion) -> String {
    // SAFETY: passed on to the caller.
    unsafe { version_text(get()) }
}

/// Copies a text.
///
/// # Safety
/// The pointer is null, or leads to a text that ends with a zero and does not change meanwhile.
unsafe fn version_text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: passed on to the caller.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// Returns true for "OpenPMIx 4.2.2, repo rev: v4.2.2" and other versions from 3 to 6.
fn is_supported(version: &str) -> bool {
    let digits: String = version
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    matches!(digits.parse(), Ok(3..=6))
}

fn text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Thread(format!("{text:?} has a zero byte")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_3_to_6_are_supported() {
        for (version, supported) in [
            ("OpenPMIx 4.2.2, repo rev: v4.2.2 (PMIx Standard: 4.0)", true),
            ("PMIX 3.1.7", true),
            ("OpenPMIx 5.0.11rc1", true),
            ("PMIX 2.2.5", false),
            ("7.0.0a1", false),
            ("", false),
        ] {
            assert_eq!(is_supported(version), supported, "{version}");
        }
    }

    #[test]
    fn wrong_libraries_are_refused() {
        let missing = Library::open(Path::new("/nowhere/libpmix.so.2")).err().expect("no file");
        assert!(missing.to_string().contains("/nowhere/libpmix.so.2"), "{missing}");
        let other = Library::open(Path::new("libc.so.6")).err().expect("not PMIx");
        assert!(other.to_string().contains("no function PMIx_Get_version"), "{other}");
    }
}
