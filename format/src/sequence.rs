//! The process of one format. It compiles the format and answers with the first mask, then with one for each token.

use crate::grammar::{cause, compile};
use crate::sys::{self, Mapping};
use crate::tokens::Vocabulary;
use llguidance::{Matcher, ParserFactory};
use std::time::{Duration, Instant};

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

/// Most drafts of a mask, as the generator has it: tokens with which the text is likely to go on.
const MOST_DRAFTS: usize = 7;

/// Drafts take a mask each, and the generator waits for all of them. So no further one is made after this time.
const QUICK: Duration = Duration::from_millis(1);

/// A state and a text, or for masks their drafts.
#[derive(Debug, PartialEq)]
enum Reply {
    Masks(Vec<u32>),
    Text(u32, String),
}

/// Runs a format until the generator closes its end of the socket. The shared memory has room for a mask and those
/// after drafts, then the format's text. A message of the generator has the most drafts, then the tokens that were
/// drawn; each gets one reply.
pub fn run(factory: &ParserFactory, vocabulary: &Vocabulary, format: [u32; 2], socket: i32, memory: i32) -> ! {
    let served = sys::begin(socket, COMPILE_SECONDS)
        .and_then(|own| sys::send(socket, &[BEGUN], &[own]))
        .and_then(|()| sys::seal(crate::FORMAT_BYTES))
        .and_then(|()| serve(factory, vocabulary, format, socket, memory));
    if let Err(e) = served {
        let _ = reply(socket, &Reply::Text(FAILED, e));
    }
    sys::exit()
}

fn serve(f: &ParserFactory, v: &Vocabulary, format: [u32; 2], socket: i32, memory: i32) -> Result<(), String> {
    let mut mapping = Mapping::whole(memory)?;
    let (mut sequence, mut answer) = match open(f, v, format, &mut mapping) {
        Ok(opened) => opened,
        Err(cause) => return reply(socket, &Reply::Text(REFUSED, cause)),
    };
    loop {
        sys::set_timer(0);
        reply(socket, &answer)?;
        let mut message = [0; 2 + MOST_DRAFTS];
        let Some((_, words)) = sys::receive(socket, &mut message)? else {
            return Ok(());
        };
        sys::set_timer(MASK_SECONDS);
        answer = sequence.next(&message[1..words], message[0] as usize);
    }
}

fn reply(socket: i32, reply: &Reply) -> Result<(), String> {
    let words = match reply {
        Reply::Masks(drafts) => [&[MASK], &drafts[..]].concat(),
        Reply::Text(state, text) => {
            let mut words = vec![*state];
            words.extend(text.as_bytes().chunks(4).map(|c| {
                let mut word = [b' '; 4];
                word[..c.len()].copy_from_slice(c);
                u32::from_ne_bytes(word)
            }));
            words
        }
    };
    sys::send(socket, &words, &[])
}

/// A compiled format and the place of its masks.
struct Sequence<'a> {
    matcher: Matcher,
    vocabulary: &'a Vocabulary,
    masks: &'a mut [u32],
    begin: Matcher,   // before the first token
    tokens: Vec<u32>, // taken since
    quick: Duration,  // QUICK; 0 after the matcher failed on the way along drafts
}

/// Compiles the format in the memory, and answers with the first mask.
fn open<'a>(
    factory: &ParserFactory,
    vocabulary: &'a Vocabulary,
    [kind, bytes]: [u32; 2],
    memory: &'a mut Mapping,
) -> Result<(Sequence<'a>, Reply), String> {
    let (masks, text) = memory.split((1 + MOST_DRAFTS) * vocabulary.mask_words());
    let text = text.get(..bytes as usize).ok_or("the format is longer than its memory")?.to_vec();
    let text = String::from_utf8(text).map_err(|_| "the format is not UTF-8")?;
    let matcher = compile(factory, kind, &text)?;
    let mut sequence = Sequence::new(matcher, vocabulary, masks);
    match sequence.compute(0) {
        Ok(true) => Ok((sequence, Reply::Masks(vec![]))),
        Ok(false) => Ok((sequence, Reply::Text(ENDED, String::new()))),
        Err(cause) if cause == NOTHING => Err("no text has this form".into()),
        Err(cause) => Err(cause),
    }
}

impl<'a> Sequence<'a> {
    fn new(matcher: Matcher, vocabulary: &'a Vocabulary, masks: &'a mut [u32]) -> Self {
        let begin = matcher.clone();
        Self { matcher, vocabulary, masks, begin, tokens: vec![], quick: QUICK }
    }

    /// Answers with the mask after some tokens, and with drafts and the masks after them.
    fn next(&mut self, tokens: &[u32], most: usize) -> Reply {
        let begun = Instant::now();
        self.tokens.extend(tokens);
        let taken = self.matcher.consume_tokens(tokens).map_err(|e| cause(&e.to_string()));
        match taken.and_then(|()| self.compute(0)) {
            Ok(false) => Reply::Text(ENDED, String::new()),
            Ok(true) => self.draft(most, begun).map_or_else(|cause| Reply::Text(FAILED, cause), Reply::Masks),
            Err(cause) if cause == NOTHING => Reply::Text(FAILED, "none of the model's tokens may follow".into()),
            Err(cause) => Reply::Text(FAILED, cause),
        }
    }

    /// Returns drafts of the next tokens after mask 0, and computes the masks after them. The matcher stays where it
    /// is. If it fails on the way, a new one comes here from the begin, and there are no further drafts.
    fn draft(&mut self, most: usize, begun: Instant) -> Result<Vec<u32>, String> {
        let walked = self.walk(most.min(MOST_DRAFTS), begun);
        if let Ok(drafts) = walked {
            return Ok(drafts);
        }
        self.quick = Duration::ZERO;
        self.matcher = self.begin.clone();
        self.matcher.consume_tokens(&self.tokens).map_err(|e| cause(&e.to_string()))?;
        Ok(vec![])
    }

    /// Computes mask i. It returns false where the text is complete and nothing may follow.
    fn compute(&mut self, i: usize) -> Result<bool, String> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(false);
        }
        let mask = self.matcher.compute_mask().map_err(|e| cause(&e.to_string()))?;
        let words = self.vocabulary.mask_words();
        let mask = &mask.as_slice()[..words];
        if self.vocabulary.ends(mask) {
            return Ok(false);
        }
        self.masks[i * words..][..words].copy_from_slice(mask);
        Ok(true)
    }

    /// Walks along what is forced, and back.
    fn walk(&mut self, most: usize, begun: Instant) -> Result<Vec<u32>, String> {
        let (words, mut drafts, mut walked) = (self.vocabulary.mask_words(), vec![], 0);
        while walked < most && begun.elapsed() <= self.quick {
            let Some(draft) = self.vocabulary.forced(&self.masks[walked * words..][..words]) else {
                break;
            };
            self.matcher.consume_token(draft).map_err(|e| e.to_string())?;
            walked += 1;
            if !self.compute(walked)? {
                break; // the row before it draws the last token
            }
            drafts.push(draft);
        }
        if walked > 0 {
            self.matcher.rollback(walked).map_err(|e| e.to_string())?;
            self.matcher.invalidate_bias_cache(); // else it may take a place for one that it walked to
        }
        Ok(drafts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{self, factory};
    use crate::tokens::{ids, tests::vocabulary};
    use serde_json::json;

    #[test]
    fn says_that_the_model_lacks_a_byte() {
        let vocabulary = Vocabulary::of(&["a", "c"]);
        let (matcher, mut masks) = (compile(&factory(&vocabulary).unwrap(), 2, "ab").unwrap(), [0; 8]);
        let mut sequence = Sequence::new(matcher, &vocabulary, masks.as_mut_slice());
        assert_eq!(sequence.compute(0), Ok(true));
        assert_eq!(sequence.next(&[0], 7), Reply::Text(FAILED, "none of the model's tokens may follow".into()));
    }

    const PERSON: &str = r#"{"type": "object", "properties": {"name": {"type": "string"},
        "age": {"type": "integer", "maximum": 150}, "tags": {"type": "array", "items": {"enum": ["red", "rose", 12]}},
        "at": {"oneOf": [{"type": "object", "properties": {"kind": {"const": "here"}, "x": {"type": "number"}},
        "required": ["kind", "x"]},
        {"type": "object", "properties": {"kind": {"const": "there"}}, "required": ["kind"]}]}},
        "required": ["name", "age", "tags", "at"], "additionalProperties": false}"#;

    /// Formats of all kinds, with text that is forced, and with alternatives that look alike.
    fn formats() -> Vec<(u32, String)> {
        let head = |name: &str| json!([{"text": format!("{{\"name\": \"{name}\", ")}]);
        let call = |name, tail| json!({"head": head(name), "schema": {"type": "object"}, "tail": [tail]});
        let calls = json!({"think": {"begin": null, "end": {"text": "</think>"}}, "begin": [{"text": "<c>"}],
            "calls": [call("first", json!({"text": "}"})), call("second", json!({"token": 264}))],
            "between": [{"text": "\n"}], "end": [{"text": "</c>"}]});
        vec![
            (grammar::SCHEMA, PERSON.into()),
            (grammar::SCHEMA, r#"{"type": "array", "items": {"enum": ["true", true, "truer", null]}}"#.into()),
            (grammar::REGEX, "(abc|abd|x12y12z|(true|12)+)*".into()),
            (grammar::REGEX, "12true12|12}}a|\"a\": \"a(b|c)".into()),
            (grammar::CHOICE, r#"["yes, true", "yes, 12", "no", "yes, true12"]"#.into()),
            (grammar::CALLS, calls.to_string()),
        ]
    }

    /// A random number below n.
    fn random(state: &mut u64, n: usize) -> usize {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as usize % n
    }

    fn begun<'a>(f: &ParserFactory, v: &'a Vocabulary, format: &(u32, String), masks: &'a mut [u32]) -> Sequence<'a> {
        let mut s = Sequence::new(compile(f, format.0, &format.1).unwrap(), v, masks);
        s.quick = Duration::MAX;
        s.compute(0).unwrap();
        s
    }

    /// With drafts, whichever of them stand, each place of a text has the mask that it has without.
    #[test]
    fn drafts_change_no_mask() {
        let v = vocabulary();
        let (words, factory, mut drafted, mut stood) = (v.mask_words(), factory(&v).unwrap(), 0, 0);
        for (at, format) in formats().iter().enumerate() {
            for seed in 0..30 {
                let (mut a, mut b) = (vec![0; 8 * words], vec![0; 8 * words]);
                let (mut with, mut without) =
                    (begun(&factory, &v, format, &mut a), begun(&factory, &v, format, &mut b));
                let mut state = (1000 * at + seed) as u64;
                let mut reply = Reply::Masks(vec![]);
                for _ in 0..40 {
                    let Reply::Masks(drafts) = &reply else { break };
                    drafted += drafts.len();
                    let mut drawn = vec![];
                    for i in 0..=drafts.len() {
                        let mask = &with.masks[i * words..][..words];
                        assert_eq!(mask, &without.masks[..words], "{format:?}: mask {i} of {drafts:?} after {drawn:?}");
                        let allowed: Vec<u32> = ids(mask).filter(|id| !v.is_eos(*id)).collect();
                        let mut token = allowed[random(&mut state, allowed.len())];
                        if i < drafts.len() && random(&mut state, 4) > 0 {
                            token = drafts[i];
                        }
                        drawn.push(token);
                        let other = without.next(&[token], 0);
                        if !matches!(other, Reply::Masks(_)) || drafts.get(i) != Some(&token) {
                            stood += i;
                            reply = with.next(&drawn, random(&mut state, 9));
                            let same = match (&reply, &other) {
                                (Reply::Masks(_), Reply::Masks(none)) => none.is_empty(),
                                (reply, other) => reply == other,
                            };
                            assert!(same, "{format:?} after {drawn:?}: {reply:?}, without drafts {other:?}");
                            break;
                        }
                    }
                }
            }
        }
        assert!(stood > 200 && drafted > stood, "{stood} of {drafted} drafts stood");
    }

    /// What was walked to leaves no mask behind that a place like it would take: here the string of the first call,
    /// where the tokens that were drawn lead to that of the second.
    #[test]
    fn goes_back_without_a_trace() {
        let v = Vocabulary::of(&["q", "p", "p{\"x\": \"", "p+", "-{\"x\": \"", "x", "\"}a", "\"}b"]);
        let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"],
            "additionalProperties": false});
        let call = |head, tail| json!({"head": [{"text": head}], "schema": schema, "tail": [{"text": tail}]});
        let calls = json!({"think": null, "begin": [{"text": "q"}], "between": null, "end": [],
            "calls": [call("p-", "a"), call("p", "b"), call("p+", "b")]});
        let f = factory(&v).unwrap();
        let mut masks = [0; 8];
        let mut s = begun(&f, &v, &(grammar::CALLS, calls.to_string()), &mut masks);
        assert_eq!(s.next(&[0], 7), Reply::Masks(vec![1, 4]));
        assert_eq!(s.next(&[2], 0), Reply::Masks(vec![]));
        assert_eq!(ids(&s.masks[..1]).collect::<Vec<_>>(), [0, 1, 3, 5, 7]);
    }

    /// A draft that leads nowhere is none, though the matcher fails on it.
    #[test]
    fn comes_back_from_a_draft_that_leads_nowhere() {
        let v = Vocabulary::of(&["a", "ab", "b", "c"]);
        let f = factory(&v).unwrap();
        for most in [0, 7] {
            let mut masks = [0; 8];
            let mut s = begun(&f, &v, &(2, "(aba)?(abx|ac)".into()), &mut masks);
            assert_eq!(s.next(&[0, 2], most), Reply::Masks(vec![]), "{most}"); // "a" leads to "aba" only
            assert_eq!(s.next(&[0], most), Reply::Masks(vec![]), "{most}");
            assert_eq!(s.next(&[0], most), Reply::Masks(vec![]), "{most}");
            assert_eq!(s.next(&[3], most), Reply::Text(ENDED, String::new()), "{most}");
        }
    }

    /// The last token of a text is drawn from the row before it, so no draft is past the end.
    #[test]
    fn drafts_end_before_the_text() {
        let v = vocabulary();
        let (f, mut masks) = (factory(&v).unwrap(), vec![0; 8 * v.mask_words()]);
        let mut s = begun(&f, &v, &(grammar::REGEX, "xabcdefghijkl".into()), &mut masks);
        let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
        assert_eq!(s.next(&bytes("x"), 3), Reply::Masks(bytes("abc")));
        assert_eq!(s.next(&bytes("ab"), 100), Reply::Masks(bytes("cdefghi")));
        assert_eq!(s.next(&bytes("cdefgh"), 7), Reply::Masks(bytes("ijk")));
        assert_eq!(s.next(&bytes("ijkl"), 7), Reply::Text(ENDED, String::new()));
    }
}
