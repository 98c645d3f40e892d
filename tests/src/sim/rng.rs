//! Chance, from a seed.
//!
//! In: a seed and a name. Out: a stream of numbers of its own, so that one more draw in one part of the world moves nothing in
//! another. Deliberately absent: anything that is not repeatable.

use crate::lab::seed::mix;

/// Step of SplitMix64 (Steele et al. 2014): the odd number nearest to 2^64 / golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// What chances are counted in.
const MILLION: u64 = 1_000_000;

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ GOLDEN))
    }

    /// Another stream, fixed by this one's seed and the name.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self(name.bytes().fold(self.0, |state, byte| mix(state.wrapping_add(u64::from(byte)).wrapping_mul(GOLDEN))))
    }

    /// A number drawn evenly from all of `u64`.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`; zero where that is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `ppm` times in a million. Without any chance nothing is drawn.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(MILLION) < u64::from(ppm)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let at = self.below(of.len() as u64);
        &of[usize::try_from(at).expect("less than a length")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_stream_and_names_give_others() {
        let stream = |mut rng: Rng| (0..8).map(|_| rng.draw()).collect::<Vec<_>>();
        assert_eq!(stream(Rng::new(7)), stream(Rng::new(7)));
        assert_ne!(stream(Rng::new(7)), stream(Rng::new(8)));
        assert_ne!(stream(Rng::new(7).named("disk")), stream(Rng::new(7).named("origin")));
    }

    #[test]
    fn chances_are_near_what_they_say() {
        let mut rng = Rng::new(1);
        let hits = (0..10_000).filter(|_| rng.chance(250_000)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!rng.chance(0) && (0..100).all(|_| (3..=5).contains(&rng.between(3, 5))));
    }
}
