//! Texts that nobody may see but the guest they are for.

use std::fmt;
use std::sync::Arc;

/// A plugin's secrets, by name. `Debug` shows the names alone.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[(String, String)]>);

impl Secrets {
    /// Of names and values.
    pub fn new(secrets: Vec<(String, String)>) -> Self {
        Self(secrets.into())
    }

    pub(crate) fn entries(&self) -> &[(String, String)] {
        &self.0
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}
