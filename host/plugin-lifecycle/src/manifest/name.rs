//! Names that we choose the rules of: plugins and tenants.

use std::fmt;
use std::sync::Arc;

use crate::problem::Fault;

/// Longest name; it fits a DNS label, a metric label and a folder.
pub const NAME_LENGTH_MAX: usize = 63;

/// A plugin's name: a-z, 0-9 and -, at most 63 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PluginName(Arc<str>);

impl PluginName {
    /// Checks a name.
    ///
    /// # Errors
    /// Which rule it breaks.
    pub fn parse(name: &str) -> Result<Self, Fault> {
        check_name(name)?;
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Shared.
    pub fn to_arc(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule for plugins and tenants.
///
/// # Errors
/// Which part of it is broken.
pub fn check_name(name: &str) -> Result<(), Fault> {
    let remedy = format!(
        "write a-z, 0-9 and -, at most {NAME_LENGTH_MAX} characters, for example \"order-audit\""
    );
    let allowed = |c: &char| matches!(c, 'a'..='z' | '0'..='9' | '-');
    if name.is_empty() {
        Err(Fault::new("is empty", remedy))
    } else if let Some(character) = name.chars().find(|c| !allowed(c)) {
        Err(Fault::new(format!("contains {character:?}"), remedy))
    } else if name.starts_with('-') || name.ends_with('-') {
        Err(Fault::new("begins or ends with -", remedy))
    } else if name.len() > NAME_LENGTH_MAX {
        Err(Fault::new(format!("has {} characters", name.len()), remedy))
    } else {
        Ok(())
    }
}
