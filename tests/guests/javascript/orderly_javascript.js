// The behaviour that the orderly guests of every language share. The topic "refuse" is
// refused with "refuse refused"; a first body that starts with "!" suspends its queue
// for 250 ms, one with "?" for the configured time, one with "+" commits, one with "-"
// rolls back, the rest is success.

export const orderly = {
  consumeMessage([{ body }], data, { topic }) {
    // A thrown text is the error of the result.
    if (topic === 'refuse') throw `${topic} refused`;
    switch (String.fromCharCode(body.size ? data[body.offset] : 0)) {
      case '!':
        return { tag: 'suspend-current-queue-a-moment', val: 250 };
      case '?':
        return { tag: 'suspend-current-queue-a-moment', val: null };
      case '+':
        return { tag: 'commit' };
      case '-':
        return { tag: 'rollback' };
      default:
        return { tag: 'success' };
    }
  },
};
