/**
 * Tests the folder of manifests of a control plane that is a process of its own: restarts, kills, kustomizations, broken files.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { systemClock } from '../../api/machinery/clock.ts';
import { until } from '../until.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';

let plane: ControlPlaneProcess;

before(async () => {
  plane = await ControlPlaneProcess.start(['--manifests-dir', '/nonexistent/orchlet-manifests']);
});
after(() => plane.remove());

const pathOf = (name: string): string => join(plane.directory, 'manifests', name);
const put = (name: string, text: string): void => writeFileSync(pathOf(name), text);
const configMap = (name: string, value: string): string =>
  `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ${name}}\ndata: {value: "${value}"}\n`;
const valueOf = (name: string): string =>
  plane.kubectl(['get', 'configmap', name, '-o', 'jsonpath={.data.value}']).stdout;
const exists = (name: string): boolean => plane.kubectl(['get', 'configmap', name]).code === 0;

test('objects survive a kill, and those that were removed from the folder in the meantime are deleted after the start', async () => {
  put('a.yaml', `${configMap('a', '1')}---\n${configMap('b', '1')}`);
  await until('the objects', () => valueOf('b') === '1');
  const uid = plane.kubectl(['get', 'configmap', 'a', '-o', 'jsonpath={.metadata.uid}']).stdout;
  await plane.stop('SIGKILL');
  put('a.yaml', configMap('a', '2'));
  await plane.launch();
  await until('the changed object', () => valueOf('a') === '2');
  await until('the removed object to go', () => !exists('b'));
  assert.equal(plane.kubectl(['get', 'configmap', 'a', '-o', 'jsonpath={.metadata.uid}']).stdout, uid);
});

test('the fields of a manifest have a manager of their own, and there is no copy of the manifest in annotations', async () => {
  put('secret.yaml', 'apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hidden}\n');
  await until('the secret', () => plane.kubectl(['get', 'secret', 's']).code === 0);
  const { stdout } = plane.kubectl(['get', 'secret', 's', '-o', 'json', '--show-managed-fields']);
  const { metadata } = JSON.parse(stdout) as {
    metadata: { annotations?: object; managedFields: { manager: string; operation: string }[] };
  };
  assert.equal(metadata.annotations, undefined);
  assert.deepEqual(
    metadata.managedFields.map(({ manager, operation }) => [manager, operation]),
    [['orchlet-manifests', 'Apply']],
  );
});

test('a kustomization is built by kubectl, and built again when one of its files changes', async () => {
  mkdirSync(pathOf('k'));
  put('k/object.yaml', configMap('kustomized', '1'));
  put('k/kustomization.yaml', 'namePrefix: pre-\nresources: [object.yaml]\n');
  await until('the object', () => valueOf('pre-kustomized') === '1');
  put('k/object.yaml', configMap('kustomized', '2'));
  await until('the changed object', () => valueOf('pre-kustomized') === '2');
  put('k/kustomization.yaml', 'resources: [missing.yaml]\n');
  await until('an event', () => {
    const { stdout } = plane.kubectl(['get', 'events', '-n', 'kube-system', '-o', 'jsonpath={.items[*].message}']);
    return stdout.includes('missing.yaml');
  });
  assert.equal(valueOf('pre-kustomized'), '2');
  rmSync(pathOf('k'), { recursive: true });
  await until('the object to go', () => !exists('pre-kustomized'));
});

test('kubectl describe shows what is wrong with a file', async () => {
  put('wrong.yaml', 'apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: 0}]}\n');
  const described = await until('the event', () => {
    const { stdout } = plane.kubectl([
      'describe',
      'configmap',
      '-n',
      'kube-system',
      '-l',
      'orchlet.local/inventory=manifests',
    ]);
    return stdout.includes('FailedManifest') && stdout.includes('Service') ? stdout : undefined;
  });
  assert.match(described, /wrong\.yaml, line \d: Service x: /);
  rmSync(pathOf('wrong.yaml'));
});

test('a backup that is restored on another host deletes nothing before the files are there again', async () => {
  put('r.yaml', configMap('restored', '1'));
  await until('the object', () => valueOf('restored') === '1');
  await plane.stop();
  // After a restore, a data directory has the objects and no file that belongs to the host.
  rmSync(join(plane.directory, 'installation'));
  rmSync(pathOf('r.yaml'));
  await plane.launch();
  // Objects that are in no file are deleted after some seconds. The deletion of another object shows that they are over.
  put('s.yaml', configMap('other', '1'));
  await until('the object of the other file', () => valueOf('other') === '1');
  rmSync(pathOf('s.yaml'));
  await until('the deletion of the object of the other file', () => !exists('other'));
  assert.equal(valueOf('restored'), '1');
  put('r.yaml', configMap('restored', '2'));
  await until('the object of the file that is back', () => valueOf('restored') === '2');
  rmSync(pathOf('r.yaml'));
  await until('the object to go', () => !exists('restored'));
});

test('a folder that is empty at the start deletes nothing', async () => {
  put('e.yaml', configMap('emptied', '1'));
  await until('the object', () => valueOf('emptied') === '1');
  await plane.stop();
  const kept = join(plane.directory, 'elsewhere');
  renameSync(join(plane.directory, 'manifests'), kept);
  await plane.launch();
  put('.ready', '');
  // Longer than what is missing stays: nothing else would show that nothing happens.
  await systemClock.sleep(7_000);
  assert.equal(valueOf('emptied'), '1');
  for (const name of readdirSync(kept)) renameSync(join(kept, name), pathOf(name));
  put('e.yaml', configMap('emptied', '2'));
  await until('the object of the file that is back', () => valueOf('emptied') === '2');
});

test('a control plane without the part leaves everything as it is', async () => {
  const directory = plane.directory;
  await plane.stop();
  rmSync(pathOf('a.yaml'));
  const other = await ControlPlaneProcess.start(['--disable', 'manifests'], directory);
  put('late.yaml', configMap('late', '1'));
  assert.equal(other.kubectl(['get', 'configmap', 'a']).code, 0);
  await other.stop();
  await plane.launch();
  await until('the new object', () => valueOf('late') === '1');
  await until('the removed object to go', () => !exists('a'));
});
