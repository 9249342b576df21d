import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import type { ReferencedObjects } from '../../../../../agent/base/model/referenced-objects.ts';
import { containerEnvironment, expand } from '../../../../../agent/runtime/kuberuntime/environment.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';

const pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u' }, spec: { containers: [] } } as unknown as Pod;
const objects: ReferencedObjects = {
  registerPod: () => undefined,
  unregisterPod: () => undefined,
  configMap: (_namespace, name) =>
    Promise.resolve(
      name === 'settings' ? ({ metadata: {}, data: { A: 'from-map', k: 'v' } } as KubeObject) : undefined,
    ),
  secret: (_namespace, name) =>
    Promise.resolve(
      name === 'keys'
        ? ({ metadata: {}, data: { S: Buffer.from('hidden').toString('base64') } } as KubeObject)
        : undefined,
    ),
};
const web = {
  metadata: { name: 'my-web', namespace: 'ns' },
  spec: { clusterIP: '10.1.2.3', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
} as KubeObject;

function environment(container: object, services: readonly KubeObject[] = []): Promise<Map<string, string>> {
  return containerEnvironment(pod, { name: 'c', ...container } as Container, {
    objects,
    services: { synced: () => true, list: () => services },
    fieldValue: (_pod, path) => `<${path}>`,
    resourceValue: (_pod, of, resource) => `${of.name}:${resource}`,
    fileText: (_pod, volume, path) => Promise.resolve({ path: `/pods/u/${volume}/${path}`, text: "K='v'\n" }),
  });
}

describe('expansion of $(VAR)', () => {
  const lookup = (name: string): string | undefined => ({ A: '1', B: '$(A)' })[name];
  for (const [text, expected] of [
    ['$(A)', '1'],
    ['x$(A)y', 'x1y'],
    ['$$(A)', '$(A)'],
    ['$(NONE)', '$(NONE)'],
    ['$(B)', '$(A)'],
    ['$', '$'],
    ['$x', '$x'],
    ['$(A', '$(A'],
    ['$$$(A)', '$1'],
  ] as const) {
    it(`makes ${expected} of ${text}`, () => assert.equal(expand(text, lookup), expected));
  }
  it('takes references in order, each to the next closing bracket', () => {
    const texts = fc.string({ unit: fc.constantFrom('$', '(', ')', 'A', 'B', '$('), maxLength: 16 });
    const slow = /\$(?:\$|\(([^)]*)\))/g;
    fc.assert(
      fc.property(texts, (text) => {
        const expected = text.replaceAll(slow, (whole, name?: string) =>
          name === undefined ? '$' : (lookup(name) ?? whole),
        );
        assert.equal(expand(text, lookup), expected);
      }),
    );
  });
  it('reads references that are never closed in time that grows with their number', async () => {
    const read = (size: number): void => {
      const text = '$('.repeat(size / 2);
      assert.equal(expand(text, lookup), text);
    };
    await assertLinearTime(read, { maxBytes: 1 << 20 });
  });
  it('leaves text without a dollar as it is', () => {
    fc.assert(
      fc.property(
        fc.string().filter((text) => !text.includes('$')),
        (text) => expand(text, lookup) === text,
      ),
    );
  });
});

describe("a container's environment", () => {
  it('takes variables in order: later ones see earlier ones', async () => {
    const env = await environment({
      envFrom: [{ configMapRef: { name: 'settings' }, prefix: 'P_' }],
      env: [
        { name: 'X', value: '$(P_A)!' },
        { name: 'Y', value: '$(X)$(Z)' },
      ],
    });
    assert.equal(env.get('X'), 'from-map!');
    assert.equal(env.get('Y'), 'from-map!$(Z)');
  });
  it('takes secrets, fields and resources', async () => {
    const env = await environment({
      env: [
        { name: 'S', valueFrom: { secretKeyRef: { name: 'keys', key: 'S' } } },
        { name: 'F', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
        { name: 'R', valueFrom: { resourceFieldRef: { resource: 'limits.cpu' } } },
      ],
    });
    assert.deepEqual([env.get('S'), env.get('F'), env.get('R')], ['hidden', '<metadata.name>', 'c:limits.cpu']);
  });
  it('names the missing config map', async () => {
    await assert.rejects(
      environment({ env: [{ name: 'A', valueFrom: { configMapKeyRef: { name: 'none', key: 'k' } } }] }),
      { message: 'configmap "none" not found' },
    );
  });
  it('names the missing key', async () => {
    await assert.rejects(
      environment({ env: [{ name: 'A', valueFrom: { secretKeyRef: { name: 'keys', key: 'k' } } }] }),
      { message: "couldn't find key k in Secret ns/keys" },
    );
  });
  it('names the file on the host that lacks the key', async () => {
    const of = (key: string): object => ({
      env: [{ name: 'A', valueFrom: { fileKeyRef: { volumeName: 'data', path: 'env', key } } }],
    });
    assert.equal((await environment(of('K'))).get('A'), 'v');
    await assert.rejects(environment(of('Z')), {
      message: 'environment variable key "Z" not found in file "/pods/u/data/env"',
    });
  });
  it('omits missing optional objects', async () => {
    const env = await environment({
      env: [{ name: 'A', valueFrom: { configMapKeyRef: { name: 'none', key: 'k', optional: true } } }],
      envFrom: [{ secretRef: { name: 'none', optional: true } }],
    });
    assert.equal(env.has('A'), false);
  });
  it('has the services of the namespace, which the variables of the pod override', async () => {
    const env = await environment({ env: [{ name: 'MY_WEB_PORT', value: 'own' }] }, [web]);
    assert.equal(env.get('MY_WEB_SERVICE_HOST'), '10.1.2.3');
    assert.equal(env.get('MY_WEB_SERVICE_PORT_HTTP'), '80');
    assert.equal(env.get('MY_WEB_PORT_80_TCP_ADDR'), '10.1.2.3');
    assert.equal(env.get('MY_WEB_PORT'), 'own');
  });
});
