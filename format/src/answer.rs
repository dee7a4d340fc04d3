//! A format with reasoning before it: {"think": {"begin": parts or null, "end": part}, "kind", "text"}. Parts are those
//! of calls; kind and text are those of the format.

use crate::calls::{literal, thought};
use crate::grammar::{choice, json_schema, regex, CHOICE, REGEX, SCHEMA};
use llguidance::api::TopLevelGrammar;
use serde_json::Value;

/// Returns the grammar of reasoning, then a text of the format. Without "begin" the reasoning must be there, since the
/// prompt has begun it; otherwise it may be.
///
/// The generator takes the first tag that ends reasoning and at most two line feeds after it away. So what is left is
/// the format's text, every text of the format can be drawn, and only one that begins with reasoning's own tag cannot.
pub fn grammar(text: &str) -> Result<TopLevelGrammar, String> {
    let form: Value = serde_json::from_str(text).map_err(|e| format!("the answer is no JSON: {e}"))?;
    let text = form["text"].as_str().ok_or("the answer has no format")?;
    let think = &form["think"];
    let rules = match form["kind"].as_u64().unwrap_or_default() as u32 {
        // JSON begins with neither a line feed nor a tag.
        SCHEMA => format!("spaced: /\\n{{0,2}}/ plain\nplain: %json {}\n", json_schema(text)?),
        REGEX => expression(&regex(text)?, think),
        CHOICE => expression(&choice(text)?, think),
        kind => return Err(format!("answers of kind {kind} are not known")),
    };
    let start = if think["begin"].is_null() { "thought spaced" } else { "thought spaced | plain" };
    Ok(TopLevelGrammar::from_lark(format!("start: {start}\n{}{rules}", thought(think)?)))
}

/// The rules of a regular expression after reasoning, and alone.
fn expression(whole: &str, think: &Value) -> String {
    let tag = think["begin"][0]["text"].as_str();
    let plain =
        tag.map_or(String::new(), |tag| format!(" & ~TAGGED\nTAGGED: /[ \\t\\r\\n]*/ {} /(?s:.*)/", literal(tag)));
    format!(
        "spaced: SPACED\nSPACED: /\\n\\n/ WHOLE | /\\n?/ CLOSE\nCLOSE: WHOLE & ~/\\n(?s:.*)/\n\
         plain: PLAIN\nPLAIN: WHOLE{plain}\nWHOLE: {whole}\n"
    )
}

#[cfg(test)]
mod tests {
    use crate::grammar::tests::accepts;
    use crate::grammar::{ANSWER, CHOICE, REGEX, SCHEMA};
    use serde_json::{json, Value};

    fn check(begin: Value, kind: u32, text: &str, yes: &[&str], no: &[&str]) {
        let form = json!({"think": {"begin": begin, "end": {"text": "</t>"}}, "kind": kind, "text": text});
        for (texts, want) in [(yes, true), (no, false)] {
            for text in texts {
                assert_eq!(accepts(ANSWER, &form.to_string(), text), Ok(want), "{form} {text:?}");
            }
        }
    }

    #[test]
    fn follows_reasoning_before_formats() {
        let begin = || json!([{"text": "<t>"}]);
        let schema = r#"{"type": "object", "maxProperties": 1}"#;
        check(
            Value::Null,
            SCHEMA,
            schema,
            &["</t>{}", "a {} </t\n</t>\n\n{\"a\": 1}", "<t></t>\n{}"],
            &["{}", "a</t> {}", "a</t>\n\n\n{}", "a</t>b</t>{}", "a</t>{}\n"],
        );
        check(begin(), SCHEMA, schema, &["{}", "<t>{}</t>{}"], &["{}</t>{}", " {}", "\n{}", "<t>{}"]);
        check(Value::Null, CHOICE, r#"["a", "b/\"*\""]"#, &["b</t>a", "</t>\n\nb/\"*\""], &["a", "</t>", "</t>ab"]);
        check(begin(), REGEX, "^\\d+$", &["12", "<t>x</t>\n12"], &["a", "<t>12", "<t></t>", "\n12"]);
    }

    /// A text of the format may begin with line feeds: it does after two that belong to the reasoning. It cannot begin
    /// with the tag.
    #[test]
    fn divides_reasoning_from_formats() {
        let within = |yes: &[&str], no: &[&str]| check(Value::Null, REGEX, "\n*a", yes, no);
        within(&["</t>a", "</t>\na", "</t>\n\na", "</t>\n\n\n\na"], &["\na", "</t>\n"]);
        let begin = json!([{"text": "<t>"}]);
        check(begin.clone(), REGEX, "(?s).+", &["a", "<t", "<t>a</t>a", " <a></t>"], &["<t>a", " \n<t>a</t>"]);
        check(begin, CHOICE, r#"["<t>a</t>b", "b"]"#, &["b", "<t>a</t>b"], &["<t>a</t>a"]);
        check(json!([{"text": "<t>"}]), CHOICE, r#"["\na"]"#, &["\na", "<t></t>\n\n\na"], &["<t></t>\na"]);
    }
}
