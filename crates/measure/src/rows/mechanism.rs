//! The mechanisms that move messages between two ranks, with their names.

collectives::named_enum! {
    /// A mechanism that moves messages from one rank to the other.
    pub enum Mechanism ("mechanism") {
        /// Express: words of five bytes, as many as the message needs.
        Express = "express",
        /// The same, received through the poll of 512 queues, of which it is the last.
        OnePoll = "one-poll",
        /// Wide Express: lines of 48 bytes, as many as the message needs.
        Wide = "wide",
        /// Tag-On: a header in a line that refers to the data in a buffer of the segment.
        TagOn = "tag-on",
        /// Tag-On of data that lie in the sender's pool already.
        TagOnResident = "tag-on-resident",
        /// Tag-On to both ranks at once: the data of a message lie once on each node.
        TagOnMulticast = "tag-on-multicast",
        /// Basic, unshared: a ring in which messages of up to a quarter of it lie in one piece.
        Basic = "basic",
        /// The same, with a lock around each send and each receive, for several threads.
        BasicLocked = "basic-locked",
        /// A record in an append buffer.
        Append = "append",
        /// One double through a channel.
        Channel = "channel",
        /// A remote write of eight bytes; the target polls its own window, or waits between nodes.
        Write = "write",
        /// Remote writes of eight bytes that are under way together; one flush completes a stream.
        Iput = "iput",
        /// A remote read of eight bytes that their owner has changed; the reader polls.
        Read = "read",
        /// A remote accumulate of eight bytes; the target polls its own window, or waits between nodes.
        Accumulate = "accumulate",
        /// A conditional fetch of eight bytes, which completes when their owner has changed them.
        Fetch = "fetch",
        /// A bulk transfer between private buffers on the path that the library chooses.
        Bulk = "bulk",
        /// A bulk transfer through the staging area.
        BulkStaged = "bulk-staged",
        /// A bulk transfer from private memory to private memory.
        BulkDirect = "bulk-direct",
        /// Nothing: eight receivers that sleep.
        Idle = "idle",
    }
}
