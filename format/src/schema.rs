//! What a JSON Schema needs before llguidance gets it: some schemas it would follow wrongly.

use serde_json::{json, Map, Number, Value};

/// 2^53: whole numbers from here on are rounded on their way through llguidance.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Keywords whose value is a map from names to schemas.
const MAPS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose value is data, in which nothing is a schema.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Keywords whose value is a count. The standard lets a count be written as 2.0.
const COUNTS: [&str; 8] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"];

/// A pattern of the dates that there are: 29 February is in leap years only.
const DATES: &str = concat!(
    "^[0-9]{4}-(?:0[13-9]|1[0-2]|02-(?:[01]|2[0-8]))|",
    "^(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
);

/// A pattern of the times that there are: a leap second is the last one of a day in UTC.
const TIMES: &str = r":[0-5][0-9][.zZ+-]|23:59:60(?:\.[0-9]+)?(?:[zZ]|[+-]00:00)$";

/// Patterns beside those that llguidance has for the keyword format.
const EXACT_FORMATS: [(&str, &[&str]); 3] = [("date", &[DATES]), ("time", &[TIMES]), ("date-time", &[DATES, TIMES])];

/// Keywords that stay beside a $ref in drafts where the others have no effect there.
const BESIDE_REF: [&str; 5] = ["$ref", "$schema", "$defs", "definitions", "$id"];

/// Returns a schema that llguidance follows as the standard means it, or says what it cannot follow.
pub fn prepare(schema: Value) -> Result<Map<String, Value>, String> {
    let mut schema = match schema {
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => return Err("the schema is false: no value is valid".into()),
        Value::Object(map) => map,
        _ => return Err("a schema is an object or a boolean".into()),
    };
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    if !draft.is_empty() && !draft.contains("//json-schema.org/") {
        return Err(format!("$schema {draft}: it is none of the drafts of JSON Schema"));
    }
    let old = refs_stand_alone(draft);
    walk(&mut schema, old)?;
    Ok(schema)
}

/// Reports whether a draft ignores what is beside a $ref: up to draft 7.
fn refs_stand_alone(draft: &str) -> bool {
    ["draft-03", "draft-04", "draft-06", "draft-07"].iter().any(|d| draft.contains(d))
}

fn walk(schema: &mut Map<String, Value>, old: bool) -> Result<(), String> {
    if old && schema.contains_key("$ref") {
        schema.retain(|key, _| BESIDE_REF.contains(&key.as_str()));
    }
    if schema.get("uniqueItems") == Some(&Value::Bool(false)) {
        schema.remove("uniqueItems");
    }
    for (_, count) in schema.iter_mut().filter(|(key, _)| COUNTS.contains(&key.as_str())) {
        if let Some(whole) = count.as_f64().filter(|f| f.fract() == 0.0 && (0.0..EXACT).contains(f)) {
            *count = Value::from(whole as u64);
        }
    }
    add_patterns(schema);
    check(schema)?;
    for (key, value) in schema.iter_mut() {
        match value {
            _ if DATA.contains(&key.as_str()) => {}
            Value::Object(map) if MAPS.contains(&key.as_str()) => map.values_mut().try_for_each(|v| visit(v, old))?,
            value => visit(value, old)?,
        }
    }
    Ok(())
}

/// Adds the patterns of the keyword format.
fn add_patterns(schema: &mut Map<String, Value>) {
    let Some(Value::String(format)) = schema.get("format") else { return };
    let Some((_, patterns)) = EXACT_FORMATS.iter().find(|(name, _)| name == format) else { return };
    let patterns: Vec<Value> = patterns.iter().map(|p| json!({"pattern": p})).collect();
    // llguidance refuses an allOf that is no list.
    if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
        all.extend(patterns);
    }
}

fn visit(value: &mut Value, old: bool) -> Result<(), String> {
    match value {
        Value::Object(map) => walk(map, old),
        Value::Array(list) => list.iter_mut().try_for_each(|v| visit(v, old)),
        _ => Ok(()),
    }
}

fn check(schema: &Map<String, Value>) -> Result<(), String> {
    if let Some(Value::String(target)) = schema.get("$ref") {
        if target.starts_with("http://json-schema.org/") || target.starts_with("https://json-schema.org/") {
            return Err(format!("$ref {target}: it is outside of the schema"));
        }
    }
    check_min_properties(schema)?;
    for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const", "enum"] {
        schema.get(key).map_or(Ok(()), |v| check_data(key, v))?;
    }
    Ok(())
}

/// Refuses a number of properties that names could only reach if they came twice: names beyond `properties` may,
/// as nothing counts them.
fn check_min_properties(schema: &Map<String, Value>) -> Result<(), String> {
    let least = schema.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    if least > required + 1 {
        return Err(format!(
            "minProperties {least} beside {required} names in required: at most one more can be counted"
        ));
    }
    Ok(())
}

/// Refuses numbers that would be rounded, and characters that only \u can spell.
fn check_data(key: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::Number(n) if is_rounded(n) => Err(format!("{key} {n}: whole numbers are exact below 2^53")),
        Value::String(s) if s.chars().any(needs_unicode_escape) => {
            Err(format!("{key} {value}: control characters other than \\b, \\f, \\n, \\r and \\t"))
        }
        Value::Array(list) => list.iter().try_for_each(|v| check_data(key, v)),
        Value::Object(map) => map.values().try_for_each(|v| check_data(key, v)),
        _ => Ok(()),
    }
}

fn is_rounded(n: &Number) -> bool {
    n.as_f64().is_none_or(|f| f.fract() == 0.0 && f.abs() >= EXACT)
}

fn needs_unicode_escape(c: char) -> bool {
    (c < ' ' || c == '\x7f') && !"\u{8}\u{c}\n\r\t".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_would_be_followed_wrongly() {
        for (schema, cause) in [
            (json!(false), "false"),
            (json!([]), "object or a boolean"),
            (json!({"$schema": "http://example.com/my"}), "$schema http://example.com/my"),
            (json!({"minProperties": 2}), "minProperties 2"),
            (json!({"allOf": [{"minProperties": 3, "required": ["a"]}]}), "minProperties 3"),
            (json!({"const": [1, 9007199254740993u64]}), "const 9007199254740993"),
            (json!({"items": {"maximum": 1e300}}), "maximum 1e+300"),
            (json!({"enum": ["a\u{1}"]}), "enum"),
            (json!({"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}}), "outside"),
        ] {
            let got = prepare(schema.clone()).err().unwrap_or_default();
            assert!(got.contains(cause), "{schema}: {got:?}, want {cause:?}");
        }
    }

    #[test]
    fn leaves_names_and_data_alone() {
        for schema in [
            json!({"properties": {"minProperties": {"type": "string"}, "$ref": {"type": "null"}}}),
            json!({"const": {"minProperties": 5}, "default": {"minProperties": 5}}),
            json!({"minProperties": 2, "required": ["a"]}),
            json!({"enum": ["\n", 4503599627370496u64, 0.5]}),
        ] {
            assert_eq!(prepare(schema.clone()).map(Value::Object), Ok(schema));
        }
    }

    #[test]
    fn keeps_to_dates_that_there_are() {
        let dates = [("2023-02-28", true), ("2023-02-29", false), ("2000-02-29", true), ("1900-02-29", false)];
        let times = [("23:59:60Z", true), ("22:59:60Z", false), ("12:00:59.5+01:00", true), ("12:00:60+01:00", false)];
        for (format, texts) in [("date", dates), ("time", times)] {
            for (text, want) in texts {
                let schema = json!({"type": "string", "format": format}).to_string();
                assert_eq!(crate::grammar::tests::accepts(1, &schema, &format!("\"{text}\"")), Ok(want), "{text}");
            }
        }
        assert!(prepare(json!({"format": "date", "allOf": [{}]})).unwrap()["allOf"].as_array().unwrap().len() == 2);
    }

    #[test]
    fn drops_what_has_no_effect() {
        let draft = "http://json-schema.org/draft-07/schema#";
        let old = json!({"$schema": draft, "definitions": {}, "items": {"$ref": "#/definitions/a", "type": "null"}});
        let want = json!({"$schema": draft, "definitions": {}, "items": {"$ref": "#/definitions/a"}});
        assert_eq!(prepare(old).map(Value::Object), Ok(want));
        assert_eq!(prepare(json!({"uniqueItems": false})).map(Value::Object), Ok(json!({})));
        assert_eq!(prepare(json!({"minItems": 2.0})).map(Value::Object), Ok(json!({"minItems": 2})));
        assert_eq!(prepare(json!(true)).map(Value::Object), Ok(json!({})));
        let new = json!({"$ref": "#/$defs/a", "type": "null"});
        assert_eq!(prepare(new.clone()).map(Value::Object), Ok(new));
    }
}
