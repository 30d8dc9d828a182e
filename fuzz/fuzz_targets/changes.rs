//! Arbitrary changes of valid bytes.

/// The valid bytes with some replaced: two bytes are the place, one the number, the others the new
/// bytes.
pub fn changed(sound: &[u8], mut changes: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    while let [low, high, count, rest @ ..] = changes {
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        let count = usize::from(*count % 9).min(rest.len());
        if let Some(old) = bytes.get_mut(at..at + count) {
            old.copy_from_slice(&rest[..count]);
        }
        changes = &rest[count..];
    }
    bytes
}
