/** Tests how seats are divided and borrowed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import {
  MANDATORY_LEVELS,
  SUGGESTED_LEVELS,
} from '../../../../../controlplane/registry/kinds/flowcontrol/flowcontrol-defaults.ts';
import {
  allocateFairly,
  concurrencyBounds,
} from '../../../../../controlplane/server/flowcontrol/concurrency-limits.ts';
import { FlowControl } from '../../../../../controlplane/server/flowcontrol/flow-control.ts';
import { dealHand } from '../../../../../controlplane/server/flowcontrol/shuffle-sharding.ts';

test('the default levels get the nominal seats that kube-apiserver gives them', () => {
  const bounds = concurrencyBounds(new Map(Object.entries({ ...MANDATORY_LEVELS, ...SUGGESTED_LEVELS })), 600);
  const rows = Object.fromEntries(
    [...bounds].map(([name, { nominal, lower, upper }]) => [name, [nominal, lower, upper]]),
  );
  assert.deepEqual(rows, {
    exempt: [0, 0, 600],
    'catch-all': [13, 13, 613],
    system: [74, 50, 674],
    'node-high': [98, 73, 698],
    'leader-election': [25, 25, 625],
    'workload-high': [98, 49, 698],
    'workload-low': [245, 24, 845],
    'global-default': [49, 24, 649],
  });
});

test('an allocation is fair: one proportion for all, clamped to bounds, and the sum is the total', () => {
  const item = fc
    .record({
      lower: fc.integer({ min: 0, max: 50 }),
      more: fc.integer({ min: 0, max: 100 }),
      room: fc.integer({ min: 0, max: 600 }),
    })
    .map(({ lower, more, room }) => ({ lower, target: lower + more, upper: lower + room }));
  fc.assert(
    fc.property(
      fc.array(item, { minLength: 1, maxLength: 8 }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      (items, part) => {
        const low = items.reduce((sum, { lower }) => sum + lower, 0);
        const high = items.reduce((sum, { upper }) => sum + upper, 0);
        const total = low + (high - low) * part;
        const { seats, fairProportion } = allocateFairly(total, items);
        const sum = seats.reduce((all, one) => all + one, 0);
        assert.ok(Math.abs(sum - total) < 1e-3, `${sum} instead of ${total}`);
        items.forEach(({ lower, upper, target }, at) => {
          const fair = Math.max(lower, Math.min(upper, fairProportion * Math.max(target, 0.001)));
          assert.ok(Math.abs((seats[at] ?? 0) - fair) < 1e-6);
        });
      },
    ),
  );
});

function controlOfTwo(): { clock: FakeClock; control: FlowControl } {
  const clock = new FakeClock();
  const control = new FlowControl({ clock, totalSeats: 105 });
  const limited = (name: string, lendablePercent: number) => ({
    metadata: { name },
    spec: {
      type: 'Limited',
      limited: {
        nominalConcurrencyShares: 50,
        lendablePercent,
        limitResponse: { type: 'Queue', queuing: { queues: 8, handSize: 2, queueLengthLimit: 50 } },
      },
    },
  });
  control.configure([], [limited('busy', 0), limited('idle', 80)]);
  return { clock, control };
}

test('an idle level lends seats to a busy one, and gets them back at once when it needs them', async () => {
  const { clock, control } = controlOfTwo();
  const busy = control.levels.get('busy');
  const idle = control.levels.get('idle');
  assert.ok(busy && idle);
  assert.deepEqual([busy.current, idle.current], [50, 50]);
  busy.set.demand.set(clock.monotonic(), 90);
  await clock.advance(10_000);
  control.adjust();
  assert.ok(busy.current > 75, `busy has ${busy.current}`);
  assert.ok(idle.current >= 10 && idle.current < 30, `idle has ${idle.current}`);
  idle.set.demand.set(clock.monotonic(), 60);
  await clock.advance(10_000);
  control.adjust();
  assert.ok(idle.current >= 50, `idle has ${idle.current}`);
});

test('a changed configuration keeps levels and what they serve', () => {
  const { control } = controlOfTwo();
  const busy = control.levels.get('busy');
  control.configure(
    [],
    [
      {
        metadata: { name: 'busy', uid: 'u' },
        spec: { type: 'Limited', limited: { nominalConcurrencyShares: 10, limitResponse: { type: 'Reject' } } },
      },
    ],
  );
  assert.equal(control.levels.get('busy'), busy);
  assert.equal(busy?.uid, 'u');
  assert.equal(busy?.queues, 0);
  assert.equal(control.levels.has('idle'), false);
  assert.deepEqual([...control.levels.keys()].sort(), ['busy', 'catch-all', 'exempt']);
});

test('a hand is distinct queues, the same for the same flow, and hands of flows spread evenly', () => {
  const counts = Array.from({ length: 64 }, () => 0);
  for (let flow = 0; flow < 2000; flow++) {
    const hand = dealHand(`flow${flow}`, 64, 6);
    assert.equal(new Set(hand).size, 6);
    assert.deepEqual(dealHand(`flow${flow}`, 64, 6), hand);
    for (const queue of hand) counts[queue] = (counts[queue] ?? 0) + 1;
  }
  for (const count of counts) assert.ok(count > 120 && count < 260, `a queue is in ${count} of 2000 hands`);
  assert.deepEqual([...dealHand('all', 4, 4)].sort(), [0, 1, 2, 3]);
});
