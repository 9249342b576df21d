/** Tests a control plane that starts on a full disk. Its clock is a fake, so that the start cannot wait for a timer. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { it } from 'node:test';
import { clusterRoles, configMaps } from '../../../../api/client/resources.ts';
import { isNotFound, tolerate } from '../../../../api/meta/status-error.ts';
import { startControlPlane } from '../../../../controlplane/main.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { SmallDisk } from '../../../small-disk.ts';
import { until } from '../../../until.ts';

it(
  'a control plane on a full disk serves reads, accepts writes once there is room, and then creates the objects of its start',
  { timeout: 180_000 },
  async (t) => {
    const disk = new SmallDisk('32m');
    t.after(() => disk.remove());
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const clock = new FakeClock();
    const dataDir = join(disk.directory, 'data');
    const start = (): ReturnType<typeof startControlPlane> =>
      startControlPlane({ flags: { dataDir, bindAddress: '127.0.0.1', securePort: 0 }, clock });
    const first = await start();
    // The next start has a role to create, as after an update of the program, and another port to publish in `cluster-info`.
    await first.client.delete(clusterRoles, '', 'view');
    await first.close();
    disk.fill();

    const again = await start();
    t.after(() => again.close());
    const published = async (): Promise<string> =>
      JSON.stringify(await again.client.get(configMaps, 'kube-public', 'cluster-info'));
    const before = await published();
    assert.ok(!before.includes(`:${again.port}`));
    const write = (value: string): Promise<unknown> =>
      again.client.create(configMaps, 'default', {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: value.slice(0, 1), namespace: 'default' },
        data: { value },
      });
    await assert.rejects(write('x'.repeat(900_000)), /the disk is full/);

    disk.empty();
    await write('y'.repeat(900_000));
    await until('the objects that the start could not write', async () => {
      await clock.advance(10_000);
      const role = await tolerate(again.client.get(clusterRoles, '', 'view'), isNotFound);
      return role !== undefined && (await published()).includes(`:${again.port}`);
    });
  },
);
