//! Walks over lists of blocks that together have the bytes of one message.

use super::records::BlockRecord;

/// Iterator over the common pieces of N lists; see [`common_pieces`].
#[derive(Clone, Debug)]
pub struct CommonPieces<'a, const N: usize> {
    lists: [&'a [BlockRecord]; N],
    /// Bytes of each list's first block that were returned before.
    used: [u64; N],
}

/// Cuts N lists into pieces: the n-th piece of every list has the same length and lies in a single
/// block. The walk ends with the shortest list.
///
/// ```
/// use goal::schedule::{BlockRecord, common_pieces};
///
/// let block = |offset, length| BlockRecord { memory: 0, reserved: 0, offset, length };
/// let (source, destination) = ([block(0, 8)], [block(50, 3), block(90, 5)]);
/// let pieces: Vec<_> = common_pieces([&source, &destination]).collect();
/// assert_eq!(pieces, [[block(0, 3), block(50, 3)], [block(3, 5), block(90, 5)]]);
/// ```
#[inline]
pub fn common_pieces<const N: usize>(lists: [&[BlockRecord]; N]) -> CommonPieces<'_, N> {
    CommonPieces { lists, used: [0; N] }
}

impl<const N: usize> Iterator for CommonPieces<'_, N> {
    type Item = [BlockRecord; N];

    #[inline]
    fn next(&mut self) -> Option<[BlockRecord; N]> {
        let mut length = u64::MAX;
        for (list, used) in self.lists.iter_mut().zip(&mut self.used) {
            // Empty blocks are skipped by the same rule as exhausted ones.
            while list.first()?.length == *used {
                *list = &list[1..];
                *used = 0;
            }
            length = length.min(list[0].length - *used);
        }
        Some(std::array::from_fn(|index| {
            let block = &self.lists[index][0];
            let offset = block.offset + self.used[index];
            self.used[index] += length;
            BlockRecord { offset, length, ..*block }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(blocks: impl Iterator<Item = BlockRecord>) -> Vec<(u32, u64)> {
        blocks
            .flat_map(|block| {
                (0..block.length).map(move |byte| (block.memory, block.offset + byte))
            })
            .collect()
    }

    fn list() -> impl Strategy<Value = Vec<BlockRecord>> {
        let block = (0u32..3, 0u64..100, 0u64..9);
        let block = block.prop_map(|(memory, offset, length)| BlockRecord {
            memory,
            reserved: 0,
            offset,
            length,
        });
        proptest::collection::vec(block, 0..8)
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_bytes_of_the_lists(lists in proptest::array::uniform3(list())) {
            let [first, second, third] = &lists;
            let pieces: Vec<_> = common_pieces([first, second, third]).collect();
            let whole = lists.clone().map(|list| bytes(list.into_iter()));
            let shortest = whole.iter().map(Vec::len).min().unwrap_or(0);
            for (index, whole) in whole.iter().enumerate() {
                let walked = bytes(pieces.iter().map(|piece| piece[index]));
                prop_assert_eq!(&walked[..], &whole[..shortest]);
            }
            for piece in &pieces {
                prop_assert!(piece[0].length > 0);
                prop_assert!(piece.iter().all(|block| block.length == piece[0].length));
            }
        }
    }
}
