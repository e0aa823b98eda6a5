//! Recorded headers, typed and flattened again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::*;
use crate::RemotingCommand;
use crate::code::request_code;
use crate::golden;

/// Types the fields of a command and flattens them again.
type Recode = fn(&ExtFields) -> Result<ExtFields, HeaderError>;

fn recode<H: Header + PartialEq + std::fmt::Debug>(
    fields: &ExtFields,
) -> Result<ExtFields, HeaderError> {
    let header = H::decode(fields)?;
    let encoded = header.encode();
    assert_eq!(H::decode(&encoded).as_ref(), Ok(&header));
    Ok(encoded)
}

fn recode_request(code: i32) -> Option<Recode> {
    use request_code::*;
    Some(match code {
        SEND_MESSAGE => recode::<SendMessageRequestHeader>,
        SEND_MESSAGE_V2 | SEND_BATCH_MESSAGE | SEND_REPLY_MESSAGE_V2 => {
            recode::<SendMessageRequestHeaderV2>
        }
        PULL_MESSAGE | LITE_PULL_MESSAGE => recode::<PullMessageRequestHeader>,
        QUERY_MESSAGE => recode::<QueryMessageRequestHeader>,
        VIEW_MESSAGE_BY_ID => recode::<ViewMessageRequestHeader>,
        QUERY_CONSUMER_OFFSET => recode::<QueryConsumerOffsetRequestHeader>,
        UPDATE_CONSUMER_OFFSET => recode::<UpdateConsumerOffsetRequestHeader>,
        UPDATE_AND_CREATE_TOPIC => recode::<CreateTopicRequestHeader>,
        DELETE_TOPIC_IN_BROKER => recode::<DeleteTopicRequestHeader>,
        GET_TOPIC_CONFIG => recode::<GetTopicConfigRequestHeader>,
        GET_TOPIC_STATS_INFO => recode::<GetTopicStatsInfoRequestHeader>,
        GET_CONSUME_STATS => recode::<GetConsumeStatsRequestHeader>,
        GET_CONSUMER_CONNECTION_LIST => recode::<GetConsumerConnectionListRequestHeader>,
        QUERY_TOPIC_CONSUME_BY_WHO => recode::<QueryTopicConsumeByWhoRequestHeader>,
        SEARCH_OFFSET_BY_TIMESTAMP => recode::<SearchOffsetRequestHeader>,
        GET_MAX_OFFSET => recode::<GetMaxOffsetRequestHeader>,
        GET_MIN_OFFSET => recode::<GetMinOffsetRequestHeader>,
        GET_EARLIEST_MSG_STORETIME => recode::<GetEarliestMsgStoretimeRequestHeader>,
        UNREGISTER_CLIENT => recode::<UnregisterClientRequestHeader>,
        CONSUMER_SEND_MSG_BACK => recode::<ConsumerSendMsgBackRequestHeader>,
        END_TRANSACTION => recode::<EndTransactionRequestHeader>,
        CHECK_TRANSACTION_STATE => recode::<CheckTransactionStateRequestHeader>,
        GET_CONSUMER_LIST_BY_GROUP => recode::<GetConsumerListByGroupRequestHeader>,
        NOTIFY_CONSUMER_IDS_CHANGED => recode::<NotifyConsumerIdsChangedRequestHeader>,
        LOCK_BATCH_MQ => recode::<LockBatchMqRequestHeader>,
        UNLOCK_BATCH_MQ => recode::<UnlockBatchMqRequestHeader>,
        GET_ROUTEINFO_BY_TOPIC => recode::<GetRouteInfoRequestHeader>,
        REGISTER_BROKER => recode::<RegisterBrokerRequestHeader>,
        RESET_CONSUMER_CLIENT_OFFSET | INVOKE_BROKER_TO_RESET_OFFSET => {
            recode::<ResetOffsetRequestHeader>
        }
        GET_CONSUMER_STATUS_FROM_CLIENT | INVOKE_BROKER_TO_GET_CONSUMER_STATUS => {
            recode::<GetConsumerStatusRequestHeader>
        }
        GET_CONSUMER_RUNNING_INFO => recode::<GetConsumerRunningInfoRequestHeader>,
        CONSUME_MESSAGE_DIRECTLY => recode::<ConsumeMessageDirectlyResultRequestHeader>,
        _ => return None,
    })
}

/// Java's names of the request that a response answers, and of the response code.
fn recode_response(answers: &str, code: &str) -> Option<Recode> {
    Some(match (answers, code) {
        (
            "pull_message" | "lite_pull_message",
            "success" | "pull_not_found" | "pull_retry_immediately" | "pull_offset_moved",
        ) => recode::<PullMessageResponseHeader>,
        ("query_consumer_offset", "success") => recode::<QueryConsumerOffsetResponseHeader>,
        ("search_offset_by_timestamp", "success") => recode::<SearchOffsetResponseHeader>,
        ("get_max_offset", "success") => recode::<GetMaxOffsetResponseHeader>,
        ("get_min_offset", "success") => recode::<GetMinOffsetResponseHeader>,
        ("get_earliest_msg_storetime", "success") => {
            recode::<GetEarliestMsgStoretimeResponseHeader>
        }
        ("send_message_v2" | "send_batch_message" | "send_reply_message_v2", "success") => {
            recode::<SendMessageResponseHeader>
        }
        ("heart_beat", "success") => recode::<HeartbeatResponseHeader>,
        ("query_message", _) => recode::<QueryMessageResponseHeader>,
        ("register_broker", "success") => recode::<RegisterBrokerResponseHeader>,
        _ => return None,
    })
}

fn map(fields: &ExtFields) -> BTreeMap<&str, Option<&str>> {
    fields.iter().collect()
}

#[test]
fn every_recorded_header_is_typed_and_flattened_to_the_same_fields() {
    let mut kinds = BTreeSet::new();
    let mut headers = 0;
    for frame in golden::frames() {
        let (place, recorded) = (&frame.place, &frame.recorded);
        let command = RemotingCommand::decode(Bytes::from(frame.bytes).slice(4..));
        let command = command.expect("a recorded frame");
        let kind = match recorded["answersName"].as_str() {
            Some(answers) => recode_response(answers, golden::text(&recorded["codeName"])),
            None => recode_request(command.code).filter(|_| !command.is_response()),
        };
        let Some(recode) = kind else { continue };
        let fields = command.ext_fields.clone().unwrap_or_default();
        let again = match recode(&fields) {
            Ok(again) => again,
            // One test of the broker leaves a required field out.
            Err(HeaderError::Missing { field, .. }) => {
                assert_eq!((field, fields.len()), ("commitOffset", 3), "{place}");
                continue;
            }
            Err(error) => panic!("{place}: {error}"),
        };
        let mut expected = map(&fields);
        // Added by hooks of pull consumers.
        expected.remove("ReqT");
        assert_eq!(map(&again), expected, "{place}");
        headers += 1;
        kinds.insert((
            recorded["codeName"].to_string(),
            recorded["answersName"].to_string(),
        ));
    }
    assert_eq!(
        (headers, kinds.len()),
        (1669, 54),
        "headers and their kinds"
    );
}

#[test]
fn a_missing_required_field_is_named() {
    let command = RemotingCommand::request(request_code::PULL_MESSAGE, ExtFields::default());
    let error = command
        .header::<PullMessageRequestHeader>()
        .expect_err("a bad header");
    assert_eq!(
        error.to_string(),
        "the header PullMessageRequestHeader lacks its required field consumerGroup"
    );
    let offset = [("offset", "x")].into_iter().collect();
    let error = GetMaxOffsetResponseHeader::decode(&offset).expect_err("a bad header");
    assert_eq!(
        error.to_string(),
        "the field offset of the header GetMaxOffsetResponseHeader is not a 64-bit number"
    );
}

#[test]
fn an_unreadable_optional_field_is_absent() {
    let fields = [
        ("offset", "1"),
        ("delayLevel", "2"),
        ("group", "g"),
        ("maxReconsumeTimes", "many"),
    ];
    let header = ConsumerSendMsgBackRequestHeader::decode(&fields.into_iter().collect());
    assert_eq!(header.map(|header| header.max_reconsume_times), Ok(None));
}

#[test]
fn fields_that_are_none_are_left_out() {
    let header = UnregisterClientRequestHeader {
        client_id: "c".to_owned(),
        ..Default::default()
    };
    assert_eq!(map(&header.encode()), [("clientID", Some("c"))].into());
}

#[test]
fn a_send_request_reads_by_its_code() {
    let header = SendMessageRequestHeader {
        topic: "T".to_owned(),
        batch: Some(true),
        ..Default::default()
    };
    let long = header.encode();
    let short = SendMessageRequestHeaderV2(header.clone()).encode();
    assert_eq!((long.get("topic"), short.get("b")), (Some("T"), Some("T")));
    for (code, fields) in [
        (request_code::SEND_MESSAGE, &long),
        (request_code::SEND_MESSAGE_V2, &short),
        (request_code::SEND_BATCH_MESSAGE, &short),
    ] {
        let read = SendMessageRequestHeader::decode_for(code, fields);
        assert_eq!(read.as_ref(), Ok(&header), "{code}");
    }
}
