/** Tests fair queuing of one priority level in virtual time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { allowAll } from '../../../../fakes/fake-server.ts';
import { fakeExchange } from '../../../../fakes/fake-exchange.ts';
import { QueueSet, type Grant, type Ticket } from '../../../../../controlplane/server/flowcontrol/queue-set.ts';
import { ApiRequest } from '../../../../../controlplane/server/request.ts';

interface Level {
  readonly clock: FakeClock;
  readonly set: QueueSet;
  take(queue: number, width?: number): Ticket | undefined;
}

function level({ seats = 1, queues = 4, queueLengthLimit = 100 } = {}): Level {
  const clock = new FakeClock();
  const set = new QueueSet(clock);
  set.configure({ queues, queueLengthLimit });
  set.setLimit(seats);
  const subject = new ApiRequest(fakeExchange(), allowAll, clock);
  const flow = { distinguisher: '', schema: { name: 's' } };
  return {
    clock,
    set,
    take: (queue, width = 1) => set.acquire({ width, hand: [queue], waitLimitMs: 15_000, subject, flow }),
  };
}

function taken(ticket: Ticket | undefined): Ticket {
  assert.ok(ticket);
  return ticket;
}

const grantOf = async (ticket: Ticket): Promise<Grant | undefined> => ticket.wait?.grant.promise;

test('a free seat is taken at once; the next request waits until a seat is free', async () => {
  const { set, take } = level();
  const first = taken(take(0));
  assert.equal(first.state, 'executing');
  const second = taken(take(0));
  assert.equal(second.state, 'waiting');
  first.release();
  first.release();
  assert.equal(await grantOf(second), 'execute');
  assert.equal(set.seatsInUse, 1);
  second.release();
  assert.deepEqual([set.seatsInUse, set.seatsWaiting, set.executing, set.waiting], [0, 0, 0, 0]);
});

test('without queues a request that finds no seat is refused', () => {
  const { take } = level({ queues: 0 });
  assert.ok(take(0));
  assert.equal(take(0), undefined);
});

test('a full queue refuses, another one does not', () => {
  const { take } = level({ queueLengthLimit: 2 });
  for (let at = 0; at < 3; at++) assert.ok(take(0));
  assert.equal(take(0), undefined);
  assert.ok(take(1));
});

test('a request leaves its queue after the wait limit, or when its client disconnects', async () => {
  const { clock, set, take } = level();
  taken(take(0));
  const late = taken(take(0));
  const gone = taken(take(1));
  gone.cancel();
  assert.equal(await grantOf(gone), 'cancelled');
  await clock.advance(14_999);
  assert.equal(late.state, 'waiting');
  await clock.advance(1);
  assert.equal(await grantOf(late), 'time-out');
  assert.equal(set.waiting, 0);
  assert.equal(clock.pendingTimers, 0);
});

test('a flow that floods its queue leaves half of the seats to another flow', async () => {
  const { clock, take } = level();
  const started: number[] = [];
  const run = (ticket: Ticket, flow: number): void => {
    started.push(flow);
    clock.after(10, () => ticket.release());
  };
  const submit = (flow: number): void => {
    const ticket = taken(take(flow));
    if (ticket.wait === undefined) run(ticket, flow);
    else void ticket.wait.grant.promise.then((grant) => grant === 'execute' && run(ticket, flow));
  };
  for (let at = 0; at < 60; at++) submit(0);
  await clock.advance(50);
  const before = started.length;
  for (let at = 0; at < 10; at++) submit(1);
  await clock.advance(220);
  const since = started.slice(before);
  const late = since.lastIndexOf(1);
  assert.equal(since.filter((flow) => flow === 1).length, 10);
  assert.ok(late <= 21, `the last of ten requests of the other flow was number ${late}`);
});

test('a flow of wide requests gets the same seats, not the same number of requests', async () => {
  const { clock, take } = level({ seats: 4 });
  const seatTime = [0, 0];
  const submit = (flow: number, width: number): void => {
    const run = (ticket: Ticket): void =>
      void clock.after(10, () => {
        seatTime[flow] = (seatTime[flow] ?? 0) + width;
        ticket.release();
        submit(flow, width);
      });
    const ticket = taken(take(flow, width));
    if (ticket.wait === undefined) run(ticket);
    else void ticket.wait.grant.promise.then((grant) => grant === 'execute' && run(ticket));
  };
  for (let at = 0; at < 8; at++) submit(0, 4);
  for (let at = 0; at < 8; at++) submit(1, 1);
  await clock.advance(4000);
  const [wide = 0, narrow = 0] = seatTime;
  assert.ok(wide / (wide + narrow) > 0.4 && wide / (wide + narrow) < 0.6, `${wide} and ${narrow}`);
});

test('a request wider than the level runs alone', async () => {
  const { take } = level({ seats: 2 });
  const narrow = taken(take(0));
  const wide = taken(take(1, 5));
  assert.equal(wide.state, 'waiting');
  narrow.release();
  assert.equal(await grantOf(wide), 'execute');
  assert.equal(taken(take(0)).state, 'waiting');
});

test('more seats start requests that wait, fewer take none away', async () => {
  const { set, take } = level();
  const tickets = [0, 1, 2].map((queue) => taken(take(queue)));
  set.setLimit(3);
  assert.deepEqual(
    tickets.map(({ state }) => state),
    ['executing', 'executing', 'executing'],
  );
  set.setLimit(1);
  assert.equal(set.executing, 3);
});

test('queues that are configured away serve the requests that wait in them', async () => {
  const { set, take } = level();
  const first = taken(take(3));
  const second = taken(take(3));
  set.configure({ queues: 1, queueLengthLimit: 100 });
  const third = taken(take(3));
  assert.equal(third.queue?.index, 0, 'no further requests');
  const indexes = (): number[] => set.queues.map(({ index }) => index);
  assert.deepEqual(indexes(), [0, 3]);
  first.release();
  assert.equal(await grantOf(second), 'execute');
  second.release();
  assert.equal(await grantOf(third), 'execute');
  assert.deepEqual(indexes(), [0]);
});

test('demand is averaged over the time that it lasted', async () => {
  const { clock, set, take } = level({ seats: 10 });
  const ticket = taken(take(0, 4));
  await clock.advance(5000);
  ticket.release();
  await clock.advance(5000);
  assert.deepEqual(set.demand.reset(clock.monotonic()), { average: 2, deviation: 2, highWatermark: 4 });
  await clock.advance(1000);
  assert.deepEqual(set.demand.reset(clock.monotonic()), { average: 0, deviation: 0, highWatermark: 0 });
});

test('ten million queues, as many as a level may have, take neither memory nor time while they are idle', () => {
  const { set, take } = level({ queues: 10_000_000 });
  const startMs = performance.now();
  const first = taken(take(9_999_999));
  const waiting = Array.from({ length: 1000 }, (_, at) => taken(take(at * 10_000 + 1)));
  first.release();
  for (let at = 0; at < waiting.length; at++) for (const ticket of set.running) ticket.release();
  assert.ok(waiting.every(({ state }) => state === 'done'));
  assert.ok(performance.now() - startMs < 5000);
  assert.deepEqual(set.queues, []);
});
