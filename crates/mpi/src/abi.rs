//! The binary interfaces of MPI libraries: constants, and handles in memory.
//!
//! The constants are those of the headers of MPICH 4.0.2 and 5.0.2, of Open MPI 4.1.4 and 5.0.11,
//! and of the MPI 5.0 standard (`mpi.h` of mpi-forum/mpi-abi-stubs).

use crate::host::{self, Handle, Pointer, call};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;
use tradewind::{DataType, Op};

/// Name of a data type or operation, and its handle.
type Named<T> = (T, Handle);

/// The constants of an ABI.
#[derive(Debug)]
pub(crate) struct Abi {
    pub(crate) name: &'static str,
    /// Handles are integers of 32 bits instead of pointers.
    narrow: bool,
    pub(crate) comm_null: Handle,
    pub(crate) comm_world: Handle,
    pub(crate) comm_self: Handle,
    pub(crate) request_null: Handle,
    pub(crate) datatype_null: Handle,
    pub(crate) op_null: Handle,
    in_place: isize,
    status_ignore: isize,
    pub(crate) undefined: c_int,
    pub(crate) proc_null: c_int,
    pub(crate) any_source: c_int,
    pub(crate) any_tag: c_int,
    pub(crate) topologies: Topologies,
    pub(crate) status: StatusLayout,
    pub(crate) error_other: c_int,
    /// `MPIX_ERR_PROC_FAILED` and `MPIX_ERR_REVOKED`, or [`error_other`](Self::error_other) where the
    /// library has no such classes.
    pub(crate) error_process_failed: c_int,
    pub(crate) error_revoked: c_int,
    pub(crate) info_null: Handle,
    /// `MPI_ERRORS_RETURN`.
    pub(crate) errors_return: Handle,
    /// `MPI_ERR_IN_STATUS`.
    pub(crate) error_in_status: c_int,
    /// The libraries of this ABI report an error where the buffers of a call are the same.
    pub(crate) reports_aliases: bool,
    pub(crate) byte: Handle,
    pub(crate) int: Handle,
    /// Predefined types that tradewind computes on.
    pub(crate) elements: Vec<Named<DataType>>,
    /// Predefined types on which the MPI library computes.
    pub(crate) others: Vec<Handle>,
    /// Predefined types that are moved only: no operation of tradewind's is defined on them.
    pub(crate) moved: Vec<Handle>,
    /// Operations that tradewind has.
    pub(crate) operations: Vec<Named<Op>>,
}

/// Values of `MPI_Topo_test`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topologies {
    pub(crate) cartesian: c_int,
    pub(crate) graph: c_int,
    pub(crate) dist_graph: c_int,
}

/// Layout of `MPI_Status`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusLayout {
    pub(crate) bytes: usize,
    /// Offset of the field `MPI_ERROR`.
    pub(crate) error_at: usize,
}

/// Size of the largest `MPI_Status`.
pub(crate) const STATUS_BYTES: usize = 64;

impl Abi {
    /// A handle that a program has passed by value.
    #[inline]
    pub(crate) fn handle(&self, passed: Handle) -> Handle {
        if self.narrow { passed as i32 as isize } else { passed }
    }

    /// The handle at this index of an array.
    ///
    /// # Safety
    /// The array has a handle at this index.
    #[inline]
    pub(crate) unsafe fn read(&self, handles: Pointer, index: usize) -> Handle {
        // SAFETY: the caller's promise; the element's size is that of the ABI. Handles in a
        // program's memory are aligned as its compiler has placed them.
        unsafe {
            match self.narrow {
                true => *handles.cast::<i32>().add(index) as isize,
                false => *handles.cast::<isize>().add(index),
            }
        }
    }

    /// Writes a handle to this index of an array.
    ///
    /// # Safety
    /// The array is long enough for a handle at this index.
    #[inline]
    pub(crate) unsafe fn write(&self, handles: Pointer, index: usize, handle: Handle) {
        // SAFETY: the caller's promise; the element's size is that of the ABI.
        unsafe {
            match self.narrow {
                true => *handles.cast::<i32>().add(index) = handle as i32,
                false => *handles.cast::<isize>().add(index) = handle,
            }
        }
    }

    /// The handle that `call` writes to an address that it receives, or its error code.
    pub(crate) fn written(&self, call: impl FnOnce(Pointer) -> c_int) -> Result<Handle, c_int> {
        let mut in_memory: isize = 0;
        let at: Pointer = (&raw mut in_memory).cast();
        match call(at) {
            // SAFETY: the variable is as large as the handles of every ABI.
            0 => Ok(unsafe { self.read(at, 0) }),
            outcome => Err(outcome),
        }
    }

    /// Passes the address of a handle in memory to `call`.
    pub(crate) fn by_address<T>(&self, handle: Handle, call: impl FnOnce(Pointer) -> T) -> T {
        let mut in_memory: isize = 0;
        let at: Pointer = (&raw mut in_memory).cast();
        // SAFETY: the variable is as large as the handles of every ABI.
        unsafe { self.write(at, 0, handle) };
        call(at)
    }

    /// The handle of an operation that tradewind has, or the null handle.
    pub(crate) fn operation(&self, op: Op) -> Handle {
        let mut all = self.operations.iter();
        all.find(|(known, _)| *known == op).map_or(self.op_null, |(_, handle)| *handle)
    }

    /// Bytes of a handle in memory.
    pub(crate) fn handle_bytes(&self) -> usize {
        if self.narrow { 4 } else { 8 }
    }

    #[inline]
    pub(crate) fn is_in_place(&self, buffer: Pointer) -> bool {
        buffer.addr().cast_signed() == self.in_place
    }

    #[inline]
    pub(crate) fn ignores(&self, status: Pointer) -> bool {
        status.addr().cast_signed() == self.status_ignore
    }

    /// The value of MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE.
    pub(crate) fn ignored_status(&self) -> Pointer {
        std::ptr::without_provenance_mut(self.status_ignore.cast_unsigned())
    }
}

/// Returns the ABI of the program's MPI library; `None` if the library is not known, or not loaded.
#[inline]
pub(crate) fn abi() -> Option<&'static Abi> {
    ABI.get().map_or_else(look_up, Option::as_ref)
}

static ABI: OnceLock<Option<Abi>> = OnceLock::new();

#[cold]
fn look_up() -> Option<&'static Abi> {
    // A program may load an MPI library after its first call.
    if !host::is_loaded() {
        return None;
    }
    ABI.get_or_init(detect).as_ref()
}

fn detect() -> Option<Abi> {
    // First: a library with an ABI of its own beside the standard one may have the symbols of both.
    let (mut major, mut minor) = (-1, -1);
    if host::Abi_get_version.find().is_some()
        && call!(Abi_get_version(&raw mut major, &raw mut minor)) == 0
        && major >= 1
    {
        return (major == 1).then(standard);
    }
    if !host::variable(c"ompi_mpi_comm_world").is_null() {
        return open_mpi();
    }
    // MPICH has no symbol that its descendants all share; the version's text names the family.
    let text = library_version();
    ["MPICH", "Intel(R) MPI", "MVAPICH"].iter().any(|name| text.contains(name)).then(mpich)
}

/// Name of the ABI of the MPI standard.
pub(crate) const STANDARD: &str = "MPI standard";

/// The text of `MPI_Get_library_version`, empty if there is none.
pub(crate) fn library_version() -> String {
    let mut text = [0 as c_char; 8192];
    let mut length = 0;
    if host::Get_library_version.find().is_none() {
        return String::new();
    }
    call!(Get_library_version(text.as_mut_ptr(), &raw mut length));
    text[text.len() - 1] = 0;
    // SAFETY: the last element is zero, so the text is terminated.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

/// Name and version of the MPI library.
pub(crate) fn library_name() -> String {
    let version = library_version();
    let first = version.lines().next().unwrap_or_default();
    // What follows a comma is the place where the library was built.
    let name = first.split(',').next().unwrap_or_default();
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

use DataType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

/// The classes of errors by a failed process and by a revoked communicator, or `other` twice where
/// the library does not have them.
fn failures(classes: [c_int; 2], other: c_int) -> [c_int; 2] {
    if host::Comm_revoke.find().is_some() { classes } else { [other; 2] }
}

/// A predefined object in the three ABIs: its handles in MPICH and in the MPI standard, and the end of
/// the name of Open MPI's variable.
type Predefined = (Handle, Handle, &'static str);

const ELEMENTS: [(DataType, Predefined); 28] = [
    (I8, (0x4c000118, 0x244, "signed_char")),
    (U8, (0x4c000102, 0x245, "unsigned_char")),
    (I16, (0x4c000203, 0x208, "short")),
    (I32, (0x4c000405, 0x209, "int")),
    (I64, (0x4c000807, 0x20a, "long")),
    (I64, (0x4c000809, 0x20b, "long_long_int")),
    (U16, (0x4c000204, 0x20c, "unsigned_short")),
    (U32, (0x4c000406, 0x20d, "unsigned")),
    (U64, (0x4c000808, 0x20e, "unsigned_long")),
    (U64, (0x4c000819, 0x20f, "unsigned_long_long")),
    (F32, (0x4c00040a, 0x210, "float")),
    (F64, (0x4c00080b, 0x214, "double")),
    (I8, (0x4c000137, 0x240, "int8_t")),
    (I16, (0x4c000238, 0x248, "int16_t")),
    (I32, (0x4c000439, 0x250, "int32_t")),
    (I64, (0x4c00083a, 0x258, "int64_t")),
    (U8, (0x4c00013b, 0x241, "uint8_t")),
    (U16, (0x4c00023c, 0x249, "uint16_t")),
    (U32, (0x4c00043d, 0x251, "uint32_t")),
    (U64, (0x4c00083e, 0x259, "uint64_t")),
    (I64, (0x4c000843, 0x201, "aint")),
    (I64, (0x4c000844, 0x203, "offset")),
    (I64, (0x4c000845, 0x202, "count")),
    // The types of Fortran.
    (I32, (0x4c00041b, 0x219, "integer")),
    (F32, (0x4c00041c, 0x21a, "real")),
    (F64, (0x4c00081f, 0x21c, "dblprec")),
    (I64, (0x4c000831, 0x2d9, "integer8")),
    (F64, (0x4c000829, 0x2da, "real8")),
];
const BYTE: Predefined = (0x4c00010d, 0x247, "byte");
const OTHERS: [Predefined; 2] = [BYTE, (0x4c00100c, 0x220, "long_double")];
const MOVED: [Predefined; 3] =
    [(0x4c00010f, 0x207, "packed"), (0x4c000101, 0x243, "char"), (0x4c00013f, 0x238, "c_bool")];
const OPERATIONS: [(Op, Predefined); 7] = [
    (Op::Maximum, (0x58000001, 0x23, "op_max")),
    (Op::Minimum, (0x58000002, 0x22, "op_min")),
    (Op::Sum, (0x58000003, 0x21, "op_sum")),
    (Op::Product, (0x58000004, 0x24, "op_prod")),
    (Op::And, (0x58000006, 0x28, "op_band")),
    (Op::Or, (0x58000008, 0x29, "op_bor")),
    (Op::Xor, (0x5800000a, 0x2a, "op_bxor")),
];

/// The handles of these objects, as `find` knows them. A library built without Fortran lacks its types.
fn named<T: Copy>(
    objects: &[(T, Predefined)],
    find: impl Fn(Predefined) -> Option<Handle>,
) -> Vec<Named<T>> {
    objects.iter().filter_map(|(what, object)| Some((*what, find(*object)?))).collect()
}

fn mpich() -> Abi {
    let [error_process_failed, error_revoked] = failures([101, 103], 15);
    let find = |(handle, ..): Predefined| Some(handle);
    Abi {
        name: "MPICH",
        narrow: true,
        comm_null: 0x04000000,
        comm_world: 0x44000000,
        comm_self: 0x44000001,
        request_null: 0x2c000000,
        datatype_null: 0x0c000000,
        op_null: 0x18000000,
        in_place: -1,
        status_ignore: 1,
        undefined: -32766,
        proc_null: -1,
        any_source: -2,
        any_tag: -1,
        topologies: Topologies { cartesian: 2, graph: 1, dist_graph: 3 },
        status: StatusLayout { bytes: 20, error_at: 16 },
        error_other: 15,
        error_process_failed,
        error_revoked,
        info_null: 0x1c000000,
        errors_return: 0x54000001,
        error_in_status: 17,
        reports_aliases: true,
        byte: BYTE.0,
        int: 0x4c000405,
        elements: named(&ELEMENTS, find),
        others: OTHERS.into_iter().filter_map(find).collect(),
        moved: MOVED.into_iter().filter_map(find).collect(),
        operations: named(&OPERATIONS, find),
    }
}

fn standard() -> Abi {
    let find = |(_, handle, _): Predefined| Some(handle);
    Abi {
        name: STANDARD,
        narrow: false,
        comm_null: 0x100,
        comm_world: 0x101,
        comm_self: 0x102,
        request_null: 0x180,
        datatype_null: 0x200,
        op_null: 0x20,
        in_place: 1,
        status_ignore: 0,
        undefined: -32766,
        proc_null: -3,
        any_source: -1,
        any_tag: -2,
        topologies: Topologies { cartesian: 211, graph: 212, dist_graph: 213 },
        status: StatusLayout { bytes: 32, error_at: 8 },
        error_other: 16,
        error_process_failed: 16,
        error_revoked: 16,
        info_null: 0x130,
        errors_return: 0x143,
        error_in_status: 19,
        reports_aliases: true,
        byte: BYTE.1,
        int: 0x209,
        elements: named(&ELEMENTS, find),
        others: OTHERS.into_iter().filter_map(find).collect(),
        moved: MOVED.into_iter().filter_map(find).collect(),
        operations: named(&OPERATIONS, find),
    }
}

/// Predefined handles are addresses of variables of the library. `None` if one is missing.
fn open_mpi() -> Option<Abi> {
    let variable = |name: &str| {
        let name = CString::new(name).ok()?;
        let at = host::variable(&name);
        (!at.is_null()).then(|| at.addr().cast_signed())
    };
    let find = |(.., name): Predefined| variable(&format!("ompi_mpi_{name}"));
    let [error_process_failed, error_revoked] = failures([75, 77], 16);
    Some(Abi {
        name: "Open MPI",
        narrow: false,
        comm_null: variable("ompi_mpi_comm_null")?,
        comm_world: variable("ompi_mpi_comm_world")?,
        comm_self: variable("ompi_mpi_comm_self")?,
        request_null: variable("ompi_request_null")?,
        datatype_null: variable("ompi_mpi_datatype_null")?,
        op_null: variable("ompi_mpi_op_null")?,
        in_place: 1,
        status_ignore: 0,
        undefined: -32766,
        proc_null: -2,
        any_source: -1,
        any_tag: -1,
        topologies: Topologies { cartesian: 1, graph: 2, dist_graph: 3 },
        status: StatusLayout { bytes: 24, error_at: 8 },
        error_other: 16,
        error_process_failed,
        error_revoked,
        info_null: variable("ompi_mpi_info_null")?,
        errors_return: variable("ompi_mpi_errors_return")?,
        error_in_status: 18,
        reports_aliases: false,
        byte: find(BYTE)?,
        int: variable("ompi_mpi_int")?,
        elements: named(&ELEMENTS, find),
        others: OTHERS.into_iter().filter_map(find).collect(),
        moved: MOVED.into_iter().filter_map(find).collect(),
        operations: named(&OPERATIONS, find),
    })
}

/// Writes the field `MPI_ERROR` of a status.
///
/// # Safety
/// `status` points to a status.
pub(crate) unsafe fn write_error(abi: &Abi, status: Pointer, error: c_int) {
    // SAFETY: the caller's promise; the field is within the status.
    unsafe { status.cast::<u8>().add(abi.status.error_at).cast::<c_int>().write_unaligned(error) };
}

/// Writes a complete status; in a status of a single completion the field `MPI_ERROR` keeps its
/// value, as the MPI standard demands.
///
/// # Safety
/// `status` points to a status, or is MPI_STATUS_IGNORE.
pub(crate) unsafe fn write_status(
    abi: &Abi,
    status: Pointer,
    empty: &[u8; STATUS_BYTES],
    with_error: bool,
) {
    if abi.ignores(status) || status.is_null() {
        return;
    }
    let StatusLayout { bytes, error_at } = abi.status;
    let status = status.cast::<u8>();
    // SAFETY: the caller's promise: `bytes` bytes may be written; the source is longer.
    unsafe {
        let error = status.add(error_at).cast::<c_int>().read_unaligned();
        status.copy_from_nonoverlapping(empty.as_ptr(), bytes);
        if !with_error {
            status.add(error_at).cast::<c_int>().write_unaligned(error);
        }
    }
}
