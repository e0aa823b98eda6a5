//! Deliberate bugs, one of which a simulation can switch on in a machine: what looks for bugs
//! must be able to find some. Without the feature `testing` there is no switch.

use super::Lifecycle;

/// A mistake that somebody could make in this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// It serves as soon as it is compiled.
    SwitchBeforeWarmUp,
    /// What was replaced is dropped while it has calls.
    DropUnderCalls,
    /// What does not end by its deadline goes on.
    NeverKill,
    /// A deployment goes on that was given up for a newer one.
    ServeWhatWasGivenUp,
    /// A newer deployment begins beside the step of an older one.
    TwoStepsAtOnce,
    /// What was dropped when its window was over counts as warm.
    ReviveWhatIsGone,
    /// What was taken back is not refused.
    ForgetRefusals,
    /// A canary keeps its share when something newer serves.
    TrialOutlivesSwitch,
    /// That the last call has ended is not noticed.
    ForgetDrained,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::SwitchBeforeWarmUp,
        Self::DropUnderCalls,
        Self::NeverKill,
        Self::ServeWhatWasGivenUp,
        Self::TwoStepsAtOnce,
        Self::ReviveWhatIsGone,
        Self::ForgetRefusals,
        Self::TrialOutlivesSwitch,
        Self::ForgetDrained,
    ];
}

#[cfg(feature = "testing")]
impl Lifecycle {
    /// From now on this machine has a bug.
    pub fn plant(&mut self, bug: PlantedBug) {
        self.planted = Some(bug);
    }

    pub(super) fn has(&self, bug: PlantedBug) -> bool {
        self.planted == Some(bug)
    }
}

#[cfg(not(feature = "testing"))]
impl Lifecycle {
    pub(super) fn has(&self, _: PlantedBug) -> bool {
        false
    }
}
