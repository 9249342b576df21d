/**
 * Tests ConfigMaps and Secrets beside static pods: what is read, what is refused, who gets them, and how changes reach pods.
 */
import assert from 'node:assert/strict';
import { chmod, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { createPodReader } from '../../../../agent/sources/pod-reader.ts';
import { createFileSource } from '../../../../agent/sources/file-source.ts';
import { readStaticObject, StaticObjects } from '../../../../agent/sources/static-objects.ts';
import { readManifest } from '../../../../agent/sources/static-pod.ts';
import { PodObjects } from '../../../../agent/volumes/pod-objects.ts';
import { noReferencedObjects } from '../../../../agent/volumes/referenced-objects.ts';
import { createYamlThread } from '../../../../api/codec/yaml-thread.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const yaml = createYamlThread({ clock: new FakeClock() });
const MAP = 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {key: one}\n';
const SECRET = 'apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: hidden}\n';
const POD = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: c
    image: i
    env: [{name: P, valueFrom: {secretKeyRef: {name: login, key: password}}}]
    envFrom: [{configMapRef: {name: settings}}]
  volumes:
  - {name: v, configMap: {name: settings}}
  - {name: p, projected: {sources: [{secret: {name: login}}]}}
`;

async function setUp(t: TestContext, files: Readonly<Record<string, string>>) {
  const directory = temporaryFolder();
  const clock = new FakeClock();
  const stop = new AbortController();
  const statics = new StaticObjects();
  const complaints: string[] = [];
  const changes: string[][] = [];
  let pods: readonly Pod[] | undefined;
  let scans = 0;
  const api = { ...noReferencedObjects, configMap: () => Promise.resolve({ data: { key: 'of the API' } } as never) };
  const objects = new PodObjects({ api, statics, onChange: (uids) => changes.push([...uids]) });
  const put = async (name: string, content: string, mode = 0o600): Promise<void> => {
    await writeFile(join(directory, name), content);
    await chmod(join(directory, name), mode);
  };
  for (const [name, content] of Object.entries(files)) await put(name, content);
  const source = createFileSource({
    path: directory,
    nodeName: 'node',
    checkMs: 20_000,
    clock,
    logger: silentLogger,
    yaml,
    reader: createPodReader(),
    statics,
    onBadManifest: (_file, message) => complaints.push(message),
  });
  const running = source.run(stop.signal, (found) => {
    pods = found;
    scans++;
  });
  t.after(async () => {
    stop.abort();
    await running;
  });
  const scan = async (): Promise<void> => {
    for (const before = scans; scans < before + 2;) await clock.advance(20_000);
  };
  await scan();
  return { put, scan, objects, complaints, changes, pods: () => pods ?? [], directory };
}

const dataOf = (object: KubeObject | undefined): unknown => object?.['data'];
const base64 = (text: string): string => Buffer.from(text).toString('base64');

describe('ConfigMaps and Secrets beside static pods', () => {
  it('are what the pods of the folder use, without an API server', async (t) => {
    const { pods, objects, complaints } = await setUp(t, { 'a.yaml': `${MAP}---\n${SECRET}`, 'pod.yaml': POD });
    const [pod] = pods();
    assert.deepEqual(complaints, []);
    assert.ok(pod !== undefined);
    assert.deepEqual(dataOf(await objects.configMap(pod, 'settings')), { key: 'one' });
    assert.deepEqual(dataOf(await objects.secret(pod, 'login')), { password: base64('hidden') });
    assert.equal(await objects.secret(pod, 'other'), undefined);
  });

  it('are not given to pods of the API, whatever their annotations state', async (t) => {
    const { pods, objects } = await setUp(t, { 'a.yaml': `${MAP}---\n${SECRET}`, 'pod.yaml': POD });
    const [pod] = pods();
    assert.ok(pod !== undefined);
    const annotations = { ...pod.metadata.annotations, 'kubernetes.io/config.source': 'api' };
    const ofApi = { ...pod, metadata: { ...pod.metadata, annotations } };
    assert.equal(await objects.secret(ofApi, 'login'), undefined);
    assert.deepEqual(dataOf(await objects.configMap(ofApi, 'settings')), { key: 'of the API' });
  });

  it('are followed: pods that use them are reported when they change, come and go', async (t) => {
    const { put, scan, pods, objects, changes, directory } = await setUp(t, { 'pod.yaml': POD });
    const [pod] = pods();
    assert.ok(pod !== undefined);
    objects.registerPod(pod);
    await put('a.yaml', MAP);
    await scan();
    assert.deepEqual(changes, [[pod.metadata.uid]]);
    await put('a.yaml', MAP.replace('one', 'two'));
    await scan();
    assert.deepEqual(dataOf(await objects.configMap(pod, 'settings')), { key: 'two' });
    assert.equal(changes.length, 2);
    await put('a.yaml', MAP.replace('settings', 'unused').replace('one', 'three'));
    await scan();
    assert.equal(await objects.configMap(pod, 'settings'), undefined);
    assert.equal(changes.length, 3);
    objects.unregisterPod(pod);
    await rm(join(directory, 'a.yaml'));
    await scan();
    assert.equal(changes.length, 3);
  });

  it('keep the last valid content while a file is invalid', async (t) => {
    const { put, scan, pods, objects, complaints } = await setUp(t, { 'a.yaml': MAP, 'pod.yaml': POD });
    await put('a.yaml', MAP.replace('settings', '../etc'));
    await scan();
    assert.match(complaints[0] ?? '', /a\.yaml: invalid ConfigMap: metadata\.name: "\.\.\/etc"/);
    assert.deepEqual(dataOf(await objects.configMap(pods()[0] as Pod, 'settings')), { key: 'one' });
  });

  it('are not used from files that others may write, nor Secrets that others may read; a changed mode is noticed', async (t) => {
    const { put, scan, pods, objects, complaints } = await setUp(t, { 'pod.yaml': POD });
    const [pod] = pods();
    assert.ok(pod !== undefined);
    await put('a.yaml', MAP, 0o666);
    await put('b.yaml', SECRET, 0o644);
    await scan();
    assert.match(complaints.join('\n'), /a\.yaml: group or others may write to it: chmod go-w/);
    assert.match(complaints.join('\n'), /b\.yaml: it has a Secret, and others may read it: chmod 600/);
    assert.equal(await objects.configMap(pod, 'settings'), undefined);
    assert.equal(await objects.secret(pod, 'login'), undefined);
    await put('a.yaml', MAP, 0o644);
    await put('b.yaml', SECRET, 0o600);
    await scan();
    assert.deepEqual(dataOf(await objects.configMap(pod, 'settings')), { key: 'one' });
    assert.deepEqual(dataOf(await objects.secret(pod, 'login')), { password: base64('hidden') });
  });

  it('may have values of the size of the API, which counts the decoded bytes of Secrets', () => {
    const secret = (bytes: number): object => ({
      kind: 'Secret',
      metadata: { name: 'large' },
      data: { key: Buffer.alloc(bytes).toString('base64') },
    });
    assert.equal(readStaticObject(secret(1 << 20)).key, 'Secret/default/large');
    assert.throws(() => readStaticObject(secret((1 << 20) + 1)), /has more than 1048576 bytes/);
  });

  it('have a name in one file alone', async (t) => {
    const { complaints } = await setUp(t, { 'a.yaml': MAP, 'b.yaml': MAP });
    assert.match(complaints[0] ?? '', /Ignoring ConfigMap\/default\/settings in .*b\.yaml, because .*a\.yaml has it/);
  });

  it('may not be referred to by pods that come from elsewhere', async () => {
    for (const source of ['http', 'submitted'] as const)
      await assert.rejects(
        readManifest(Buffer.from(POD), {
          ...{ source, origin: 'x', nodeName: 'node', yaml },
          reader: createPodReader(),
        }),
        /may not use config maps/,
      );
  });

  it('are refused with a key that is a path, with text that is no base64, and beyond the size of the API', () => {
    const object = (kind: string, data: object): object => ({ kind, metadata: { name: 'a' }, data });
    assert.throws(() => readStaticObject(object('ConfigMap', { '../key': 'x' })), /data: "\.\.\/key"/);
    assert.throws(() => readStaticObject(object('Secret', { key: '%%%' })), /base64/);
    assert.throws(() => readStaticObject(object('ConfigMap', { key: 'x'.repeat(1_048_577) })), /1048576 bytes/);
    assert.throws(() => readStaticObject({ ...object('Secret', {}), apiVersion: 'v2' }), /apiVersion v1/);
  });
});
