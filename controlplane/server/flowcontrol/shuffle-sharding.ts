/**
 * Implements shuffle sharding, which selects the queues for the requests of a flow. Each flow gets a hand of distinct queues by
 * a hash of its name. So two flows rarely share all their queues, and a flow that floods its own leaves a free one for others.
 */
import { createHash } from 'node:crypto';

/** Returns `handSize` distinct indexes below `queues`, which are always the same for a flow. */
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
