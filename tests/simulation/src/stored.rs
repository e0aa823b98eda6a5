//! What of a member's word reaches a broker's store, in which order.

use embedded_broker::ConnectionId;
use protocol::MessageQueue;

use crate::cluster::Cluster;

impl Cluster {
    /// A member asks a broker to store an offset.
    pub(crate) fn note_telling(
        &mut self,
        member: usize,
        opaque: i32,
        group: &str,
        queue: &MessageQueue,
    ) {
        let member = &mut self.members[member];
        let key = (group.to_owned(), queue.clone());
        if let Some(assignment) = member.assignments.get(&key) {
            member.tellings.insert(opaque, assignment.number);
        }
    }

    /// A broker has stored what it was told: not what the same assignment had told before
    /// something else that is stored already. Who has lost its connection cannot know what
    /// still comes of it; and who gives a queue back does not wait until the broker's
    /// threads are done, since the next owner waits for it and looks for itself.
    pub(crate) fn check_stored(
        &mut self,
        member: usize,
        connection: ConnectionId,
        opaque: i32,
        (group, queue, offset): (&str, &MessageQueue, u64),
    ) {
        let connection = self.connections.get(&connection);
        let is_open = connection.is_some_and(|connection| connection.open_at_member);
        let this = &mut self.members[member];
        let number = this.tellings.remove(&opaque);
        let key = (group.to_owned(), queue.clone());
        let Some(assignment) = this.assignments.get_mut(&key) else {
            return;
        };
        if number != Some(assignment.number) || !is_open {
            return;
        }
        let before = assignment.stored;
        assignment.stored = before.max(offset);
        if offset < before && self.is_held_by(member, group, queue) {
            let name = self.members[member].name.clone();
            let what = format!("{offset} of {queue} of {group}, told by {name}, after {before}");
            self.violated("what is told is stored in order", what);
        }
    }
    fn is_held_by(&self, member: usize, group: &str, queue: &MessageQueue) -> bool {
        let client = self.members[member].client.as_ref();
        let status = client.map(|client| client.status(self.now));
        let groups = status.into_iter().flat_map(|status| status.groups);
        let mut of_group = groups.filter(|status| *status.consumer_group == *group);
        of_group.any(|group| {
            let mut queues = group.topics.iter().flat_map(|topic| &topic.queues);
            queues.any(|held| held.queue == *queue)
        })
    }
}
