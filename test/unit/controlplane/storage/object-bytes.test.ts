/** Tests values that are read from the bytes of an object without parsing it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encodeObject, labelsText, stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';

const labels = { app: 'web', 'example.com/tier': '' };

function textOf(metadata: KubeObject['metadata']): string | undefined {
  const kind = { kind: 'ClusterRole', apiVersion: 'rbac.authorization.k8s.io/v1' };
  return labelsText(stampRevision(encodeObject({ ...kind, metadata, rules: [] } as KubeObject), 7));
}

describe('the labels of an object', () => {
  for (const [what, name] of [
    ['a plain name', 'system:node'],
    // A role may have any name that is a valid path segment.
    ['a quote in its name', 'say "hi"'],
    ['a backslash in its name', 'back\\'],
    ['characters of markup in its name', '<a&b>'],
    ['characters of several bytes in its name', 'rôle-役割'],
    ['a name of more than a thousand characters', 'x'.repeat(3000)],
    ['labels in its name', '","labels":{"app":"other"},"x":"'],
  ] as const) {
    it(`are read of an object with ${what}`, () => {
      assert.deepEqual(JSON.parse(textOf({ name, labels }) ?? ''), labels);
      assert.equal(textOf({ name }), undefined);
    });
  }

  it('are read behind a namespace and a generated name, and not where they are not metadata’s own', () => {
    const metadata = { name: 'a-x', generateName: 'a-', namespace: 'default' };
    assert.deepEqual(JSON.parse(textOf({ ...metadata, labels }) ?? ''), labels);
    assert.equal(textOf({ ...metadata, annotations: { labels: '{}' } }), undefined);
    assert.equal(textOf({ ...metadata, labels: {} }), '{}');
  });
});

describe('the bytes of an object', () => {
  it('have its members in their order, without those that are undefined', () => {
    const object = {
      a: 1,
      metadata: { name: 'n', resourceVersion: '5' },
      b: undefined,
      kind: 'K',
      '"': [{ c: 10n ** 18n }],
    };
    assert.equal(
      encodeObject({ ...object, apiVersion: 'v1' } as unknown as KubeObject).toString(),
      '{"kind":"K","apiVersion":"v1","metadata":{"name":"n"},"a":1,"\\"":[{"c":1000000000000000000}]}',
    );
  });

  it('of tens of thousands of members take as long as their text, and no copies', () => {
    const wide: KubeObject = { kind: 'K', apiVersion: 'v1', metadata: { name: 'n' } };
    for (let at = 0; at < 90_000; at += 1) wide[`u${at}`] = 1;
    const usedMs = (work: () => unknown): number => {
      let least = Infinity;
      for (let attempt = 0; attempt < 5; attempt += 1) {
        const from = process.threadCpuUsage();
        work();
        const { user, system } = process.threadCpuUsage(from);
        least = Math.min(least, (user + system) / 1000);
      }
      return least;
    };
    const copyMs = usedMs(() => ({ ...wide }));
    const tookMs = usedMs(() => encodeObject(wide));
    assert.ok(tookMs < 1.5 * copyMs, `${tookMs} ms, a copy takes ${copyMs} ms`);
  });
});
