//! The process of one format. It compiles the format and answers with the first mask, then with one for each token.

use crate::grammar::{cause, compile};
use crate::sys::{self, Mapping};
use crate::tokens::Vocabulary;
use llguidance::{Matcher, ParserFactory};

/// The states of a reply, as the generator numbers them. A reply is a word with the state, then perhaps a text.
const BEGUN: u32 = 1; // with a descriptor of the process, by which the generator can end it
const MASK: u32 = 2; // it is in the shared memory
const ENDED: u32 = 3; // the text is complete and nothing may follow
const REFUSED: u32 = 4; // the format cannot be followed, and the text says why
const FAILED: u32 = 5; // the text says why
pub const SLOW: u32 = 6; // a limit of time was over

/// Seconds for compiling a format, and for a mask.
const COMPILE_SECONDS: i64 = 2;
const MASK_SECONDS: i64 = 1;

/// What llguidance says where no token may follow.
const NOTHING: &str = "NoExtensionBias";

type Reply = (u32, String);

/// Runs a format until the generator closes its end of the socket. The shared memory has room for a mask, then the
/// format's text. Every token that the generator sends gets one reply.
pub fn run(factory: &ParserFactory, vocabulary: &Vocabulary, format: [u32; 2], socket: i32, memory: i32) -> ! {
    let served = sys::begin(socket, COMPILE_SECONDS)
        .and_then(|own| sys::send(socket, &[BEGUN], &[own]))
        .and_then(|()| sys::seal(crate::FORMAT_BYTES))
        .and_then(|()| serve(factory, vocabulary, format, socket, memory));
    if let Err(e) = served {
        let _ = reply(socket, &(FAILED, e));
    }
    sys::exit()
}

fn serve(f: &ParserFactory, v: &Vocabulary, format: [u32; 2], socket: i32, memory: i32) -> Result<(), String> {
    let mut mapping = Mapping::whole(memory)?;
    let (mut sequence, mut answer) = match open(f, v, format, &mut mapping) {
        Ok(opened) => opened,
        Err(cause) => return reply(socket, &(REFUSED, cause)),
    };
    loop {
        sys::set_timer(0);
        reply(socket, &answer)?;
        let mut token = [0];
        if sys::receive(socket, &mut token)?.is_none() {
            return Ok(());
        }
        sys::set_timer(MASK_SECONDS);
        answer = sequence.next(token[0]);
    }
}

fn reply(socket: i32, (state, text): &Reply) -> Result<(), String> {
    let mut words = vec![*state];
    words.extend(text.as_bytes().chunks(4).map(|c| {
        let mut word = [b' '; 4];
        word[..c.len()].copy_from_slice(c);
        u32::from_ne_bytes(word)
    }));
    sys::send(socket, &words, &[])
}

/// A compiled format and the place of its masks.
struct Sequence<'a> {
    matcher: Matcher,
    vocabulary: &'a Vocabulary,
    mask: &'a mut [u32],
}

/// Compiles the format in the memory, and answers with the first mask.
fn open<'a>(
    factory: &ParserFactory,
    vocabulary: &'a Vocabulary,
    [kind, bytes]: [u32; 2],
    memory: &'a mut Mapping,
) -> Result<(Sequence<'a>, Reply), String> {
    let (mask, text) = memory.split(vocabulary.len().div_ceil(32));
    let text = text.get(..bytes as usize).ok_or("the format is longer than its memory")?.to_vec();
    let text = String::from_utf8(text).map_err(|_| "the format is not UTF-8")?;
    let matcher = compile(factory, kind, &text)?;
    let mut sequence = Sequence { matcher, vocabulary, mask };
    match sequence.compute() {
        Ok(answer) => Ok((sequence, answer)),
        Err(cause) if cause == NOTHING => Err("no text has this form".into()),
        Err(cause) => Err(cause),
    }
}

impl Sequence<'_> {
    /// Answers with the mask after a token.
    fn next(&mut self, token: u32) -> Reply {
        let taken = self.matcher.consume_token(token).map_err(|e| cause(&e.to_string()));
        taken.and_then(|()| self.compute()).unwrap_or_else(|cause| match cause.as_str() {
            NOTHING => (FAILED, "none of the model's tokens may follow".into()),
            _ => (FAILED, cause),
        })
    }

    fn compute(&mut self) -> Result<Reply, String> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok((ENDED, String::new()));
        }
        let mask = self.matcher.compute_mask().map_err(|e| cause(&e.to_string()))?;
        let words = &mask.as_slice()[..self.mask.len()];
        if self.vocabulary.ends(words) {
            return Ok((ENDED, String::new()));
        }
        self.mask.copy_from_slice(words);
        Ok((MASK, String::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::factory;

    #[test]
    fn says_that_the_model_lacks_a_byte() {
        let vocabulary = Vocabulary::of(&["a", "c"]);
        let matcher = compile(&factory(&vocabulary).unwrap(), 2, "ab").unwrap();
        let mut sequence = Sequence { matcher, vocabulary: &vocabulary, mask: &mut [0] };
        assert_eq!(sequence.compute(), Ok((MASK, String::new())));
        assert_eq!(sequence.next(0), (FAILED, "none of the model's tokens may follow".into()));
    }
}
