//! The form of calls of tools: {"think": {"begin": parts or null, "end": part} or null, "begin": parts, "calls":
//! [{"head": parts, "schema", "tail": parts}], "between": parts or null, "end": parts}. A part is {"text"} or
//! {"token"}, the id of a control token.

use crate::grammar::json_options;
use crate::schema;
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value};

/// Returns the grammar of one of the calls, or of several with "between" between them. Before them may be reasoning,
/// which must be there without "begin", since the prompt has begun it.
pub fn grammar(text: &str) -> Result<TopLevelGrammar, String> {
    let form: Value = serde_json::from_str(text).map_err(|e| format!("the calls are no JSON: {e}"))?;
    let calls = form["calls"].as_array().filter(|c| !c.is_empty()).ok_or("there is no call")?;
    let many = match &form["between"] {
        Value::Null => String::new(),
        between => format!("({} call)*", parts(between)?),
    };
    let think = if form["think"].is_null() { "" } else { "think" };
    let mut lark = format!("start: {think} {} call {many} {}\n", parts(&form["begin"])?, parts(&form["end"])?);
    if !form["think"].is_null() {
        let whole = "thought /\\n{0,2}/";
        let may = if form["think"]["begin"].is_null() { whole.into() } else { format!("({whole})?") };
        lark += &format!("think: {may}\n{}", thought(&form["think"])?);
    }
    let names: Vec<String> = (0..calls.len()).map(|i| format!("call_{i}")).collect();
    lark += &format!("call: {}\n", names.join(" | "));
    for (name, call) in names.iter().zip(calls) {
        let arguments = Value::from(arguments(&call["schema"])?);
        lark += &format!("{name}: {} %json {arguments} {}\n", parts(&call["head"])?, parts(&call["tail"])?);
    }
    Ok(TopLevelGrammar::from_lark(lark))
}

/// The rule "thought": reasoning with its tags, up to the first that ends it.
pub fn thought(think: &Value) -> Result<String, String> {
    let begin = parts(&think["begin"])?;
    Ok(match think["end"]["text"].as_str() {
        Some(end) => format!("thought: {begin} inside\ninside[suffix={}]: /(?s:.*)/\n", literal(end)),
        None => format!("thought: {begin} /(?s:.*)/ {}\n", part(&think["end"])?),
    })
}

/// The schema of a call's arguments, which are an object.
fn arguments(schema: &Value) -> Result<Map<String, Value>, String> {
    let mut schema = schema::prepare(schema.clone())?;
    schema.insert("x-guidance".into(), json_options());
    let kind = schema.entry("type").or_insert("object".into());
    if !kind.as_array().map_or(kind == "object", |kinds| kinds.iter().any(|k| k == "object")) {
        return Err(format!("parameters of type {kind}: arguments are an object"));
    }
    *kind = "object".into();
    Ok(schema)
}

fn parts(list: &Value) -> Result<String, String> {
    let parts: Result<Vec<_>, _> = list.as_array().into_iter().flatten().map(part).collect();
    Ok(parts?.join(" "))
}

fn part(part: &Value) -> Result<String, String> {
    match (part["text"].as_str(), part["token"].as_u64()) {
        (Some(text), _) => Ok(literal(text)),
        (_, Some(id)) => Ok(format!("<[{id}]>")),
        _ => Err(format!("a part is neither text nor a token: {part}")),
    }
}

/// A text as Lark has it, which is as JSON has it, but without control characters.
pub fn literal(text: &str) -> String {
    Value::from(text).to_string().replace('\x7f', "\\u007f")
}

#[cfg(test)]
mod tests {
    use crate::grammar::tests::accepts;
    use crate::grammar::{compile, factory, CALLS};
    use crate::tokens::tests::vocabulary;
    use serde_json::json;

    fn check(form: &serde_json::Value, yes: &[&str], no: &[&str]) {
        for (texts, want) in [(yes, true), (no, false)] {
            for text in texts {
                assert_eq!(accepts(CALLS, &form.to_string(), text), Ok(want), "{form} {text}");
            }
        }
    }

    fn text(s: &str) -> serde_json::Value {
        if s.is_empty() {
            json!([])
        } else {
            json!([{"text": s}])
        }
    }

    #[test]
    fn follows_calls() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": false});
        let calls = json!([
            {"head": text("<c>\n{\"name\": \"x\", \"arguments\": "), "schema": schema, "tail": text("}\n</c>")},
            {"head": text("<c>\n{\"name\": \"y\", \"arguments\": "), "schema": {}, "tail": text("}\n</c>")},
        ]);
        let x = "<c>\n{\"name\": \"x\", \"arguments\": {\"a\": 1}}\n</c>";
        let y = "<c>\n{\"name\": \"y\", \"arguments\": {}}\n</c>";
        let one = json!({"think": null, "begin": [], "calls": calls, "between": null, "end": []});
        check(
            &one,
            &[x, y],
            &["", "a", &x[..9], &format!("{x}\n{y}"), &x.replace("1}", "\"\"}"), &y.replace("{}", "[]")],
        );
        let many = json!({"think": null, "begin": text("["), "calls": calls, "between": text(", "), "end": text("]")});
        check(&many, &[&format!("[{x}]"), &format!("[{x}, {y}, {x}]")], &["[]", x, &format!("[{x}")]);
    }

    /// Arguments are an object, whatever else their schema allows.
    #[test]
    fn draws_arguments_that_are_objects() {
        for schema in
            [json!({}), json!({"type": ["null", "object"]}), json!({"anyOf": [{"type": "object"}, {"const": 5}]})]
        {
            let calls = json!([{"head": text("f\u{7f}"), "schema": schema, "tail": []}]);
            let form = json!({"think": null, "begin": [], "calls": calls, "between": null, "end": []});
            check(&form, &["f\u{7f}{}"], &["f\u{7f}null", "f\u{7f}5", "f{}"]);
        }
    }

    #[test]
    fn follows_reasoning_before_calls() {
        let calls = json!([{"head": text("{"), "schema": {}, "tail": text("}")}]);
        let may = json!({"think": {"begin": text("<t>"), "end": {"text": "</t>"}}, "begin": [], "calls": calls, "between": null, "end": []});
        check(&may, &["{{}}", "<t></t>{{}}", "<t>a {{}} \n</t>\n\n{{}}"], &["<t>{{}}", "a</t>{{}}", "<t></t> a{{}}"]);
        let must = json!({"think": {"begin": null, "end": {"text": "</t>"}}, "begin": [], "calls": calls, "between": null, "end": []});
        check(&must, &["a\n</t>{{}}", "</t>\n{{}}"], &["{{}}", "a"]);
    }

    /// Control tokens are drawn as tokens, and never spelled.
    #[test]
    fn follows_control_tokens() {
        let v = vocabulary();
        let control = v.len() as u32 - 3;
        let token = |id: u32| json!({"token": id});
        let calls = json!([{"head": [token(control), {"text": "f"}, token(control)], "schema": {}, "tail": []}]);
        let form = json!({"think": {"begin": null, "end": token(control)}, "begin": [], "calls": calls, "between": [],
            "end": []});
        let mut m = compile(&factory(&v).unwrap(), CALLS, &form.to_string()).unwrap();
        let text = |s: &str| s.bytes().map(u32::from).collect::<Vec<_>>();
        let once = [vec![control], text("f"), vec![control], text("{}")].concat();
        for &id in [text("a"), vec![control], once.clone(), once].concat().iter() {
            assert!(m.compute_mask().unwrap().is_allowed(id), "{id}");
            m.consume_token(id).unwrap();
        }
        let mask = m.compute_mask().unwrap();
        assert!(m.is_accepting().unwrap() && mask.is_allowed(control) && !mask.is_allowed(u32::from(b'[')));
    }

    #[test]
    fn refuses_by_name() {
        let form = |schema| json!({"calls": [{"head": [], "schema": schema, "tail": []}]}).to_string();
        for (form, cause) in [
            (
                form(json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}})),
                "keywords that cannot be followed: \"uniqueItems\"",
            ),
            (form(json!({"type": "string"})), "parameters of type \"string\""),
            (form(json!({"type": ["string", "null"]})), "arguments are an object"),
            ("{}".into(), "no call"),
            ("[".into(), "no JSON"),
            (json!({"calls": [{"head": [{}], "schema": {}}]}).to_string(), "neither text nor a token"),
        ] {
            let got = accepts(CALLS, &form, "").err().unwrap_or_default();
            assert!(got.contains(cause), "{form}: {got:?}, want {cause:?}");
        }
    }
}
