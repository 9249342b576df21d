import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { KubeObject, ManagedFieldsEntry } from '../../../../api/meta/object.ts';
import { StatusError } from '../../../../api/meta/status-error.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import type {
  ApplyWrite,
  FieldManagement,
  ManagedWrite,
  VersionLookup,
} from '../../../../controlplane/registry/field-management.ts';
import { createFieldManagement } from '../../../../controlplane/registry/managed-fields.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import { versionOne } from '../../../../controlplane/registry/kinds/autoscaling/autoscaling-conversion.ts';
import { builtInReader } from '../../../../controlplane/registry/object-decoding.ts';

const clock = {
  nowMs: Date.parse('2026-01-01T00:00:00Z'),
  now: () => clock.nowMs,
  monotonic: () => clock.nowMs,
  after: () => ({ cancel: () => undefined }),
  sleep: () => Promise.resolve(),
};

function management(kind: string): FieldManagement {
  const struct = loadSchema().kind('', 'v1', kind);
  assert(struct !== undefined);
  const expected = { group: '', version: 'v1', kind, struct, reader: builtInReader, applyDefaults: undefined };
  return createFieldManagement(clock, expected);
}

const configMaps = management('ConfigMap');
const pods = management('Pod');

const write = (manager: string, subresource = ''): ManagedWrite => ({
  manager,
  apiVersion: 'v1',
  subresource,
  resetFields: subresource === 'status' ? [['spec']] : [],
});

const applyWrite = (manager: string): ApplyWrite => ({
  ...write(manager),
  target: { namespace: 'ns', name: 'a' },
  validation: 'Warn',
  warn: () => undefined,
});

function configMap(data: Record<string, string> | undefined, metadata: object = {}): KubeObject {
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'a', ...metadata },
    ...(data === undefined ? {} : { data }),
  };
}

/** Returns the object as it is after it was stored. */
function stored(object: KubeObject): KubeObject {
  return { ...object, metadata: { ...object.metadata, uid: 'u1' } };
}

function apply(live: KubeObject | undefined, manager: string, config: object, force = false): KubeObject {
  return stored(configMaps.apply(live, { type: 'apply', body: config, duplicates: [], force }, applyWrite(manager)));
}

function update(live: KubeObject | undefined, manager: string, object: KubeObject): KubeObject {
  return stored(configMaps.update(live, object, write(manager)));
}

const ownership = (object: KubeObject): unknown =>
  object.metadata.managedFields?.map(({ manager, operation, time, fieldsV1 }) => ({
    manager,
    operation,
    timed: time !== undefined,
    fieldsV1,
  }));

const entryOf = (object: KubeObject, manager: string): ManagedFieldsEntry | undefined =>
  object.metadata.managedFields?.find((entry) => entry.manager === manager);

function refusal(run: () => unknown): StatusError {
  try {
    run();
  } catch (error) {
    assert(error instanceof StatusError);
    return error;
  }
  assert.fail('nothing was refused');
}

test('the manager that creates an object owns its maps as a whole and each of their members', () => {
  const made = update(undefined, 'maker', configMap({ k: 'v', l: 'w' }));
  assert.deepEqual(ownership(made), [
    { manager: 'maker', operation: 'Update', timed: true, fieldsV1: { 'f:data': { '.': {}, 'f:k': {}, 'f:l': {} } } },
  ]);
});

test('an object with nothing but its name has no managed fields', () => {
  assert.equal(update(undefined, 'maker', configMap(undefined)).metadata.managedFields, undefined);
});

test('a manager owns what it applied, and a repeated apply changes nothing', () => {
  const made = apply(undefined, 'one', configMap({ k: 'v' }));
  assert.deepEqual(ownership(made), [
    { manager: 'one', operation: 'Apply', timed: true, fieldsV1: { 'f:data': { 'f:k': {} } } },
  ]);
  clock.nowMs += 5000;
  assert.deepEqual(apply(made, 'one', configMap({ k: 'v' })), made);
});

test('a field that an applier leaves out is removed, unless another manager owns it', () => {
  const first = apply(undefined, 'one', configMap({ k: 'v', s: 'same' }));
  const shared = apply(first, 'two', configMap({ s: 'same' }));
  assert.deepEqual(apply(shared, 'one', configMap({}))['data'], { s: 'same' });
});

test('a conflict names the field and its owner', () => {
  const made = apply(undefined, 'one', configMap({ k: 'v', s: 'same' }));
  const one = refusal(() => apply(made, 'two', configMap({ k: 'w', s: 'same' })));
  assert.equal(one.message, 'Apply failed with 1 conflict: conflict with "one": .data.k');
  assert.deepEqual(one.status.details, {
    causes: [{ reason: 'FieldManagerConflict', message: 'conflict with "one"', field: '.data.k' }],
  });
  const two = refusal(() => apply(made, 'two', configMap({ k: 'w', s: 'other' })));
  assert.equal(two.message, 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.k\n- .data.s');
});

test('force transfers the ownership of the fields', () => {
  const made = apply(undefined, 'one', configMap({ k: 'v', s: 'same' }));
  const forced = apply(made, 'two', configMap({ k: 'w', s: 'same' }), true);
  assert.deepEqual(entryOf(forced, 'one')?.fieldsV1, { 'f:data': { 'f:s': {} } });
  assert.deepEqual(entryOf(forced, 'two')?.fieldsV1, { 'f:data': { 'f:k': {}, 'f:s': {} } });
});

test('an updater takes fields from an applier, whose next apply conflicts with it', () => {
  const made = apply(undefined, 'one', configMap({ k: 'v', l: 'w' }));
  const scaled = update(made, 'scaler', { ...made, data: { k: 'scaled', l: 'w' } });
  assert.deepEqual(entryOf(scaled, 'one')?.fieldsV1, { 'f:data': { 'f:l': {} } });
  const error = refusal(() => apply(scaled, 'one', configMap({ k: 'v', l: 'w' })));
  assert.equal(error.message, 'Apply failed with 1 conflict: conflict with "scaler" using v1: .data.k');
  assert.deepEqual(apply(scaled, 'one', configMap({ l: 'w' }))['data'], { k: 'scaled', l: 'w' });
});

test('ownership without a time comes first', () => {
  const made = update(undefined, 'maker', configMap({ k: 'v' }));
  const applied = apply(made, 'one', configMap({ k: 'v' }));
  assert.deepEqual(
    applied.metadata.managedFields?.map(({ manager, time }) => [manager, time !== undefined]),
    [
      ['one', false],
      ['maker', true],
    ],
  );
});

test('a write that changes nothing keeps the entries, times included', () => {
  const made = update(undefined, 'maker', configMap({ k: 'v' }));
  clock.nowMs += 60_000;
  assert.deepEqual(update(made, 'other', { ...made, data: { k: 'v' } }), made);
});

test('an apply of an empty map that changes nothing else gives its entry a time', () => {
  const live = update(undefined, 'u', configMap({ a: '1' }));
  const applied = apply(live, 'x', configMap(undefined, { labels: {} }));
  assert.notEqual(entryOf(applied, 'x')?.time, undefined);
  assert.equal(entryOf(apply(live, 'y', configMap({ a: '1' })), 'y')?.time, undefined);
});

test('an empty list inside an atomic list counts as a change', () => {
  const withTerm = (term: object): KubeObject => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'a' },
    spec: {
      tolerations: [{ key: 'k' }],
      affinity: {
        nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 1, preference: term }] },
      },
    },
  });
  const live = stored(pods.update(undefined, withTerm({}), write('a')));
  const next = pods.update(live, withTerm({ matchExpressions: [] }), write('b'));
  assert.ok(entryOf(next, 'b') !== undefined);
  assert.equal(entryOf(pods.update(live, withTerm({}), write('b')), 'b'), undefined);
});

test('an emptied map stays with its owner', () => {
  const one = apply(apply(undefined, 'two', configMap({ k: 'w' })), 'one', configMap({}));
  const emptied = apply(one, 'two', configMap(undefined));
  assert.deepEqual(ownership(emptied), [
    { manager: 'one', operation: 'Apply', timed: false, fieldsV1: { 'f:data': {} } },
  ]);
});

test('managed fields are reset by [{}], and a later apply treats the fields as existing before', () => {
  const made = apply(undefined, 'one', configMap({ k: 'v' }));
  const reset = update(made, 'x', { ...made, metadata: { ...made.metadata, managedFields: [{}] } });
  assert.equal(reset.metadata.managedFields, undefined);
  const error = refusal(() => apply(reset, 'two', configMap({ k: 'w' })));
  assert.equal(error.message, 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k');
});

test('an object whose owners all wrote in another group has had its first apply', () => {
  const made = update(undefined, 'maker', configMap({ k: 'v' }));
  const foreign = made.metadata.managedFields?.map((entry) => ({ ...entry, apiVersion: 'other.io/v1' })) ?? [];
  const applied = apply(
    { ...made, metadata: { ...made.metadata, managedFields: foreign } },
    'one',
    configMap({ l: 'w' }),
  );
  assert.deepEqual(
    applied.metadata.managedFields?.map(({ manager }) => manager),
    ['one'],
  );
});

test('apply refuses what does not fit the type', () => {
  const unknown = refusal(() => apply(undefined, 'one', { ...configMap({ k: 'v' }), extra: {} }));
  assert.equal(unknown.code, 500);
  assert.equal(
    unknown.message,
    'failed to create typed patch object (/a; /v1, Kind=ConfigMap): .extra: field not declared in schema',
  );
  const kind = refusal(() => apply(undefined, 'one', { ...configMap({}), kind: 'Secret' }));
  assert.equal(kind.message, 'invalid object type: /v1, Kind=Secret');
  const managed = refusal(() => apply(undefined, 'one', configMap({}, { managedFields: [] })));
  assert.equal(managed.message, 'metadata.managedFields must be nil');
});

test('apply names the object whose values cannot be read', () => {
  const refused =
    'failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured object to /v1, Kind=ConfigMap: ';
  const binary = refusal(() => apply(undefined, 'one', { ...configMap({}), binaryData: { k: '%%' } }));
  assert.equal(binary.message, `${refused}error decoding from json: illegal base64 data at input byte 0`);
  assert.equal(binary.code, 500);
  const metadata = { name: 'a', namespace: 'ns' };
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec: { priority: 1.5 } };
  const fraction = refusal(() =>
    pods.apply(undefined, { type: 'apply', body: pod, duplicates: [], force: true }, applyWrite('one')),
  );
  assert.match(fraction.message ?? '', /\(ns\/a; \/v1, Kind=Pod\) .*: cannot convert float64 to int32$/);
});

test('the oldest of more than ten updaters become one', () => {
  let live = update(undefined, 'm0', configMap({ k0: '0' }));
  for (let i = 1; i < 14; i++) {
    clock.nowMs += 1000;
    live = update(live, `m${i}`, { ...live, data: { ...(live['data'] as object), [`k${i}`]: '1' } });
  }
  assert.equal(live.metadata.managedFields?.length, 10);
  const ancient = entryOf(live, 'ancient-changes')?.fieldsV1?.['f:data'];
  assert.deepEqual(Object.keys(ancient ?? {}), ['.', 'f:k0', 'f:k1', 'f:k2', 'f:k3', 'f:k4']);
});

test('kubectl takes over what it had applied on the client side', () => {
  const annotation = 'kubectl.kubernetes.io/last-applied-configuration';
  const config = configMap({ k: 'v' });
  const made = update(
    undefined,
    'kubectl-client-side-apply',
    configMap({ k: 'v' }, { annotations: { [annotation]: JSON.stringify(config) } }),
  );
  assert.equal(refusal(() => apply(made, 'other', configMap({ k: 'w' }))).code, 409);
  const taken = apply(made, 'kubectl', configMap({ k: 'w' }));
  assert.deepEqual(taken['data'], { k: 'w' });
  assert.match(taken.metadata.annotations?.[annotation] ?? '', /"k":"w"/);
});

test('list items are owned by key, and a repeated one as a whole', () => {
  const pod = (env: object[]): KubeObject => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p' },
    spec: { containers: [{ name: 'c', env }] },
  });
  const containerFields = (object: KubeObject): unknown => {
    const made = pods.update(undefined, object, write('maker'));
    return made.metadata.managedFields?.[0]?.fieldsV1?.['f:spec'];
  };
  const inContainer = (env: object): object => ({
    'f:containers': { 'k:{"name":"c"}': { '.': {}, 'f:env': env, 'f:name': {}, 'f:resources': {} } },
  });
  assert.deepEqual(
    containerFields(pod([{ name: 'A', value: '1' }])),
    inContainer({ '.': {}, 'k:{"name":"A"}': { '.': {}, 'f:name': {}, 'f:value': {} } }),
  );
  assert.deepEqual(
    containerFields(
      pod([
        { name: 'A', value: '1' },
        { name: 'A', value: '2' },
      ]),
    ),
    inContainer({ '.': {}, 'k:{"name":"A"}': {} }),
  );
});

test('a write of the status keeps the owners of a list with an item twice', () => {
  const env = [{ name: 'A' }, { name: 'A', value: '2' }];
  const created: KubeObject = { metadata: { name: 'p' }, spec: { containers: [{ name: 'c', env }] }, status: {} };
  const live = stored(pods.update(undefined, created, write('author')));
  const next = { ...live, status: { phase: 'Running' } };
  const { managedFields } = pods.update(live, next, write('agent', 'status')).metadata;
  assert.deepEqual(managedFields?.map(({ manager }) => manager).sort(), ['agent', 'author']);
});

test('a condition that a status has twice is unchanged if a write only spells out an implied value', () => {
  const conditions = (more: object) => ['True', 'False'].map((status) => ({ type: 'Ready', status, ...more }));
  const made = pods.update(undefined, { metadata: { name: 'p' } }, write('author'));
  const live = stored({
    ...made,
    spec: { containers: [] },
    status: { conditions: conditions({ lastProbeTime: null }) },
  });
  const owned = { ...live, metadata: { ...live.metadata, managedFields: [STATUS_OWNER] } };
  const next = { ...owned, spec: { hostname: 'h', containers: [] }, status: { conditions: conditions({}) } };
  const debug = entryOf(pods.update(owned, next, write('debug', 'ephemeralcontainers')), 'debug');
  assert.deepEqual(debug?.fieldsV1, { 'f:spec': { 'f:hostname': {} } });
});

test('the status endpoint owns no spec', () => {
  const live = stored(
    pods.update(
      undefined,
      { metadata: { name: 'p' }, spec: { containers: [{ name: 'c' }] }, status: {} },
      write('maker'),
    ),
  );
  const next = { ...live, spec: { nodeName: 'n', containers: [{ name: 'c' }] }, status: { phase: 'Running' } };
  const entry = entryOf(pods.update(live, next, write('agent', 'status')), 'agent');
  assert.deepEqual([entry?.subresource, entry?.fieldsV1], ['status', { 'f:status': { 'f:phase': {} } }]);
});

const STATUS_OWNER: ManagedFieldsEntry = {
  manager: 'agent',
  operation: 'Update',
  apiVersion: 'v1',
  fieldsType: 'FieldsV1',
  subresource: 'status',
  fieldsV1: { 'f:status': { 'f:conditions': { 'k:{"type":"Ready"}': {} } } },
};

const data = fc.dictionary(fc.constantFrom('a', 'b', 'c', 'd'), fc.constantFrom('1', '2'));

test('a forced apply always holds afterwards, and applying it again changes nothing', () => {
  fc.assert(
    fc.property(data, data, data, (before, first, second) => {
      const made = apply(update(undefined, 'maker', configMap(before)), 'one', configMap(first), true);
      const next = apply(made, 'two', configMap(second), true);
      const result = (next['data'] ?? {}) as Record<string, string>;
      for (const [key, value] of Object.entries(second)) assert.equal(result[key], value);
      assert.deepEqual(apply(next, 'two', configMap(second), true), next);
    }),
    { numRuns: 200 },
  );
});

test('a field that was edited since the client-side apply is a conflict for kubectl', () => {
  const annotation = 'kubectl.kubernetes.io/last-applied-configuration';
  const last = JSON.stringify({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'a' },
    data: { k: 'old', l: '1' },
  });
  const object = configMap({ k: 'old', l: '1' }, { annotations: { [annotation]: last } });
  const made = stored(configMaps.update(undefined, object, write('kubectl-client-side-apply')));
  const edited = { ...made, data: { k: 'edited', l: '1' } };
  const live = stored(configMaps.update(made, edited, write('kubectl-edit')));
  assert.throws(() => apply(live, 'kubectl', configMap({ k: 'new', l: '1' })), {
    code: 409,
    message: 'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.k',
  });
  const accepted = apply(live, 'kubectl', configMap({ k: 'edited', l: '2' }));
  assert.deepEqual(accepted['data'], { k: 'edited', l: '2' });
});

test('fields of another version are compared and removed in that version', () => {
  const structOf = (version: string) => {
    const struct = loadSchema().kind('autoscaling', version, 'HorizontalPodAutoscaler');
    assert(struct !== undefined);
    return struct;
  };
  const kind = 'HorizontalPodAutoscaler';
  const managementOf = (version: string, others: VersionLookup): FieldManagement =>
    createFieldManagement(
      clock,
      {
        group: 'autoscaling',
        version,
        kind,
        struct: structOf(version),
        reader: builtInReader,
        applyDefaults: undefined,
      },
      others,
    );
  const ones = managementOf('v1', () => undefined);
  const twos = managementOf('v2', (apiVersion) =>
    apiVersion === 'autoscaling/v1'
      ? {
          struct: structOf('v1'),
          convert: (object) => versionOne.fromStored(cloneJson(object)),
          restore: (object) => versionOne.toStored(cloneJson(object)),
        }
      : 'unknown',
  );
  const spec = { scaleTargetRef: { kind: 'Deployment', name: 'd', apiVersion: 'apps/v1' }, maxReplicas: 3 };
  const applied = (management: FieldManagement, live: KubeObject | undefined, version: string, body: object) =>
    management.apply(
      live,
      {
        type: 'apply',
        body: { apiVersion: `autoscaling/${version}`, kind, metadata: { name: 'h' }, ...body },
        duplicates: [],
        force: false,
      },
      { ...applyWrite(version), apiVersion: `autoscaling/${version}` },
    );
  const one = applied(ones, undefined, 'v1', { spec: { ...spec, targetCPUUtilizationPercentage: 40 } });
  const live = versionOne.toStored(cloneJson(stored(one)));
  const cpu = (averageUtilization: number): object => ({
    spec: {
      metrics: [{ type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization } } }],
    },
  });
  assert.throws(() => applied(twos, live, 'v2', cpu(60)), {
    code: 409,
    message: 'Apply failed with 1 conflict: conflict with "v1": .spec.targetCPUUtilizationPercentage',
  });
  assert.doesNotThrow(() => applied(twos, live, 'v2', cpu(40)));
  const sameManager = { ...applyWrite('v1'), apiVersion: 'autoscaling/v2' };
  const patch = { type: 'apply', body: { apiVersion: 'autoscaling/v2', kind, metadata: { name: 'h' }, spec } } as const;
  const without = twos.apply(live, { ...patch, duplicates: [], force: false }, sameManager);
  // The conversion from version 1 has metrics by default, so those of the object count as kept.
  assert.deepEqual(
    (without['spec'] as Record<string, unknown>)['metrics'],
    (cpu(40) as { spec: { metrics: unknown } }).spec.metrics,
  );
  assert.deepEqual(
    without.metadata.managedFields?.map(({ manager, apiVersion }) => [manager, apiVersion]),
    [['v1', 'autoscaling/v2']],
  );
  const entry = { manager: 'old', operation: 'Update', apiVersion: 'autoscaling/v2beta1', fieldsType: 'FieldsV1' };
  const known = { ...entry, manager: 'known', apiVersion: 'autoscaling/v2' };
  const fieldsV1 = { 'f:spec': { 'f:minReplicas': {} } };
  const managedFields = [entry, known].map((one) => ({ ...one, fieldsV1 }));
  const owned = { ...live, metadata: { ...live.metadata, managedFields } };
  const updated = twos.update(owned, owned, { ...write('known'), apiVersion: 'autoscaling/v2' });
  assert.deepEqual(
    updated.metadata.managedFields?.map(({ manager }) => manager),
    ['known'],
  );
});

test('the ownership of a Scale without an owner of the replicas is not tracked', () => {
  const deployments = createFieldManagement(clock, {
    group: 'apps',
    version: 'v1',
    kind: 'Deployment',
    struct: loadSchema().kind('apps', 'v1', 'Deployment') ?? assert.fail(),
    reader: builtInReader,
    applyDefaults: undefined,
  });
  const by = (manager: string, subresource = ''): ManagedWrite => ({
    ...write(manager, subresource),
    apiVersion: 'apps/v1',
  });
  const object = (spec: object): KubeObject => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'a' },
    spec,
  });
  const managersOf = (spec: object): string[] => {
    const live = stored(deployments.update(undefined, object(spec), by('maker')));
    const scaled = deployments.update(live, { ...live, spec: { ...spec, replicas: 3 } }, by('scaler', 'scale'));
    return (scaled.metadata.managedFields ?? []).map(({ manager }) => manager ?? '');
  };
  assert.deepEqual(managersOf({ paused: true }), ['maker']);
  assert.deepEqual(managersOf({ paused: true, replicas: 1 }), ['maker', 'scaler']);
});

test('an apply of kubectl that changes nothing else renews the annotation of the last apply', () => {
  const annotation = 'kubectl.kubernetes.io/last-applied-configuration';
  const made = update(undefined, 'kubectl-client-side-apply', {
    ...configMap({ k: 'v' }, { annotations: { [annotation]: '{"data":{"k":"old"}}' } }),
  });
  const applied = apply(made, 'kubectl', configMap({ k: 'v' }));
  assert.match(applied.metadata.annotations?.[annotation] ?? '', /"data":\{"k":"v"\}/);
});

test('an apply to an object without owners whose fields cannot be compared is refused', () => {
  const accounts = management('ServiceAccount');
  const live = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'a', uid: 'u' }, secrets: [{}] };
  const body = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'a' }, secrets: [{ name: 's' }] };
  const patch = { type: 'apply', body, duplicates: [], force: false } as const;
  const { message } = refusal(() => accounts.apply(live, patch, applyWrite('one')));
  assert.match(
    message,
    /^failed to create manager for existing fields: .*\/a; \/v1, Kind=ServiceAccount\) to smd typed: /,
  );
});

test('an update with an item that lacks its key leaves no managed fields', () => {
  const accounts = management('ServiceAccount');
  const object = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'a' }, secrets: [{ namespace: 'n' }] };
  assert.equal(accounts.update(undefined, object, write('one')).metadata.managedFields, undefined);
});
