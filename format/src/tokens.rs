//! The vocabulary, as the generator writes it: u32 words {version, tokens, EOS ids}, the EOS ids, a word for
//! each token with its length, then the bytes of all tokens. A length of [NEVER] is that of a control token and
//! of an id without a token, which no format may draw.

use crate::sys::Mapping;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use std::cmp::Reverse;
use std::sync::Arc;

/// The length of a token that is never drawn.
const NEVER: u32 = u32::MAX;

/// Bytes of the longest token that may be drawn: the trie recurses by byte.
const LONGEST: usize = 512;

/// The trie's node has 24 bits for an id and 22 for a size.
const MOST_TOKENS: usize = 1 << 20;

pub struct Vocabulary {
    words: Vec<Vec<u8>>,
    eos: Vec<u32>,
}

impl Vocabulary {
    pub fn read(descriptor: i32) -> Result<Self, String> {
        Self::parse(Mapping::whole(descriptor)?.bytes())
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut r = Reader(bytes);
        let (version, tokens, eos) = (r.word()?, r.word()? as usize, r.word()? as usize);
        if version != crate::VERSION {
            return Err(format!("the vocabulary has version {version}, not {}", crate::VERSION));
        }
        if tokens == 0 || tokens > MOST_TOKENS || eos > tokens {
            return Err(format!("a vocabulary of {tokens} tokens and {eos} EOS ids"));
        }
        let eos = (0..eos).map(|_| r.word()).collect::<Result<Vec<_>, _>>()?;
        if let Some(id) = eos.iter().find(|&&id| id as usize >= tokens) {
            return Err(format!("EOS id {id} of {tokens} tokens"));
        }
        let lengths = (0..tokens).map(|_| r.word()).collect::<Result<Vec<_>, _>>()?;
        let words = lengths.iter().map(|&n| r.token(n)).collect::<Result<_, _>>()?;
        Ok(Self { words, eos })
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// The number of words of a mask.
    pub fn mask_words(&self) -> usize {
        self.len().div_ceil(32)
    }

    /// The vocabulary as llguidance wants it. Without EOS ids it has one that no bit of a mask stands for.
    pub fn environment(&self) -> TokEnv {
        let mut words = self.words.clone();
        let mut eos = self.eos.clone();
        if eos.is_empty() {
            eos.push(words.len() as u32);
            words.push(vec![]);
        }
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, eos[0]), &words);
        Arc::new(ApproximateTokEnv::new(trie.with_eos_tokens(&eos)))
    }

    /// Returns the token with which a text is likely to go on, if a mask forces some bytes: the longest token within
    /// those in which all allowed tokens agree. A model draws it, or shorter ones that spell the same. There is none
    /// where the text may end, or a control token may follow.
    pub fn forced(&self, mask: &[u32]) -> Option<u32> {
        let (mut forced, mut ends) = (&[][..], false); // whether two tokens differ after the forced bytes
        for id in ids(mask) {
            let word = self.words.get(id as usize).filter(|w| !w.is_empty())?;
            let common = forced.iter().zip(word).take_while(|(a, b)| a == b).count();
            if common == forced.len() && !ends {
                forced = word;
            } else if common < forced.len() && common < word.len() {
                (forced, ends) = (&forced[..common], true);
                if common == 0 {
                    return None;
                }
            }
        }
        let within = ids(mask).filter(|&id| self.words[id as usize].len() <= forced.len());
        within.max_by_key(|&id| (self.words[id as usize].len(), Reverse(id)))
    }

    /// Reports whether a mask allows nothing but EOS.
    pub fn ends(&self, mask: &[u32]) -> bool {
        let end = |i: usize| {
            let ids = self.eos.iter().copied().chain([self.words.len() as u32]);
            ids.filter(|&id| id as usize / 32 == i).fold(0, |bits, id| bits | 1 << (id % 32))
        };
        mask.iter().enumerate().all(|(i, &word)| word == 0 || word & !end(i) == 0)
    }
}

/// The tokens that a mask allows.
pub fn ids(mask: &[u32]) -> impl Iterator<Item = u32> + '_ {
    mask.iter().enumerate().flat_map(|(i, &word)| {
        std::iter::successors(Some(word), |w| Some(w & (w - 1)))
            .take_while(|&w| w != 0)
            .map(move |w| 32 * i as u32 + w.trailing_zeros())
    })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Result<u32, String> {
        let (word, rest) = self.0.split_first_chunk().ok_or("the vocabulary is cut short")?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*word))
    }

    fn token(&mut self, length: u32) -> Result<Vec<u8>, String> {
        if length == NEVER {
            return Ok(vec![]);
        }
        let (token, rest) = self.0.split_at_checked(length as usize).ok_or("the vocabulary is cut short")?;
        self.0 = rest;
        // A byte of 255 is in no text, and marks special tokens in the trie.
        if token.len() > LONGEST || token.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
            return Ok(vec![]);
        }
        Ok(token.to_vec())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::VERSION;

    /// A vocabulary of all bytes, some longer tokens, one of them twice, a control token and two EOS ids.
    pub fn vocabulary() -> Vocabulary {
        let mut words: Vec<Vec<u8>> = (0..=254).map(|b| vec![b]).collect();
        words.extend(["\"a", "\": ", "true", "12", "12", "}", "{\"", "é"].map(|s| s.as_bytes().to_vec()));
        words.extend([vec![], vec![], vec![]]);
        let n = words.len() as u32;
        Vocabulary { words, eos: vec![n - 2, n - 1] }
    }

    impl Vocabulary {
        pub fn is_eos(&self, id: u32) -> bool {
            self.eos.contains(&id)
        }

        /// Returns a vocabulary of some texts, without EOS.
        pub fn of(texts: &[&str]) -> Self {
            Self { words: texts.iter().map(|t| t.as_bytes().to_vec()).collect(), eos: vec![] }
        }
    }

    fn written(words: &[u32], bytes: &[u8]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).chain(bytes.iter().copied()).collect()
    }

    #[test]
    fn reads_a_vocabulary() {
        let v = Vocabulary::parse(&written(&[VERSION, 3, 1, 2, 1, 2, NEVER], b"abc")).unwrap();
        assert_eq!((v.words, v.eos), (vec![b"a".to_vec(), b"bc".to_vec(), vec![]], vec![2]));
    }

    #[test]
    fn refuses_what_is_no_vocabulary() {
        for (words, bytes, cause) in [
            (vec![], &b""[..], "cut short"),
            (vec![VERSION + 1, 1, 0, 1], b"a", "has version"),
            (vec![VERSION, 0, 0], b"", "0 tokens"),
            (vec![VERSION, 1 << 30, 0], b"", "tokens"),
            (vec![VERSION, 1, 2, 0, 0, 1], b"a", "2 EOS"),
            (vec![VERSION, 1, 1, 1, 1], b"a", "EOS id 1"),
            (vec![VERSION, 2, 0, 1], b"a", "cut short"),
            (vec![VERSION, 1, 0, 2], b"a", "cut short"),
        ] {
            let got = Vocabulary::parse(&written(&words, bytes)).err().unwrap_or_default();
            assert!(got.contains(cause), "{words:?}: {got:?}, want {cause:?}");
        }
    }

    #[test]
    fn guesses_what_is_forced() {
        // EOS and the control token are the last two.
        let texts = ["a", "ab", "abc", "abd", "x", "ab", "abcd"];
        let mut words: Vec<Vec<u8>> = texts.iter().map(|t| t.as_bytes().to_vec()).collect();
        words.extend([vec![], vec![]]);
        let v = Vocabulary { words, eos: vec![7] };
        for (allowed, want) in [
            (&[][..], None),
            (&[4], Some(4)),
            (&[0, 1, 2], Some(2)),
            (&[2, 1, 0, 6], Some(6)),
            (&[0, 2, 3], Some(0)),    // they agree in "ab", which alone is not allowed
            (&[0, 5, 2, 3], Some(5)), // it is
            (&[0, 1, 5, 2, 3, 6], Some(1)),
            (&[2, 3], None),
            (&[0, 4], None),
            (&[0, 1, 7], None),
            (&[0, 1, 8], None),
            (&[7], None),
            (&[0, 9], None), // the EOS of vocabularies without one
        ] {
            let mask = allowed.iter().fold(0, |bits, id| bits | 1 << id);
            assert_eq!(v.forced(&[mask]), want, "{allowed:?}");
            assert_eq!(v.forced(&[0, 0]), None);
        }
    }

    #[test]
    fn never_draws_what_is_no_text() {
        let long = vec![b'x'; LONGEST + 1];
        let v = Vocabulary::parse(&written(&[VERSION, 2, 0, long.len() as u32, 2], &[&long[..], b"\xffa"].concat()));
        assert_eq!(v.unwrap().words, [vec![], vec![]] as [Vec<u8>; 2]);
    }
}
