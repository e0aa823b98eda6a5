//! Against a real `redis-server` on this machine.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use super::*;

const BOUND: Duration = Duration::from_secs(30);

/// Ends with the test.
struct Server {
    process: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Server {
    /// `None`, with a word about it, where there is no `redis-server`; a machine that
    /// checks everything has one.
    fn start(arguments: &[&str]) -> Option<Self> {
        let found = Command::new("redis-server").arg("--version").output();
        if found.is_err() {
            let missing = "redis-server is missing; run tests/toolchain/install.sh redis";
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            println!("not tested: {missing}");
            return None;
        }
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let folder = tempfile::tempdir().unwrap();
        let process = Self::spawn(folder.path(), port, arguments);
        Some(Self {
            process,
            folder,
            port,
        })
    }

    fn spawn(folder: &std::path::Path, port: u16, arguments: &[&str]) -> Child {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command
            .args(["--port", &port.to_string(), "--dir"])
            .arg(folder);
        command.args(arguments).stdout(Stdio::null());
        command.spawn().unwrap()
    }

    fn place(&self) -> RedisPlace {
        RedisPlace::parse(&format!("redis://127.0.0.1:{}/0", self.port)).unwrap()
    }

    async fn buckets(&self, tenant: &str, quota: Quota) -> RedisBuckets {
        let buckets = RedisBuckets::new(self.place(), tenant, quota);
        until_it_answers(&buckets).await;
        buckets
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _already_gone = self.process.wait();
    }
}

async fn until_it_answers(buckets: &RedisBuckets) {
    let asking = async {
        while buckets.get(key("b", "any")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, asking)
        .await
        .expect("it answers");
}

fn key(bucket: &str, key: &str) -> BucketKey {
    BucketKey {
        bucket: bucket.into(),
        key: key.to_owned(),
    }
}

#[tokio::test]
async fn tenants_and_buckets_are_apart_and_hosts_share_them() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let shop = server.buckets("shop", Quota::default()).await;
    let bank = server.buckets("bank", Quota::default()).await;
    // Names that begin like others, and bytes that mean something to Redis.
    shop.set(key("a", "x"), b"1\r\n\0".to_vec()).await.unwrap();
    shop.set(key("ab", "x"), b"2".to_vec()).await.unwrap();
    bank.set(key("a", "x"), b"3".to_vec()).await.unwrap();
    let other_host = server.buckets("shop", Quota::default()).await;
    assert_eq!(
        other_host.get(key("a", "x")).await,
        Ok(Some(b"1\r\n\0".to_vec()))
    );
    assert_eq!(
        other_host.get(key("ab", "x")).await,
        Ok(Some(b"2".to_vec()))
    );
    assert_eq!(bank.get(key("a", "x")).await, Ok(Some(b"3".to_vec())));
    assert_eq!(bank.keys("ab".into(), None).await, Ok((Vec::new(), false)));
    shop.delete(key("a", "x")).await.unwrap();
    shop.delete(key("a", "x")).await.unwrap();
    assert_eq!(other_host.get(key("a", "x")).await, Ok(None));
    assert_eq!(
        other_host.keys("a".into(), None).await,
        Ok((Vec::new(), false))
    );
}

#[tokio::test]
async fn keys_are_listed_page_by_page() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.buckets("shop", Quota::default()).await;
    for number in 0..=KEYS_PER_PAGE {
        let key = key("b", &format!("{number:05}"));
        store.set(key, Vec::new()).await.unwrap();
    }
    let (page, has_more) = store.keys("b".into(), None).await.unwrap();
    assert_eq!((page.len(), has_more), (KEYS_PER_PAGE, true));
    let last = page.last().cloned();
    let rest = store.keys("b".into(), last).await.unwrap();
    assert_eq!(rest, (vec![format!("{KEYS_PER_PAGE:05}")], false));
    let beyond = store.keys("b".into(), Some("~".to_owned())).await;
    assert_eq!(beyond, Ok((Vec::new(), false)));
}

/// The same as of the embedded store, number by number.
#[tokio::test]
async fn quota_counts_keys_and_bytes_and_what_is_refused_changes_nothing() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let store = server.buckets("shop", Quota { keys: 2, bytes: 20 }).await;
    let set = |name: &str, bytes| store.set(key("b", name), vec![1; bytes]);
    set("1", 10).await.unwrap();
    assert_eq!(set("2", 10).await, Err(KeyValueError::TooManyBytes(20)));
    assert_eq!(store.get(key("b", "2")).await, Ok(None));
    set("2", 4).await.unwrap();
    assert_eq!(set("3", 0).await, Err(KeyValueError::TooManyKeys(2)));
    let third = store.increment(key("b", "3"), 1).await;
    assert_eq!(third, Err(KeyValueError::TooManyKeys(2)));
    set("1", 1).await.unwrap();
    store.delete(key("b", "2")).await.unwrap();
    store.delete(key("b", "2")).await.unwrap();
    set("3", 12).await.unwrap();
    let no_number = store.increment(key("b", "3"), 1).await;
    assert_eq!(no_number, Err(KeyValueError::NotANumber));
}

#[tokio::test]
async fn increments_of_several_hosts_all_count_and_keep_64_bits() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let hosts = [
        server.buckets("shop", Quota::default()).await,
        server.buckets("shop", Quota::default()).await,
    ];
    let mut adding = tokio::task::JoinSet::new();
    for number in 0..100 {
        let host = hosts[number % 2].clone();
        adding.spawn(async move { host.increment(key("b", "n"), 3).await });
    }
    assert!(adding.join_all().await.iter().all(Result::is_ok));
    assert_eq!(hosts[0].increment(key("b", "n"), 0).await, Ok(300));
    let large = (1 << 63) | 0xff_ffff_ffff;
    assert_eq!(
        hosts[0].increment(key("b", "n"), large).await,
        Ok(large + 300)
    );
    let value = hosts[1].get(key("b", "n")).await.unwrap();
    assert_eq!(value, Some((large + 300).to_le_bytes().to_vec()));
    let too_much = hosts[1].increment(key("b", "n"), 1 << 63).await;
    assert_eq!(too_much, Err(KeyValueError::Overflow));
    assert_eq!(hosts[1].increment(key("b", "n"), 0).await, Ok(large + 300));
}

#[tokio::test]
async fn server_that_dies_is_an_error_and_is_asked_again_when_it_is_back() {
    let Some(mut server) = Server::start(&[]) else {
        return;
    };
    let store = server.buckets("shop", Quota::default()).await;
    store.set(key("b", "1"), vec![1]).await.unwrap();
    server.kill();
    let died = Instant::now();
    for _ in 0..20 {
        let error = store.get(key("b", "1")).await.unwrap_err();
        let address = format!("Redis at 127.0.0.1:{}", server.port);
        assert!(error.to_string().contains(&address), "{error}");
    }
    assert!(died.elapsed() < CONNECT_TIMEOUT + ANSWER_TIMEOUT);
    server.process = Server::spawn(server.folder.path(), server.port, &[]);
    until_it_answers(&store).await;
    store.set(key("b", "1"), vec![2]).await.unwrap();
    assert_eq!(store.get(key("b", "1")).await, Ok(Some(vec![2])));
}

#[tokio::test]
async fn password_lets_in_and_is_shown_nowhere() {
    let Some(server) = Server::start(&["--requirepass", "s3cret"]) else {
        return;
    };
    let right = server.place().logged_in(None, Some("s3cret"));
    let store = RedisBuckets::new(right, "shop", Quota::default());
    until_it_answers(&store).await;
    assert!(!format!("{store:?}").contains("s3cret"));
    for wrong in [
        server.place(),
        server.place().logged_in(None, Some("wr0ng")),
    ] {
        let store = RedisBuckets::new(wrong, "shop", Quota::default());
        let error = store.get(key("b", "1")).await.unwrap_err().to_string();
        assert!(
            error.contains("Redis at") && !error.contains("wr0ng"),
            "{error}"
        );
    }
}

#[test]
fn secrets_and_other_schemes_are_no_part_of_an_address() {
    for text in [
        "redis://:pw@host",
        "redis://me@host",
        "rediss://host",
        "10.0.0.1:6379",
        "redis://",
    ] {
        assert!(RedisPlace::parse(text).is_err(), "{text}");
    }
    let place = RedisPlace::parse("redis://10.0.0.1:6380/3").unwrap();
    assert_eq!(format!("{place:?}"), "RedisPlace(10.0.0.1:6380)");
}
