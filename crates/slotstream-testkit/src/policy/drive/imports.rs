//! Bytes that no policy exported.

use crate::dice::Dice;

/// How many different ones there are.
pub(in crate::policy) const ROUNDS: usize = 8;

/// What `round` imports, made from `state`, which was exported.
pub(super) fn foreign(state: &[u8], round: usize) -> Vec<u8> {
    let mut dice = Dice::new(round as u64 + 5);
    match round {
        0 => Vec::new(),
        1 => state[..state.len() / 2].to_vec(),
        2 => state[..state.len().saturating_sub(1)].to_vec(),
        3 => [state, &[0]].concat(),
        4 => vec![255; state.len()],
        5 => [state, state].concat(),
        // The head of a state with anything behind it.
        6 => {
            let head = state.len().min(24);
            let rest = (head..state.len()).map(|_| dice.below(256) as u8);
            state[..head].iter().copied().chain(rest).collect()
        }
        _ => {
            let mut bytes = state.to_vec();
            for _ in 0..4 {
                let at = dice.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
            bytes
        }
    }
}
