/** Tests details of validation that kube-apiserver 1.36 has and that are easily missed, by kind. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { batchKinds } from '../../../../../controlplane/registry/kinds/batch/batch.ts';
import { nodeObjectKinds } from '../../../../../controlplane/registry/kinds/core/nodes.ts';
import { claimKinds } from '../../../../../controlplane/registry/kinds/core/persistent-volume-claims.ts';
import { networkingKinds } from '../../../../../controlplane/registry/kinds/networking/networking.ts';
import { storageKinds } from '../../../../../controlplane/registry/kinds/storage/storage.ts';
import { rulesOf } from './strategy-fixture.ts';

const jobs = rulesOf(batchKinds, 'batch', 'jobs');
const cronJobs = rulesOf(batchKinds, 'batch', 'cronjobs');
const nodes = rulesOf(nodeObjectKinds, '', 'nodes');
const claims = rulesOf(claimKinds, '', 'persistentvolumeclaims');
const claimStatus = rulesOf(claimKinds, '', 'persistentvolumeclaims', 'status');
const ranges = rulesOf(networkingKinds, 'networking.k8s.io', 'servicecidrs');
const drivers = rulesOf(storageKinds, 'storage.k8s.io', 'csidrivers');

const podSpec = { restartPolicy: 'Never', containers: [{ name: 'c', image: 'i' }] };

describe('a schedule', () => {
  const cases: readonly (readonly [string, string | undefined])[] = [
    ['@every 1h30m', undefined],
    ['@every -1s', undefined],
    ['@every abc', 'failed to parse duration @every abc: time: invalid duration "abc"'],
    ['@every 5', 'failed to parse duration @every 5: time: missing unit in duration "5"'],
    ['@every 1h 2m', 'failed to parse duration @every 1h 2m: time: unknown unit "h " in duration "1h 2m"'],
    ['@EVERY 1h', 'unrecognized descriptor: @EVERY 1h'],
    ['  ', 'expected exactly 5 fields, found 0: []'],
    ['+1,,2, * * * *', undefined],
    ['*-1-2 * * * *', undefined],
    ['a-2-3 * * * *', 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'],
    ['9-1/0 * * * *', 'beginning of range (9) beyond end of range (1): 9-1/0'],
    [
      '0/99999999999999999999 * * * *',
      'failed to parse int from 99999999999999999999: strconv.Atoi: parsing "99999999999999999999": value out of range',
    ],
  ];
  for (const [schedule, fault] of cases) {
    test(`"${schedule}" is ${fault === undefined ? 'accepted' : 'refused'}`, () => {
      const { errors } = cronJobs.create({
        spec: { schedule, jobTemplate: { spec: { template: { spec: podSpec } } } },
      });
      assert.deepEqual(
        errors,
        fault === undefined ? [] : [`spec.schedule: Invalid value: ${JSON.stringify(schedule)}: ${fault}`],
      );
    });
  }
  test('has an explicit time zone', () => {
    const zoned = (timeZone: string): readonly string[] =>
      cronJobs.create({
        spec: { schedule: '* * * * *', timeZone, jobTemplate: { spec: { template: { spec: podSpec } } } },
      }).errors;
    const text = 'timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones';
    assert.deepEqual(zoned('Local'), [`spec.timeZone: Invalid value: "Local": ${text}`]);
    assert.deepEqual(zoned('local'), [
      `spec.timeZone: Invalid value: "local": ${text}`,
      'spec.timeZone: Invalid value: "local": unknown time zone local',
    ]);
  });
});

describe('the template of a suspended job', () => {
  const started = { startTime: '2026-01-01T00:00:00Z' };
  const suspended = { conditions: [{ type: 'Suspended', status: 'True' }] };
  const changes = (status: object, change: object): readonly string[] => {
    const metadata = { name: 'j', uid: 'u', labels: { a: 'b' } };
    const spec = { suspend: true, manualSelector: true, selector: { matchLabels: { a: 'b' } } };
    const template = (more: object): object => ({ metadata: { labels: { a: 'b' } }, spec: { ...podSpec, ...more } });
    return jobs
      .update(
        { metadata, spec: { ...spec, template: template({}) }, status },
        { metadata, spec: { ...spec, template: template(change) } },
      )
      .errors.map((error) => error.slice(0, error.indexOf(':')));
  };
  const resources = { containers: [{ name: 'c', image: 'i', resources: { requests: { cpu: '4' } } }] };
  test('may change its node selector and resources before the job starts', () => {
    assert.deepEqual(changes({}, { nodeSelector: { zone: 'a' } }), []);
    assert.deepEqual(changes({}, resources), []);
  });
  test('may change again once the job reports that it is suspended', () => {
    assert.deepEqual(changes(started, resources), ['spec.template']);
    assert.deepEqual(changes({ ...started, ...suspended }, resources), []);
  });
  test('is fixed while a pod is active', () => {
    assert.deepEqual(changes({ ...started, ...suspended, active: 1 }, { nodeSelector: { zone: 'a' } }), [
      'spec.template',
    ]);
  });
});

describe('a node', () => {
  test('declares features by name and in order', () => {
    const form =
      "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";
    assert.deepEqual(nodes.create({ status: { declaredFeatures: ['A', 'B/c', 'a', 'C', 'C'] } }).errors, [
      `status.declaredFeatures[2]: Invalid value: "a": invalid feature name "a": ${form}`,
      'status.declaredFeatures[3]: Invalid value: "C": list must be sorted alphabetically',
      'status.declaredFeatures[4]: Duplicate value: "C"',
    ]);
  });
  test('has a positive capacity of swap', () => {
    assert.deepEqual(nodes.create({ status: { nodeInfo: { swap: { capacity: 0 } } } }).errors, [
      'metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero',
    ]);
  });
});

describe('a claim', () => {
  const spec = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } };
  const bound = { phase: 'Bound', capacity: { storage: '1Gi' } };
  test('that is bound may lose an attributes class that was never applied', () => {
    const before = { spec: { ...spec, volumeAttributesClassName: 'gold' }, status: bound };
    assert.deepEqual(claims.update(before, { spec }).errors, []);
  });
  test('that is bound keeps an attributes class that was applied', () => {
    const before = {
      spec: { ...spec, volumeAttributesClassName: 'gold' },
      status: { ...bound, currentVolumeAttributesClassName: 'gold' },
    };
    const refused = (to: string): string[] => [
      `spec.volumeAttributesClassName: Forbidden: update to ${to} is forbidden when status.currentVolumeAttributesClassName is not nil`,
    ];
    assert.deepEqual(claims.update(before, { spec }).errors, refused('nil'));
    const empty = { spec: { ...spec, volumeAttributesClassName: '' } };
    assert.deepEqual(claims.update(before, empty).errors, refused('empty string'));
  });
  test('that loses its size becomes smaller', () => {
    const { errors } = claims.update({ spec, status: bound }, { spec: { ...spec, resources: {} } });
    assert.equal(errors[0], 'spec.resources[storage]: Required value');
    assert.equal(
      errors.at(-1),
      'spec.resources.requests.storage: Forbidden: field can not be less than status.capacity',
    );
  });
  test('allocates storage only, of which the amount is validated', () => {
    const status = { ...bound, allocatedResources: { cpu: '-1' } };
    assert.deepEqual(claimStatus.update({ spec }, { spec, status }).errors, [
      'status.allocatedResources: Unsupported value: "cpu": supported values: "storage"',
    ]);
  });
});

test('two CIDRs of a service range of which one is malformed are not compared', () => {
  assert.deepEqual(ranges.create({ spec: { cidrs: ['bad', '10.0.0.0/8'] } }).errors, [
    'spec.cidrs[0]: Invalid value: "bad": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)',
  ]);
});

test('a CSI driver without token requests has no place for tokens', () => {
  assert.deepEqual(drivers.create({ spec: { serviceAccountTokenInSecrets: false } }).errors, [
    'spec.serviceAccountTokenInSecrets: Invalid value: false: serviceAccountTokenInSecrets is set but no tokenRequests are specified',
  ]);
});
