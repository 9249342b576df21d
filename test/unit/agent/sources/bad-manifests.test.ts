/** Invalid manifests are refused with their position, and none makes the agent read other files. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createPodReader } from '../../../../agent/sources/pod-reader.ts';
import { ManifestError, readManifest } from '../../../../agent/sources/static-pod.ts';
import { createYamlThread } from '../../../../api/codec/yaml-thread.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const reader = createPodReader();
const read = (text: string): ReturnType<typeof readManifest> =>
  readManifest(Buffer.from(text), {
    source: 'file',
    origin: '/m/pod.yaml',
    nodeName: 'node',

    yaml: createYamlThread({ clock: new FakeClock() }),
    reader,
  });
const pod = (metadata: string, spec = 'containers: [{name: c, image: i}]'): string =>
  `apiVersion: v1\nkind: Pod\nmetadata:\n  ${metadata}\nspec:\n  ${spec}\n`;

const bomb = Array.from({ length: 12 }, (_value, depth) =>
  depth === 0
    ? '    a0: &a0 [x, x, x, x, x, x, x, x, x]'
    : `    a${depth}: &a${depth} [${Array(9)
        .fill(`*a${depth - 1}`)
        .join(', ')}]`,
).join('\n');

describe('a manifest is refused', () => {
  const table: readonly (readonly [why: string, text: string, message: RegExp])[] = [
    [
      'whose name is a path',
      pod('name: ../../etc/passwd'),
      /line 4: metadata\.name: Invalid value: "\.\.\/\.\.\/etc\/passwd-node"/,
    ],
    ['whose namespace is a path', pod('{name: a, namespace: ../x}'), /metadata\.namespace: Invalid value: "\.\.\/x"/],
    ['whose uid is a path', pod('{name: a, uid: ../../x}'), /metadata\.uid: Invalid value: "\.\.\/\.\.\/x"/],
    ['with an empty name', pod('name: ""'), /metadata\.name: Required value/],
    ['without a name', pod('labels: {a: b}'), /metadata\.name: Required value/],
    [
      'whose container is named by a path',
      pod('name: a', 'containers: [{name: ../c, image: i}]'),
      /line 6: spec\.containers\[0\]\.name: Invalid value/,
    ],
    [
      'with a value of the wrong type',
      pod('name: a', 'containers: [{name: c, image: i, ports: [{containerPort: x}]}]'),
      /spec\.containers\.ports\.containerPort of type int32$/,
    ],
    ['with a map where a list belongs', pod('name: a', 'containers: {a: b}'), /PodSpec\.spec\.containers of type/],
    ['that unfolds beyond all measure', pod(`name: a\n  annotations:\n${bomb}`), /excessive aliasing/],
    ['that is nested without end', '['.repeat(100_000), /nesting exceeded/],
    ['that is empty', '', /the manifest is empty/],
    ['that is something else', 'apiVersion: v1\nkind: ConfigMap\n', /a Pod is expected, not a ConfigMap/],
  ];
  for (const [why, text, message] of table)
    it(why, () =>
      assert.rejects(read(text), (error: unknown) => error instanceof ManifestError && message.test(error.message)),
    );
});

it('unknown fields cause warnings with their names', async () => {
  const { pods, warnings } = await read(pod('name: a', 'containerz: []\n  containers: [{name: c, image: i, foo: 1}]'));
  assert.equal(pods.length, 1);
  assert.deepEqual(warnings, [
    '/m/pod.yaml: unknown field "spec.containerz"',
    '/m/pod.yaml: unknown field "spec.containers[0].foo"',
  ]);
});
