//! Settings and secrets by name, whenever they are wanted: `wasi:config`.
//!
//! Needs `config = true` in the manifest's `[grants]`. Settings are given to
//! [`Lifecycle::init`](crate::Lifecycle::init) without any grant; secrets are had here
//! alone.

use std::fmt;

#[cfg(target_family = "wasm")]
use crate::bindings::reach::wasi::config::store as host;
#[cfg(not(target_family = "wasm"))]
use crate::testing::host::config as host;

use crate::Error;

/// A setting or secret by its name.
///
/// # Errors
/// The host cannot say.
pub fn get(name: &str) -> Result<Option<String>, Error> {
    host::get(name).map_err(|error| format!("cannot read \"{name}\": {error:?}").into())
}

/// All settings; secrets are never listed.
///
/// # Errors
/// The host cannot say.
pub fn all() -> Result<Vec<(String, String)>, Error> {
    host::get_all().map_err(|error| format!("cannot read the settings: {error:?}").into())
}

/// A secret that must be there.
///
/// # Errors
/// It is not in `[secrets]`, or the host cannot say.
pub fn secret(name: &str) -> Result<Secret, Error> {
    let missing = || format!("secret \"{name}\" is missing; add it to [secrets]");
    Ok(Secret(get(name)?.ok_or_else(missing)?))
}

/// A text that gets into a log by nobody's mistake: it is shown by [`Secret::reveal`] alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
