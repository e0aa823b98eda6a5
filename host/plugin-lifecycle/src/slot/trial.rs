//! A canary's share of the calls. Concurrently it is a share of the messages, chosen by
//! their keys, so that one key stays on one revision; in order, and for pull tasks, a
//! share of the queues.
//!
//! What the canary does not finish is given to the revision that serves at once, whose
//! answer stands: a trial costs no message an attempt. A message that the canary failed
//! and the other one finished is the evidence against it: the two had the same message.
//! In order the queue goes back to the revision that serves, from its first unfinished
//! message on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeMode, ConsumeRequest, ConsumeResult, MessageOutcome,
    MessageRun, OrderlyStatus,
};
use consumer::pull_task::{PullTaskRequest, PullTaskResult, QueuePuller};
use protocol::MessageQueue;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::guards::{self, CanaryPlan, TrialCounts};
use super::record::CallSums;
use super::serving::{Call, Serving};
use crate::lifecycle::Verdict;

/// One canary, beside what serves.
pub(crate) struct Trial {
    pub(super) serving: Arc<Serving>,
    plan: CanaryPlan,
    counts: Mutex<TrialCounts>,
    /// The calls of both before it began.
    tried_before: CallSums,
    stable: Arc<Serving>,
    stable_before: CallSums,
    given_back: Mutex<BTreeSet<MessageQueue>>,
    /// One place: more evidence says the same.
    failed: mpsc::Sender<()>,
}

impl Trial {
    pub(crate) fn new(
        serving: Arc<Serving>,
        stable: Arc<Serving>,
        plan: CanaryPlan,
        failed: mpsc::Sender<()>,
    ) -> Self {
        Self {
            tried_before: serving.record().sums(),
            stable_before: stable.record().sums(),
            serving,
            stable,
            plan,
            counts: Mutex::default(),
            given_back: Mutex::default(),
            failed,
        }
    }

    pub(crate) fn counts(&self) -> TrialCounts {
        let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (tried, stable) = self.sums();
        TrialCounts {
            broken: tried.broken(),
            p99: tried.p99(),
            p99_serving: stable.p99(),
            ..counts
        }
    }

    /// When its time is over.
    pub(crate) fn verdict(&self) -> Verdict {
        let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = self.against(&counts) {
            return Verdict::Abort { reason };
        }
        match counts.sample >= self.plan.sample_min {
            true => Verdict::Promote,
            false => Verdict::Prolong,
        }
    }

    fn against(&self, counts: &TrialCounts) -> Option<String> {
        let (tried, stable) = self.sums();
        guards::against(&self.plan, counts, &tried, &stable)
    }

    /// The calls of both since it began.
    fn sums(&self) -> (CallSums, CallSums) {
        let tried = self.serving.record().sums().since(&self.tried_before);
        let stable = self.stable.record().sums().since(&self.stable_before);
        (tried, stable)
    }

    fn count(&self, seen: TrialCounts) {
        let counts = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.add(seen);
            *counts
        };
        if self.against(&counts).is_some() {
            let _ = self.failed.try_send(());
        }
    }

    fn has_share(&self, key: &[u8]) -> bool {
        let sum = Sha256::digest(key);
        let number = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
        number % 1000 < u32::from(self.plan.per_mille)
    }

    /// Whether a whole queue is tried.
    pub(super) fn has_queue(&self, queue: &MessageQueue) -> bool {
        let given_back = self
            .given_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        !given_back.contains(queue) && self.has_share(queue.to_string().as_bytes())
    }

    fn give_back(&self, queue: &MessageQueue) {
        let mut given_back = self
            .given_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        given_back.insert(queue.clone());
    }

    /// The places in the request of the messages that are tried.
    fn share_of(&self, request: &ConsumeRequest) -> BTreeSet<usize> {
        let messages = request.iter().enumerate();
        let tried = messages.filter(|(_, message)| {
            let message = message.message;
            match message.keys() {
                Some(keys) => self.has_share(keys.as_bytes()),
                // Retries of a message keep the id it was first sent with.
                None => self.has_share(message.message_id().as_bytes()),
            }
        });
        tried.map(|(place, _)| place).collect()
    }
}

/// A request while there is a canary. The calls are counted by whoever made them.
pub(super) async fn consume(
    stable: Call,
    tried: Call,
    trial: Arc<Trial>,
    request: Arc<ConsumeRequest>,
    cancel: CancelSignal,
) -> ConsumeResult {
    match request.mode {
        ConsumeMode::Concurrently => {
            let all = concurrently(&stable, &tried, &trial, &request, &cancel).await;
            ConsumeResult::Concurrently(all)
        }
        ConsumeMode::Orderly { .. } if trial.has_queue(&request.message_queue) => {
            drop(stable);
            orderly(&tried, &trial, request, cancel).await
        }
        ConsumeMode::Orderly { .. } => {
            drop(tried);
            stable.0.consume(request, cancel).await
        }
    }
}

async fn concurrently(
    stable: &Call,
    tried: &Call,
    trial: &Trial,
    request: &Arc<ConsumeRequest>,
    cancel: &CancelSignal,
) -> ConcurrentlyStatus {
    let share = trial.share_of(request);
    let rest: BTreeSet<usize> = (0..request.len()).filter(|p| !share.contains(p)).collect();
    let mut outcomes = vec![MessageOutcome::NotFinished; request.len()];
    let (of_stable, of_tried) = tokio::join!(
        part(&stable.0, request, &rest, cancel),
        part(&tried.0, request, &share, cancel),
    );
    put(&mut outcomes, &rest, of_stable);
    put(&mut outcomes, &share, of_tried);
    let unfinished: BTreeSet<usize> = share
        .iter()
        .copied()
        .filter(|place| outcomes[*place] != MessageOutcome::Done)
        .collect();
    // What was cut short says nothing about the canary.
    let cut = unfinished
        .iter()
        .filter(|place| outcomes[**place] == MessageOutcome::NotFinished)
        .count();
    let failed: Vec<usize> = unfinished
        .iter()
        .copied()
        .filter(|place| outcomes[*place] != MessageOutcome::NotFinished)
        .collect();
    let wanted_dead: Vec<usize> = failed
        .iter()
        .copied()
        .filter(|place| matches!(outcomes[*place], MessageOutcome::DeadLetter { .. }))
        .collect();
    if !unfinished.is_empty() {
        let again = part(&stable.0, request, &unfinished, cancel).await;
        put(&mut outcomes, &unfinished, again);
    }
    let worse = failed
        .iter()
        .filter(|place| outcomes[**place] == MessageOutcome::Done)
        .count();
    let is_dead = |place: &usize| matches!(outcomes[*place], MessageOutcome::DeadLetter { .. });
    let dead = wanted_dead.iter().filter(|place| !is_dead(place)).count();
    trial.count(TrialCounts {
        sample: (share.len() - cut) as u64,
        failed: failed.len() as u64,
        worse: worse as u64,
        dead: dead as u64,
        ..TrialCounts::default()
    });
    match outcomes.iter().all(|one| *one == MessageOutcome::Done) {
        true => ConcurrentlyStatus::ConsumeSuccess { ack_index: None },
        false => ConcurrentlyStatus::Each(outcomes),
    }
}

async fn orderly(
    tried: &Call,
    trial: &Trial,
    request: Arc<ConsumeRequest>,
    cancel: CancelSignal,
) -> ConsumeResult {
    let messages = request.len() as u64;
    let queue = request.message_queue.clone();
    let result = tried.0.consume(request, cancel).await;
    let is_good =
        |status: &OrderlyStatus| matches!(status, OrderlyStatus::Success | OrderlyStatus::Commit);
    let answer = match result {
        ConsumeResult::Orderly(status) if is_good(&status) => {
            trial.count(seen(messages, 0));
            return ConsumeResult::Orderly(status);
        }
        ConsumeResult::OrderlyCalls(mut calls) => {
            let good = calls
                .iter()
                .take_while(|call| is_good(&call.status))
                .count();
            let is_cut = good == calls.len();
            calls.truncate(good);
            let done: u64 = calls.iter().map(|call| u64::from(call.messages)).sum();
            if is_cut {
                trial.count(seen(done, 0));
                return ConsumeResult::OrderlyCalls(calls);
            }
            trial.count(seen(done + 1, 1));
            match calls.is_empty() {
                true => ConsumeResult::NotFinished,
                false => ConsumeResult::OrderlyCalls(calls),
            }
        }
        ConsumeResult::NotFinished => return ConsumeResult::NotFinished,
        _ => {
            trial.count(seen(1, 1));
            ConsumeResult::NotFinished
        }
    };
    // Before the answer: the next request of the queue is for the other revision.
    trial.give_back(&queue);
    answer
}

/// What a canary has in a queue of its own it fails by its own fault.
fn seen(sample: u64, failed: u64) -> TrialCounts {
    TrialCounts {
        sample,
        failed,
        worse: failed,
        ..TrialCounts::default()
    }
}

/// A run of a pull task on a queue that is tried.
pub(super) async fn pull_task(
    tried: Call,
    trial: Arc<Trial>,
    request: Arc<PullTaskRequest>,
    puller: Arc<dyn QueuePuller>,
    cancel: CancelSignal,
) -> PullTaskResult {
    let queue = request.message_queue.clone();
    let result = tried.0.listener.do_pull_task(request, puller, cancel).await;
    match result {
        PullTaskResult::NextRun { .. } => trial.count(seen(1, 0)),
        PullTaskResult::NotFinished => {}
        PullTaskResult::Failed { .. } => {
            trial.count(seen(1, 1));
            trial.give_back(&queue);
        }
    }
    result
}

/// What a revision makes of some messages of a request, in their order.
async fn part(
    serving: &Serving,
    request: &Arc<ConsumeRequest>,
    places: &BTreeSet<usize>,
    cancel: &CancelSignal,
) -> Vec<MessageOutcome> {
    if places.is_empty() {
        return Vec::new();
    }
    let request = match places.len() == request.len() {
        true => Arc::clone(request),
        false => Arc::new(only(request, places)),
    };
    let result = serving.consume(request, cancel.clone()).await;
    outcomes(result, places.len())
}

fn put(outcomes: &mut [MessageOutcome], places: &BTreeSet<usize>, of: Vec<MessageOutcome>) {
    for (place, outcome) in places.iter().zip(of) {
        outcomes[*place] = outcome;
    }
}

/// The same request with these of its messages alone.
fn only(request: &ConsumeRequest, places: &BTreeSet<usize>) -> ConsumeRequest {
    let mut runs: Vec<MessageRun> = Vec::new();
    let mut place = 0;
    for run in &request.runs {
        let mut is_open = false;
        for index in run.range.clone() {
            if !places.contains(&place) {
                is_open = false;
            } else if is_open && let Some(last) = runs.last_mut() {
                last.range.end = index + 1;
            } else {
                runs.push(MessageRun {
                    batch: Arc::clone(&run.batch),
                    range: index..index + 1,
                    local_reconsume_times: run.local_reconsume_times,
                });
                is_open = true;
            }
            place += 1;
        }
    }
    ConsumeRequest {
        id: request.id,
        consumer_group: Arc::clone(&request.consumer_group),
        message_queue: request.message_queue.clone(),
        topic: Arc::clone(&request.topic),
        message_model: request.message_model,
        mode: request.mode,
        runs,
        messages_per_call: request.messages_per_call,
        consume_timeout: request.consume_timeout,
    }
}

/// One outcome a message, as the rules would read the answer.
fn outcomes(result: ConsumeResult, messages: usize) -> Vec<MessageOutcome> {
    let later = |delay_level| MessageOutcome::ReconsumeLater { delay_level };
    match result {
        ConsumeResult::Concurrently(ConcurrentlyStatus::ConsumeSuccess { ack_index }) => {
            let last = ack_index.map_or(i64::MAX, i64::from);
            let done = (0_i64..).map(|index| match index <= last {
                true => MessageOutcome::Done,
                false => later(None),
            });
            done.take(messages).collect()
        }
        ConsumeResult::Concurrently(ConcurrentlyStatus::ReconsumeLater { delay_level }) => {
            vec![later(delay_level); messages]
        }
        ConsumeResult::Concurrently(ConcurrentlyStatus::Each(mut outcomes)) => {
            outcomes.resize(messages, later(None));
            outcomes
        }
        ConsumeResult::Failed { reason } => vec![MessageOutcome::Failed { reason }; messages],
        // Of another kind is not finished, and never comes.
        ConsumeResult::NotFinished | ConsumeResult::Orderly(_) | ConsumeResult::OrderlyCalls(_) => {
            vec![MessageOutcome::NotFinished; messages]
        }
    }
}
