//! The name server: routes, read straight from the broker's topics.
//!
//! There is one broker and it is always alive, so nothing registers or expires.
//! RocketMQ: `ClientRequestProcessor`, `RouteInfoManager`.

use std::collections::{BTreeMap, BTreeSet};

use protocol::RemotingCommand;
use protocol::body::{BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData};
use protocol::code::response_code;
use protocol::header::GetRouteInfoRequestHeader;

use crate::broker::{Answer, FAQ, Refusal, header, success};
use crate::config::BrokerConfig;
use crate::topics::{TopicConfig, Topics};

/// Broker id of the master.
const MASTER_ID: u64 = 0;

/// GET_ROUTEINFO_BY_TOPIC.
pub(crate) fn route_info(
    request: &RemotingCommand,
    topics: &Topics,
    config: &BrokerConfig,
) -> Answer {
    let header: GetRouteInfoRequestHeader = header(request)?;
    let Some(topic) = topics.get(&header.topic) else {
        return Err(Refusal::new(
            response_code::TOPIC_NOT_EXIST,
            format!(
                "No topic route info in name server for the topic: {}{FAQ}",
                header.topic
            ),
        ));
    };
    Ok(success(request).with_body(route_of(topic, config).encode()))
}

/// GET_BROKER_CLUSTER_INFO.
pub(crate) fn cluster_info(request: &RemotingCommand, config: &BrokerConfig) -> RemotingCommand {
    let name = config.broker_name.to_string();
    let info = ClusterInfo {
        broker_addr_table: BTreeMap::from([(name.clone(), broker_data(config))]),
        cluster_addr_table: BTreeMap::from([(
            config.cluster_name.to_string(),
            BTreeSet::from([name]),
        )]),
    };
    success(request).with_body(info.encode())
}

/// GET_ALL_TOPIC_LIST_FROM_NAMESERVER.
pub(crate) fn topic_list(request: &RemotingCommand, topics: &Topics) -> RemotingCommand {
    let list = TopicList {
        topic_list: topics.names().map(ToString::to_string).collect(),
        ..TopicList::default()
    };
    success(request).with_body(list.encode())
}

fn route_of(topic: &TopicConfig, config: &BrokerConfig) -> TopicRouteData {
    TopicRouteData {
        broker_datas: vec![broker_data(config)],
        queue_datas: vec![QueueData {
            broker_name: config.broker_name.to_string(),
            perm: i32::try_from(topic.perm.0).unwrap_or(0),
            read_queue_nums: topic.read_queue_nums,
            topic_sys_flag: topic.topic_sys_flag,
            write_queue_nums: topic.write_queue_nums,
        }],
        ..TopicRouteData::default()
    }
}

fn broker_data(config: &BrokerConfig) -> BrokerData {
    BrokerData {
        broker_addrs: BTreeMap::from([(MASTER_ID, config.advertised.clone())]),
        broker_name: config.broker_name.to_string(),
        cluster: config.cluster_name.to_string(),
        ..BrokerData::default()
    }
}
