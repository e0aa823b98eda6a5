//! Calls of listeners: which messages, in what turn, how many at once.
//!
//! Groups take turns, and so do the queues of a group (`turns`), so that nobody starves. A
//! group has at most `consume_thread_max` calls under way. What
//! comes of a call is the business of `concurrently` and `orderly`.

mod broadcasting;
pub(crate) mod concurrently;
pub(crate) mod orderly;
pub(crate) mod turns;

use std::sync::Arc;
use std::time::Duration;

use protocol::{Instant, MessageQueue};

use crate::client::Client;
use crate::epoch::Epoch;
use crate::event::{Event, Step};
use crate::group::ConsumerGroup;
use crate::listener::{ConsumeRequest, ConsumeRequestId, ConsumeResult};
use crate::planted_bugs::PlantedBug;
use crate::process_queue::TakenSpan;

/// Where guests are called with fewer messages, so many are handed over at once when
/// calls are short.
const SHORT_RUN: u32 = 32;
/// What a short call is.
const SHORT_CALL: Duration = Duration::from_micros(100);

/// A call under way.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) group: Epoch,
    pub(crate) queue: Epoch,
    /// Its messages are of the retry topic.
    pub(crate) is_retry: bool,
    pub(crate) span: TakenSpan,
    pub(crate) topic: Arc<str>,
    pub(crate) handed_over: Instant,
    /// The queue, when it may have no other call meanwhile.
    pub(crate) in_order: Option<MessageQueue>,
}

/// How long calls of a group take on average, of the recent ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallTime(Option<Duration>);

impl CallTime {
    fn add(&mut self, elapsed: Duration, calls: u32) {
        let one = elapsed / calls.max(1);
        self.0 = Some(match self.0 {
            None => one,
            Some(mean) => mean - mean / 8 + one / 8,
        });
    }

    pub(crate) fn mean(self) -> Option<Duration> {
        self.0
    }

    fn is_short(self) -> bool {
        self.0.is_some_and(|mean| mean < SHORT_CALL)
    }
}

impl ConsumerGroup {
    /// How many messages are handed over together: those of one call, or of several that
    /// are short.
    fn run_length(&self) -> u32 {
        let per_call = self.config.consume_message_batch_max_size();
        self.admitted_messages(if per_call < SHORT_RUN && self.call_time.is_short() {
            SHORT_RUN / per_call * per_call
        } else {
            per_call
        })
    }
}

impl Client {
    /// A queue may have messages for a call.
    pub(crate) fn queue_ready(&mut self, epoch: Epoch) {
        let Some(queue) = self.queues.get_mut(epoch) else {
            return;
        };
        let Some(group) = self.groups.get_mut(queue.group) else {
            return;
        };
        if queue.is_ready || queue.process_queue.free_messages() == 0 || !group.life.stays() {
            return;
        }
        if group.is_orderly() && !queue.may_be_called_in_order() {
            return;
        }
        queue.is_ready = true;
        let is_retry = group.topics[queue.topic_index].is_retry;
        group.ready.push_back(epoch, is_retry);
        let group = queue.group;
        self.group_ready(group);
    }

    pub(crate) fn group_ready(&mut self, epoch: Epoch) {
        if let Some(group) = self.groups.get_mut(epoch)
            && !group.is_ready
            && !group.ready.is_empty()
            && group.may_call()
        {
            group.is_ready = true;
            if group.config.pull_task_interval().is_some() {
                self.pull_tasks.ready_groups.push_back(epoch);
            } else {
                self.ready_groups.push_back(epoch);
            }
        }
    }

    pub(crate) fn next_consume_request(&mut self, now: Instant) -> Option<Arc<ConsumeRequest>> {
        if let Some(request) = self.next_direct_request(now) {
            return Some(request);
        }
        let two_calls = self.has_bug(PlantedBug::TwoCallsAtOnce);
        let any_order = two_calls || self.has_bug(PlantedBug::LosePutBackOrder);
        while let Some(epoch) = self.ready_groups.pop_front() {
            let Some(group) = self.groups.get_mut(epoch) else {
                continue;
            };
            group.is_ready = false;
            if !group.may_call() {
                continue;
            }
            while let Some(queue_epoch) = group.next_ready() {
                // Queues that were given back stay in the list.
                let Some(queue) = self.queues.get_mut(queue_epoch) else {
                    continue;
                };
                queue.is_ready = false;
                let is_retry = group.topics[queue.topic_index].is_retry;
                let in_order = group.is_orderly();
                if in_order && !queue.may_be_called_now(group, two_calls, now) {
                    continue;
                }
                let call = self.calls.insert(Call {
                    group: epoch,
                    queue: queue_epoch,
                    is_retry,
                    span: TakenSpan {
                        first: queue.next_offset,
                        last: queue.next_offset,
                        messages: 0,
                    },
                    topic: Arc::clone(&queue.queue.topic),
                    handed_over: now,
                    in_order: in_order.then(|| queue.queue.clone()),
                });
                let taken = if in_order && !any_order {
                    queue.process_queue.take_in_order(group.run_length(), call)
                } else {
                    queue.process_queue.take(group.run_length(), call)
                };
                let Some(taken) = taken else {
                    self.calls.remove(call);
                    continue;
                };
                if let Some(call) = self.calls.get_mut(call) {
                    call.span = taken.span;
                    call.topic = Arc::clone(&taken.topic);
                }
                if in_order {
                    group.orderly_calls.insert(queue.queue.clone());
                }
                if queue.process_queue.free_messages() > 0 && (!in_order || two_calls) {
                    queue.is_ready = true;
                    group.ready.push_back(queue_epoch, is_retry);
                }
                group.calls += 1;
                group.retry_calls += u32::from(is_retry);
                let request = ConsumeRequest {
                    id: ConsumeRequestId(call.to_u64()),
                    consumer_group: Arc::clone(&group.name),
                    message_queue: queue.queue.clone(),
                    topic: taken.topic,
                    message_model: group.config.message_model(),
                    mode: group.config.mode(),
                    runs: taken.runs,
                    messages_per_call: group.config.consume_message_batch_max_size(),
                    consume_timeout: group.config.consume_timeout(),
                };
                self.group_ready(epoch);
                let step = Step::CallBegun {
                    first_offset: taken.span.first,
                    messages: taken.span.messages,
                };
                self.tell_step(queue_epoch, step);
                return Some(Arc::new(self.as_listeners_see_it(request)));
            }
        }
        None
    }

    /// With the names that its user knows.
    pub(crate) fn as_listeners_see_it(&self, mut request: ConsumeRequest) -> ConsumeRequest {
        request.consumer_group = self.without_namespace(&request.consumer_group);
        request.topic = self.without_namespace(&request.topic);
        request.message_queue.topic = self.without_namespace(&request.message_queue.topic);
        request
    }

    pub(crate) fn consume_result(
        &mut self,
        id: ConsumeRequestId,
        result: &ConsumeResult,
        now: Instant,
    ) {
        if self.consumed_directly(id, result, now) {
            return;
        }
        let Some(call) = self.calls.remove(Epoch::from_u64(id.0)) else {
            self.events.push_back(Event::StaleConsumeResult {
                consumer_group: None,
            });
            return;
        };
        let elapsed = now - call.handed_over;
        let leaks = self.has_bug(PlantedBug::LeakStaleCalls) && !self.queues.contains(call.queue);
        if let Some(group) = self.groups.get_mut(call.group)
            && !leaks
        {
            debug_assert!(group.calls > 0, "a call that nobody counted");
            group.calls -= 1;
            group.retry_calls -= u32::from(call.is_retry);
            let per_call = group.config.consume_message_batch_max_size();
            group
                .call_time
                .add(elapsed, call.span.messages.div_ceil(per_call));
        }
        let epoch = Epoch::from_u64(id.0);
        if self.queues.contains(call.queue) && call.in_order.is_some() {
            self.orderly_consumed(epoch, &call, result, elapsed, now);
        } else if self.queues.contains(call.queue) {
            self.concurrently_consumed(epoch, &call, result, elapsed, now);
        } else {
            self.trust_stale_epoch(call.queue, call.span.last.next());
            // Its next owner gets these messages again.
            let group = self.groups.get(call.group);
            self.events.push_back(Event::StaleConsumeResult {
                consumer_group: group.map(|group| Arc::clone(&group.name)),
            });
        }
        if let Some(queue) = &call.in_order {
            self.orderly_call_ended(call.group, queue, now);
        }
        self.group_ready(call.group);
        self.leave_further(call.group);
    }
}
