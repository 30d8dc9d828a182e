//! What all collectives have in common: a plan, made once, of what is run and which buffers it
//! needs; it is run, started, or kept to be started again and again.

use crate::algorithms::{Choice, Choosable};
use crate::buffers::{Input, Output};
use crate::communicator::{Communicator, LinkKey};
use crate::error::{Error, Result, argument};
use crate::operation::Function;
use crate::pending::Pending;
use crate::request::{CopiedOutput, Folded, Outputs, Request};
use crate::spanning::Carried;
use bytemuck::Pod;
use engine::call::Call;
use engine::group::Group;
use engine::lane::{Argument, Binding};
use engine::linkage::Linkage;
use engine::meeting::Meeting;
use engine::streams::Given;
use goal::graph::Graph;
use std::ops::Range;
use std::sync::Arc;

/// What a collective goes through.
#[derive(Clone, Debug)]
pub(crate) enum Course {
    /// A meeting of all ranks.
    Meeting(Meeting),
    /// A linked schedule.
    Linked(Arc<Linkage>),
    /// A schedule between nodes.
    Carried(Arc<Carried>),
}

impl Course {
    /// Begins it with these buffers.
    #[inline]
    pub(crate) fn start(
        &self,
        communicator: &Communicator,
        arguments: &[Argument<'_>],
    ) -> Result<Pending> {
        match self {
            Course::Meeting(meeting) => communicator.meet(meeting, arguments),
            Course::Linked(linkage) => Ok(Pending::Node(linkage.start(arguments)?)),
            Course::Carried(carried) => Ok(Pending::Nodes(carried.start(arguments)?)),
        }
    }
}

/// A collective on this rank, ready to be started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) course: Course,
    pub(crate) buffers: Buffers,
    /// The result is folded here, of contributions that the course brings.
    fold: Option<OwnFold>,
}

/// The buffers of a collective.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Buffers {
    /// It has none.
    None,
    /// One, which is read at the root and written elsewhere.
    Broadcast { bytes: u64, is_root: bool },
    /// An input and an output.
    Two(Shape),
}

/// What input and output of a rank are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of the input; none where the rank has nothing to give, whatever it is called with.
    pub(crate) input: Option<u64>,
    /// Bytes of the result; none where the rank gets nothing.
    pub(crate) output: Option<u64>,
    pub(crate) in_place: InPlaceRule,
    /// The rank's own block, which is copied from buffer to buffer when the collective starts.
    pub(crate) own: Option<Own>,
}

/// A block that is in both buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Where it begins in the input.
    pub(crate) from: u64,
    /// Where it begins in the output.
    pub(crate) to: u64,
    pub(crate) bytes: u64,
}

/// Which buffer may be given in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InPlaceRule {
    /// The input, which then lies in the output from here on.
    InputAt(u64),
    /// The output: the result then stays in the input.
    Output,
    /// Neither, on this rank.
    Never,
}

/// A fold by the rank itself.
#[derive(Clone, Debug)]
struct OwnFold {
    function: Function,
    /// Bytes that the course brings.
    gathered: u64,
    /// Which of them are folded.
    folded: Range<usize>,
}

impl Shape {
    /// Input and output with so many bytes; in place, the input begins where the output does.
    #[inline]
    pub(crate) fn new(input: u64, output: u64) -> Self {
        Shape {
            input: Some(input),
            output: Some(output),
            in_place: InPlaceRule::InputAt(0),
            own: None,
        }
    }

    /// Refuses buffers of other lengths; none is a buffer given in place.
    #[inline]
    fn check(&self, input: Option<u64>, output: Option<u64>) -> Result<()> {
        let whole = match (input, self.in_place, self.input, self.output) {
            // In place the output holds the input, too.
            (None, InPlaceRule::InputAt(at), Some(input), Some(output)) => {
                Some(output.max(at + input))
            }
            (_, _, _, output) => output,
        };
        let input_fits = match (input, self.input) {
            (Some(found), Some(expected)) => found == expected,
            (None, Some(_)) => matches!(self.in_place, InPlaceRule::InputAt(_)),
            (_, None) => true,
        };
        let output_fits = match (output, whole) {
            (Some(found), Some(expected)) => found == expected,
            (None, Some(_)) => self.in_place == InPlaceRule::Output,
            (_, None) => true,
        };
        if input_fits && output_fits { Ok(()) } else { Err(self.refuse(input, output, whole)) }
    }

    #[cold]
    fn refuse(&self, input: Option<u64>, output: Option<u64>, whole: Option<u64>) -> Error {
        let expected = |bytes: Option<u64>| format!("{} bytes long here", bytes.unwrap_or(0));
        match (input, output) {
            (None, _) if !matches!(self.in_place, InPlaceRule::InputAt(_)) => {
                argument("the input", "in place", "a buffer, on this rank of this collective")
            }
            (_, None) if self.in_place != InPlaceRule::Output => {
                argument("the output", "in place", "a buffer, on this rank of this collective")
            }
            (Some(found), _) if self.input.is_some_and(|bytes| bytes != found) => {
                argument("the input", format!("{found} bytes long"), expected(self.input))
            }
            (_, found) => argument(
                "the output",
                format!("{} bytes long", found.unwrap_or(0)),
                expected(whole),
            ),
        }
    }
}

impl Plan {
    /// A plan whose result comes by itself.
    #[inline]
    pub(crate) fn new(course: Course, shape: Shape) -> Self {
        Plan { course, buffers: Buffers::Two(shape), fold: None }
    }

    /// A plan without buffers.
    #[inline]
    pub(crate) fn bare(course: Course) -> Self {
        Plan { course, buffers: Buffers::None, fold: None }
    }

    /// A plan with one buffer.
    #[inline]
    pub(crate) fn broadcast(course: Course, bytes: u64, is_root: bool) -> Self {
        Plan { course, buffers: Buffers::Broadcast { bytes, is_root }, fold: None }
    }

    /// A plan whose course brings `gathered` contributions of `bytes` bytes, of which the first
    /// `count` are folded.
    pub(crate) fn folded(
        course: Course,
        shape: Shape,
        function: Function,
        (gathered, count, bytes): (u32, u32, u64),
    ) -> Self {
        let fold = OwnFold {
            function,
            gathered: u64::from(gathered).saturating_mul(bytes),
            folded: 0..u64::from(count).saturating_mul(bytes) as usize,
        };
        Plan { course, buffers: Buffers::Two(shape), fold: Some(fold) }
    }

    /// Starts with an input and an output, waits and fetches the result.
    #[inline(always)]
    pub(crate) fn run<'i, 'o, T: Pod, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        mut output: O,
    ) -> Result<()> {
        let shape = self.prepare(&input, &mut output)?;
        let meeting = match &self.course {
            Course::Meeting(meeting) if self.fold.is_none() => meeting,
            _ => return self.run_started(communicator, input, output),
        };
        let group = communicator.group();
        if group.streams(meeting)
            && let Some(outcome) = self.stream(group, meeting, shape, &input, output.bytes())
        {
            return outcome;
        }
        let held = group.come(meeting, &self.arguments(shape, &input, &mut output))?;
        let (private, _) = output.into_parts();
        Ok(group.leave(held, meeting, &mut [&mut [], shape.wanted(private)])?)
    }

    /// Starts what is no meeting, and waits for it.
    fn run_started<'i, 'o, T: Pod, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        output: O,
    ) -> Result<()> {
        self.start_prepared(communicator, input, output)?.wait().map(|_| ())
    }

    /// Runs a long meeting as a stream of pieces; none if there is no memory for that.
    #[cold]
    fn stream<'i, T: Pod, I: Input<'i, T>>(
        &self,
        group: &Group,
        meeting: &Meeting,
        shape: Shape,
        input: &I,
        output: &mut [u8],
    ) -> Option<Result<()>> {
        let given = match (shape.input, input.argument(), shape.in_place) {
            (Some(_), Some(_), _) => Given::Apart(input.bytes()),
            (Some(length), None, InPlaceRule::InputAt(at)) => {
                Given::InOutput(at as usize..(at + length) as usize)
            }
            _ => Given::Apart(&[]),
        };
        Some(group.stream(meeting, given, output)?.map_err(Error::from))
    }

    /// Starts with an input and an output.
    #[inline]
    pub(crate) fn start<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        mut output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.prepare(&input, &mut output)?;
        self.start_prepared(communicator, input, output)
    }

    /// Starts with buffers that have been checked.
    #[inline]
    fn start_prepared<'i, 'o, T: Pod, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        communicator: &Communicator,
        input: I,
        mut output: O,
    ) -> Result<Request<'o, (I::Back, O::Back)>> {
        let Buffers::Two(shape) = self.buffers else { return Err(self.other_buffers()) };
        let pending =
            self.course.start(communicator, &self.arguments(shape, &input, &mut output))?;
        let (private, back) = output.into_parts();
        let private = shape.wanted(private);
        let outputs = match &self.fold {
            None if self.is_carried() => {
                let bytes = shape.output.unwrap_or(0) as usize;
                let copied = CopiedOutput { buffer: 1, private, bytes };
                Outputs::Copied(Box::new(copied), |back: &mut (I::Back, O::Back)| {
                    O::bytes_of_back(&mut back.1)
                })
            }
            None => Outputs::Second(private),
            Some(OwnFold { function, gathered, folded }) => {
                let (contributions, function) = (vec![0; *gathered as usize], function.clone());
                let bytes = shape.output.unwrap_or(0) as usize;
                let folded =
                    Folded { function, contributions, folded: folded.clone(), private, bytes };
                Outputs::Folded(Box::new(folded), |back: &mut (I::Back, O::Back)| {
                    O::bytes_of_back(&mut back.1)
                })
            }
        };
        Ok(Request::new(communicator, pending, outputs, (input.into_back(), back)))
    }

    /// Starts what has no buffers.
    #[inline]
    pub(crate) fn start_bare(&self, communicator: &Communicator) -> Result<Request<'static>> {
        let Buffers::None = self.buffers else { return Err(self.other_buffers()) };
        Ok(Request::new(communicator, self.course.start(communicator, &[])?, Outputs::None, ()))
    }

    /// Starts what has one buffer.
    #[inline]
    pub(crate) fn start_broadcast<'a, T: Pod, O: Output<'a, T>>(
        &self,
        communicator: &Communicator,
        mut buffer: O,
    ) -> Result<Request<'a, O::Back>> {
        let Buffers::Broadcast { bytes, is_root } = self.buffers else {
            return Err(self.other_buffers());
        };
        let place = buffer.argument().filter(|place| place.length == bytes);
        let Some(place) = place else {
            let found = format!("{} bytes long", buffer.bytes().len());
            return Err(argument("the buffer", found, format!("{bytes} bytes long here")));
        };
        let in_segment = matches!(place.binding, Binding::Segment(_)) && !self.is_carried();
        let nothing = Argument::input(&[]);
        let pending = match &self.course {
            Course::Meeting(_) if !is_root => self.course.start(communicator, &[nothing, place])?,
            Course::Linked(_) | Course::Carried(_) if !is_root => {
                self.course.start(communicator, &[place])?
            }
            course => {
                let given = if in_segment { place } else { Argument::input(buffer.bytes()) };
                match course {
                    Course::Meeting(_) => self.course.start(communicator, &[given, place])?,
                    Course::Linked(_) | Course::Carried(_) => {
                        self.course.start(communicator, &[given])?
                    }
                }
            }
        };
        let (private, back) = buffer.into_parts();
        let outputs = match &self.course {
            _ if is_root => Outputs::None,
            Course::Meeting(_) => Outputs::Second(private),
            Course::Linked(_) => Outputs::First(private),
            Course::Carried(_) => {
                let copied = CopiedOutput { buffer: 0, private, bytes: bytes as usize };
                Outputs::Copied(Box::new(copied), |back| O::bytes_of_back(back))
            }
        };
        Ok(Request::new(communicator, pending, outputs, back))
    }

    /// Checks the buffers and puts the rank's own block where it belongs, if that is the caller's
    /// part.
    #[inline]
    fn prepare<'i, 'o, T: Pod, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        input: &I,
        output: &mut O,
    ) -> Result<Shape> {
        let Buffers::Two(shape) = self.buffers else { return Err(self.other_buffers()) };
        let (from, to) = (input.argument(), output.argument());
        shape.check(from.map(|from| from.length), to.map(|to| to.length))?;
        if let (Some(own), Some(_), Some(_)) = (shape.own, from, to) {
            own.copy(input.bytes(), output.bytes());
        }
        Ok(shape)
    }

    /// What the engine is told of buffers that have been checked.
    #[inline]
    fn arguments<'b, 'i, 'o, T: Pod, I: Input<'i, T>, O: Output<'o, T>>(
        &self,
        shape: Shape,
        input: &'b I,
        output: &'b mut O,
    ) -> [Argument<'b>; 2] {
        let to = match (&self.fold, shape.output, output.argument()) {
            (Some(fold), ..) => Argument::output(fold.gathered),
            (None, Some(length), Some(to)) => Argument { length, ..to },
            (None, length, _) => Argument::output(length.unwrap_or(0)),
        };
        let from = match (shape.input, input.argument(), shape.in_place) {
            // Between nodes nothing is used in place.
            (Some(_), Some(from), _)
                if matches!(from.binding, Binding::Segment(_)) && self.is_carried() =>
            {
                Argument::input(input.bytes())
            }
            (Some(_), Some(from), _) => from,
            (Some(length), None, InPlaceRule::InputAt(at)) => {
                let piece = at as usize..(at + length) as usize;
                Argument::input(output.bytes().get(piece).unwrap_or_default())
            }
            _ => Argument::input(&[]),
        };
        [from, to]
    }

    #[inline]
    fn is_carried(&self) -> bool {
        matches!(self.course, Course::Carried(_))
    }

    #[cold]
    fn other_buffers(&self) -> Error {
        let expected = match self.buffers {
            Buffers::None => "none, by start_bare",
            Buffers::Broadcast { .. } => "one, by start_bcast",
            Buffers::Two(_) => "an input and an output, by start",
        };
        argument("what the collective was started with", "not what it was prepared for", expected)
    }
}

impl Own {
    fn copy(self, input: &[u8], output: &mut [u8]) {
        let piece = |at: u64| at as usize..(at + self.bytes) as usize;
        if let (Some(from), Some(to)) =
            (input.get(piece(self.from)), output.get_mut(piece(self.to)))
        {
            to.copy_from_slice(from);
        }
    }
}

impl Shape {
    /// What of private memory the result goes to.
    #[inline]
    fn wanted(self, private: &mut [u8]) -> &mut [u8] {
        let length = private.len().min(self.output.unwrap_or(0) as usize);
        &mut private[..length]
    }
}

impl Communicator {
    /// A course through a schedule that is linked, now if it was not before.
    pub(crate) fn linked<A: Choosable>(
        &self,
        (call, choice): (Call, &Choice<A>),
        (arguments, sizes): (u64, Vec<u64>),
        draw: impl FnOnce() -> Result<Graph, collectives::CollectiveError>,
    ) -> Result<Course> {
        let key = LinkKey {
            call,
            algorithm: choice.algorithm.name(),
            tuning: choice.tuning,
            levels: choice.levels,
            arguments,
            sizes,
        };
        self.course(key, || Ok(draw()?))
    }

    /// Refuses a root that no rank is.
    #[inline]
    pub(crate) fn check_root(&self, root: u32) -> Result<()> {
        if root < self.size() {
            return Ok(());
        }
        Err(argument("the root", root.to_string(), format!("below {}", self.size())))
    }

    /// The part of a buffer that each rank has.
    #[inline]
    pub(crate) fn equal_part(&self, what: &'static str, bytes: u64) -> Result<u64> {
        let ranks = u64::from(self.size());
        if bytes.is_multiple_of(ranks) {
            return Ok(bytes / ranks);
        }
        Err(argument(what, format!("{bytes} bytes"), format!("a multiple of the {ranks} ranks")))
    }

    /// The bytes of a block for each rank.
    #[inline]
    pub(crate) fn for_each_rank(&self, block: u64) -> Result<u64> {
        let all = block.checked_mul(u64::from(self.size()));
        all.ok_or_else(|| {
            argument(
                "the length of a block",
                format!("{block} bytes"),
                "short enough for 64 bits to count all",
            )
        })
    }
}

/// The bytes of so many elements.
#[inline]
pub(crate) fn bytes_of<T>(count: usize) -> Result<u64> {
    let bytes = (count as u64).checked_mul(size_of::<T>() as u64);
    bytes.ok_or_else(|| {
        argument("the number of elements", count.to_string(), "one whose bytes 64 bits can count")
    })
}
