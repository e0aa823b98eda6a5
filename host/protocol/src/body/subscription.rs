//! `SubscriptionData` as an object.

use std::collections::BTreeSet;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::subscription::{ExpressionType, SubscriptionData};

impl Serialize for SubscriptionData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut data = serializer.serialize_struct("SubscriptionData", 7)?;
        data.serialize_field("classFilterMode", &self.class_filter_mode)?;
        data.serialize_field("codeSet", &self.code_set)?;
        data.serialize_field("expressionType", self.expression_type.as_str())?;
        data.serialize_field("subString", &self.sub_string)?;
        data.serialize_field("subVersion", &self.sub_version)?;
        data.serialize_field("tagsSet", &self.tags_set)?;
        data.serialize_field("topic", &self.topic)?;
        data.end()
    }
}

impl<'de> Deserialize<'de> for SubscriptionData {
    /// Differs from RocketMQ: a missing `subVersion` is 0, not the reader's clock.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Wire {
            class_filter_mode: bool,
            code_set: BTreeSet<i32>,
            expression_type: Option<String>,
            sub_string: String,
            sub_version: i64,
            tags_set: BTreeSet<String>,
            topic: String,
        }
        let wire = Wire::deserialize(deserializer)?;
        Ok(Self {
            topic: wire.topic,
            sub_string: wire.sub_string,
            tags_set: wire.tags_set,
            code_set: wire.code_set,
            sub_version: wire.sub_version,
            expression_type: wire
                .expression_type
                .map_or(ExpressionType::Tag, |text| ExpressionType::from(&*text)),
            class_filter_mode: wire.class_filter_mode,
        })
    }
}
