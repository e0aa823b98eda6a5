//! Where files go by default, and what `~` means in a path.

use std::path::{Path, PathBuf};

use plugin_lifecycle::problem::Fault;

/// `XDG_CACHE_HOME/mqlet/compiled`, else `~/.cache/mqlet/compiled`.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    xdg("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("mqlet/compiled"))
}

/// `XDG_STATE_HOME/mqlet`, else `~/.local/state/mqlet`.
pub(crate) fn state_dir() -> Option<PathBuf> {
    xdg("XDG_STATE_HOME", ".local/state").map(|folder| folder.join("mqlet"))
}

/// Where docker keeps who we are at registries: `DOCKER_CONFIG/config.json`, else
/// `~/.docker/config.json`.
pub(crate) fn docker_config() -> Option<PathBuf> {
    let folder = match std::env::var_os("DOCKER_CONFIG") {
        Some(folder) => PathBuf::from(folder),
        None => etcetera::home_dir().ok()?.join(".docker"),
    };
    Some(folder.join("config.json"))
}

/// A path that a person wrote: `~` is the home folder, a relative one starts at `base`.
pub(crate) fn expand(text: &str, base: &Path) -> Result<PathBuf, Fault> {
    if text.is_empty() {
        return Err(Fault::new("is empty", "write the path of a folder"));
    }
    let Some(rest) = text.strip_prefix('~') else {
        return Ok(base.join(text));
    };
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(Fault::new(
            "names another user's home folder",
            "write the whole path",
        ));
    }
    let home = etcetera::home_dir().map_err(|_| {
        Fault::new(
            "has a ~, and no home folder is known",
            "write the whole path, or set HOME",
        )
    })?;
    Ok(home.join(rest.trim_start_matches('/')))
}

/// The XDG rule: a variable that is no absolute path does not count.
fn xdg(variable: &str, in_home: &str) -> Option<PathBuf> {
    let of_variable = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    of_variable.or_else(|| Some(etcetera::home_dir().ok()?.join(in_home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_starts_at_its_base_unless_it_says_otherwise() {
        let base = Path::new("/etc/mqlet");
        assert_eq!(expand("cache", base), Ok(PathBuf::from("/etc/mqlet/cache")));
        assert_eq!(expand("/var/cache", base), Ok(PathBuf::from("/var/cache")));
        assert!(
            expand("~/cache", base).is_ok_and(|path| path.ends_with("cache") && path.is_absolute())
        );
        assert!(expand("~root/cache", base).is_err());
        assert!(expand("", base).is_err());
    }
}
