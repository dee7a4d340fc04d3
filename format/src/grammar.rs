//! Grammars of llguidance, made of formats.

use crate::answer;
use crate::calls;
use crate::schema;
use crate::tokens::Vocabulary;
use llguidance::api::TopLevelGrammar;
use llguidance::{regex_to_lark, Matcher, ParserFactory};
use serde_json::{json, Value};

/// The kinds of a format, as the generator numbers them.
pub const SCHEMA: u32 = 1;
pub const REGEX: u32 = 2;
pub const CHOICE: u32 = 3;
pub const CALLS: u32 = 4;
pub const ANSWER: u32 = 5;

/// What a JSON text looks like: no white space but one space after ":" and ",", and one spelling of each string,
/// without \u. With \u llguidance would let a name that `properties` has come again in another spelling, with any
/// value.
pub fn json_options() -> Value {
    json!({"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false,
        "json_allowed_escapes": "nrbtf\\\""})
}

/// Returns what compiles grammars for a vocabulary, under limits on the work for one mask.
pub fn factory(vocabulary: &Vocabulary) -> Result<ParserFactory, String> {
    let mut factory = ParserFactory::new_simple(&vocabulary.environment()).map_err(|e| e.to_string())?;
    factory.quiet();
    let limits = factory.limits_mut();
    limits.verbose_errors = false;
    limits.max_lexer_states = 100_000; // of 1 to 2 kB each
    Ok(factory)
}

/// Compiles a format. The error says what it asks for that cannot be followed.
pub fn compile(factory: &ParserFactory, kind: u32, text: &str) -> Result<Matcher, String> {
    let grammar = match kind {
        SCHEMA => TopLevelGrammar::from_json_schema(json_schema(text)?),
        REGEX => TopLevelGrammar::from_lark(format!("start: {}", regex(text)?)),
        CHOICE => TopLevelGrammar::from_lark(format!("start: {}", choice(text)?)),
        CALLS => calls::grammar(text)?,
        ANSWER => answer::grammar(text)?,
        _ => return Err(format!("formats of kind {kind} are not known")),
    };
    let parser = factory.create_parser(grammar).map_err(|e| cause(&format!("{e:#}")))?;
    Ok(Matcher::new(Ok(parser)))
}

/// The schema that a JSON text follows.
pub fn json_schema(text: &str) -> Result<Value, String> {
    let schema: Value = serde_json::from_str(text).map_err(|e| format!("the schema is no JSON: {e}"))?;
    let mut schema = schema::prepare(schema)?;
    schema.insert("x-guidance".into(), json_options());
    Ok(schema.into())
}

/// A regular expression as Lark has it.
pub fn regex(text: &str) -> Result<String, String> {
    regex_syntax::parse(text).map_err(|e| format!("the regular expression: {}", regex_cause(&e)))?;
    Ok(format!("/(?:{})/", regex_to_lark(text, "")))
}

/// The cause of a refused expression without the drawing around it.
fn regex_cause(e: &regex_syntax::Error) -> String {
    match e {
        regex_syntax::Error::Parse(e) => e.kind().to_string(),
        regex_syntax::Error::Translate(e) => e.kind().to_string(),
        _ => cause(&e.to_string()),
    }
}

/// A choice of texts as Lark has it.
pub fn choice(text: &str) -> Result<String, String> {
    let texts: Vec<String> = serde_json::from_str(text).map_err(|e| format!("the choice: {e}"))?;
    let texts: Vec<String> = texts.iter().map(|s| regex_syntax::escape(s)).collect();
    regex(&texts.join("|"))
}

/// What a message of llguidance says, in a line and in the words of who wrote the format.
pub fn cause(message: &str) -> String {
    // After a drawing of a regular expression comes what is wrong.
    let line = message.split("\nerror: ").nth(1).unwrap_or(message).lines().next().unwrap_or_default();
    let line = line.split_once("failed to compile JSON schema: ").map_or(line, |(_, what)| what);
    let said = if let Some(keys) = line.strip_prefix("Unimplemented keys: ") {
        format!("keywords that cannot be followed: {}", keys.trim_matches(['[', ']']))
    } else if let Some((target, _)) = line.split_once(" is not present in a registry") {
        format!("$ref to {}: it is outside of the schema", target.trim_start_matches("Resource "))
    } else if line.starts_with("oneOf constraints are not supported") {
        "oneOf, unless its options differ in their types, or in a constant that they require".into()
    } else if line.contains("lookarounds not supported yet") {
        "^ and $ within a regular expression, and word boundaries".into()
    } else {
        line.into()
    };
    said.chars().take(300).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::tokens::tests::vocabulary;

    /// Reports whether a format accepts exactly text: each byte is allowed, and the end after the last.
    pub fn accepts(kind: u32, format: &str, text: &str) -> Result<bool, String> {
        let factory = factory(&vocabulary())?;
        let mut m = compile(&factory, kind, format)?;
        for &b in text.as_bytes() {
            if m.is_stopped() || !m.compute_mask().map_err(|e| e.to_string())?.is_allowed(b as u32) {
                return Ok(false);
            }
            m.consume_token(b as u32).map_err(|e| e.to_string())?;
        }
        m.is_accepting().map_err(|e| e.to_string())
    }

    fn check(kind: u32, format: &str, yes: &[&str], no: &[&str]) {
        for (texts, want) in [(yes, true), (no, false)] {
            for text in texts {
                assert_eq!(accepts(kind, format, text), Ok(want), "{format} {text}");
            }
        }
    }

    #[test]
    fn follows_regular_expressions() {
        check(REGEX, "a/b|c+", &["a/b", "ccc"], &["a", "a/", "d", ""]);
        check(REGEX, r"^\d{3}-\w+$", &["123-ab"], &["12-ab", "123-"]);
        check(REGEX, "a\nb|\\\\", &["a\nb", "\\"], &["a", "b"]);
        check(REGEX, "(?i)ok", &["OK", "oK"], &["O"]);
    }

    #[test]
    fn follows_choices() {
        check(CHOICE, r#"["yes", "no", "n/a (\"*\")\n"]"#, &["yes", "no", "n/a (\"*\")\n"], &["y", "n", "yesno", ""]);
    }

    #[test]
    fn follows_schemas_in_one_spelling() {
        let schema = r#"{"properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
        let schema = &schema.replace("{\"prop", "{\"type\": \"object\", \"prop");
        check(
            SCHEMA,
            schema,
            &[r#"{"a": 1}"#, r#"{"a": 1, "b": [1, {"c": "\n"}]}"#],
            &[r#"{"a":1}"#, r#"{"a" : 1}"#, r#"{ "a": 1}"#, r#"{"a": 1,"b": 2}"#, r#"{"a": 1} "#, "{\"a\": 1\n}"],
        );
        check(SCHEMA, schema, &[], &[r#"{"a": 1, "\u0061": "x"}"#, r#"{"a": 1, "a": "x"}"#]);
    }

    #[test]
    fn ignores_options_in_a_schema() {
        let schema = r#"{"type": "object", "x-guidance": {"whitespace_flexible": true, "lenient": true}}"#;
        check(SCHEMA, schema, &[r#"{"a": 1}"#], &[r#"{ "a": 1}"#]);
    }

    #[test]
    fn refuses_by_name() {
        for (kind, format, cause) in [
            (SCHEMA, r#"{"type": "array", "uniqueItems": true}"#, "uniqueItems"),
            (SCHEMA, r#"{"type": "string", "not": {"const": "a"}}"#, "not"),
            (SCHEMA, r#"{"$ref": "http://example.com/a.json"}"#, "$ref to 'http://example.com/a.json'"),
            (SCHEMA, r#"{"$ref": "file:///etc/passwd"}"#, "file:///etc/passwd"),
            (SCHEMA, r#"{"type": "string", "format": "iri"}"#, "iri"),
            (SCHEMA, r#"{"oneOf": [{"type": "number"}, {"type": "integer"}]}"#, "oneOf, unless"),
            (SCHEMA, "false", "false"),
            (SCHEMA, "{", "JSON"),
            (REGEX, "(", "unclosed group"),
            (REGEX, "a\\", "incomplete escape"),
            (REGEX, "a(?=b)", "look-around"),
            (REGEX, "a^b", "^ and $ within"),
            (SCHEMA, r#"{"type": "string", "pattern": "a\\b"}"#, "word boundaries"),
            (9, "", "kind 9"),
        ] {
            let got = accepts(kind, format, "").err().unwrap_or_default();
            assert!(got.contains(cause), "{format}: {got:?}, want {cause:?}");
        }
    }

    /// A mask allows a token exactly if the matcher takes it.
    #[test]
    fn masks_equal_the_matcher() {
        let v = vocabulary();
        let factory = factory(&v).unwrap();
        let mut m =
            compile(&factory, SCHEMA, r#"{"type": "object", "properties": {"a": {"type": "number"}}}"#).unwrap();
        for &b in br#"{"a": 12, "x": "12"}"# {
            let mask = m.compute_mask().unwrap();
            for id in 0..v.len() as u32 - 3 {
                let took = m.validate_tokens(&[id]).unwrap() == 1;
                assert_eq!(mask.is_allowed(id), took, "token {id} before {:?}", b as char);
            }
            m.consume_token(b as u32).unwrap();
        }
        assert!(m.is_stopped(), "the object is complete");
    }
}
