//! [`FailureReason`]: why a message failed, and what its dead letter says of that.

use std::fmt;
use std::sync::Arc;

/// A text for people, and properties that a dead letter carries beside it. Two are equal
/// when they read the same.
#[derive(Clone)]
pub struct FailureReason {
    text: Arc<str>,
    properties: Option<Arc<[(String, String)]>>,
}

impl FailureReason {
    /// With these properties: their names must be free for it, the values may be anything.
    #[must_use]
    pub fn with_properties(mut self, properties: Arc<[(String, String)]>) -> Self {
        self.properties = Some(properties);
        self
    }

    /// For people.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// For the dead letter, the most important first: where there is no room, the last are
    /// left out.
    pub fn properties(&self) -> &[(String, String)] {
        self.properties.as_deref().unwrap_or_default()
    }
}

impl PartialEq for FailureReason {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for FailureReason {}

impl<T: Into<Arc<str>>> From<T> for FailureReason {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            properties: None,
        }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text alone.
impl fmt::Debug for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}
