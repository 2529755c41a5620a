//! Changes to inputs that were sound: bytes flipped, put in, taken out, repeated, cut off, or taken from another input.

use proptest::{collection::vec, prelude::*, sample::Index};

/// One change. Places are relative to the input's length at that moment.
#[derive(Debug, Clone)]
enum Mutation {
    Flip { at: Index, mask: u8 },
    Insert { at: Index, bytes: Vec<u8> },
    Token { at: Index, token: Index },
    Remove { at: Index, length: usize },
    Repeat { at: Index, length: usize, times: usize },
    Cut { at: Index },
    Splice { at: Index, other: Index, from: Index, length: usize },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || any::<Index>();
    prop_oneof![
        4 => (at(), 1_u8..).prop_map(|(at, mask)| Mutation::Flip { at, mask }),
        2 => (at(), vec(any::<u8>(), 1..16)).prop_map(|(at, bytes)| Mutation::Insert { at, bytes }),
        4 => (at(), at()).prop_map(|(at, token)| Mutation::Token { at, token }),
        2 => (at(), 1_usize..64).prop_map(|(at, length)| Mutation::Remove { at, length }),
        1 => (at(), 1_usize..64, 1_usize..200).prop_map(|(at, length, times)| Mutation::Repeat { at, length, times }),
        1 => at().prop_map(|at| Mutation::Cut { at }),
        2 => (at(), at(), at(), 1_usize..512)
            .prop_map(|(at, other, from, length)| Mutation::Splice { at, other, from, length }),
    ]
}

/// One of the sound inputs with some of its bytes other ones, so that most of its structure stays.
pub fn flipped(sound: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (any::<Index>(), vec((any::<Index>(), 1_u8..), 1..4)).prop_map(move |(which, flips)| {
        let mut input = which.get(&sound).clone();
        for (at, mask) in flips {
            apply(&mut input, &Mutation::Flip { at, mask }, &sound, &[]);
        }
        input
    })
}

/// One of the sound inputs with up to `most` changes; tokens are what is put in as a whole.
pub fn mutated(sound: Vec<Vec<u8>>, tokens: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<u8>> {
    (any::<Index>(), vec(mutation(), 1..=most)).prop_map(move |(which, mutations)| {
        let mut input = which.get(&sound).clone();
        for mutation in &mutations {
            apply(&mut input, mutation, &sound, tokens);
        }
        input
    })
}

fn apply(input: &mut Vec<u8>, mutation: &Mutation, sound: &[Vec<u8>], tokens: &[&str]) {
    // One place more than there are bytes: the end.
    let place = |at: &Index, input: &[u8]| at.index(input.len() + 1);
    let span = |at: &Index, length: usize, bytes: &[u8]| {
        let start = place(at, bytes);
        start..(start + length).min(bytes.len())
    };
    match mutation {
        Mutation::Flip { at, mask } => {
            let place = place(at, input);
            if let Some(byte) = input.get_mut(place) {
                *byte ^= mask;
            }
        }
        Mutation::Insert { at, bytes } => {
            let place = place(at, input);
            input.splice(place..place, bytes.iter().copied());
        }
        Mutation::Token { at, token } => {
            let place = place(at, input);
            input.splice(place..place, token.get(tokens).bytes());
        }
        Mutation::Remove { at, length } => {
            input.drain(span(at, *length, input));
        }
        Mutation::Repeat { at, length, times } => {
            let span = span(at, *length, input);
            let repeated = input[span.clone()].repeat(*times);
            input.splice(span, repeated);
        }
        Mutation::Cut { at } => input.truncate(place(at, input)),
        Mutation::Splice { at, other, from, length } => {
            let other = other.get(sound);
            let (place, span) = (place(at, input), span(from, *length, other));
            input.splice(place..place, other[span].iter().copied());
        }
    }
}
