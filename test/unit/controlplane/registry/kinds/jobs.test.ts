import assert from 'node:assert/strict';
import { test } from 'node:test';
import { batchKinds } from '../../../../../controlplane/registry/kinds/batch/batch.ts';
import type { Job, JobStatus } from '../../../../../controlplane/registry/kinds/batch/job-types.ts';
import { jobStatusErrors } from '../../../../../controlplane/registry/kinds/batch/job-status.ts';
import { openFixture } from '../registry-fixture.ts';
import { rulesOf } from './strategy-fixture.ts';

const jobs = rulesOf(batchKinds, 'batch', 'jobs');
const cronJobs = rulesOf(batchKinds, 'batch', 'cronjobs');
const template = { spec: { restartPolicy: 'Never', containers: [{ name: 'c', image: 'i' }] } };
const errorsOf = (spec: object, name = 'j'): readonly string[] =>
  jobs.create({ metadata: { name, uid: 'u' }, spec: { template, ...spec } }).errors;

const SPECS: readonly (readonly [string, object, readonly string[]])[] = [
  ['a job as it is mostly written', {}, []],
  [
    'failed indexes are limited along with what an index may fail',
    { completionMode: 'Indexed', completions: 2, maxFailedIndexes: 1 },
    ['spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified'],
  ],
  [
    'with many indexes it is limited how many fail',
    { completionMode: 'Indexed', completions: 100_001, parallelism: 1, backoffLimitPerIndex: 1 },
    ['spec.maxFailedIndexes: Required value: must be specified when completions is above 100000'],
  ],
  [
    'a rule for failures does something',
    { podFailurePolicy: { rules: [{ onExitCodes: { values: [1] } }] } },
    [
      'spec.podFailurePolicy.rules[0].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
      'spec.podFailurePolicy.rules[0].onExitCodes.operator: Required value: valid values: ["In" "NotIn"]',
    ],
  ],
  [
    'a selector of the client beside the generated one finds no pods',
    { selector: { matchLabels: { a: 'b' } } },
    [
      'spec.selector: Invalid value: {"matchLabels":{"a":"b","batch.kubernetes.io/controller-uid":"u"}}: `selector` not auto-generated',
      'spec.template.metadata.labels: Invalid value: {"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"}: `selector` does not match template `labels`',
    ],
  ],
];

for (const [what, spec, errors] of SPECS) {
  test(`job: ${what}`, () => assert.deepEqual(errorsOf(spec), errors));
}

test('pods of an indexed job have names that hosts can have', () => {
  const name = 'x'.repeat(62);
  assert.deepEqual(errorsOf({ completionMode: 'Indexed', completions: 11 }, name), [
    `metadata.name: Invalid value: "${name}": will not able to create pod with invalid DNS label: ${name}-10`,
  ]);
});

const START = '2024-01-01T00:00:00Z';
const END = '2024-01-01T00:01:00Z';
const holds = (...types: string[]): object => ({ conditions: types.map((type) => ({ type, status: 'True' })) });

function statusErrors(now: object, before: object = {}, spec: object = {}): string[] {
  const job = (status: object): Job => ({ metadata: { name: 'j' }, spec, status: status as JobStatus });
  return jobStatusErrors(job(now), job(before)).map(String);
}

const STATUSES: readonly (readonly [string, object, object, readonly string[]])[] = [
  [
    'completes with a time and its criteria',
    { ...holds('Complete', 'SuccessCriteriaMet'), startTime: START, completionTime: END },
    {},
    [],
  ],
  [
    'does not complete without them',
    holds('Complete'),
    {},
    [
      'status.completionTime: Required value: completionTime is required for Complete jobs',
      'status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition',
      'status.startTime: Required value: startTime is required for finished job',
    ],
  ],
  [
    'does not fail out of the blue, nor with pods that run',
    { ...holds('Failed'), startTime: START, active: 1 },
    {},
    [
      'status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition',
      'status.active: Invalid value: 1: active>0 is invalid for finished job',
    ],
  ],
  [
    'stays as it ended',
    { startTime: START },
    { ...holds('Failed', 'FailureTarget'), startTime: START },
    [
      'status.conditions: Invalid value: cannot disable the terminal Failed=True condition',
      'status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition',
    ],
  ],
  [
    'keeps the time of its start while it runs',
    { startTime: END },
    { startTime: START },
    ['status.startTime: Invalid value: "2024-01-01T00:01:00Z": field is immutable for unsuspended job once set'],
  ],
  [
    'does not lose the time of its start while it runs',
    {},
    { startTime: START },
    ['status.startTime: Invalid value: null: field is immutable for unsuspended job once set'],
  ],
  [
    'gets a new start when it resumes',
    { startTime: END, conditions: [{ type: 'Suspended', status: 'False' }] },
    { ...holds('Suspended'), startTime: START },
    [],
  ],
  [
    'has no indexes if it is not indexed',
    { completedIndexes: '1' },
    {},
    [
      'status.completedIndexes: Invalid value: "1": cannot set non-empty completedIndexes when non-indexed completion mode',
    ],
  ],
];

for (const [what, now, before, errors] of STATUSES) {
  test(`the status of a job: ${what}`, () => assert.deepEqual(statusErrors(now, before), errors));
}

test('an index does not fail and complete', () => {
  const spec = { completionMode: 'Indexed', completions: 9, parallelism: 9, backoffLimitPerIndex: 1 };
  assert.deepEqual(statusErrors({ completedIndexes: '0-3,5', failedIndexes: '4-5' }, {}, spec), [
    'status.failedIndexes: Invalid value: "4-5": failedIndexes and completedIndexes overlap at index: 5',
  ]);
});

test('a zone in a schedule is left to those that had it', () => {
  const spec = { schedule: 'TZ=UTC 0 0 * * *', jobTemplate: { spec: { template } } };
  const refused = 'cannot use TZ or CRON_TZ in schedule, use timeZone field instead';
  assert.deepEqual(cronJobs.create({ spec }).errors, [`spec.schedule: Invalid value: "TZ=UTC 0 0 * * *": ${refused}`]);
  const { errors, warnings } = cronJobs.update({ spec }, { spec: { ...spec, suspend: true } });
  assert.deepEqual(errors, []);
  assert.match(warnings[0] ?? '', /^cannot use TZ or CRON_TZ in spec\.spec\.schedule/);
});

test('names of time zones are case-sensitive', () => {
  const spec = { schedule: '@daily', timeZone: 'america/new_york', jobTemplate: { spec: { template } } };
  assert.deepEqual(cronJobs.create({ spec }).errors, [
    'spec.timeZone: Invalid value: "america/new_york": unknown time zone america/new_york',
  ]);
  assert.deepEqual(cronJobs.create({ spec: { ...spec, timeZone: 'America/New_York' } }).errors, []);
});

test('a job without labels gets the labels of its template, the generated ones too; a job with labels keeps its own', async () => {
  const fixture = await openFixture();
  try {
    const labelled = { ...template, metadata: { labels: { app: 'a' } } };
    const create = async (name: string, labels?: object): Promise<string[]> => {
      const metadata = { name, namespace: 'default', ...(labels === undefined ? {} : { labels }) };
      const made = await fixture.create('batch/v1/jobs', {
        apiVersion: 'batch/v1',
        kind: 'Job',
        metadata,
        spec: { template: labelled },
      });
      return Object.keys(made.metadata.labels ?? {}).sort();
    };
    const generated = [
      'batch.kubernetes.io/controller-uid',
      'batch.kubernetes.io/job-name',
      'controller-uid',
      'job-name',
    ];
    assert.deepEqual(await create('plain'), ['app', ...generated].sort());
    assert.deepEqual(await create('own', { app: 'a' }), ['app']);
  } finally {
    await fixture.close();
  }
});

test('a job with a generated name takes the labels of the template without those that a job adds', async () => {
  const fixture = await openFixture();
  try {
    const labelled = { ...template, metadata: { labels: { app: 'a' } } };
    const create = (metadata: object) => fixture.create('batch/v1/jobs', { metadata, spec: { template: labelled } });
    assert.deepEqual((await create({ generateName: 'gen-' })).metadata.labels, { app: 'a' });
    assert.equal((await create({ name: 'named' })).metadata.labels?.['job-name'], 'named');
  } finally {
    await fixture.close();
  }
});
