/** Tests manifests of a folder on a control plane in this process, with real files and real time. */
import assert from 'node:assert/strict';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { configMaps, events, groupVersion, namespaces, services } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { isNotFound, tolerate } from '../../../../../api/meta/status-error.ts';
import { inventoryName, MANIFEST_LABEL } from '../../../../../controlplane/controllers/manifests/inventory.ts';
import { pruneObject } from '../../../../../controlplane/controllers/manifests/manifest-writes.ts';
import { type ControlPlane, startControlPlane } from '../../../../../controlplane/main.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

let folder = '';
let plane: ControlPlane;
let count = 0;
/** Differs between tests, so that each has files and objects of its own. */
let own = '';

before(async () => {
  folder = temporaryFolder();
  plane = await startControlPlane({ memory: true, flags: { manifestsDir: [folder], scheduler: false } });
});
after(async () => {
  await plane.close();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => {
  own = `t${(count += 1)}`;
});
afterEach(() => rmSync(join(folder, own), { recursive: true, force: true }));

const pathOf = (name: string): string => join(folder, own, name);
function put(name: string, text: string): void {
  mkdirSync(join(folder, own), { recursive: true });
  writeFileSync(pathOf(name), text);
}
const configMap = (name: string, value: string, more = ''): string =>
  `apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${name}\n${more}data:\n  value: "${value}"\n`;
const get = (name: string): Promise<KubeObject | undefined> =>
  tolerate(plane.client.get(configMaps, 'default', name), isNotFound);
async function valueOf(name: string): Promise<unknown> {
  return ((await get(name))?.['data'] as { value?: unknown } | undefined)?.value;
}
const hasValue = (name: string, value: string): Promise<true> =>
  until(`${name} with ${value}`, async () => (await valueOf(name)) === value || undefined);
const isGone = (name: string): Promise<true> =>
  until(`${name} to go`, async () => (await get(name)) === undefined || undefined);
async function eventsOf(name: string): Promise<string[]> {
  const { items } = await plane.client.list(events, { namespace: 'kube-system' });
  const about = items.filter(
    ({ involvedObject }) => (involvedObject as { name?: string }).name === inventoryName(pathOf(name)),
  );
  return about.map(({ reason, message }) => `${String(reason)}: ${String(message)}`);
}
const hasEvent = (name: string, text: RegExp): Promise<string> =>
  until(`an event ${text}`, async () => (await eventsOf(name)).find((one) => text.test(one)));

test('a file is applied, a changed one is applied again, and what leaves it is deleted', async () => {
  put('a.yaml', `${configMap(`${own}-a`, '1')}---\n${configMap(`${own}-b`, '1')}`);
  await hasValue(`${own}-b`, '1');
  const object = await get(`${own}-a`);
  assert.equal(object?.metadata.labels?.[MANIFEST_LABEL], inventoryName(pathOf('a.yaml')));
  assert.equal(object?.metadata.annotations, undefined);
  put('a.yaml', configMap(`${own}-a`, '2'));
  await hasValue(`${own}-a`, '2');
  await isGone(`${own}-b`);
  rmSync(pathOf('a.yaml'));
  await isGone(`${own}-a`);
  await until('the inventory to go', async () => {
    const found = plane.client.get(configMaps, 'kube-system', inventoryName(pathOf('a.yaml')));
    return (await tolerate(found, isNotFound)) === undefined || undefined;
  });
});

test('a renamed file keeps its objects', async () => {
  put('a.yaml', configMap(`${own}-a`, '1'));
  await hasValue(`${own}-a`, '1');
  const uid = (await get(`${own}-a`))?.metadata.uid;
  renameSync(pathOf('a.yaml'), pathOf('b.yaml'));
  await until('the inventory of the new name', async () => {
    const label = (await get(`${own}-a`))?.metadata.labels?.[MANIFEST_LABEL];
    return label === inventoryName(pathOf('b.yaml')) || undefined;
  });
  // Objects that are in no file are deleted after some seconds. Another object shows that they are over.
  put('c.yaml', configMap(`${own}-c`, '1'));
  await hasValue(`${own}-c`, '1');
  rmSync(pathOf('c.yaml'));
  await isGone(`${own}-c`);
  assert.equal((await get(`${own}-a`))?.metadata.uid, uid);
});

test('a broken document is reported with its line, stops no other, and removes nothing', async () => {
  put('a.yaml', `${configMap(`${own}-a`, '1')}---\n${configMap(`${own}-b`, '1')}`);
  await hasValue(`${own}-b`, '1');
  put('a.yaml', `${configMap(`${own}-a`, '2')}---\nkind: ConfigMap\nmetadata: {name: x}\n`);
  await hasValue(`${own}-a`, '2');
  assert.match(await hasEvent('a.yaml', /FailedManifest/), /a\.yaml, line 7: apiVersion is missing/);
  put('c.yaml', configMap(`${own}-c`, '1'));
  await hasValue(`${own}-c`, '1');
  rmSync(pathOf('c.yaml'));
  await isGone(`${own}-c`);
  assert.equal(await valueOf(`${own}-b`), '1');
});

test('an object that the API refuses is reported with the line of its field, and stops no other', async () => {
  const service = `apiVersion: v1\nkind: Service\nmetadata:\n  name: ${own}\nspec:\n  ports:\n  - port: 99999\n`;
  put('a.yaml', `${configMap(`${own}-a`, '1')}---\n${service}`);
  await hasValue(`${own}-a`, '1');
  assert.match(await hasEvent('a.yaml', /FailedManifest/), /a\.yaml, line 14: Service .*port/);
  put('a.yaml', service.replace('99999', '99'));
  await until('the mended service', () => plane.client.get(services, 'default', own));
});

test('an object that needs a namespace or a definition of the same folder waits for it, whatever the order', async () => {
  const group = `${own}.example.com`;
  put('a.yaml', `apiVersion: ${group}/v1\nkind: Widget\nmetadata: {name: w, namespace: ${own}}\nspec: {size: 3}\n`);
  put(
    'b.yaml',
    [
      'apiVersion: apiextensions.k8s.io/v1',
      'kind: CustomResourceDefinition',
      `metadata: {name: widgets.${group}}`,
      'spec:',
      `  group: ${group}`,
      '  scope: Namespaced',
      '  names: {plural: widgets, singular: widget, kind: Widget}',
      '  versions:',
      '  - name: v1',
      '    served: true',
      '    storage: true',
      '    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}',
      '---',
      'apiVersion: v1',
      'kind: Namespace',
      `metadata: {name: ${own}}`,
    ].join('\n'),
  );
  const widgets = groupVersion(group, 'v1').namespaced('widgets', 'Widget');
  await until('the custom resource', () => plane.client.get(widgets, own, 'w'));
  assert.deepEqual(await eventsOf('a.yaml'), []);
});

test('a namespace that is removed from the folder is kept, unless its annotation requests the deletion', async () => {
  const text = (name: string, prune: string): string =>
    `apiVersion: v1\nkind: Namespace\nmetadata: {name: ${name}${prune}}\n`;
  const goes = ', annotations: {orchlet.local/prune: "true"}';
  put('a.yaml', `${text(`${own}-stays`, '')}---\n${text(`${own}-goes`, goes)}`);
  await until('the namespaces', () => plane.client.get(namespaces, '', `${own}-goes`));
  put('a.yaml', '');
  await until('the namespace to go', async () => {
    const found = await tolerate(plane.client.get(namespaces, '', `${own}-goes`), isNotFound);
    return found === undefined || undefined;
  });
  const left = await until('the label to go', async () => {
    const found = await plane.client.get(namespaces, '', `${own}-stays`);
    return found.metadata.labels?.[MANIFEST_LABEL] === undefined ? found : undefined;
  });
  assert.equal(left.metadata.deletionTimestamp, undefined);
});

test('an object that existed before its manifest outlives it', async () => {
  await plane.client.create(configMaps, 'default', {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: `${own}-a` },
    data: { other: 'kept' },
  });
  put('a.yaml', configMap(`${own}-a`, '1'));
  await hasValue(`${own}-a`, '1');
  rmSync(pathOf('a.yaml'));
  await hasEvent('a.yaml', /Left/);
  const object = await get(`${own}-a`);
  assert.deepEqual(object?.['data'], { other: 'kept', value: '1' });
  assert.equal(object?.metadata.labels?.[MANIFEST_LABEL], undefined);
});

test('an object that is to be created once keeps what others change', async () => {
  const once = '  annotations: {orchlet.local/apply: once}\n';
  put('a.yaml', configMap(`${own}-a`, '1', once));
  await hasValue(`${own}-a`, '1');
  await plane.client.patch(configMaps, 'default', `${own}-a`, { type: 'merge', body: { data: { value: 'mine' } } });
  put('a.yaml', `${configMap(`${own}-a`, '2', once)}---\n${configMap(`${own}-b`, '1')}`);
  await hasValue(`${own}-b`, '1');
  assert.equal(await valueOf(`${own}-a`), 'mine');
});

test('a modified inventory does not cause the deletion of objects that its file did not apply', async () => {
  const name = `${own}-a`;
  await plane.client.create(configMaps, 'default', { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } });
  const row = { ...configMaps, singular: '', shortNames: [], categories: [], verbs: ['patch'], subresources: [] };
  const catalog = { find: () => undefined, resources: () => [row], onChange: () => () => undefined };
  const entry = { group: '', kind: 'ConfigMap', namespace: 'default', name, uid: '', isAdopted: false };
  const label = inventoryName(pathOf('a.yaml'));
  const labels = { metadata: { labels: { [MANIFEST_LABEL]: label } } };
  assert.equal(await pruneObject(plane.client, catalog, entry, label), 'gone');
  await plane.client.patch(configMaps, 'default', name, { type: 'merge', body: labels });
  assert.equal(await pruneObject(plane.client, catalog, { ...entry, uid: 'of-another-object' }, label), 'gone');
  assert.ok(await get(name));
  assert.equal(await pruneObject(plane.client, catalog, entry, label), 'deleted');
});

test('an object that two files have belongs to the first', async () => {
  put('a.yaml', configMap(`${own}-a`, '1'));
  put('b.yaml', configMap(`${own}-a`, '2'));
  assert.match(await hasEvent('b.yaml', /FailedManifest/), /is already in .*a\.yaml, line 1/);
  await hasValue(`${own}-a`, '1');
});
