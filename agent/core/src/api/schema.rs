//! The schema of a spec in the form that Kubernetes demands of a custom resource.
//!
//! In goes a type, out comes a structural schema as JSON. Deliberately absent: the CRD around it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The structural schema of a spec: nothing is referred to, no `additionalProperties: false` stands beside `properties`, a
/// choice of words is one `enum`, and what may be null says `nullable`.
#[must_use]
pub fn structural_schema<Spec: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<Spec>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
    }
    make_structural(&mut schema);
    schema
}

fn make_structural(node: &mut Value) {
    match node {
        Value::Object(fields) => {
            if fields.contains_key("properties") && fields.get("additionalProperties") == Some(&json!(false)) {
                fields.remove("additionalProperties");
            }
            merge_null(fields);
            merge_choice_of_words(fields);
            if fields.get("default") == Some(&Value::Null) {
                fields.remove("default");
            }
            fields.values_mut().for_each(make_structural);
        }
        Value::Array(items) => items.iter_mut().for_each(make_structural),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `oneOf` of described words becomes one `enum` whose description lists them.
fn merge_choice_of_words(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get("oneOf") else { return };
    let (nulls, choices): (Vec<&Value>, Vec<&Value>) = choices.iter().partition(|choice| is_null(choice));
    let may_be_null = !nulls.is_empty();
    let words: Option<Vec<(Value, String)>> = choices
        .iter()
        .map(|choice| {
            let word = choice.get("const").or_else(|| choice.get("enum")?.get(0))?;
            let why = choice.get("description").and_then(Value::as_str).unwrap_or_default();
            Some((word.clone(), format!("{}: {why}", word.as_str()?)))
        })
        .collect();
    let Some(words) = words else { return };
    let mut lines: Vec<String> =
        fields.get("description").and_then(Value::as_str).map(ToOwned::to_owned).into_iter().collect();
    lines.extend(words.iter().map(|(_word, line)| line.clone()));
    fields.remove("oneOf");
    fields.insert("type".to_owned(), json!("string"));
    fields.insert("enum".to_owned(), words.into_iter().map(|(word, _line)| word).collect());
    fields.insert("description".to_owned(), json!(lines.join("\n")));
    if may_be_null {
        fields.insert("nullable".to_owned(), json!(true));
    }
}

fn is_null(choice: &Value) -> bool {
    choice.get("type") == Some(&json!("null"))
        || choice.get("const") == Some(&Value::Null)
        || choice.get("enum") == Some(&json!([null]))
}

/// `anyOf` of something and null becomes that something, `nullable`.
fn merge_null(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get("anyOf") else { return };
    let (nulls, others): (Vec<&Value>, Vec<&Value>) = choices.iter().partition(|choice| is_null(choice));
    let ([_null], [Value::Object(other)]) = (nulls.as_slice(), others.as_slice()) else { return };
    let other = other.clone();
    fields.remove("anyOf");
    for (key, value) in other {
        fields.entry(key).or_insert(value);
    }
    fields.insert("nullable".to_owned(), json!(true));
}
