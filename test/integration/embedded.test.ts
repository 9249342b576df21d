/** Tests `startControlPlane`, which runs the control plane in the process of a user's tests. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { configMaps, namespaces } from '../../api/client/resources.ts';
import { parseYaml } from '../../api/codec/yaml.ts';

test('starts in memory, serves over TLS with its kubeconfig', async () => {
  const { startControlPlane } = (await import('orchlet' as string)) as typeof import('../../controlplane/main.ts');
  const plane = await startControlPlane({ memory: true });
  try {
    const config = parseYaml(plane.kubeconfig).value as {
      users: { user: Record<string, string> }[];
      clusters: { cluster: { server: string } }[];
    };
    assert.equal(config.clusters[0]?.cluster.server, plane.url);
    const user = config.users[0]?.user ?? {};
    const text = (name: string): string => Buffer.from(user[name] ?? '', 'base64').toString();
    const client = new HttpClient({
      server: plane.url,
      ca: plane.ca,
      clock: systemClock,
      credentials: {
        current: () => Promise.resolve({ certificate: text('client-certificate-data'), key: text('client-key-data') }),
      },
    });
    await client.create(configMaps, 'default', {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'mine' },
      data: { a: 'b' },
    });
    assert.deepEqual((await plane.client.get(configMaps, 'default', 'mine'))['data'], { a: 'b' });
    assert.ok((await client.list(namespaces)).items.length >= 4);
    await client.close();
  } finally {
    await plane.close();
  }
});
