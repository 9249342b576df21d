/** Tests documents whose inputs change faster than they can be assembled. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import { NewestDocument } from '../../../../../controlplane/server/openapi/newest-document.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

/** Assemblies that end when the test says so. Each returns its number. */
class Assemblies {
  started = 0;
  running = 0;
  most = 0;
  #end = Promise.withResolvers<void>();

  readonly assemble = async (): Promise<number> => {
    this.started += 1;
    this.running += 1;
    this.most = Math.max(this.most, this.running);
    const number = this.started;
    await this.#end.promise;
    this.running -= 1;
    return number;
  };

  end(): void {
    this.#end.resolve();
    this.#end = Promise.withResolvers();
  }
}

test('one assembly runs at a time, and requests get all changes before them', async () => {
  const assemblies = new Assemblies();
  const newest = new NewestDocument(assemblies.assemble, systemClock);
  const first = newest.get();
  for (let change = 0; change < 100; change += 1) newest.invalidate();
  const later = Array.from({ length: 10 }, () => newest.get());
  assemblies.end();
  assert.equal(await first, 1);
  await setImmediate();
  assemblies.end();
  assert.deepEqual(await Promise.all(later), Array<number>(10).fill(2));
  assert.equal(assemblies.most, 1);
  assert.equal(assemblies.started, 2);
});

test('changes alone assemble nothing', async () => {
  const assemblies = new Assemblies();
  const newest = new NewestDocument(assemblies.assemble, systemClock);
  for (let change = 0; change < 100; change += 1) newest.invalidate();
  await setImmediate();
  assert.equal(assemblies.started, 0);
});

test('a client gets the last document after a second, if the newest takes longer', async () => {
  const assemblies = new Assemblies();
  const clock = new FakeClock();
  const newest = new NewestDocument(assemblies.assemble, clock);
  const first = newest.get();
  assemblies.end();
  assert.equal(await first, 1);
  newest.invalidate();
  const second = newest.get();
  await clock.advance(1000);
  assert.equal(await second, 1);
  const third = newest.get();
  await setImmediate();
  assemblies.end();
  assert.equal(await third, 2);
});

test('the error of an assembly is that of its clients, and the next one tries again', async () => {
  let failures = 1;
  const newest = new NewestDocument(async () => {
    if (failures-- > 0) throw new Error('no schema');
    return 'document';
  }, systemClock);
  await assert.rejects(newest.get(), /no schema/);
  assert.equal(await newest.get(), 'document');
});
