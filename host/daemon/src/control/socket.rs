//! Where the control socket is, and who may have it.
//!
//! A lock file beside the socket says that a host lives: it is locked as long as the
//! process runs, however that ends, so a socket without a locked file is a dead host's
//! and is replaced.

use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::net::UnixListener;

/// Name of the socket in its default place.
pub(crate) const FILE_NAME: &str = "control.sock";
/// The socket is made under another name and renamed when nobody else can open it.
const NEW_SUFFIX: &str = ".new";
/// Beside the socket.
const LOCK_SUFFIX: &str = ".lock";
/// What an address of the system holds (`sun_path`, with its end), less the suffix.
const PATH_BYTES_MAX: usize = 107 - NEW_SUFFIX.len();

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error(
        "the path of the control socket, {path}, has {bytes} bytes, and the system allows \
         {PATH_BYTES_MAX}; set socket of [control] in mqlet.toml to a shorter one"
    )]
    TooLong { path: String, bytes: usize },
    #[error(
        "another host{pid} has the control socket {path}; stop it, or give each host a \
         state_dir or a control socket of its own in mqlet.toml"
    )]
    Taken { path: String, pid: String },
    #[error(
        "{path} is in the way of the control socket and is no socket; remove it, or set \
         socket of [control] in mqlet.toml to another path"
    )]
    InTheWay { path: String },
    #[error(
        "{path} is in the way of the control socket's lock: it is a link or no file; remove \
         it, or set socket of [control] in mqlet.toml to another path"
    )]
    LockInTheWay { path: String },
    #[error(
        "cannot make the control socket {path}; set socket of [control] in mqlet.toml to a path that can be written"
    )]
    Io {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// A bound socket, and the lock that says so. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    path: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

/// Checks what can be checked without making anything.
///
/// # Errors
/// The path is too long.
pub(crate) fn check_path(path: &Path) -> Result<(), SocketError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_BYTES_MAX {
        let path = path.display().to_string();
        return Err(SocketError::TooLong { path, bytes });
    }
    Ok(())
}

impl ControlSocket {
    /// Binds it, with its folder if need be; what a dead host left is replaced. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// Another host lives there, or the system says no.
    pub(crate) fn bind(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let shown = || path.display().to_string();
        let failed = |source| SocketError::Io {
            path: shown(),
            source,
        };
        check_path(path)?;
        if let Some(folder) = path.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(folder).map_err(failed)?;
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !is_socket(&found) => return Err(SocketError::InTheWay { path: shown() }),
            _ => {}
        }
        let new = beside(path, NEW_SUFFIX);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&new).map_err(failed)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)?;
        let socket = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        Ok((socket, listener))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Whoever finds it would wait for nobody; the next host replaces it anyway.
        let _ = fs::remove_file(&self.path);
    }
}

fn lock(path: &Path) -> Result<File, SocketError> {
    let failed = |source| SocketError::Io {
        path: path.display().to_string(),
        source,
    };
    let mut file = open_lock(&beside(path, LOCK_SUFFIX), failed)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).map_err(failed)?;
            file.rewind().map_err(failed)?;
            write!(file, "{}", std::process::id()).map_err(failed)?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only for the message.
            let _ = file.take(16).read_to_string(&mut pid);
            Err(SocketError::Taken {
                path: path.display().to_string(),
                pid: match pid.trim() {
                    "" => String::new(),
                    pid => format!(" (process {pid})"),
                },
            })
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Whoever can write in the folder must not choose which file is written over.
fn open_lock(
    path: &Path,
    failed: impl Fn(std::io::Error) -> SocketError,
) -> Result<File, SocketError> {
    let in_the_way = || SocketError::LockInTheWay {
        path: path.display().to_string(),
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::ISDIR) => return Err(in_the_way()),
        Err(error) => return Err(failed(error.into())),
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_file() && metadata.nlink() == 1 {
        Ok(file)
    } else {
        Err(in_the_way())
    }
}

fn is_socket(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    metadata.file_type().is_socket()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_living_host_keeps_its_socket_and_a_dead_one_loses_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state").join(FILE_NAME);
        let (one, listener) = ControlSocket::bind(&path).expect("free");
        let mode = fs::metadata(&path).expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = ControlSocket::bind(&path).expect_err("taken").to_string();
        let pid = format!("(process {})", std::process::id());
        assert!(
            error.contains(&pid) && error.contains("state_dir"),
            "{error}"
        );
        drop((one, listener));
        assert!(!path.exists());

        // What a killed host leaves.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("free"));
        assert!(path.exists());
        let (_socket, _listener) = ControlSocket::bind(&path).expect("nobody is there");
    }

    #[tokio::test]
    async fn a_lock_that_leads_elsewhere_is_refused_and_nothing_is_written_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        let lock = beside(&path, LOCK_SUFFIX);
        let precious = folder.path().join("precious");
        fs::write(&precious, "x").expect("a file");
        for make in [
            |precious: &Path, lock: &Path| std::os::unix::fs::symlink(precious, lock),
            |precious: &Path, lock: &Path| fs::hard_link(precious, lock),
            |_: &Path, lock: &Path| fs::create_dir(lock),
        ] {
            make(&precious, &lock).expect("ours");
            let error = ControlSocket::bind(&path).expect_err("in the way");
            assert!(error.to_string().contains("in the way"), "{error}");
            assert_eq!(fs::read(&precious).expect("still there"), b"x");
            let _ = fs::remove_file(&lock).or_else(|_| fs::remove_dir(&lock));
        }
        ControlSocket::bind(&path).expect("nothing is in the way any more");
    }

    #[tokio::test]
    async fn what_cannot_be_a_socket_is_said_in_plain_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "x").expect("a file");
        let error = ControlSocket::bind(&file).expect_err("a file").to_string();
        assert!(error.contains("in the way"), "{error}");
        assert_eq!(fs::read(&file).expect("still there"), b"x");
        let long = folder.path().join("x".repeat(120));
        let error = ControlSocket::bind(&long).expect_err("long").to_string();
        assert!(error.contains("allows 103"), "{error}");
        let error = ControlSocket::bind(&file.join("sock")).expect_err("no folder");
        assert!(error.to_string().contains("cannot make"), "{error}");
    }
}
