//! Bytes from a seed: any range of an endless pseudo-random stream, without the bytes before it.
//!
//! In: a seed, an offset, a buffer. Out: the buffer filled. Word `n` depends on the seed and `n` alone, so a misplaced,
//! repeated or torn range never passes for the right one. Deliberately absent: randomness fit for secrets.

/// Step of SplitMix64: the odd number nearest to 2^64 / golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes of one word of the stream.
const WORD: u64 = 8;

/// SplitMix64's finaliser: spreads every bit of `value` over the whole result.
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Fill `into` with the bytes of `seed`'s stream from byte `offset` on.
pub fn fill(seed: u64, offset: u64, into: &mut [u8]) {
    let mut word = offset / WORD;
    let skip = (offset % WORD) as usize;
    let head = if skip == 0 { 0 } else { into.len().min(WORD as usize - skip) };
    let (head, rest) = into.split_at_mut(head);
    if !head.is_empty() {
        head.copy_from_slice(&word_at(seed, word)[skip..skip + head.len()]);
        word += 1;
    }
    let (words, tail) = rest.as_chunks_mut::<{ WORD as usize }>();
    let count = words.len() as u64;
    fill_words(seed.wrapping_add(word.wrapping_mul(GOLDEN)), words);
    if !tail.is_empty() {
        tail.copy_from_slice(&word_at(seed, word + count)[..tail.len()]);
    }
}

/// `len` bytes of `seed`'s stream.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut all = vec![0; len];
    fill(seed, 0, &mut all);
    all
}

/// The hot loop: kept to plain words and no calls, as it runs unoptimised over gigabytes.
fn fill_words(first: u64, words: &mut [[u8; 8]]) {
    let mut state = first;
    for word in words {
        let value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *word = (value ^ (value >> 31)).to_le_bytes();
        state = state.wrapping_add(GOLDEN);
    }
}

fn word_at(seed: u64, word: u64) -> [u8; 8] {
    mix(seed.wrapping_add(word.wrapping_mul(GOLDEN))).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_equals_the_same_range_of_the_whole() {
        let whole = bytes(7, 200);
        for from in 0..40 {
            for len in [0, 1, 3, 7, 8, 9, 16, 61] {
                let mut part = vec![0; len];
                fill(7, from as u64, &mut part);
                assert_eq!(part, whole[from..from + len], "from {from} len {len}");
            }
        }
    }

    #[test]
    fn two_seeds_give_two_streams() {
        assert_ne!(bytes(1, 64), bytes(2, 64));
    }
}
