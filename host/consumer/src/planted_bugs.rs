//! Deliberate bugs, one of which a test can switch on in a client: what looks for bugs
//! must be able to find some. Without the feature `testing` there is no switch, and
//! asking for one costs nothing.

use crate::client::Client;

/// A mistake that somebody could make in these rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// Commits what was fetched in place of what is finished.
    CommitPastUnfinished,
    /// The result of a call for a queue that is gone moves whatever stands in its place.
    TrustStaleEpoch,
    /// An answer to a pull of a queue that is gone moves whatever stands in its place.
    AcceptOldAnswer,
    /// "Could not ask what is committed" is taken for 0.
    UnaskedIsZero,
    /// A queue is given back without a last commit.
    ForgetFinalCommit,
    /// A message that could not be sent back counts as finished.
    DropFailedSendBack,
    /// A message that could not be sent back is never tried here again.
    ForgetLocalRetry,
    /// An error is taken for the broker's word that it has a message back.
    BelieveFailedSendBack,
    /// Members that are not known are taken for "nothing is ours".
    ReleaseOnFailedMembers,
    /// A call that was never made is taken for one that went well.
    NotFinishedIsDone,
    /// After a pull without an answer nobody pulls again.
    PullLoopDies,
    /// What was held back by a threshold stays held back.
    FlowControlNeverEnds,
    /// A call for a queue that is gone is counted as under way for ever.
    LeakStaleCalls,
    /// A queue of which nothing is committed begins at its end, whatever the policy.
    NothingCommittedIsTheEnd,
    /// The first failure makes a dead letter.
    DeadLetterTooEarly,
    /// The end of a pause ends nothing.
    PauseNeverEnds,
    /// A refused lock is taken for a granted one.
    ConsumeWithoutLock,
    /// A lock that was not renewed is trusted for ever.
    TrustExpiredLock,
    /// What was committed before the lock is taken for what is committed under it.
    OffsetBeforeLock,
    /// A queue that is given back stays locked.
    ForgetUnlock,
    /// A queue is unlocked and committed while its call is under way.
    UnlockUnderACall,
    /// A queue that is consumed in order has several calls.
    TwoCallsAtOnce,
    /// What failed comes after what follows it.
    LosePutBackOrder,
    /// A failure of a queue that is consumed in order is not counted.
    ForgetAttempts,
    /// After a run that failed the pull task never runs again.
    FailedTaskDies,
    /// A run whose queue is gone sets the offset of whatever stands in its place.
    TrustReleasedPuller,
    /// What is stored of a broadcasting group is never looked at.
    ForgetLocalOffsets,
    /// What a broadcasting group is to try again is dropped.
    DropBroadcastRetry,
    /// A call that was under way when an operator reset the offset still moves it.
    ResetKeepsCalls,
    /// A reset begins again where it is told to, and commits nothing.
    ForgetResetCommit,
    /// What is stored of a broadcasting group lacks the queues that nobody has just now.
    StoreOnlyHeldQueues,
    /// A message that was damaged on its way is passed over.
    SkipDamaged,
    /// A call that was under way when somebody moved a queue still moves its offset.
    SeekKeepsCalls,
    /// A lock that another client has is asked for again with the next renewal.
    RefusedLockWaits,
    /// A changed filter is left to the broker, which goes by the highest clock.
    FilterByVersionAlone,
    /// An offset is told while an older one is on its way.
    TellOutOfOrder,
    /// A listener that asks for a pause is called.
    CallWhileHeld,
    /// The end of a listener's pause ends nothing.
    HoldNeverEnds,
}

impl PlantedBug {
    /// Every one.
    pub const ALL: [Self; 38] = [
        Self::CommitPastUnfinished,
        Self::TrustStaleEpoch,
        Self::AcceptOldAnswer,
        Self::UnaskedIsZero,
        Self::ForgetFinalCommit,
        Self::DropFailedSendBack,
        Self::ForgetLocalRetry,
        Self::BelieveFailedSendBack,
        Self::ReleaseOnFailedMembers,
        Self::NotFinishedIsDone,
        Self::PullLoopDies,
        Self::FlowControlNeverEnds,
        Self::LeakStaleCalls,
        Self::NothingCommittedIsTheEnd,
        Self::DeadLetterTooEarly,
        Self::PauseNeverEnds,
        Self::ConsumeWithoutLock,
        Self::TrustExpiredLock,
        Self::OffsetBeforeLock,
        Self::ForgetUnlock,
        Self::UnlockUnderACall,
        Self::TwoCallsAtOnce,
        Self::LosePutBackOrder,
        Self::ForgetAttempts,
        Self::FailedTaskDies,
        Self::TrustReleasedPuller,
        Self::ForgetLocalOffsets,
        Self::DropBroadcastRetry,
        Self::ResetKeepsCalls,
        Self::ForgetResetCommit,
        Self::StoreOnlyHeldQueues,
        Self::SkipDamaged,
        Self::SeekKeepsCalls,
        Self::RefusedLockWaits,
        Self::FilterByVersionAlone,
        Self::TellOutOfOrder,
        Self::CallWhileHeld,
        Self::HoldNeverEnds,
    ];
}

#[cfg(any(test, feature = "testing"))]
impl Client {
    /// Switches a bug on.
    pub fn plant(&mut self, bug: PlantedBug) {
        self.planted_bug = Some(bug);
    }

    pub(crate) fn has_bug(&self, bug: PlantedBug) -> bool {
        self.planted_bug == Some(bug)
    }
}

#[cfg(not(any(test, feature = "testing")))]
impl Client {
    #[expect(clippy::unused_self, reason = "as with the feature `testing`")]
    pub(crate) fn has_bug(&self, _: PlantedBug) -> bool {
        false
    }
}
