import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyStrategicMergePatch } from '../../../../api/codec/strategic-merge-patch.ts';
import type { JsonObject } from '../../../../api/meta/object.ts';
import { loadSchema } from '../../../../api/schema/table.ts';

const struct = loadSchema().kind('', 'v1', 'PodTemplate');
assert(struct !== undefined);
const type = struct;

const withSpec = (spec: object, metadata: object = {}): JsonObject => ({ metadata, template: { spec } }) as JsonObject;
const containers = [
  {
    name: 'a',
    image: 'a:1',
    env: [
      { name: 'X', value: '1' },
      { name: 'Y', value: '2' },
    ],
  },
  { name: 'b', image: 'b:1' },
];

function specAfter(spec: object, patch: object): Record<string, unknown> {
  const { value: patched } = applyStrategicMergePatch(withSpec(spec), { template: { spec: patch } }, type);
  return (patched['template'] as { spec: Record<string, unknown> }).spec;
}

test('keyed lists are merged by key, and new items have their position in the patch', () => {
  const patch = {
    containers: [
      { name: 'a', env: [{ name: 'Y', value: '9' }, { name: 'Z' }] },
      { name: 'c', image: 'c:1' },
    ],
  };
  assert.deepEqual(specAfter({ containers }, patch)['containers'], [
    { name: 'a', image: 'a:1', env: [{ name: 'X', value: '1' }, { name: 'Y', value: '9' }, { name: 'Z' }] },
    { name: 'c', image: 'c:1' },
    { name: 'b', image: 'b:1' },
  ]);
});

test('atomic lists are replaced', () => {
  const tolerations = [{ key: 'b' }];
  assert.deepEqual(specAfter({ tolerations: [{ key: 'a' }] }, { tolerations })['tolerations'], tolerations);
});

test('$patch deletes and replaces', () => {
  const deleted = specAfter(
    { containers },
    {
      containers: [
        { $patch: 'delete', name: 'b' },
        { $patch: 'delete', name: 'none' },
      ],
    },
  );
  assert.deepEqual(
    (deleted['containers'] as { name: string }[]).map(({ name }) => name),
    ['a'],
  );
  const replaced = specAfter({ containers }, { containers: [{ $patch: 'replace' }, { name: 'z' }] });
  assert.deepEqual(replaced['containers'], [{ name: 'z' }]);
  assert.deepEqual(
    specAfter({ nodeSelector: { a: '1' } }, { nodeSelector: { $patch: 'replace', b: '2' } })['nodeSelector'],
    { b: '2' },
  );
  assert.deepEqual(specAfter({ nodeSelector: { a: '1' } }, { nodeSelector: { $patch: 'delete' } })['nodeSelector'], {});
});

test('$setElementOrder orders, $retainKeys drops, $deleteFromPrimitiveList removes', () => {
  const ordered = specAfter({ containers }, { '$setElementOrder/containers': [{ name: 'b' }, { name: 'a' }] });
  assert.deepEqual(
    (ordered['containers'] as { name: string }[]).map(({ name }) => name),
    ['b', 'a'],
  );
  const retained = specAfter(
    { volumes: [{ name: 'v', emptyDir: {} }] },
    { volumes: [{ name: 'v', $retainKeys: ['name', 'configMap'], configMap: { name: 'cm' } }] },
  );
  assert.deepEqual(retained['volumes'], [{ name: 'v', configMap: { name: 'cm' } }]);
  const { value: finalizers } = applyStrategicMergePatch(
    withSpec({}, { finalizers: ['one', 'two'] }),
    { metadata: { '$deleteFromPrimitiveList/finalizers': ['one'], finalizers: ['four'] } },
    type,
  );
  assert.deepEqual(finalizers['metadata'], { finalizers: ['four', 'two'] });
});

test('faults have the words of other API servers', () => {
  const faults: [object, string][] = [
    [{ containers: [{ image: 'x' }] }, 'map: map[image:x] does not contain declared merge key: name'],
    [{ nodeSelector: { $patch: 'other' } }, 'unknown patch type: other in map: map[$patch:other]'],
  ];
  for (const [patch, message] of faults) {
    assert.throws(() => specAfter({ containers, nodeSelector: { a: '1' } }, patch), { code: 500, message });
  }
});

test('lists of scalars and of keys that are numbers find their items, however large the numbers', () => {
  const ports = [{ containerPort: 80, name: 'a' }, { containerPort: 81 }];
  const spec = specAfter(
    { containers: [{ name: 'a', ports }] },
    { containers: [{ name: 'a', ports: [{ containerPort: 80n, name: 'b' }, { containerPort: 82 }] }] },
  );
  const [container] = spec['containers'] as [{ ports: unknown }];
  assert.deepEqual(container.ports, [{ containerPort: 80n, name: 'b' }, { containerPort: 82 }, { containerPort: 81 }]);
});

test('a list of twenty thousand items merges with another', () => {
  const many = Array.from({ length: 20_000 }, (_, index) => ({ name: `c${index}`, image: 'x' }));
  const spec = specAfter({ containers: many }, { containers: many.map((item) => ({ ...item, image: 'y' })) });
  const merged = spec['containers'] as { name: string; image: string }[];
  assert.equal(merged.length, many.length);
  assert.deepEqual(merged.at(-1), { name: 'c19999', image: 'y' });
});

test('an added value loses its nulls and every object with $patch, and keeps other directives as unknown fields', () => {
  const added = specAfter(
    {},
    {
      containers: [
        { name: 'x', image: null, $retainKeys: ['name'] },
        { name: 'y', $patch: 'replace' },
      ],
      securityContext: { $patch: 'replace', runAsUser: 1 },
      nodeSelector: { a: null, b: 'c' },
    },
  );
  assert.deepEqual(added, { containers: [{ name: 'x', $retainKeys: ['name'] }], nodeSelector: { b: 'c' } });
});

test('an object that is added to a keyed list stays as it is', () => {
  const limits = { cpu: null, memory: '1' };
  const patched = specAfter({ containers }, { containers: [{ name: 'c', resources: { limits } }] });
  assert.deepEqual((patched['containers'] as JsonObject[])[0], { name: 'c', resources: { limits } });
});

test('a directive that names no list is an error without a reason, and an empty order is none', () => {
  const code = (patch: object): unknown => {
    try {
      specAfter({ containers }, patch);
      return undefined;
    } catch (error) {
      return (error as { readonly code?: number }).code;
    }
  };
  assert.equal(code({ '$setElementOrder/containers': 'a' }), 500);
  assert.equal(code({ '$setElementOrder/containers': [{ name: 'a' }], containers: {} }), 500);
  assert.equal(code({ $setElementOrder: [] }), 400);
  assert.equal(code({ '$setElementOrder/containers': [], containers: [{ name: 'z' }] }), undefined);
});

test('a list with an order needs items, and both lists need the merge key', () => {
  const failsWith = (spec: object, patch: object, message: string | RegExp) =>
    assert.throws(() => specAfter(spec, patch), { message });
  const order = { '$setElementOrder/containers': [{ image: 'x' }] };
  failsWith(
    { containers },
    { containers: [{ name: 'a' }], ...order },
    /^map: map\[image:x\] does not contain .* key: name$/,
  );
  failsWith({ containers }, order, 'map: map[image:x] does not contain declared merge key: name');
  failsWith({}, { volumes: [], '$setElementOrder/volumes': [] }, 'no elements in any of the given slices');
  const tolerations = [{ key: 'a' }];
  const empty = { tolerations: [], '$setElementOrder/tolerations': [] };
  failsWith({ tolerations }, empty, 'map: map[key:a] does not contain declared merge key: ');
  const replacing = {
    containers: [{ name: 'a' }, { $patch: 'replace' }],
    '$setElementOrder/containers': [{ name: 'a' }],
  };
  failsWith({ containers }, replacing, /^The order in patch list:/);
});

test('objects in a list of scalars to delete are merged, and need a merge key', () => {
  const merged = specAfter({ containers }, { '$deleteFromPrimitiveList/containers': [{ name: 'b', image: 'b:2' }] });
  assert.deepEqual(
    (merged['containers'] as { image: string }[]).map(({ image }) => image),
    ['a:1', 'b:2'],
  );
  assert.throws(
    () => specAfter({ tolerations: [{ key: 'a' }] }, { '$deleteFromPrimitiveList/tolerations': [{ key: 'a' }] }),
    { message: 'cannot merge lists without merge key for struct' },
  );
});

test('lists of lists and lists of several types are refused', () => {
  const args = (list: unknown[]) => specAfter({ imagePullSecrets: [{ name: 'a' }] }, { imagePullSecrets: list });
  assert.throws(() => args([['a']]), { message: 'list element types are not identical: [[map[name:a]] [[a]]]' });
  assert.throws(() => specAfter({ imagePullSecrets: [] }, { imagePullSecrets: [['a']] }), {
    code: 422,
    message: 'lists of lists are not supported',
  });
});

test('a large integer in place of an object is an int64 in the error', () => {
  const patch = { containers: [{ name: 'a' }], '$setElementOrder/containers': [2n ** 60n] };
  assert.throws(() => specAfter({ containers }, patch), /expected a map\[string\]interface {}, but received a int64/);
});

test('the patch is shown without what was handled', () => {
  const patch = {
    metadata: { labels: { a: null, b: 'c' } },
    template: { spec: { $retainKeys: ['volumes'], volumes: [{ name: 'v', $patch: 'replace' }, { name: 'w' }] } },
  };
  const shown = applyStrategicMergePatch(withSpec({}), patch, type).patch;
  assert.deepEqual(shown, {
    metadata: { labels: { b: 'c' } },
    template: { spec: { volumes: [{ name: 'v', $patch: 'replace' }, { name: 'w' }] } },
  });
});

test('an empty $setElementOrder leaves the items of the server first, and new ones in the order of Go', () => {
  const names = (live: string[], patch: string[]): unknown => {
    const items = (list: string[]): JsonObject[] => list.map((name) => ({ name, image: 'i' }));
    const after = specAfter(
      { containers: items(live) },
      { containers: items(patch), '$setElementOrder/containers': [] },
    );
    return (after['containers'] as JsonObject[]).map(({ name }) => name);
  };
  assert.deepEqual(names(['b'], ['a', 'b']), ['b', 'a']);
  assert.deepEqual(names(['b'], ['d', 'a']), ['b', 'a', 'd']);
  assert.deepEqual(names(['a', 'b'], ['d', 'a']), ['a', 'b', 'd']);
  const many = Array.from({ length: 30 }, (_, index) => `n${index}`);
  assert.equal((names(many, ['new']) as string[]).length, 31);
});
