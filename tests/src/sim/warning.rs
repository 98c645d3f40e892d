//! What the agent logs as WARN or ERROR, as lines of the world's log.
//!
//! Deliberately absent: lower levels.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::scene::Scene;

/// Takes in what is logged on this thread.
#[derive(Debug, Clone)]
pub struct Warnings {
    scene: Scene,
    lines: Arc<Mutex<Vec<(Level, String)>>>,
}

impl Warnings {
    /// None yet.
    #[must_use]
    pub fn new(scene: &Scene) -> Self {
        Self { scene: scene.clone(), lines: Arc::default() }
    }

    /// What was logged, in order.
    #[must_use]
    pub fn lines(&self) -> Vec<(Level, String)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _written = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = *event.metadata().level();
        self.scene.say(format_args!("agent {level}{}", text.0));
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push((level, text.0));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
