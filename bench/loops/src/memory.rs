//! The buffers of a collective: private memory, page aligned as the MPI programs have it, or memory
//! the segment owns.
//!
//! A request borrows private buffers; buffers of the segment move into it and come back.

use crate::Failure;
use tradewind::{Communicator, Input, Output, SharedBuffer};

const PAGE: usize = 4096;

/// Value that a completed request returns for an input.
pub type InputBack<'a, M> = <<M as Memory>::Input<'a> as Input<'a, f64>>::Back;
/// Value that a completed request returns for an output.
pub type OutputBack<'a, M> = <<M as Memory>::Output<'a> as Output<'a, f64>>::Back;

/// Both buffers as a request takes them, and where they return to.
pub type RequestBuffers<'a, M> =
    (<M as Memory>::Input<'a>, <M as Memory>::Output<'a>, <M as Memory>::Home<'a>);

/// A buffer to send from and one to receive into.
pub trait Memory: Sized {
    type Input<'a>: Input<'a, f64>
    where
        Self: 'a;
    type Output<'a>: Output<'a, f64>
    where
        Self: 'a;
    /// Takes back buffers that moved into a request.
    type Home<'a>
    where
        Self: 'a;

    /// Two buffers: so many doubles to send, so many to receive.
    fn new(world: &Communicator, sends: usize, receives: usize) -> Result<Self, Failure>;
    /// The send buffer.
    fn send(&mut self) -> &mut [f64];
    /// The receive buffer.
    fn receive(&mut self) -> &mut [f64];
    /// Both, as slices.
    fn both(&mut self) -> (&[f64], &mut [f64]);
    /// Both, for a request.
    fn for_request(&mut self) -> Result<RequestBuffers<'_, Self>, Failure>;
    /// The one to receive into, for a request.
    fn output_for_request(&mut self) -> Result<(Self::Output<'_>, Self::Home<'_>), Failure>;
    /// Puts both back.
    fn take<'a>(home: Self::Home<'a>, input: InputBack<'a, Self>, output: OutputBack<'a, Self>)
    where
        Self: 'a;
    /// Puts the one to receive into back.
    fn take_output<'a>(home: Self::Home<'a>, output: OutputBack<'a, Self>)
    where
        Self: 'a;
}

/// Doubles that begin on a page.
struct Aligned {
    memory: Vec<f64>,
    first: usize,
    elements: usize,
}

impl Aligned {
    fn new(elements: usize) -> Self {
        let spare = PAGE / size_of::<f64>();
        // Ones, not zeros: zeros would be untouched pages.
        let memory = vec![1.0; elements + spare];
        let first = memory.as_ptr().align_offset(PAGE).min(spare);
        Self { memory, first, elements }
    }

    fn slice(&self) -> &[f64] {
        &self.memory[self.first..self.first + self.elements]
    }

    fn slice_mut(&mut self) -> &mut [f64] {
        &mut self.memory[self.first..self.first + self.elements]
    }
}

/// Memory of this process alone.
pub struct Private {
    send: Aligned,
    receive: Aligned,
}

impl Memory for Private {
    type Input<'a> = &'a [f64];
    type Output<'a> = &'a mut [f64];
    type Home<'a> = ();

    fn new(_: &Communicator, sends: usize, receives: usize) -> Result<Self, Failure> {
        Ok(Self { send: Aligned::new(sends), receive: Aligned::new(receives) })
    }

    fn send(&mut self) -> &mut [f64] {
        self.send.slice_mut()
    }

    fn receive(&mut self) -> &mut [f64] {
        self.receive.slice_mut()
    }

    fn both(&mut self) -> (&[f64], &mut [f64]) {
        (self.send.slice(), self.receive.slice_mut())
    }

    #[inline]
    fn for_request(&mut self) -> Result<(&[f64], &mut [f64], ()), Failure> {
        Ok((self.send.slice(), self.receive.slice_mut(), ()))
    }

    #[inline]
    fn output_for_request(&mut self) -> Result<(&mut [f64], ()), Failure> {
        Ok((self.receive.slice_mut(), ()))
    }

    #[inline]
    fn take<'a>((): (), (): (), (): ())
    where
        Self: 'a,
    {
    }

    #[inline]
    fn take_output<'a>((): (), (): ())
    where
        Self: 'a,
    {
    }
}

/// Memory of the segment. Each buffer is away while a request has it.
pub struct Segment {
    send: Option<SharedBuffer<f64>>,
    receive: Option<SharedBuffer<f64>>,
}

impl Memory for Segment {
    type Input<'a> = SharedBuffer<f64>;
    type Output<'a> = SharedBuffer<f64>;
    type Home<'a> = &'a mut Self;

    fn new(world: &Communicator, sends: usize, receives: usize) -> Result<Self, Failure> {
        Ok(Self { send: Some(world.alloc(sends)?), receive: Some(world.alloc(receives)?) })
    }

    fn send(&mut self) -> &mut [f64] {
        self.send.as_deref_mut().unwrap_or_default()
    }

    fn receive(&mut self) -> &mut [f64] {
        self.receive.as_deref_mut().unwrap_or_default()
    }

    fn both(&mut self) -> (&[f64], &mut [f64]) {
        (self.send.as_deref().unwrap_or_default(), self.receive.as_deref_mut().unwrap_or_default())
    }

    #[inline]
    fn for_request(
        &mut self,
    ) -> Result<(SharedBuffer<f64>, SharedBuffer<f64>, &mut Self), Failure> {
        match (self.send.take(), self.receive.take()) {
            (Some(send), Some(receive)) => Ok((send, receive, self)),
            _ => Err("a buffer is still away".into()),
        }
    }

    #[inline]
    fn output_for_request(&mut self) -> Result<(SharedBuffer<f64>, &mut Self), Failure> {
        let receive = self.receive.take().ok_or("a buffer is still away")?;
        Ok((receive, self))
    }

    #[inline]
    fn take<'a>(home: &'a mut Self, input: SharedBuffer<f64>, output: SharedBuffer<f64>)
    where
        Self: 'a,
    {
        home.send = Some(input);
        home.receive = Some(output);
    }

    #[inline]
    fn take_output<'a>(home: &'a mut Self, output: SharedBuffer<f64>)
    where
        Self: 'a,
    {
        home.receive = Some(output);
    }
}
