//! Speed of a link, and the token bucket that keeps it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Speed of a link in each direction.
///
/// ```
/// use virtual_nodes::LinkRate;
/// let rate: LinkRate = "2500mbit".parse()?;
/// assert_eq!((rate.bits_per_second(), rate.to_string()), (2_500_000_000, "2500mbit".to_owned()));
/// assert_eq!("1000mbit".parse::<LinkRate>()?.to_string(), "1gbit");
/// # Ok::<(), virtual_nodes::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkRate {
    bits_per_second: u64,
}

/// A text that is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no rate of a link: write a whole number and kbit, mbit or gbit, from 100kbit to 100gbit, \
     such as 1gbit or 100mbit"
)]
pub struct RateError(String);

/// Units, the largest first.
const UNITS: [(&str, u64); 3] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];
const LEAST: u64 = 100_000;
const MOST: u64 = 100_000_000_000;
/// Bytes of an Ethernet frame besides the IP packet.
const FRAME: u64 = 14;
/// Time in which the bucket fills. Its contents pass at once, so this is short beside a transfer of
/// 256 KiB at 1 Gbit/s (2 ms), and long beside the timer of the kernel.
const FILLING: Duration = Duration::from_micros(200);
/// Frames that the bucket holds at least.
const LEAST_FRAMES: u64 = 4;
/// Largest segment that the kernel hands to an interface by default.
const USUAL_SEGMENT: u64 = 65_536;
/// Longest time that a packet waits in the queue.
const QUEUEING: Duration = Duration::from_millis(50);
/// Least size of the queue in bytes: TCP keeps up to this in flight for a connection.
const LEAST_QUEUE: u64 = 4 << 20;

impl LinkRate {
    /// Returns the rate in bits a second.
    pub fn bits_per_second(self) -> u64 {
        self.bits_per_second
    }

    /// Returns the bytes that pass in a time.
    fn bytes_in(self, time: Duration) -> u64 {
        (u128::from(self.bits_per_second) * time.as_nanos() / 8_000_000_000) as u64
    }

    /// Returns the bytes that the bucket holds, for packets of `mtu` bytes.
    fn bucket(self, mtu: u32) -> u64 {
        self.bytes_in(FILLING).max(LEAST_FRAMES * (u64::from(mtu) + FRAME))
    }

    /// Returns the largest segment that TCP may hand to the interface: half a bucket. The processor
    /// cuts a segment that exceeds the bucket into packets; 256 KiB then took 1 ms instead of
    /// 0.3 ms.
    pub(crate) fn segment(self, mtu: u32) -> u64 {
        (self.bucket(mtu) / 2).min(USUAL_SEGMENT)
    }

    /// Returns the arguments of `tc qdisc` for a queue with this rate in front of an interface.
    pub(crate) fn queue(self, mtu: u32) -> String {
        let bucket = self.bucket(mtu);
        let limit = self.bytes_in(QUEUEING).max(LEAST_QUEUE);
        format!("tbf rate {}bit burst {bucket} limit {limit}", self.bits_per_second)
    }
}

impl FromStr for LinkRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = UNITS.iter().find_map(|(unit, bits)| {
            text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*bits)
        });
        let within = parsed.filter(|rate| (LEAST..=MOST).contains(rate));
        let rate = within.map(|bits_per_second| LinkRate { bits_per_second });
        rate.ok_or_else(|| RateError(text.to_owned()))
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, bits)| self.bits_per_second.is_multiple_of(*bits));
        let (unit, bits) = whole.unwrap_or(&("bit", 1));
        write!(formatter, "{}{unit}", self.bits_per_second / bits)
    }
}
