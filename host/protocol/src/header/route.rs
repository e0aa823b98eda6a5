//! Name server requests: routes and broker registration.

use super::header;

header! {
    /// Asks where a topic lives; the answer is a `TopicRouteData`. Code 105.
    GetRouteInfoRequestHeader {
        topic: String = "topic",
        /// Ask for standard JSON whatever our version is (5.x).
        accept_standard_json_only: Option<bool> = "acceptStandardJsonOnly",
    }
}

header! {
    /// A broker announces itself and its topics. Code 103.
    RegisterBrokerRequestHeader {
        broker_name: String = "brokerName",
        broker_addr: String = "brokerAddr",
        cluster_name: String = "clusterName",
        ha_server_addr: String = "haServerAddr",
        /// 0 is the master.
        broker_id: i64 = "brokerId",
        heartbeat_timeout_millis: Option<i64> = "heartbeatTimeoutMillis",
        enable_acting_master: Option<bool> = "enableActingMaster",
        compressed: Option<bool> = "compressed",
        /// CRC-32 of the body without its top bit; 0 is unchecked.
        body_crc32: Option<i32> = "bodyCrc32",
    }
}

header! {
    /// Answer to 103.
    RegisterBrokerResponseHeader {
        ha_server_addr: Option<String> = "haServerAddr",
        master_addr: Option<String> = "masterAddr",
    }
}

header! {
    /// A broker leaves. Code 104.
    UnRegisterBrokerRequestHeader {
        broker_name: String = "brokerName",
        broker_addr: String = "brokerAddr",
        cluster_name: String = "clusterName",
        broker_id: i64 = "brokerId",
    }
}
