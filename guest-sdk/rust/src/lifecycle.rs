//! How an instance starts and ends.

use crate::Error;

/// How an instance starts and ends.
///
/// A listener that is `Default` starts with that value and needs nothing of this. One
/// with settings, or with something to make first, implements the trait and not
/// `Default`.
#[diagnostic::on_unimplemented(
    message = "mqlet does not know how to start a `{Self}`",
    note = "either `#[derive(Default)]` for it, or implement `mqlet_guest::Lifecycle` to make \
            one from the settings"
)]
pub trait Lifecycle: Sized {
    /// Makes the listener, once for each instance, before anything else.
    ///
    /// # Errors
    /// An error refuses the revision: it never serves, and the one before goes on.
    fn init(settings: &Settings) -> Result<Self, Error>;

    /// The last call of an instance. Best effort: never after a trap.
    fn shutdown(&mut self) {}
}

impl<T: Default> Lifecycle for T {
    fn init(_settings: &Settings) -> Result<Self, Error> {
        Ok(Self::default())
    }
}

/// The `[settings]` of the manifest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// From names and values.
    pub fn new(settings: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let pairs = settings.into_iter();
        Self(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// A setting by its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// A setting that must be there.
    ///
    /// # Errors
    /// Names the one that is missing.
    pub fn require(&self, name: &str) -> Result<&str, Error> {
        let missing = || format!("setting \"{name}\" is missing; add it to [settings]").into();
        self.get(name).ok_or_else(missing)
    }

    /// All of them, in the manifest's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
