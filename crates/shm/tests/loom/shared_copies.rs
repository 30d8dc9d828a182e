//! Models of a copy that two processes divide.

use crate::explore;
use crate::part_claims::PartClaims;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

testing::tests![both_ends_copy_every_part_once_and_see_all];

/// Three parts.
const BYTES: u64 = 96 << 10;
const PART: u64 = 32 << 10;

/// Both ends claim parts; the receiver reads all of them when they are complete. Loom's cells
/// report a part that two ends copy at once, or that the receiver reads too early.
fn both_ends_copy_every_part_once_and_see_all() {
    struct Scene {
        claims: PartClaims,
        parts: [UnsafeCell<u32>; 3],
    }
    fn copy(scene: &Scene) {
        while let Some(part) = scene.claims.claim(BYTES) {
            let number = (part.start / PART) as usize;
            // SAFETY: the property under test; loom panics if this access races.
            scene.parts[number].with_mut(|copies| unsafe { *copies += 1 });
            scene.claims.complete(true);
        }
    }
    explore(3, || {
        let parts = [UnsafeCell::new(0), UnsafeCell::new(0), UnsafeCell::new(0)];
        let scene = Arc::new(Scene { claims: PartClaims::new(), parts });
        scene.claims.reset();
        let far = Arc::clone(&scene);
        let sender = thread::spawn(move || copy(&far));
        copy(&scene);
        while scene.claims.outcome(BYTES).is_none() {
            thread::yield_now();
        }
        assert_eq!(scene.claims.outcome(BYTES), Some(true));
        for part in &scene.parts {
            // SAFETY: as above.
            assert_eq!(part.with(|copies| unsafe { *copies }), 1);
        }
        sender.join().expect("the sender ends");
    });
}
