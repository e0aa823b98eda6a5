//! Clusters and brokers: the answer to 106.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{BrokerData, body};

/// Every broker and every cluster that a name server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInfo {
    /// By broker name.
    pub broker_addr_table: BTreeMap<String, BrokerData>,
    /// Broker names by cluster.
    pub cluster_addr_table: BTreeMap<String, BTreeSet<String>>,
}

body!(ClusterInfo);
