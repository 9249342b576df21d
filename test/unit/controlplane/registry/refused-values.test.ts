/**
 * Tests texts and causes of refused values, through the registry. They are made in 'controlplane/registry/store-write.ts',
 * 'controlplane/registry/changed-metadata.ts', 'controlplane/registry/schemas/schema-checks.ts',
 * 'controlplane/registry/kinds/admissionregistration/webhook-client.ts',
 * 'controlplane/registry/kinds/apiregistration/apiregistration.ts', 'controlplane/registry/kinds/core/event-validation.ts',
 * 'controlplane/registry/kinds/apiextensions/definition-validation.ts', 'controlplane/registry/object-decoding.ts',
 * 'controlplane/registry/kinds/networking/network-policies.ts',
 * 'controlplane/registry/kinds/resource/device-slice-validation.ts', 'controlplane/registry/kinds/storage/storage-classes.ts'
 * and 'controlplane/registry/kinds/storage/volume-attachments.ts'.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { openFixture, type Fixture } from './registry-fixture.ts';

async function refusal(call: Promise<unknown>): Promise<string> {
  try {
    await call;
  } catch (error) {
    assert.ok(isStatusError(error));
    return error.status.message ?? '';
  }
  return '';
}

describe('a refused value', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  const create = (path: string, name: string, object: object): Promise<string> =>
    refusal(fixture.create(path, { metadata: { name }, ...object }));

  test('names the member of the service of an API that is missing', async () => {
    const spec = { group: 'a.example', version: 'v1', groupPriorityMinimum: 1, versionPriority: 1 };
    const text = await create('apiregistration.k8s.io/v1/apiservices', 'v1.a.example', {
      spec: { ...spec, insecureSkipTLSVerify: true, service: { namespace: 'n', port: 70_000 } },
    });
    assert.match(text, /\[spec\.service\.name: Required value, spec\.service\.port: Invalid value: 70000/);
  });

  test('is refused as an exception of a block even if it is empty', async () => {
    const spec = { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: '10.0.0.0/8', except: [null] } }] }] };
    const text = await create('networking.k8s.io/v1/networkpolicies', 'n', { spec });
    assert.match(text, /ipBlock\.except\[0\]: Invalid value: ""/);
  });

  test('is null if the terms of a slice are absent', async () => {
    const spec = { driver: 'd.example', nodeSelector: {}, pool: { name: 'p', generation: 1, resourceSliceCount: 1 } };
    const text = await create('resource.k8s.io/v1/resourceslices', 's', { spec });
    assert.match(text, /nodeSelectorTerms: Invalid value: null: must have exactly one node selector term/);
  });

  test('is first the change and then the new value of a class', async () => {
    const path = 'storage.k8s.io/v1/volumeattributesclasses';
    const made = await fixture.create(path, { metadata: { name: 'c' }, driverName: 'd', parameters: { a: 'b' } });
    const text = await refusal(fixture.update(path, { ...made, driverName: '' }));
    assert.match(text, /\[driverName: Forbidden: updates to driverName are forbidden\., driverName: Required value/);
  });

  test('shows the default type of a path of the host', async () => {
    const source = { inlineVolumeSpec: { hostPath: { path: '' } } };
    const path = 'storage.k8s.io/v1/volumeattachments';
    const volume = { persistentVolumeName: 'v' };
    const made = await fixture.create(path, {
      metadata: { name: 'v' },
      spec: { attacher: 'a', nodeName: 'n', source: volume },
    });
    const spec = { attacher: 'a', nodeName: 'n', source };
    assert.match(await refusal(fixture.update(path, { ...made, spec })), /"HostPath":\{"Path":"","Type":""\}/);
  });

  test('is a finalizer of an event of events.k8s.io only', async () => {
    const metadata = { name: 'e', namespace: 'default', finalizers: ['x'] };
    const core = { metadata, involvedObject: { namespace: 'default' } };
    assert.equal(await refusal(fixture.create('v1/events', core, 'default')), '');
    const event = {
      eventTime: '2024-01-01T00:00:00.000000Z',
      reportingController: 'a.example/b',
      action: 'a',
      type: 'Normal',
    };
    const other = { ...event, metadata: { ...metadata, name: 'f' }, reportingInstance: 'i', reason: 'r' };
    const text = await refusal(
      fixture.create('events.k8s.io/v1/events', { ...other, regarding: { namespace: 'default' } }, 'default'),
    );
    assert.match(text, /name is neither a standard finalizer name nor is it fully qualified/);
  });

  test('is a capacity with its resources in order', async () => {
    const spec = { capacity: { memory: '1', cpu: '2' }, accessModes: ['ReadWriteOnce'], hostPath: { path: '/x' } };
    const text = await create('v1/persistentvolumes', 'v', { spec });
    assert.match(text, /spec\.capacity: Unsupported value: \{"cpu":"2","memory":"1"\}/);
  });

  test('is in an event that errors name by the group of the path', async () => {
    assert.equal(await refusal(fixture.get('events.k8s.io/v1/events', 'x')), 'events.events.k8s.io "x" not found');
    assert.equal(await refusal(fixture.get('v1/events', 'x')), 'events "x" not found');
    const metadata = { name: 'twice', namespace: 'default' };
    const event = { metadata, involvedObject: { namespace: 'default' } };
    await fixture.create('v1/events', event, 'default');
    const { resourceVersion: _, ...served } = (await fixture.get('events.k8s.io/v1/events', 'twice')).metadata;
    const again = { metadata: { ...served, resourceVersion: '1' }, regarding: { namespace: 'default' } };
    const conflict = await refusal(fixture.update('events.k8s.io/v1/events', again, 'default'));
    assert.match(conflict, /^Operation cannot be fulfilled on events\.events\.k8s\.io "twice"/);
  });

  test('is no empty map of patterns in a schema', async () => {
    const openAPIV3Schema = { type: 'object', properties: { spec: { type: 'object', patternProperties: {} } } };
    const text = await create('apiextensions.k8s.io/v1/customresourcedefinitions', 'things.example.com', {
      spec: {
        group: 'example.com',
        scope: 'Namespaced',
        names: { kind: 'Thing', plural: 'things' },
        versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema } }],
      },
    });
    assert.equal(text, '');
  });

  test('of a patched object is the first in the text, in which what the patch visits is sorted', async () => {
    await fixture.create('v1/configmaps', { metadata: { name: 'sorted' } });
    const operations = ['name', 'annotations'].map((name) => ({ op: 'add', path: `/metadata/${name}`, value: [] }));
    const patch = { type: 'json', body: operations, duplicates: [] } as const;
    const text = await refusal(fixture.patch('v1/configmaps', 'sorted', patch));
    assert.match(text, /cannot unmarshal array into Go struct field ObjectMeta\.metadata\.annotations of type map/);
  });

  const PREFIXES: readonly [string, object, RegExp][] = [
    ['v1/events', { involvedObject: { namespace: 'default' } }, /^Event "" is invalid: metadata\.name: Required value/],
    [
      'events.k8s.io/v1/events',
      { metadata: { name: 'e', generateName: 'Bad_' }, regarding: { namespace: 'default' } },
      /^Event "e" is invalid: \[metadata\.generateName: Invalid value: "Bad_"/,
    ],
    [
      'apiregistration.k8s.io/v1/apiservices',
      { metadata: { name: 'v1.', generateName: 'gen-' }, spec: { version: 'v1' } },
      /^APIService\S* "v1\." is invalid: \[metadata\.generateName: Invalid value: "gen-": must be `spec\.version/,
    ],
    [
      'apiextensions.k8s.io/v1/customresourcedefinitions',
      { metadata: { generateName: 'a.b.', name: 'as.b.io' }, spec: { group: 'b.io', names: { plural: 'as' } } },
      /\[metadata\.generateName: Invalid value: "a\.b\.": a lowercase RFC.*metadata\.generateName: Invalid value: "a\.b\.": must be spec/,
    ],
    [
      'networking.k8s.io/v1/ipaddresses',
      { metadata: { generateName: 'gen-' } },
      /"gen-" is invalid: .*name: Invalid value: "gen-"/,
    ],
    [
      'resource.k8s.io/v1/deviceclasses',
      { metadata: { name: 'A', generateName: '_' } },
      /is invalid: metadata\.name: [^_]*$/,
    ],
    ['v1/replicationcontrollers', { metadata: { name: 'A', generateName: '_' } }, /is invalid: \[metadata\.name: /],
  ];
  for (const [path, object, message] of PREFIXES) {
    test(`is reported as a prefix or a name as the kind does: ${path} ${JSON.stringify(object)}`, async () => {
      assert.match(await refusal(fixture.create(path, { metadata: {}, ...object })), message);
    });
  }
});
