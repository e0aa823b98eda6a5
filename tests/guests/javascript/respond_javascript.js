// The behaviour that the guests of every language share. The topic "refuse" is
// refused with "refuse refused"; a body that starts with "!" is dead-lettered with
// "ID is malformed", one with "?" comes back at delay level 3, the rest is done.

// UTF-8, in an engine without TextDecoder; of any length.
const text = (bytes) => {
  let latin1 = '';
  for (const byte of bytes) latin1 += String.fromCharCode(byte);
  return decodeURIComponent(escape(latin1));
};

const outcome = (message, data) => {
  const part = ({ offset, size }) => data.subarray(offset, offset + size);
  switch (part(message.body)[0]) {
    case 0x21: // !
      return { tag: 'dead-letter', val: `${text(part(message.messageId))} is malformed` };
    case 0x3f: // ?
      return { tag: 'reconsume-later', val: 3 };
    default:
      return { tag: 'done' };
  }
};

export const concurrent = {
  consumeMessage(messages, data, { topic }) {
    // A thrown text is the error of the result.
    if (topic === 'refuse') throw `${topic} refused`;
    return { tag: 'each', val: messages.map((message) => outcome(message, data)) };
  },
};
