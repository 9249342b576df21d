/** Tests the names of custom resources after a restart. */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { test } from 'node:test';
import { keepAlive } from '../../../../api/machinery/clock.ts';
import { customResourceDefinitions } from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { startControlPlane } from '../../../../controlplane/main.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const definition = (plural: string): KubeObject => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: `${plural}.example.org` },
  spec: {
    group: 'example.org',
    scope: 'Namespaced',
    names: { plural, kind: 'Shared' },
    versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
  },
});

type Plane = Awaited<ReturnType<typeof startControlPlane>>;
type Status = { readonly conditions?: readonly { readonly type: string; readonly status: string }[] } | undefined;

/** Resolves to `True` or `False`, or to another value while it is not known whether the names are accepted. */
async function accepted({ client }: Plane, plural: string): Promise<string | undefined> {
  const { status } = await client.get(customResourceDefinitions, '', `${plural}.example.org`);
  return (status as Status)?.conditions?.find(({ type }) => type === 'NamesAccepted')?.status;
}

test('a definition that lost a conflict of names does not take them at a restart', async () => {
  const alive = keepAlive();
  const dataDir = temporaryFolder();
  const start = (): Promise<Plane> =>
    startControlPlane({ flags: { dataDir, securePort: 0, controllers: ['-*'], scheduler: false } });
  let plane = await start();
  try {
    await plane.client.create(customResourceDefinitions, '', definition('winners'));
    await until('the first definition', async () => (await accepted(plane, 'winners')) === 'True');
    // The name of this definition sorts first, so it would get the names if the order of the list decided.
    await plane.client.create(customResourceDefinitions, '', definition('losers'));
    await until('the second definition', async () => (await accepted(plane, 'losers')) === 'False');
    await plane.close();
    plane = await start();
    await plane.client.create(customResourceDefinitions, '', definition('witnesses'));
    await until('the third definition', async () => (await accepted(plane, 'witnesses')) === 'False');
    assert.deepEqual([await accepted(plane, 'winners'), await accepted(plane, 'losers')], ['True', 'False']);
  } finally {
    await plane.close();
    alive.cancel();
    await rm(dataDir, { recursive: true, force: true });
  }
});
