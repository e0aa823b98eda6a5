//! What we ask and Java does not, and the reverse, each with its reason.

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Java,
    Ours,
}

/// A request that one side alone made.
pub(super) struct Difference {
    /// In one recording; `None`: in any.
    pub(super) scenario: Option<&'static str>,
    pub(super) side: Side,
    /// A part of the request's form.
    pub(super) form: &'static str,
    /// For people.
    #[expect(dead_code, reason = "read by people")]
    pub(super) reason: &'static str,
}

/// An entry that explains nothing fails the test.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        scenario: None,
        side: Side::Java,
        form: "14 bname=",
        reason: "asked by us with setZeroIfNotFound=false, as below",
    },
    Difference {
        scenario: None,
        side: Side::Ours,
        form: "setZeroIfNotFound=false",
        reason: "the broker must not make up a zero; 5.x clients leave it to the broker's default",
    },
    Difference {
        scenario: None,
        side: Side::Java,
        form: "15 oneway",
        reason: "commits of ours are answered, so that a lost one is known and made again",
    },
    Difference {
        scenario: None,
        side: Side::Ours,
        form: "15 bname=",
        reason: "as above",
    },
    Difference {
        scenario: None,
        side: Side::Ours,
        form: "31 bname=",
        reason: "first_offset starts at the oldest message there is, where Java asks for offset 0 \
                 and is corrected when that is gone",
    },
    Difference {
        scenario: None,
        side: Side::Ours,
        form: "last commit of %RETRY%",
        reason: "the start offset is committed before the first pull, so that a crash does not choose again",
    },
    Difference {
        scenario: None,
        side: Side::Java,
        form: "35 clientID=",
        reason: "Java leaves once for each of its groups",
    },
    Difference {
        scenario: None,
        side: Side::Ours,
        form: "35 clientID=",
        reason: "the consumer's and the sender's group leave in one request, which the broker allows",
    },
    Difference {
        scenario: Some("push-subscription-not-latest"),
        side: Side::Java,
        form: "last commit of T_trace",
        reason: "Java commits 0 of queues that had no message; a broker assumes it",
    },
];
