/**
 * Shuffle sharding: the queues that the requests of a flow may wait in. Each flow gets a hand of distinct queues chosen by
 * a hash of its name, so that two flows rarely share all of theirs and a flow that floods its own leaves others a free one.
 */
import { createHash } from 'node:crypto';

/** `handSize` distinct indexes below `queues`, the same for the same flow. */
export function dealHand(flow: string, queues: number, handSize: number): readonly number[] {
  let entropy = createHash('sha256').update(flow).digest().readBigUInt64LE(0);
  const hand: number[] = [];
  const taken: number[] = [];
  for (let dealt = 0; dealt < Math.min(handSize, queues); dealt++) {
    const left = BigInt(queues - dealt);
    // The index counts only the queues that are not in the hand yet.
    let card = Number(entropy % left);
    entropy /= left;
    for (const lower of taken) if (card >= lower) card += 1;
    hand.push(card);
    taken.push(card);
    taken.sort((a, b) => a - b);
  }
  return hand;
}
