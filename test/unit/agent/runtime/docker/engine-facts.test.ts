/** Tests the cache of the engine's version and info. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DockerClient } from '../../../../../agent/runtime/docker/docker-client.ts';
import { EngineInfoCache } from '../../../../../agent/runtime/docker/engine-facts.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

function engineUnderTest(): {
  readonly engine: EngineInfoCache;
  readonly clock: FakeClock;
  asked: string[];
  fails: boolean;
} {
  const clock = new FakeClock();
  const state = { asked: [] as string[], fails: false };
  const client = {
    docker: {
      version: () => Promise.resolve({ Version: '28.5.1', ApiVersion: '1.51' }),
      info: () => Promise.resolve({ CgroupDriver: 'systemd' }),
    },
    call: (what: string, run: () => Promise<unknown>) => {
      state.asked.push(what);
      return state.fails ? Promise.reject(new Error('no answer')) : run();
    },
  } as unknown as DockerClient;
  return Object.assign(state, { engine: new EngineInfoCache(client, clock), clock });
}

test('concurrent callers share one request', async () => {
  const { engine, asked } = engineUnderTest();
  assert.deepEqual(
    (await Promise.all([engine.version(), engine.version()])).map(({ Version }) => Version),
    ['28.5.1', '28.5.1'],
  );
  assert.equal((await engine.info()).CgroupDriver, 'systemd');
  await engine.info();
  assert.deepEqual(asked, ['version', 'info']);
});

test('the request is repeated after the event stream breaks, and after a while', async () => {
  const { engine, asked, clock } = engineUnderTest();
  await engine.version();
  engine.forget();
  await engine.version();
  assert.equal(asked.length, 2);
  await clock.advance(300_000);
  await engine.version();
  assert.equal(asked.length, 3);
});

test('a failed request is not cached', async () => {
  const under = engineUnderTest();
  under.fails = true;
  await assert.rejects(under.engine.info(), /no answer/);
  under.fails = false;
  assert.equal((await under.engine.info()).CgroupDriver, 'systemd');
});
