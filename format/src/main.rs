//! reel-format compiles formats (JSON Schema, regular expressions, choices) and says which tokens a
//! completion may draw next. reel-generator starts it, and speaks to it over sockets and shared memory;
//! generator/internal/format is the other side.
//!
//! The process reads the tokenizer once. For each format it forks, so that a format which takes too much time
//! or memory ends alone.

mod answer;
mod calls;
mod grammar;
mod schema;
mod sequence;
mod sys;
mod tokens;

use std::process::exit;

/// The version of the messages, of the memory's layout, and of the grammars. The generator refuses another.
const VERSION: u32 = 3;

/// The versions of all libraries: FNV-1a of Cargo.lock. Masks depend on them, so the generator refuses others.
const LIBRARIES: u32 = fnv(include_bytes!("../Cargo.lock"));

const fn fnv(bytes: &[u8]) -> u32 {
    let mut sum: u32 = 0x811c_9dc5;
    let mut i = 0;
    while i < bytes.len() {
        sum = (sum ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    sum
}

/// Descriptors that the generator passes.
const CONTROL: i32 = 3;
const TOKENS: i32 = 4;

/// Bytes of address space of the process that holds the tokenizer, and of a format beyond it.
const BASE_BYTES: u64 = 4 << 30;
const FORMAT_BYTES: u64 = 512 << 20;

fn main() {
    if let Err(e) = serve() {
        eprintln!("reel-format: {e}");
        exit(1);
    }
}

/// Serves until the generator closes its end of the control socket.
fn serve() -> Result<(), String> {
    if !sys::is_socket(CONTROL) {
        return Err("reel-generator starts this program; it is of no use alone".into());
    }
    sys::confine(BASE_BYTES)?;
    let vocabulary = tokens::Vocabulary::read(TOKENS)?;
    sys::close(TOKENS);
    let factory = grammar::factory(&vocabulary)?;
    sys::send(CONTROL, &[VERSION, LIBRARIES, vocabulary.len() as u32], &[])?;
    loop {
        let mut message = [0; 2]; // the format's kind and its bytes
        let Some((received, words)) = sys::receive(CONTROL, &mut message)? else {
            return Ok(());
        };
        if words != message.len() {
            return Err(format!("a message has {words} words"));
        }
        let Some((socket, memory)) = received.descriptors() else {
            continue; // a dropped pair closes its descriptors, by which the generator sees the failure
        };
        if sys::fork()? {
            sys::close(CONTROL);
            sequence::run(&factory, &vocabulary, message, socket, memory);
        }
        // Only the new process has them, so that its end closes the connection.
        sys::close(socket);
        sys::close(memory);
    }
}
