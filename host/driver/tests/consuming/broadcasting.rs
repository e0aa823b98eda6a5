//! Broadcasting groups: positions in files of the host, from one client to the next.

use std::path::Path;
use std::sync::Arc;

use consumer::listener::MessageModel;
use consumer::{ConsumeFromWhere, GroupConfig};
use driver::Driver;
use protocol::subscription::SubscriptionData;

use crate::cluster::{Cluster, Log, PATIENCE, eventually};
use crate::listeners::Recorder;
use crate::{GROUP, TOPIC, subscribe};

fn broadcasting() -> GroupConfig {
    GroupConfig::builder(GROUP)
        .message_model(MessageModel::Broadcasting)
        .consume_from_where(ConsumeFromWhere::FirstOffset)
        .subscription(SubscriptionData::all(TOPIC))
        .build()
        .unwrap()
}

fn driver(cluster: &Cluster, namespace: &str, folder: &Path) -> (Driver, Arc<Log>) {
    cluster.driver_with(|config| {
        config.client.namespace = namespace.to_owned();
        config.local_offsets = Some(folder.to_owned());
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_left_gives_its_file_back_within_a_namespace_too() {
    for namespace in ["", "shop"] {
        let cluster = Cluster::start().await;
        let folder = tempfile::tempdir().unwrap();
        let topic = protocol::topic::wrap_namespace(namespace, TOPIC);
        cluster.send(&topic, 0..40);
        let (first, _) = driver(&cluster, namespace, folder.path());
        let recorder = Recorder::succeeding();
        subscribe(&first, broadcasting(), &recorder).await;
        eventually("all are consumed", || recorder.messages() == 40).await;
        first.unsubscribe(GROUP).await.unwrap();

        // Given that the first client lives on, another one goes on where it was.
        let (second, log) = driver(&cluster, namespace, folder.path());
        let recorder = Recorder::succeeding();
        subscribe(&second, broadcasting(), &recorder).await;
        cluster.send(&topic, 40..60);
        eventually("the others", || {
            assert_eq!(log.count("another process"), 0, "the file is still taken");
            recorder.messages() == 20
        })
        .await;
        second.stop(PATIENCE).await;
        first.stop(PATIENCE).await;
        assert_eq!(recorder.deliveries(), 20, "in namespace {namespace:?}");
    }
}
