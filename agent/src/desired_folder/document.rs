//! One YAML file becomes documents, each with its place or with what is wrong with it.
//!
//! In goes text; out come pieces, one for each document of the file. A `---` at the start of a line ends a document whatever it
//! is in the middle of, so documents are taken apart first and a broken one costs nothing but itself. Deliberately absent: files.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::Error;

use stokehold_core::api::{API_VERSION, Document, KIND_CACHE, KIND_POLICY};
use stokehold_core::desired::{Unreadable, id_of};
use stokehold_core::name::CacheId;

use crate::yaml;

/// Most documents of one file: with the file limit, what a person can still read.
const DOCUMENTS_MAX: usize = 1_000;

/// One document of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// `file:line`, or `file:line:column` of what is wrong.
    pub(super) place: String,
    /// What it is.
    pub(super) document: Result<Document, Unreadable>,
}

impl Piece {
    /// Whether it may be a document of ours that is not recognised any more.
    pub(super) fn hides(&self) -> bool {
        matches!(&self.document, Err(unreadable) if unreadable.hides_caches)
    }

    /// Which cache it is about, as far as that can be known.
    pub(super) fn cache(&self) -> Option<CacheId> {
        match &self.document {
            Ok(Document::InferenceCache(document)) => Some(id_of(document)),
            Ok(Document::CachePolicy(_)) => None,
            Err(unreadable) => unreadable.cache.clone(),
        }
    }
}

/// All documents of a file, in their order.
pub(super) fn pieces(file: &str, text: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    for part in split(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        if found.len() == DOCUMENTS_MAX {
            let reason = format!("the file holds more than {DOCUMENTS_MAX} documents; the rest is not read");
            let unreadable =
                Unreadable { cache: None, may_be_policy: text.contains(KIND_POLICY), hides_caches: true, reason };
            found.push(Piece { place: format!("{file}:{}", part.line), document: Err(unreadable) });
            break;
        }
        found.push(part.read(file));
    }
    found
}

/// The text of one document.
struct Part<'a> {
    text: &'a str,
    /// Lines of the file before this text.
    lines_before: u64,
    /// The line where the document starts, counted from 1.
    line: u64,
}

/// Takes a file apart at its document markers. What holds nothing but comments and directives is no document.
fn split(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut first_line, mut at) = (0, 0_u64, 0);
    let mut push = |start: usize, end: usize, lines_before: u64| {
        let text = &text[start..end];
        let empty = |line: &&str| {
            let line = line.strip_prefix("---").unwrap_or(line).trim();
            line.is_empty() || line.starts_with('#') || line.starts_with('%')
        };
        let skipped = text.lines().take_while(empty).count();
        if text.lines().nth(skipped).is_some() {
            parts.push(Part { text, lines_before, line: lines_before + skipped as u64 + 1 });
        }
    };
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let is_marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r']));
        if is_marker && at > start {
            push(start, at, first_line);
            (start, first_line) = (at, number as u64);
        }
        at += line.len();
    }
    push(start, at, first_line);
    parts
}

impl Part<'_> {
    fn read(&self, file: &str) -> Piece {
        let head = RefCell::new(Head::default());
        let outcome = serde_saphyr::with_deserializer_from_str_with_options(self.text, yaml::limits(), |from| {
            HeadSeed(&head).deserialize(from)
        });
        let head = head.into_inner();
        let document = match outcome {
            Err(error) => return self.broken(file, &head, &error),
            Ok(()) => match head.is_ours() {
                Err(reason) => return self.foreign(file, &head, reason),
                Ok(Kind::Cache) => yaml::read(self.text).map(Document::InferenceCache),
                Ok(Kind::Policy) => yaml::read(self.text).map(Document::CachePolicy),
            },
        };
        match document {
            Ok(document) => Piece { place: self.place(file), document: Ok(document) },
            Err(error) => self.broken(file, &head, &error),
        }
    }

    fn place(&self, file: &str) -> String {
        format!("{file}:{}", self.line)
    }

    /// A document that cannot be read; its head may have been.
    fn broken(&self, file: &str, head: &Head, error: &Error) -> Piece {
        let place = match yaml::place(error) {
            Some((line, column)) => format!("{file}:{}:{column}", line + self.lines_before),
            None => self.place(file),
        };
        let reason = yaml::reason(error, self.text);
        // A kind that was not reached may be a policy where the word stands anywhere in the text.
        let may_be_policy = match head.kind.as_deref() {
            Some(kind) => kind == KIND_POLICY,
            None => self.text.contains(KIND_POLICY),
        };
        let cache = head.cache();
        let unreadable = Unreadable { hides_caches: cache.is_none(), cache, may_be_policy, reason };
        Piece { place, document: Err(unreadable) }
    }

    /// A document that can be read and is none that this release knows.
    fn foreign(&self, file: &str, head: &Head, reason: String) -> Piece {
        let is_other_kind = head.kind.as_deref().is_some_and(|kind| kind != KIND_CACHE && kind != KIND_POLICY);
        let cache = if is_other_kind { None } else { head.cache() };
        let may_be_policy = head.kind.as_deref() == Some(KIND_POLICY);
        let hides_caches = !is_other_kind && cache.is_none();
        Piece { place: self.place(file), document: Err(Unreadable { cache, may_be_policy, hides_caches, reason }) }
    }
}

enum Kind {
    Cache,
    Policy,
}

/// What tells which document it is; filled as far as the reader came.
#[derive(Debug, Default)]
struct Head {
    api_version: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    /// The metadata was read to its end: a namespace that was not seen is not there.
    has_all_metadata: bool,
}

impl Head {
    fn is_ours(&self) -> Result<Kind, String> {
        let allowed = format!("allowed: {KIND_CACHE} and {KIND_POLICY} of {API_VERSION}");
        let kind = match self.kind.as_deref() {
            Some(KIND_CACHE) => Kind::Cache,
            Some(KIND_POLICY) => Kind::Policy,
            Some(other) => return Err(format!("kind: {:?} is not read; {allowed}", shortened(other))),
            None => return Err(format!("kind: is missing; {allowed}")),
        };
        match self.api_version.as_deref() {
            Some(API_VERSION) => Ok(kind),
            Some(other) => Err(format!("apiVersion: {:?} is not read; {allowed}", shortened(other))),
            None => Err(format!("apiVersion: is missing; {allowed}")),
        }
    }

    fn cache(&self) -> Option<CacheId> {
        if self.kind.as_deref() == Some(KIND_POLICY) {
            return None;
        }
        let namespace = match &self.namespace {
            Some(namespace) => namespace,
            None if self.has_all_metadata => "default",
            None => return None,
        };
        CacheId::new(namespace, self.name.as_deref()?).ok()
    }
}

fn shortened(text: &str) -> String {
    /// Letters of a foreign word that are repeated.
    const LETTERS_MAX: usize = 80;
    text.chars().take(LETTERS_MAX).collect()
}

/// Reads the head of a document and writes it down as it goes, so that what came before a mistake is kept.
struct HeadSeed<'a>(&'a RefCell<Head>);

struct MetadataSeed<'a>(&'a RefCell<Head>);

impl<'de> DeserializeSeed<'de> for HeadSeed<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeadSeed<'_> {
    type Value = ();
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a document with apiVersion, kind, metadata and spec")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => self.0.borrow_mut().api_version = map.next_value::<Word>()?.0,
                "kind" => self.0.borrow_mut().kind = map.next_value::<Word>()?.0,
                "metadata" => map.next_value_seed(MetadataSeed(self.0))?,
                _other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for MetadataSeed<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed<'_> {
    type Value = ();
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("metadata with a name")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => self.0.borrow_mut().name = map.next_value::<Word>()?.0,
                "namespace" => self.0.borrow_mut().namespace = map.next_value::<Word>()?.0,
                _other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        self.0.borrow_mut().has_all_metadata = true;
        Ok(())
    }
}

/// A text, or nothing where something else stands; the strict reader says what is wrong with that.
struct Word(Option<String>);

impl<'de> serde::Deserialize<'de> for Word {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match serde_json::Value::deserialize(from)? {
            serde_json::Value::String(text) => Some(text),
            serde_json::Value::Number(number) => Some(number.to_string()),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Array(_)
            | serde_json::Value::Object(_) => None,
        };
        Ok(Self(text))
    }
}
