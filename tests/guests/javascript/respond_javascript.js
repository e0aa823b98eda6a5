// The behaviour that the guests of every language share. The topic "refuse" is
// refused with "refuse refused"; a body that starts with "!" is dead-lettered with
// "ID is malformed", one with "?" comes back at delay level 3, the rest is done.

const outcome = ({ messageId, body }) => {
  switch (body[0]) {
    case 0x21: // !
      return { tag: 'dead-letter', val: `${messageId} is malformed` };
    case 0x3f: // ?
      return { tag: 'reconsume-later', val: 3 };
    default:
      return { tag: 'done' };
  }
};

export const concurrent = {
  consumeMessage(messages, { topic }) {
    // A thrown text is the error of the result.
    if (topic === 'refuse') throw `${topic} refused`;
    return { tag: 'each', val: messages.map(outcome) };
  },
};
