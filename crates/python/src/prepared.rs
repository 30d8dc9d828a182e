//! A call with its buffers, ready to run. The three forms of a collective share it.

use crate::arrays;
use crate::elements::Op;
use crate::errors::{ArgumentError, ArrayError};
use crate::kind::{Kind, Numbers};
use crate::memory::Memory;
use pyo3::prelude::*;
use std::sync::Arc;
use tradewind::{Communicator, DataType, Neighbors, OpOnBytes};

/// Takes the place of an input that lies in the output.
#[pyclass(frozen, module = "tradewind")]
#[derive(Clone, Copy)]
pub(crate) struct InPlace;

/// The ranks that take part.
#[derive(Clone)]
pub(crate) struct Ranks {
    pub(crate) communicator: Arc<Communicator>,
    /// Of a collective between neighbours.
    pub(crate) neighbors: Option<Arc<Neighbors>>,
}

impl Ranks {
    pub(crate) fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    pub(crate) fn neighbors(&self) -> &Neighbors {
        match &self.neighbors {
            Some(neighbors) => neighbors,
            None => unreachable!("a collective between neighbours is a method of neighbours"),
        }
    }

    /// The shape of the output of a call with this input.
    fn shape_of_output(
        &self,
        kind: Kind,
        arguments: &Arguments,
        input: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<usize>> {
        let neighbors = self.neighbors.as_ref();
        let numbers = Numbers {
            rank: self.communicator.rank() as usize,
            ranks: self.communicator.size() as usize,
            sources: neighbors.map_or(0, |one| one.sources().len()),
            destinations: neighbors.map_or(0, |one| one.destinations().len()),
            counts: &arguments.counts,
            received: &arguments.received,
        };
        let shape: Vec<usize> = input.getattr("shape")?.extract()?;
        kind.shape_of_output(&numbers, &shape)
    }

    /// Returns whether the input of a call is the part of the output that it is combined with or copied to.
    ///
    /// # Errors
    /// It overlaps the output in another way, or has other elements.
    fn is_in_output(&self, kind: Kind, input: &Memory, output: &Memory) -> PyResult<bool> {
        if input.elements() != output.elements() {
            let text =
                format!("the input has {}, the output {}", input.elements(), output.elements());
            return Err(ArrayError::new_err(text));
        }
        let rank = self.communicator.rank() as usize;
        let size = self.communicator.size() as usize;
        let has_own_block = kind == Kind::Allgather || kind == Kind::Gather;
        if (input.is_same(output) && kind.allows_same_array())
            || (has_own_block && input.is_block(output, rank, size))
        {
            return Ok(true);
        }
        if input.overlaps(output) {
            let text =
                "the input and the output overlap: pass two arrays, or tradewind.IN_PLACE as input";
            return Err(ArrayError::new_err(text));
        }
        Ok(false)
    }
}

/// Arguments of a collective besides its arrays. Numbers of elements count whole blocks.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) root: u32,
    pub(crate) op: Option<Op>,
    /// Elements of blocks that are sent, or of the blocks of all ranks.
    pub(crate) counts: Vec<usize>,
    /// Elements of blocks that are received, if they are others.
    pub(crate) received: Vec<usize>,
}

/// The arrays of a call.
struct Arrays<'py> {
    /// `None` if the program says that the input lies in the output, or if this rank has none.
    input: Option<Bound<'py, PyAny>>,
    is_in_place: bool,
    output: Option<Bound<'py, PyAny>>,
    /// The output is one element without a dimension, made for the call.
    is_scalar: bool,
}

impl<'py> Arrays<'py> {
    /// Takes the arrays that this rank uses, and makes the output if it needs one and `out` is `None`.
    fn of(
        ranks: &Ranks,
        kind: Kind,
        arguments: &Arguments,
        input: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let is_root = arguments.root == ranks.communicator.rank();
        let is_in_place = input.is_some_and(|input| input.is_exact_instance_of::<InPlace>());
        let given = input.filter(|input| !is_in_place && !input.is_none());
        let given = given.filter(|_| kind.reads_input(is_root));
        if given.is_none() && kind.reads_input(is_root) && !is_in_place {
            return Err(ArgumentError::new_err(format!("this rank has no input in {kind}")));
        }
        let writes = kind.writes_output(is_root);
        let output = out.filter(|_| writes).cloned();
        if !writes || output.is_some() {
            return Ok(Arrays { input: given.cloned(), is_in_place, output, is_scalar: false });
        }
        let Some(input) = given else {
            let text = format!("this rank needs an output in {kind}: pass out=");
            return Err(ArgumentError::new_err(text));
        };
        let input = arrays::as_array(input)?;
        let shape = ranks.shape_of_output(kind, arguments, &input)?;
        let output = Some(arrays::new(&input, &shape, kind == Kind::Exscan)?);
        Ok(Arrays { input: Some(input), is_in_place, output, is_scalar: shape.is_empty() })
    }
}

/// A call of a collective.
pub(crate) struct Prepared {
    pub(crate) kind: Kind,
    pub(crate) ranks: Ranks,
    pub(crate) root: u32,
    pub(crate) op: OpOnBytes,
    /// As in [`Arguments`], in bytes.
    pub(crate) counts: Vec<usize>,
    pub(crate) received: Vec<usize>,
    /// `None` if the input lies in the output, or this rank has none.
    pub(crate) input: Option<Memory>,
    pub(crate) is_in_place: bool,
    pub(crate) output: Option<Memory>,
    /// The array that the call returns.
    result: Option<Py<PyAny>>,
    /// The call returns the only element of the array.
    is_scalar: bool,
}

impl Prepared {
    /// Finds the memory of the arrays, and makes the output if this rank needs one and `out` is `None`.
    pub(crate) fn new(
        ranks: Ranks,
        kind: Kind,
        arguments: Arguments,
        input: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let arrays = Arrays::of(&ranks, kind, &arguments, input, out)?;
        let Arrays { input, mut is_in_place, output: result, is_scalar } = arrays;
        let mut input = input.as_ref().map(Memory::of).transpose()?;
        let is_read_only = kind == Kind::Bcast && arguments.root == ranks.communicator.rank();
        let memory = if is_read_only { Memory::of } else { Memory::of_output };
        let output = result.as_ref().map(memory).transpose()?;
        if let Some(one) = &input
            && let Some(other) = &output
        {
            is_in_place = ranks.is_in_output(kind, one, other)?;
        }
        if is_in_place {
            input = None;
        }
        let elements = output.as_ref().or(input.as_ref()).map(Memory::elements);
        let size = elements.map_or(1, |elements| elements.size);
        let op = match (arguments.op, elements) {
            (Some(op), Some(elements)) => op.on(elements)?,
            _ => tradewind::Op::Sum.on_bytes(DataType::U8),
        };
        let in_bytes = |counts: Vec<usize>| -> PyResult<Vec<usize>> {
            let bytes = counts.iter().map(|count| count.checked_mul(size)).collect::<Option<_>>();
            bytes.ok_or_else(|| ArgumentError::new_err("a number of elements is impossible"))
        };
        let prepared = Prepared {
            kind,
            ranks,
            root: arguments.root,
            op,
            counts: in_bytes(arguments.counts)?,
            received: in_bytes(arguments.received)?,
            input,
            is_in_place,
            output,
            result: result.map(Bound::unbind),
            is_scalar,
        };
        prepared.check_blocks(size)?;
        Ok(prepared)
    }

    /// Refuses blocks with a part of an element.
    fn check_blocks(&self, element: usize) -> PyResult<()> {
        let divided = match self.kind {
            Kind::Alltoall | Kind::ReduceScatterBlock => {
                self.input.as_ref().or(self.output.as_ref())
            }
            Kind::Allgather | Kind::Gather => self.output.as_ref(),
            Kind::Scatter => self.input.as_ref(),
            _ => None,
        };
        let size = self.ranks.communicator.size() as usize;
        match divided {
            Some(array) if element > 0 && !(array.bytes() / element).is_multiple_of(size) => {
                let count = array.bytes() / element;
                let text = format!(
                    "an array of {} has {count} elements, not a multiple of the {size} ranks",
                    self.kind
                );
                Err(ArgumentError::new_err(text))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the block that a persistent form is prepared for.
    pub(crate) fn block(&self) -> usize {
        let bytes = |memory: &Option<Memory>| memory.as_ref().map_or(0, Memory::bytes);
        let input = bytes(&self.input);
        let output = bytes(&self.output);
        let size = self.ranks.communicator.size() as usize;
        let own = self.counts.get(self.ranks.communicator.rank() as usize).copied().unwrap_or(0);
        match self.kind {
            Kind::Gather | Kind::Allgather if self.is_in_place => output / size,
            Kind::Gatherv if self.is_in_place => own,
            Kind::Gather | Kind::Gatherv | Kind::Allgather => input,
            Kind::Alltoall => output / size,
            Kind::ReduceScatterBlock if self.is_in_place => output / size,
            Kind::Reduce if !self.is_in_place => input,
            Kind::NeighborAlltoall => {
                match self.ranks.neighbors.as_ref().map(|one| one.sources().len()) {
                    Some(sources @ 1..) => output / sources,
                    _ => input / self.destinations().max(1),
                }
            }
            Kind::NeighborAllgather | Kind::NeighborAllgatherv => input,
            _ => output,
        }
    }

    fn destinations(&self) -> usize {
        self.ranks.neighbors.as_ref().map_or(0, |neighbors| neighbors.destinations().len())
    }

    /// The value that the call returns in Python, once the collective is complete.
    pub(crate) fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.result {
            Some(result) if self.is_scalar => Ok(result.bind(py).get_item(())?.unbind()),
            Some(result) => Ok(result.clone_ref(py)),
            None => Ok(py.None()),
        }
    }
}
