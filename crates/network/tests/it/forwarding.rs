//! Transports of tests that change one thing about another one.

/// The methods of a `Transport` that pass on to this field, but `wait` and those with defaults.
macro_rules! forward_but_waits {
    ($inner:ident) => {
        fn node(&self) -> u32 {
            self.$inner.node()
        }

        fn nodes(&self) -> u32 {
            self.$inner.nodes()
        }

        fn address(&self, node: u32) -> String {
            self.$inner.address(node)
        }

        fn watch(
            &mut self,
            descriptor: std::os::fd::BorrowedFd<'_>,
            number: u64,
        ) -> Result<(), network::error::Error> {
            self.$inner.watch(descriptor, number)
        }

        fn send(&mut self, node: u32, frame: network::transport::frame::Frame) {
            self.$inner.send(node, frame);
        }

        fn send_in_place(
            &mut self,
            node: u32,
            route: network::transport::frame::Route,
            packet: interpreter::Packet,
            location: network::transport::payloads::PayloadLocation,
            bytes: u64,
        ) {
            self.$inner.send_in_place(node, route, packet, location, bytes);
        }

        fn detach(
            &mut self,
            location: network::transport::payloads::PayloadLocation,
            payload: Option<Vec<u8>>,
        ) {
            self.$inner.detach(location, payload);
        }

        fn flush(&mut self, payloads: &mut dyn network::transport::payloads::Payloads) {
            self.$inner.flush(payloads);
        }

        fn queued(&self, node: u32) -> u64 {
            self.$inner.queued(node)
        }

        fn refused(&self) -> u64 {
            self.$inner.refused()
        }
    };
}

pub(crate) use forward_but_waits;
