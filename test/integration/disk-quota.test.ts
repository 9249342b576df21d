/**
 * Tests a disk quota that is exhausted: the control plane refuses writes and answers reads until there is room, in one process.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { SoakPlane } from '../soak/plane.ts';
import { until } from '../until.ts';

const skip = spawnSync('cc', ['--version']).status === 0 ? false : 'needs a C compiler';
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';

describe('an exhausted disk quota', { skip, timeout: 120_000 }, () => {
  let plane: SoakPlane;
  before(async () => {
    plane = await SoakPlane.start();
  });
  after(() => plane.remove());

  const create = async (name: string): Promise<{ readonly status: number; readonly body: string }> => {
    const { status, body } = await plane.api.call('POST', CONFIG_MAPS, { metadata: { name } }, 5000);
    return { status, body: JSON.stringify(body) };
  };
  const statusOf = async (path: string): Promise<number> => (await plane.api.call('GET', path, undefined, 5000)).status;

  it('counts as a full disk and not as a failed one, and writes resume when there is room', async () => {
    const { pid } = plane;
    assert.equal((await create('before')).status, 201);
    plane.fault('quota');
    const refused = await create('refused');
    assert.equal(refused.status, 500);
    assert.match(refused.body, /the disk is full: its quota is exhausted/);
    assert.equal(await statusOf(`${CONFIG_MAPS}/before`), 200);
    assert.equal(await statusOf(`${CONFIG_MAPS}/refused`), 404);
    assert.deepEqual([await statusOf('/livez'), await statusOf('/readyz')], [200, 500]);
    plane.fault('none');
    await until('a write after the quota was raised', async () => (await create('after')).status === 201);
    await plane.ready();
    assert.deepEqual({ pid: plane.pid, failures: plane.storageFailures }, { pid, failures: 0 });
  });

  it('counts as a full disk also if it is raised before the cause of the failed write is known', async () => {
    const { pid } = plane;
    plane.fault('quotaOnce');
    assert.equal((await create('raised')).status, 201);
    assert.deepEqual({ pid: plane.pid, failures: plane.storageFailures }, { pid, failures: 0 });
  });

  it('does not prevent the next process from starting and serving reads', async () => {
    plane.fault('quota');
    const { pid } = plane;
    plane.kill();
    await until('a live control plane', async () => plane.pid !== pid && (await statusOf('/livez')) === 200, 30_000);
    assert.equal(await statusOf(`${CONFIG_MAPS}/before`), 200);
    plane.fault('none');
    await plane.ready();
    assert.equal((await create('later')).status, 201);
    assert.deepEqual(plane.crashes, []);
  });
});
