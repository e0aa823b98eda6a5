//! Settings, secrets, buckets, clocks and a folder: what is granted works, what is not is
//! refused with what to do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use consumer::listener::ConsumeResult;
use wasm::{
    Artefact, BucketKey, CheckedComponent, ClockGrant, ComponentProblem, Grants, HttpGrant,
    KeyValueError, KeyValueFuture, KeyValueStore, PluginConfig, Secrets,
};

use crate::support::{Plugin, Request, engine};

pub async fn load(edit: impl FnOnce(&mut PluginConfig)) -> Plugin {
    // It is large, and compiled once for all of them.
    static COMPILED: tokio::sync::OnceCell<Artefact> = tokio::sync::OnceCell::const_new();
    let artefact = COMPILED.get_or_init(|| async {
        let mut all = PluginConfig::new("reach", "r1");
        grant_everything(&mut all);
        let bytes = guest_artifacts::bytes("reach");
        let component = CheckedComponent::check_granted(bytes, &all.grants).unwrap();
        engine().compile(&component).await.unwrap()
    });
    match Plugin::load_in(engine(), artefact.await, "reach", edit).await {
        Ok(plugin) => plugin,
        Err((error, _)) => panic!("it is not loaded: {error}"),
    }
}

/// What the guest imports.
pub fn grant_everything(config: &mut PluginConfig) {
    config.grants.http = Some(HttpGrant::new(vec!["example.org".parse().unwrap()]));
    config.grants.buckets = vec!["orders".to_owned()];
    config.grants.config = true;
}

async fn ask(plugin: &Plugin, bodies: &[&str]) -> Vec<String> {
    plugin.reasons(Request::of(bodies)).await
}

#[test]
fn each_import_without_its_grant_is_refused_with_what_to_do() {
    let bytes = guest_artifacts::bytes("reach");
    let problems = CheckedComponent::check(bytes.clone()).unwrap_err();
    let refused = |import: &str, remedy: &str| {
        let found = problems.iter().any(|problem| {
            problem.to_string().contains(import)
                && problem.to_string().contains("is not granted")
                && problem.remedy().contains(remedy)
        });
        assert!(found, "{import}: {problems:?}");
    };
    refused("wasi:http/outgoing-handler", "add http = { hosts");
    refused("wasi:keyvalue/store", "add keyvalue = { buckets");
    refused("wasi:keyvalue/atomics", "add keyvalue = { buckets");
    refused("wasi:config/store", "add config = true");
    let granted = Grants {
        config: true,
        buckets: vec!["orders".to_owned()],
        ..Grants::default()
    };
    let left = CheckedComponent::check_granted(bytes, &granted).unwrap_err();
    assert!(
        left.iter().all(|problem| matches!(
            problem,
            ComponentProblem::NotGranted { import, .. } if import.starts_with("wasi:http/")
        )),
        "{left:?}"
    );
}

#[tokio::test]
async fn secrets_are_had_by_name_and_never_listed() {
    let plugin = load(|config| {
        grant_everything(config);
        config.settings = vec![("region".into(), "eu".into())];
        config.secrets = Secrets::new(vec![("api-key".into(), "s3cret".into())]);
    })
    .await;
    let answers = ask(
        &plugin,
        &["config region", "config api-key", "config none", "all"],
    )
    .await;
    assert_eq!(
        answers,
        [
            "Some(\"eu\")",
            "Some(\"s3cret\")",
            "None",
            "[(\"region\", \"eu\")]"
        ]
    );
    let shown = format!("{:?}", plugin.listener.config());
    assert!(
        shown.contains("api-key") && !shown.contains("s3cret"),
        "{shown}"
    );
}

/// Keeps everything in memory, at most three keys.
#[derive(Clone, Default, Debug)]
pub struct Memory(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Memory {
    fn with<T>(
        &self,
        work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> Result<T, KeyValueError>,
    ) -> KeyValueFuture<T>
    where
        T: Send + 'static,
    {
        let done = work(&mut self.0.lock().unwrap());
        Box::pin(std::future::ready(done))
    }
}

impl KeyValueStore for Memory {
    fn get(&self, key: BucketKey) -> KeyValueFuture<Option<Vec<u8>>> {
        self.with(|all| Ok(all.get(&key.key).cloned()))
    }

    fn set(&self, key: BucketKey, value: Vec<u8>) -> KeyValueFuture<()> {
        self.with(|all| {
            if all.len() == 3 && !all.contains_key(&key.key) {
                return Err(KeyValueError::TooManyKeys(3));
            }
            all.insert(key.key, value);
            Ok(())
        })
    }

    fn delete(&self, key: BucketKey) -> KeyValueFuture<()> {
        self.with(|all| {
            all.remove(&key.key);
            Ok(())
        })
    }

    /// One key a page.
    fn keys(&self, _: Arc<str>, after: Option<String>) -> KeyValueFuture<(Vec<String>, bool)> {
        self.with(|all| {
            let mut rest = all
                .keys()
                .filter(|key| Some(*key) > after.as_ref())
                .cloned();
            let page: Vec<_> = rest.by_ref().take(1).collect();
            Ok((page, rest.next().is_some()))
        })
    }

    fn increment(&self, _: BucketKey, delta: u64) -> KeyValueFuture<u64> {
        self.with(|_| Ok(40 + delta))
    }
}

#[tokio::test]
async fn granted_bucket_keeps_values_and_no_other_is_opened() {
    let plugin = load(|config| {
        grant_everything(config);
        config.key_value = Some(Arc::new(Memory::default()));
    })
    .await;
    let answers = ask(
        &plugin,
        &[
            "get orders a",
            "set orders a 1",
            "get orders a",
            "exists orders a",
            "set orders b 2",
            "set orders c 3",
            "set orders d 4",
            "keys orders",
            "delete orders a",
            "exists orders a",
            "add orders n 2",
            "weed orders",
            "keys orders",
            "page orders 7",
            "open payments",
            "open ../orders",
        ],
    )
    .await;
    assert_eq!(
        answers[..6],
        ["none", "set", "1", "true", "set", "set"],
        "{answers:?}"
    );
    assert!(
        answers[6].contains("which is all it may have"),
        "{answers:?}"
    );
    assert_eq!(answers[7..11], ["a,b,c", "deleted", "false", "42"]);
    // Each page's keys were deleted before the next one was asked for.
    assert_eq!(answers[11..13], ["b,c", ""]);
    assert!(answers[13].contains("7 is not the cursor"), "{answers:?}");
    assert_eq!(answers[14..], ["error: Error::AccessDenied"; 2]);
}

#[tokio::test]
async fn keys_and_values_have_bounds() {
    let plugin = load(|config| {
        grant_everything(config);
        config.key_value = Some(Arc::new(Memory::default()));
    })
    .await;
    let long = format!("set orders {} 1", "k".repeat(1025));
    let answers = ask(&plugin, &[&long, "set orders  1", "fill orders 1 1048577"]).await;
    assert!(answers[0].contains("the key has 1025 bytes"), "{answers:?}");
    assert!(answers[1].contains("the key has 0 bytes"), "{answers:?}");
    assert!(
        answers[2].contains("the value has 1048577 bytes"),
        "{answers:?}"
    );
}

/// How far the clocks moved: monotonic, wall, host.
async fn moved(clock: ClockGrant) -> Vec<u64> {
    let plugin = load(|config| {
        grant_everything(config);
        config.grants.clock = clock;
    })
    .await;
    let answer = ask(&plugin, &["clock 30"]).await.remove(0);
    answer
        .split(' ')
        .map(|moved| moved.parse().unwrap())
        .collect()
}

#[tokio::test]
async fn clocks_are_as_granted() {
    assert!(moved(ClockGrant::Exact).await.iter().all(|ms| *ms >= 29));
    let coarse = moved(ClockGrant::Coarse).await;
    assert!(
        coarse.iter().all(|ms| ms % ClockGrant::COARSE_STEP_MS == 0) && coarse[0] > 0,
        "{coarse:?}"
    );
    assert_eq!(moved(ClockGrant::Frozen).await, [0, 0, 0]);
}

#[tokio::test]
async fn granted_folder_can_be_read_and_not_written_nor_left() {
    let around = std::env::temp_dir().join(format!("mqlet-reach-{}", std::process::id()));
    let folder = around.join("granted");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("rules.txt"), "all is well").unwrap();
    let beside = around.join("beside.txt");
    std::fs::write(&beside, "nobody's").unwrap();
    std::os::unix::fs::symlink(&beside, folder.join("out")).unwrap();
    std::os::unix::fs::symlink("../beside.txt", folder.join("up")).unwrap();
    std::os::unix::fs::symlink("rules.txt", folder.join("in")).unwrap();
    let plugin = load(|config| {
        grant_everything(config);
        config.grants.folder = Some(folder.clone());
    })
    .await;
    let absolute = format!("read {}", beside.display());
    let bodies = [
        "read /rules.txt",
        "read /in",
        "write /rules.txt",
        "write /new",
        "read /out",
        "read /up",
        "read /../beside.txt",
        &absolute,
    ];
    let answers = ask(&plugin, &bodies).await;
    assert_eq!(answers[..2], ["all is well"; 2]);
    assert!(
        answers[2..]
            .iter()
            .all(|answer| answer.starts_with("error: ")),
        "{answers:?}"
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 4);

    // Without its folder there is no instance: it would find nothing there, and go on.
    std::fs::rename(&folder, around.join("gone")).unwrap();
    plugin.listener.close().await;
    let result = plugin.consume(&["read /rules.txt"]).await;
    assert_eq!(result, ConsumeResult::NotFinished);
    let record = plugin
        .events
        .failures()
        .pop()
        .expect("somebody hears of it");
    let told = record.kind.to_string();
    assert!(told.contains(&*folder.to_string_lossy()), "{told}");

    std::fs::remove_dir_all(&around).unwrap();

    let sealed = load(grant_everything).await;
    let answer = ask(&sealed, &["read /rules.txt"]).await;
    assert!(answer[0].starts_with("error: "), "{answer:?}");
}
