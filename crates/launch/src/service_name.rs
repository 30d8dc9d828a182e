//! Names of node services.

use crate::secret::{Purpose, Secret};

/// The name of the node service of one of a job's nodes. Every process of the machine can read it,
/// so it must not reveal the secret.
pub fn name_on_node(secret: &Secret, node: u32) -> String {
    let [first, second] = secret.derive_both(Purpose::ServiceName);
    service_name("nodes", &format!("{first:016x}{second:016x}-{node}"))
}

/// The name of a job's service: every rank finds it by itself, other jobs and other users get
/// another.
pub(crate) fn service_name(launcher: &str, job: &str) -> String {
    let user = rustix::process::geteuid().as_raw();
    let readable = job.len() <= 64 && job.bytes().all(|byte| byte.is_ascii_graphic());
    let job = if readable { job.to_owned() } else { format!("{:032x}", digest(job.as_bytes())) };
    format!("tradewind-{user}-{launcher}-{job}")
}

/// The Fowler–Noll–Vo hash (FNV-1a, 128 bits): the same in every build, unlike the standard
/// library's. It shortens names that are no secrets: the hash does not hide them.
fn digest(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of two secrets that differ in any one bit differ in about half of their bits.
    #[test]
    fn the_name_of_a_service_does_not_reveal_the_secret() {
        let word = |secret: u128| {
            let name = name_on_node(&Secret::new(secret.to_le_bytes()), 7);
            let digits = name
                .strip_suffix("-7")
                .and_then(|name| name.rsplit('-').next())
                .expect("the word, the node");
            u128::from_str_radix(digits, 16).expect("hexadecimal")
        };
        let secret = 0x0123_4567_89ab_cdef_0011_2233_4455_6677_u128;
        let before = word(secret);
        for bit in 0..128 {
            let changed = (before ^ word(secret ^ 1 << bit)).count_ones();
            assert!(
                (32..=96).contains(&changed),
                "bit {bit} of the secret changes {changed} bits of the name"
            );
        }
        let secret = Secret::new([1; 16]);
        assert_ne!(name_on_node(&secret, 0), name_on_node(&secret, 1));
    }
}
