//! `[[assign]]`: queues given to the group by hand, in place of its share among its
//! members.

use std::sync::Arc;

use consumer::assignment::QueueSelector;
use consumer::config::GroupConfigBuilder;
use consumer::listener::MessageModel;
use protocol::subscription::SubscriptionData;

use crate::document::Section;
use crate::problem::Fault;

/// More queues on one broker are believed of no topic.
const QUEUE_ID_MAX: u64 = 65_535;

pub(super) fn read(
    root: &Section<'_, '_>,
    subscriptions: &[SubscriptionData],
    model: MessageModel,
    builder: GroupConfigBuilder,
) -> GroupConfigBuilder {
    if !root.has("assign") {
        return builder;
    }
    let mut queues = Vec::new();
    for section in root.list("assign") {
        let topic = section.required("topic", "\"hello\"", |value| {
            let topic = value.text()?;
            if subscriptions.iter().all(|s| s.topic != topic) {
                return Err(Fault::new(
                    "is not subscribed",
                    "add a table [[subscription]] with this topic",
                ));
            }
            Ok(Arc::<str>::from(topic))
        });
        let broker_name = section.optional("broker_name", |value| Ok(Arc::from(value.text()?)));
        let queue_id = section.optional("queue_id", |value| {
            let id = value.count(0..=QUEUE_ID_MAX)?;
            Ok(u32::try_from(id).unwrap_or(u32::MAX))
        });
        if let Some(topic) = topic {
            queues.push(QueueSelector {
                topic,
                broker_name,
                queue_id,
            });
        }
        section.refuse_unknown();
    }
    let useless = |key: &str, remedy: &str| {
        root.fault(key, Fault::new("has no effect", remedy));
    };
    if model == MessageModel::Broadcasting {
        useless(
            "assign",
            "remove it: in a broadcasting group every host consumes every queue",
        );
        return builder;
    }
    if root.has("allocate_message_queue_strategy") {
        useless(
            "allocate_message_queue_strategy",
            "remove it: queues that are given by [[assign]] are not divided",
        );
    }
    builder.assign(queues)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::manifest::Manifest;

    const GROUP: &str = "name = \"hello\"\ncomponent = \"hello.wasm\"\n\
        consumer_group = \"hello-group\"\n[[subscription]]\ntopic = \"hello\"\n";

    fn problems(text: &str) -> String {
        let problems = Manifest::parse(Path::new("plugin.toml"), text);
        problems.expect_err("problems").to_string()
    }

    #[test]
    fn queues_are_given_by_topic_broker_and_id() {
        let text = format!(
            "{GROUP}[[assign]]\ntopic = \"hello\"\n[[assign]]\ntopic = \"hello\"\n\
             broker_name = \"broker-a\"\nqueue_id = 3\n"
        );
        let manifest = Manifest::parse(Path::new("plugin.toml"), &text).expect("a manifest");
        let given = manifest
            .group_config()
            .assign()
            .expect("given by hand")
            .to_vec();
        assert_eq!(given.len(), 2);
        assert_eq!((&given[0].broker_name, given[0].queue_id), (&None, None));
        assert_eq!(given[1].broker_name.as_deref(), Some("broker-a"));
        assert_eq!(given[1].queue_id, Some(3));
    }

    #[test]
    fn empty_list_is_a_problem_with_its_line() {
        let nothing = problems(&format!("assign = []\n{GROUP}"));
        assert_eq!(
            nothing,
            "plugin.toml:1: assign = []: is an empty list; write each one as a table of its \
             own: [[assign]], or remove the key"
        );
    }

    #[test]
    fn what_cannot_be_given_is_said() {
        let unread = problems(&format!("{GROUP}[[assign]]\ntopic = \"other\"\n"));
        assert!(unread.contains("is not subscribed"), "{unread}");
        let everybody = format!("message_model = \"broadcasting\"\n{GROUP}");
        let everybody = problems(&format!("{everybody}[[assign]]\ntopic = \"hello\"\n"));
        assert!(everybody.contains("has no effect"), "{everybody}");
    }
}
