import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PodSpec } from '../../../../api/kinds/pod-types.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';
import { podWarnings } from '../../../../api/kinds/pod-warnings.ts';

const warningsOf = (spec: PodSpec): string[] => podWarnings(undefined, spec);

test('files of one volume with the same path cause warnings', () => {
  const items = [
    { key: 'a', path: 'p' },
    { key: 'b', path: 'p' },
    { key: 'c', path: 'p/q/' },
    { key: 'd', path: 'pq' },
  ];
  assert.deepEqual(warningsOf({ volumes: [{ name: 'v', configMap: { name: 'm', items } }] }), [
    'volume "v" (ConfigMap "m"): overlapping paths: "p" with "p"',
    'volume "v" (ConfigMap "m"): overlapping paths: "p/q" with "p"',
    'volume "v" (ConfigMap "m"): overlapping paths: "p/q" with "p"',
  ]);
});

test('files of a projected volume are compared across its sources, which the warning names', () => {
  const sources = [
    { secret: { name: 's', items: [{ key: 'k', path: 't' }] } },
    {},
    { serviceAccountToken: { path: 't' } },
    { downwardAPI: { items: [{ path: 't/x', fieldRef: { fieldPath: 'metadata.name' } }] } },
  ];
  assert.deepEqual(warningsOf({ volumes: [{ name: 'v', projected: { sources } }] }), [
    'volume "v" (Projected) has no sources provided',
    'volume "v" (Projected): overlapping paths: "t" (ServiceAccountToken) with "t" (Secret "s")',
    'volume "v" (Projected): overlapping paths: "t/x" (DownwardAPI) with "t" (Secret "s")',
    'volume "v" (Projected): overlapping paths: "t/x" (DownwardAPI) with "t" (ServiceAccountToken)',
  ]);
});

test('a folder of earlier files causes a warning for each of them, in their order, up to the hundredth', () => {
  const path = (at: number): string => `p/${at % 2 === 0 ? 'even/' : ''}${at}`;
  const items = [
    ...Array.from({ length: 150 }, (_item, at) => ({ key: 'k', path: path(at) })),
    { key: 'k', path: 'p' },
  ];
  const texts = warningsOf({ volumes: [{ name: 'v', secret: { secretName: 's', items } }] });
  const of = (at: number): string => `volume "v" (Secret "s"): overlapping paths: "p" with "${path(at)}"`;
  assert.deepEqual(
    texts,
    Array.from({ length: 100 }, (_text, at) => of(at)),
  );
});

test('tens of thousands of files of a volume are compared in time that grows with their paths', async () => {
  const compare = (size: number): unknown => {
    const items = Array.from({ length: size }, (_item, at) => ({ key: 'k', path: `p/${at}///` }));
    return warningsOf({ volumes: [{ name: 'v', configMap: { name: 'm', items } }] });
  };
  // Sorting takes more than linear time; comparing each with each would take seconds.
  await assertLinearTime(compare, { minBytes: 32_768, maxBytes: 32_768, noticeableMs: 500 });
});

test('a claim of a pod with a fraction of a byte causes a warning for the request and the limit', () => {
  const size = { storage: '100m' };
  const spec = { accessModes: ['ReadWriteOnce'], resources: { requests: size, limits: size } };
  const at = 'spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources';
  const text = 'fractional byte value "100m" is invalid, must be an integer';
  assert.deepEqual(warningsOf({ volumes: [{ name: 'v', ephemeral: { volumeClaimTemplate: { spec } } }] }), [
    `${at}.requests[storage]: ${text}`,
    `${at}.limits[storage]: ${text}`,
  ]);
});

test('values that no label can have cause warnings in preferred terms only', () => {
  const term = { matchExpressions: [{ key: 'k', operator: 'In', values: ['ok', 'a/b'] }] };
  const nodeAffinity = {
    requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [term] },
    preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, preference: term }],
  };
  const [text = '', ...others] = warningsOf({ affinity: { nodeAffinity } });
  assert.equal(others.length, 0);
  assert.match(
    text,
    /^spec\.affinity\.nodeAffinity\.preferredDuringSchedulingIgnoredDuringExecution\[0\]\.preference\.matchExpressions\[0\]\.values\[1\]: a\/b is invalid, a valid label must be/,
  );
});
