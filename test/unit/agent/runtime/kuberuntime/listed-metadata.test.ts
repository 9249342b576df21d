import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { MESSAGES } from '../../../../../agent/runtime/cri/messages.ts';
import { containerAnnotations } from '../../../../../agent/runtime/kuberuntime/container-config.ts';
import { listedMetadata } from '../../../../../agent/runtime/kuberuntime/listed-metadata.ts';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import { buildCodecs } from '../../../../../api/grpc/codec.ts';

const podWith = (metadata: object): Pod =>
  ({ metadata: { name: 'a', namespace: 'b', uid: 'c', ...metadata }, spec: { containers: [] } }) as unknown as Pod;
const texts = (count: number, length: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, 'x'.repeat(length)]));

describe('the labels and annotations of a sandbox', () => {
  it('are those of the pod, in their order', () => {
    const metadata = { labels: { b: '1', a: '2' }, annotations: { long: 'x'.repeat(10_000), short: '' } };
    assert.deepEqual(
      Object.entries(listedMetadata(podWith(metadata))).map(([, map]) => Object.entries(map)),
      [Object.entries(metadata.labels), Object.entries(metadata.annotations)],
    );
    assert.deepEqual(listedMetadata(podWith({})), { labels: {}, annotations: {} });
  });

  for (const [what, metadata] of [
    ['eighty thousand labels', { labels: texts(80_000, 0) }],
    ['labels of three megabytes', { labels: texts(50_000, 60) }],
    ['annotations of 256 KiB', { annotations: texts(1, 256 * 1024) }],
    ['fifty thousand annotations', { annotations: texts(50_000, 0) }],
  ] as const)
    it(`leave room for those of other pods on the node, where each has ${what}`, () => {
      const codec = buildCodecs(MESSAGES)('ListPodSandboxResponse');
      const item = { id: 'a', ...listedMetadata(podWith(metadata)) };
      const list = codec.encode({ items: Array.from({ length: 500 }, () => item) });
      assert.ok(list.length < 17 << 20);
      const { items } = codec.decode(list) as { readonly items: readonly unknown[] };
      assert.equal(items.length, 500);
    });
});

it('the annotations of a container are short, whatever hook and path its pod has', () => {
  const container = {
    name: 'a',
    terminationMessagePath: `/${'x'.repeat(1_000_000)}`,
    lifecycle: { preStop: { exec: { command: ['x'.repeat(1_000_000)] } } },
  } as unknown as Container;
  const annotations = containerAnnotations({ pod: podWith({}), container, attempt: 0 });
  assert.ok(JSON.stringify(annotations).length < 1000);
  const hook = { exec: { command: ['sleep', '5'] } };
  const short = containerAnnotations({
    pod: podWith({}),
    container: { name: 'a', lifecycle: { preStop: hook } } as unknown as Container,
    attempt: 0,
  });
  assert.ok(
    Object.values(short).includes(JSON.stringify(hook)) && Object.values(short).includes('/dev/termination-log'),
  );
});
