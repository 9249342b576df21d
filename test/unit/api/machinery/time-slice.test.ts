/** Tests how computations of one process share the event loop. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { inSlices, TimeSlice } from '../../../../api/machinery/time-slice.ts';

/** Returns a slice that is always spent. */
const spent = (): TimeSlice => new TimeSlice({ monotonic: () => 0 }, 0);

it('one of many computations continues in each turn of the event loop, the oldest first', async () => {
  let turn = 0;
  let isCounting = true;
  const count = (): void => {
    turn += 1;
    if (isCounting) setImmediate(count);
  };
  setImmediate(count);
  const continued: { readonly name: number; readonly turn: number }[] = [];
  function* work(name: number): Generator<void, number, undefined> {
    for (let step = 0; step < 3; step += 1) {
      yield;
      continued.push({ name, turn });
    }
    return name;
  }
  const works = Array.from({ length: 20 }, (_, name) => inSlices(work(name), spent()));
  assert.deepEqual(await Promise.all(works), [...Array(20).keys()]);
  isCounting = false;
  assert.deepEqual(
    continued.slice(0, 20).map(({ name }) => name),
    [...Array(20).keys()],
  );
  assert.equal(new Set(continued.map((one) => one.turn)).size, 60);
});

it('a computation that fails or is aborted rejects and does not hold up the others', async () => {
  function* failing(): Generator<void, void, undefined> {
    yield;
    throw new Error('failed');
  }
  function* endless(): Generator<void, void, undefined> {
    for (;;) yield;
  }
  const client = new AbortController();
  const aborted = inSlices(endless(), spent(), client.signal);
  const failed = inSlices(failing(), spent());
  setImmediate(() => client.abort(new Error('gone')));
  await assert.rejects(async () => failed, /failed/);
  await assert.rejects(async () => aborted, /gone/);
});
