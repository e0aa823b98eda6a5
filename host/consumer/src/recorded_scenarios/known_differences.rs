//! What we ask and Java does not, and the reverse, each with its reason. Most are one
//! field of a request that both make: there ours is written as Java's before they are
//! compared. The others are whole requests that one side alone makes; their form is
//! exact but for `*`, which stands for any text. An entry that explains nothing fails the
//! test.

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Java,
    Ours,
}

/// A part of our requests that Java writes differently.
pub(super) struct Rewriting {
    /// In one recording; `None`: in any.
    pub(super) scenario: Option<&'static str>,
    /// The beginning of the form of such a request.
    pub(super) request: &'static str,
    pub(super) ours: &'static str,
    pub(super) java: &'static str,
    /// For people.
    #[expect(dead_code, reason = "read by people")]
    pub(super) reason: &'static str,
}

/// A request that one side alone made.
pub(super) struct Difference {
    pub(super) scenario: Option<&'static str>,
    pub(super) side: Side,
    /// The request's form.
    pub(super) form: &'static str,
    /// For people.
    #[expect(dead_code, reason = "read by people")]
    pub(super) reason: &'static str,
}

/// A pull of the push consumer over tags.
const fn carried_filter(
    scenario: &'static str,
    ours: &'static str,
    java: &'static str,
) -> Rewriting {
    Rewriting {
        scenario: Some(scenario),
        request: "11 ",
        ours,
        java,
        reason: "our pulls carry their filter: a broker goes by the highest version of any member, which may be an older filter that passes over messages",
    }
}

pub(super) const REWRITINGS: &[Rewriting] = &[
    carried_filter(
        "push-broadcasting",
        " subscription=TagA suspendTimeoutMillis=15000 topic=T_broadcast sysFlag without commit=6",
        " suspendTimeoutMillis=15000 topic=T_broadcast sysFlag without commit=2",
    ),
    carried_filter(
        "push-concurrent",
        " subscription=* suspendTimeoutMillis=15000 topic=T_push sysFlag without commit=6",
        " suspendTimeoutMillis=15000 topic=T_push sysFlag without commit=2",
    ),
    carried_filter(
        "push-orderly",
        " subscription=* suspendTimeoutMillis=15000 topic=T_orderly sysFlag without commit=6",
        " suspendTimeoutMillis=15000 topic=T_orderly sysFlag without commit=2",
    ),
    carried_filter(
        "push-retry-dlq",
        " subscription=* suspendTimeoutMillis=15000 topic=T_retry sysFlag without commit=6",
        " suspendTimeoutMillis=15000 topic=T_retry sysFlag without commit=2",
    ),
    carried_filter(
        "push-subscription-not-latest",
        " subscription=* suspendTimeoutMillis=15000 topic=T_trace sysFlag without commit=6",
        " suspendTimeoutMillis=15000 topic=T_trace sysFlag without commit=2",
    ),
    carried_filter(
        "push-tag-filter",
        " subscription=Aa || TagA||标签 suspendTimeoutMillis=15000 topic=T_tags sysFlag without commit=6",
        " suspendTimeoutMillis=15000 topic=T_tags sysFlag without commit=2",
    ),
    Rewriting {
        scenario: None,
        request: "14 ",
        ours: " setZeroIfNotFound=false",
        java: "",
        reason: "the broker must not make up a zero; 5.x clients leave it to the broker's default",
    },
    Rewriting {
        scenario: None,
        request: "15 ",
        ours: "15 ",
        java: "15 oneway ",
        reason: "commits of ours are answered, so that a lost one is known and made again",
    },
    Rewriting {
        scenario: Some("pull-consumer"),
        request: "11 ",
        ours: "suspendTimeoutMillis=0",
        java: "suspendTimeoutMillis=20000",
        reason: "a pull that the broker must not hold has no time for it; the one that Java names counts for nothing",
    },
    Rewriting {
        scenario: Some("pull-consumer"),
        request: "11 ",
        ours: "maxMsgBytes=262144",
        java: "maxMsgBytes=2147483647",
        reason: "our answers have a bound in bytes in every mode",
    },
    Rewriting {
        scenario: Some("lite-pull"),
        request: "11 ",
        ours: "maxMsgBytes=262144",
        java: "maxMsgBytes=2147483647",
        reason: "our answers have a bound in bytes in every mode",
    },
    Rewriting {
        scenario: Some("pull-consumer"),
        request: "29 ",
        ours: " queueId=",
        java: " boundaryType=LOWER queueId=",
        reason: "LOWER is the broker's default, and 4.x does not know the field",
    },
    Rewriting {
        scenario: Some("pull-consumer"),
        request: "30 ",
        ours: " queueId=",
        java: " committed=true queueId=",
        reason: "true is the broker's default, and 4.x does not know the field",
    },
    Rewriting {
        scenario: Some("lite-pull"),
        request: "11 ",
        ours: "suspendTimeoutMillis=15000",
        java: "suspendTimeoutMillis=20000",
        reason: "we hold pulls as long in every mode as Java's push consumer does",
    },
    Rewriting {
        scenario: Some("lite-pull"),
        request: "11 ",
        ours: "sysFlag without commit=6",
        java: "sysFlag without commit=22",
        reason: "Java marks a lite pull",
    },
    Rewriting {
        scenario: Some("lite-pull"),
        request: "11 ",
        ours: "11 ",
        java: "361 ",
        reason: "361 is 11 with statistics of its own at the broker; 4.9 has it not",
    },
    Rewriting {
        scenario: Some("lite-pull"),
        request: "heartbeat ",
        ours: "CONSUME_PASSIVELY",
        java: "CONSUME_ACTIVELY",
        reason: "a group with a listener consumes passively, wherever its queues come from",
    },
    Rewriting {
        scenario: Some("lite-pull"),
        request: "heartbeat ",
        ours: "{\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"TAG\",\"subString\":\"*\",\"tagsSet\":[],\"topic\":\"%RETRY%G_lite\"},",
        java: "",
        reason: "what fails in a lite pull is its application's business in Java; ours comes again",
    },
    Rewriting {
        scenario: Some("lite-pull"),
        request: "heartbeat ",
        ours: "{\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"TAG\",\"subString\":\"*\",\"tagsSet\":[],\"topic\":\"T_lite\"}",
        java: "",
        reason: "queues that are given by hand need no subscription in Java; ours says its filter there",
    },
];

pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        scenario: None,
        side: Side::Ours,
        form: "307 clientId=* consumerGroup=* jstackEnable=false",
        reason: "each member asks the next one what it reads, and tells when that differs",
    },
    Difference {
        scenario: None,
        side: Side::Java,
        form: r#"35 clientID=* consumerGroup=*"#,
        reason: "Java leaves once for each of its groups",
    },
    Difference {
        scenario: None,
        side: Side::Java,
        form: r#"35 clientID=* producerGroup=CLIENT_INNER_PRODUCER"#,
        reason: "as above",
    },
    Difference {
        scenario: None,
        side: Side::Ours,
        form: r#"35 clientID=* consumerGroup=* producerGroup=CLIENT_INNER_PRODUCER"#,
        reason: "the consumer's and the sender's group leave in one request, which the broker allows",
    },
    Difference {
        scenario: None,
        side: Side::Ours,
        form: r#"31 bname=broker-a queueId=* topic=*"#,
        reason: "first_offset and a retry topic start at the oldest message there is, where Java asks for offset 0 and is corrected when that is gone",
    },
    Difference {
        scenario: Some("push-concurrent"),
        side: Side::Ours,
        form: r#"15 oneway bname=broker-a consumerGroup=G_push queueId=0 topic=%RETRY%G_push"#,
        reason: "the start offset is committed before the first pull, so that a crash does not choose again",
    },
    Difference {
        scenario: Some("push-concurrent"),
        side: Side::Ours,
        form: r#"last commit of %RETRY%G_push:0: 0"#,
        reason: "as above",
    },
    Difference {
        scenario: Some("push-subscription-not-latest"),
        side: Side::Java,
        form: r#"15 oneway bname=broker-a consumerGroup=G_trace queueId=0 topic=T_trace"#,
        reason: "Java commits 0 of queues that had no message; a broker assumes it",
    },
    Difference {
        scenario: Some("push-subscription-not-latest"),
        side: Side::Java,
        form: r#"last commit of T_trace:0: 0"#,
        reason: "as above",
    },
    Difference {
        scenario: Some("push-subscription-not-latest"),
        side: Side::Java,
        form: r#"15 oneway bname=broker-a consumerGroup=G_trace queueId=1 topic=T_trace"#,
        reason: "Java commits 0 of queues that had no message; a broker assumes it",
    },
    Difference {
        scenario: Some("push-subscription-not-latest"),
        side: Side::Java,
        form: r#"last commit of T_trace:1: 0"#,
        reason: "as above",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"11 bname=broker-a consumerGroup=G_pull expressionType=SQL92 * queueOffset=0 subscription=TAGS = 'TagC' *"#,
        reason: "a guest cannot ask it: its pulls filter by tags",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"11 * queueId=0 queueOffset=0 subscription=* suspendTimeoutMillis=20000 topic=T_none sysFlag without commit=4"#,
        reason: "a guest cannot ask it: it has one queue",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"11 * queueId=99 queueOffset=0 subscription=* suspendTimeoutMillis=20000 topic=T_pull sysFlag without commit=4"#,
        reason: "a guest cannot ask it: it has one queue",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"11 * queueId=1 queueOffset=6 subscription=* suspendTimeoutMillis=20000 topic=T_pull sysFlag without commit=6"#,
        reason: "a guest cannot ask it: its next run comes soon, so that no pull waits at the broker",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"12 _UNIQUE_KEY_QUERY=* topic=T_pull"#,
        reason: "a guest cannot ask it: looking for messages is an operator's business",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"33 offset=37968 topic=T_pull"#,
        reason: "as above",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"32 bname=broker-a queueId=* topic=T_pull"#,
        reason: "a guest cannot ask it: it can look for a time, not ask for the oldest",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"36 bname=broker-a delayLevel=1 group=G_pull * originTopic=T_pull unitMode=false"#,
        reason: "a guest cannot ask it: what is to come again it pulls again",
    },
    Difference {
        scenario: Some("pull-consumer"),
        side: Side::Java,
        form: r#"1 times 36 bname=broker-a delayLevel=1 group=G_pull * originTopic=T_pull unitMode=false"#,
        reason: "as above",
    },
    Difference {
        scenario: Some("lite-pull"),
        side: Side::Java,
        form: r#"29 bname=broker-a boundaryType=LOWER queueId=1 timestamp=0 topic=T_lite"#,
        reason: "Java's application asked for the fun of it",
    },
    Difference {
        scenario: Some("lite-pull"),
        side: Side::Java,
        form: r#"30 bname=broker-a committed=true queueId=1 topic=T_lite"#,
        reason: "Java looks at both ends before it seeks; we are corrected by the broker",
    },
    Difference {
        scenario: Some("lite-pull"),
        side: Side::Java,
        form: r#"31 bname=broker-a queueId=1 topic=T_lite"#,
        reason: "as above",
    },
    Difference {
        scenario: Some("lite-pull"),
        side: Side::Java,
        form: r#"last commit of T_lite:1: 0"#,
        reason: "Java commits what its application polled; filtered messages are none of it, and are pulled again",
    },
    Difference {
        scenario: Some("lite-pull"),
        side: Side::Ours,
        form: r#"last commit of T_lite:1: 3"#,
        reason: "what the filter passes over is finished",
    },
    Difference {
        scenario: Some("lite-pull"),
        side: Side::Ours,
        form: r#"105 topic=%RETRY%G_lite"#,
        reason: "what fails comes again, as above",
    },
    Difference {
        scenario: Some("lite-pull"),
        side: Side::Ours,
        form: r#"361 bname=broker-a consumerGroup=G_assign * queueId=1 queueOffset=0 subscription=* suspendTimeoutMillis=20000 topic=T_lite sysFlag without commit=22"#,
        reason: "Java's application sought before the first pull, this one after it",
    },
];

/// Whether a form is as an entry says.
pub(super) fn is_as(form: &str, pattern: &str) -> bool {
    let Some((before, mut after)) = pattern.split_once('*') else {
        return form == pattern;
    };
    let Some(mut rest) = form.strip_prefix(before) else {
        return false;
    };
    while let Some((part, next)) = after.split_once('*') {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        after = next;
    }
    rest.ends_with(after)
}

#[test]
fn an_entry_excuses_nothing_but_what_it_says() {
    assert!(is_as(
        "31 bname=a queueId=3 topic=T",
        "31 bname=a queueId=* topic=T"
    ));
    assert!(!is_as(
        "31 bname=a queueId=3 topic=T2",
        "31 bname=a queueId=* topic=T"
    ));
    assert!(!is_as(
        "131 bname=a queueId=3 topic=T",
        "31 bname=a queueId=* topic=T"
    ));
    assert!(!is_as("31 bname=a topic=T", "31 bname=a queueId=* topic=T"));
    assert!(is_as("35 x", "35 x") && !is_as("35 xy", "35 x"));
}
