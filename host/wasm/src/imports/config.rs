//! `wasi:config/store`: the manifest's `[settings]`, and its `[secrets]` by name alone: who
//! lists everything does not see them.

use crate::bindings::reach::wasi::config::store as wit;
use crate::store::State;

impl wit::Host for State {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, wit::Error>> {
        let config = &self.plugin.config;
        if !config.grants.config {
            return Ok(Err(not_granted()));
        }
        let secret = config.secrets.get(&key);
        let setting = || {
            let mut settings = config.settings.iter();
            settings
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.as_str())
        };
        Ok(Ok(secret.or_else(setting).map(str::to_owned)))
    }

    async fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, wit::Error>> {
        let config = &self.plugin.config;
        if !config.grants.config {
            return Ok(Err(not_granted()));
        }
        Ok(Ok(config.settings.clone()))
    }
}

fn not_granted() -> wit::Error {
    wit::Error::Upstream("the manifest has no [grants] config = true".into())
}
